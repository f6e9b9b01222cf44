"""What rows 1 and 2 and the footer say, from the controller's state. Knows no widgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard, TypeVar

from ds4tui.controller import Controller
from ds4tui.link import READING_TRACE
from ds4tui.matrix_view import progress_of
from ds4tui.paint.bars import Shown
from ds4tui.paint.panes import LOAD_STEPS, LoadStep
from ds4tui.pair import PairRecord
from ds4tui.run_record import RunRecord
from ds4tui.run_state import RunState
from ds4tui.spans import crop, text_of
from ds4tui.visible import drawable_line
from engine.settings import Knobs

Number = TypeVar("Number", int, float)


def _plays(controller: Controller) -> bool:
    """Recorded events are being played: slow motion, or a trace that has not come to its end."""
    player = controller.player
    return controller.playback is not None or (player is not None and not player.is_over)


def load_steps(controller: Controller) -> list[LoadStep]:
    """Steps of loading that have begun, in the engine's order; the prompt's prefill last."""
    steps = [step for step in controller.steps.values() if step.stage != "prefill"]
    prefill = controller.steps.get("prefill")
    return [*steps, prefill] if prefill is not None else steps


def state_text(controller: Controller) -> str:
    """The state for row 1: `LOADING 2/4`, `RUN #171`, `DONE 1.9 s`, of a suite `RUNNING 3/20`."""
    record = controller.record
    player = controller.player
    if player is not None and _plays(controller):
        pause = "PAUSED " if player.is_paused else ""
        return f"{pause}REPLAY {_factor(player.speed)}x"
    suite = controller.running_suite
    if suite is not None and controller.state.is_busy:
        done, total = sum(run.finished is not None for run in suite.runs), suite.started.runs
        if suite.has_report:
            progress = progress_of(suite)
            done, total = progress.done, progress.total
        word = "PAUSED" if controller.state is RunState.PAUSED else "RUNNING"
        return f"{word} {done}/{total}"
    trace = controller.steps.get(READING_TRACE)
    match controller.state:
        case RunState.LOADING if trace is not None:
            return f"READ {100 * trace.done // max(1, trace.total)}%"
        case RunState.LOADING:
            begun = len([s for s in controller.steps.values() if s.stage != "prefill"])
            return f"LOADING {begun}/{LOAD_STEPS}" if begun else "LOADING"
        case RunState.PREFILL:
            step = controller.steps.get("prefill")
            return f"PREFILL {step.done}/{step.total}" if step and step.total else "PREFILL"
        case RunState.DECODING:
            return f"RUN #{_newest(controller.newest)}"
        case RunState.PAUSED:
            return f"PAUSED #{_newest(controller.newest)}"
        case RunState.DONE:
            return f"DONE {_seconds(record)}"
        case RunState.CANCELLED:
            return f"STOPPED #{_newest(record)}"
        case RunState.FAILED:
            return "FAILED"
        case _:
            return "READY"


def _newest(record: RunRecord | None) -> int:
    counts = [len(arm.ids) for arm in record.arms] if record else []
    return max(0, max(counts, default=0) - 1)


def _factor(value: float) -> str:
    return f"{value:.2f}" if value < 0.95 else f"{value:.1f}"


def _seconds(record: RunRecord | None) -> str:
    if record is None or record.started is None or record.finished is None:
        return ""
    seconds = (record.finished.t_ns - record.started.t_ns) / 1e9
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"


def prompt_text(controller: Controller) -> str:
    """The prompt of the run shown, on one line."""
    record = controller.record
    started = record.started if record else None
    text = drawable_line(started.prompt if started else controller.prompt.text)
    return f"(after {started.cached} ids) {text}" if started and started.cached else text


NO_SETTINGS = Shown(("", None), ("", None), (None, None), (None, None), 0, words=" ")
"""Of a trace that has not told of a run yet."""


def shown_settings(controller: Controller, model: str) -> Shown:
    """Settings of the run shown, and what was turned since."""
    record, wanted = controller.record, controller.wanted
    if record is None and READING_TRACE in controller.steps:
        return NO_SETTINGS
    settings = controller.settings
    now = controller.now
    numerics = record.plain.info.numerics if record and record.plain else settings.numerics
    beside = record.beside if record is not None else None
    knobs = now if record is not None and record.arms else wanted
    after = wanted if controller.choices.policies else None
    base_gate = controller.default_confidence

    def gate(knobs: Knobs | None) -> float | None:
        if not _drafts(knobs):
            return None
        return base_gate if knobs.confidence is None else knobs.confidence

    def block(knobs: Knobs | None, whole: int) -> int | None:
        if not _drafts(knobs):
            return None
        return (whole or None) if knobs.draft_max is None else knobs.draft_max

    # An arm without knobs is plain's control or recorded; its name is in its title and in row 3.
    word = beside.info.kind if beside is not None else "plain only"
    policy: tuple[str, str | None] = (knobs.commit if knobs else word, None)
    if after is not None and after.commit != policy[0]:
        policy = (policy[0], after.commit)
    confidence = _pair(gate(knobs), None)
    own = controller.block_size
    if record is not None and record.started is not None and beside is not None:
        own = record.started.block_of(beside.info)
    lengths = _pair(block(knobs, own), None)
    if after is not None and now is not None:
        confidence = _pair(gate(now), gate(after))
        lengths = _pair(block(now, own), block(after, controller.block_size))
    other = settings.numerics if controller.choices.numerics else numerics
    return Shown(
        numerics=(numerics, other if other != numerics else None),
        policy=policy,
        confidence=confidence,
        block=lengths,
        max_tokens=record.started.max_tokens if record and record.started else settings.max_tokens,
        model=_model(controller, model),
        flags=_flags(controller),
        words=_of_pair(record) if isinstance(record, PairRecord) else "",
    )


def _drafts(knobs: Knobs | None) -> TypeGuard[Knobs]:
    """There is an arm that drafts: `strict` has neither a threshold nor blocks."""
    return knobs is not None and knobs.commit != "strict"


def _of_pair(pair: PairRecord) -> str:
    """`split · direct | replay`, `split direct | invariant prefix`: no knob turns in such a run."""
    left, right = (arm.info.numerics for arm in pair.arms)
    if left == right:
        return f"{left} · {pair.names[0]} | {pair.names[1]}"
    both = zip((left, right), pair.names, strict=True)
    return " | ".join(name if of in name else f"{of} {name}" for of, name in both)


def _pair(now: Number | None, wanted: Number | None) -> tuple[Number | None, Number | None]:
    return (now, wanted if wanted is not None and wanted != now else None)


def _model(controller: Controller, name: str) -> str:
    record = controller.record
    files = record.started.files if record and record.started else ()
    if not files and controller.ready is not None:
        files = controller.ready.files
    target = next((file for file in files if file.role == "target"), None)
    if target is None:
        return name
    return f"{name or drawable_line(target.name)[:16]} {millions(target.parameters)}"


def millions(parameters: int) -> str:
    """A number of parameters: `21M`, `284B`."""
    return f"{parameters / 1e9:.0f}B" if parameters >= 10**9 else f"{parameters / 1e6:.0f}M"


def _flags(controller: Controller) -> tuple[str, ...]:
    settings = controller.record.settings if controller.record else {}
    prompt = controller.prompt
    if settings:
        chat = settings.get("chat", "true") == "true"
        think = settings.get("think") == "true"
        system = settings.get("system", "") not in ("", "none")
        control = settings.get("control_tokens") == "true"
    else:
        chat, think = prompt.chat, prompt.think
        system, control = bool(prompt.system), prompt.control_tokens
    flags = ((not chat, "raw"), (think, "think"), (system, "system"), (control, "control tokens"))
    return tuple(name for on, name in flags if on)


def footer_entries(
    controller: Controller, keys: Mapping[str, str], can: Callable[[str], bool]
) -> list[tuple[str, str, str]]:
    """(key, label, action id) by importance for the state; only what can act.

    Args:
        keys: the key of each action id, as it is bound now.
        can: says whether an action can act now.
    """
    return entries_of(_wanted_keys(controller), controller, keys, can)


def entries_of(
    ids: Sequence[str],
    controller: Controller,
    keys: Mapping[str, str],
    can: Callable[[str], bool],
    names: Mapping[str, str] | None = None,
) -> list[tuple[str, str, str]]:
    """(key, label, action id) of those ids that can act.

    Args:
        ids: of bindings; two in one string are shown together and act as the second one.
        names: labels that go before the run's own.
    """
    labels = _labels(controller) | dict(names or {})
    out = []
    for joint in ids:
        both = joint.split(" ")
        if both[-1] in keys and can(both[-1]):
            shown = " ".join(keys.get(name, "") for name in both)
            out.append((shown, labels.get(both[-1], both[-1]), both[-1]))
    return out


PROMPTS = "previous_prompt next_prompt"
"""Entry of the footer for the two keys that go through a set."""


def _wanted_keys(controller: Controller) -> list[str]:
    record = controller.record
    parted = record is not None and record.is_other_work
    if _plays(controller):
        time = ["pause", "slower faster", "step_back step"]
        return [*time, "divergence", "other_arm", "escape", "seek", "copy", "help"]
    match controller.state:
        case RunState.PREFILL | RunState.DECODING | RunState.PAUSED:
            knobs = ["policy", "confidence", "block", "numerics"]
            look = ("divergence", "other_arm")
            return ["pause", "escape", *look, *knobs, "rejected", "prompt", "help"]
        case RunState.LOADING:
            return ["prompt", "numerics", "policy", "theme", "quit", "help"]
        case RunState.FAILED:
            return ["run", "prompt", "copy", "quit", "help"]
        case _ if parted:
            return [
                *("run", "numerics", "policy", "divergence", "other_arm", "prompt"),
                *("token", "rejected", PROMPTS, "slow", "drift", "copy", "help"),
            ]
        case _:
            return [
                *("run", "all_cells", "other_arm", PROMPTS, "prompt", "numerics", "policy"),
                *("slow", "token", "rejected", "confidence", "copy", "help"),
            ]


PROMPT_CELLS = 16
"""Of a prompt in a label."""


def _other_prompt(controller: Controller) -> list[str]:
    """The prompt that a run would be of, when another one is shown; else nothing."""
    record, text = controller.record, drawable_line(controller.prompt.text)
    shown = record.started.prompt if record is not None and record.started is not None else ""
    if not shown or not text or shown == controller.prompt.text or not controller.choices.numerics:
        return []
    return [f'"{text_of(crop([(text, "")], PROMPT_CELLS, "…"))}"']


def _labels(controller: Controller) -> dict[str, str]:
    done = controller.state in (RunState.DONE, RunState.CANCELLED) and controller.playback is None
    verb = "Try " if done else ""
    policy, numerics = controller.next_policy(), controller.next_numerics()
    shown = shown_settings(controller, "")
    turned = [pair[1] for pair in (shown.numerics, shown.policy) if pair[1] is not None]
    run = "Retry" if controller.state is RunState.FAILED else "Run"
    if not controller.choices.numerics:
        run = "Play again"
    paused = controller.state is RunState.PAUSED or (
        controller.player is not None and controller.player.is_paused
    )
    return {
        "run": " ".join([run, *turned, *_other_prompt(controller)]),
        "numerics": f"{verb}{numerics}" if numerics else "Numerics",
        "policy": f"{verb}{policy}" if policy else "Policy",
        "all_cells": "All cells",
        "confidence": "Confidence",
        "block": "Block",
        "divergence": "Divergence",
        "drift": "First drift",
        "other_arm": "Other arm",
        "token": "Token",
        "rejected": "Rejected",
        "prompt": "Prompt",
        "slow": "Slow",
        "copy": "Copy",
        "theme": "Theme",
        "maximise": "Maximise",
        "next_prompt": "Prompts",
        "next_pane": "Box",
        "faster": "Speed",
        "step": "Cycle",
        "pause": "Resume" if paused else "Pause",
        "escape": "End" if controller.player is not None else "Stop",
        "seek": "Index",
        "quit": "Quit",
        "help": "Help",
    }
