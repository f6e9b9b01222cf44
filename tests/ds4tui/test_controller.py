"""The run state machine, the knobs and slow motion, without widgets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4tui.controller import Controller
from ds4tui.knobs_now import NO_CHOICES
from ds4tui.marks import UNICODE
from ds4tui.paint.bars import prompt_row
from ds4tui.pair import PairRecord
from ds4tui.run_state import RunState
from ds4tui.spans import text_of
from ds4tui.status import footer_entries, prompt_text, shown_settings, state_text
from ds4tui.suite_requests import matrix_of_prompt
from ds4tui.sweep_sheet import SweepSheet
from engine.errors import Ds4Error
from engine.events import (
    ArmFinished,
    Event,
    LoadProgress,
    Notice,
    PromptRendered,
    RunFailed,
    RunFinished,
    RunStarted,
    SettingsChanged,
    SuiteStarted,
)
from engine.paths import Perturb
from engine.process import Cancel, Pause, Render, Resume, Run, Stop, Turn
from engine.settings import Knobs, Prompt, Settings
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, Clock, FakeLink, make_controller
from tests.engine.races import engine
from tests.engine.races import run as race
from tests.engine.scripted import ScriptedDrafter, ScriptedModel, continuation, path_script


def started(*runs: list[Event], **options: object) -> tuple[Controller, FakeLink]:
    link = FakeLink((READY,), *runs)
    controller = make_controller(link=link, **options)  # type: ignore[arg-type]
    controller.start()
    controller.drain()
    return controller, link


def test_a_prompt_runs_as_soon_as_the_engine_is_ready() -> None:
    controller, link = started(streams.diverged_run())
    assert [type(c) for c in link.commands] == [Run]
    assert controller.state is RunState.PREFILL
    changes = controller.drain()
    assert changes.record
    assert changes.parted
    assert changes.ended
    assert controller.state is RunState.DONE
    assert controller.record is not None
    assert len(controller.record.arms[0].ids) == 400


def test_without_a_prompt_nothing_runs() -> None:
    controller, link = started(prompt=None)
    assert link.commands == []
    assert controller.state is RunState.IDLE


def test_loading_steps_are_counted() -> None:
    link = FakeLink(streams.load_steps()[:12])
    controller = make_controller(link=link)
    controller.start()
    assert state_text(controller) == "LOADING"
    controller.drain()
    assert state_text(controller) == "LOADING 3/3"
    assert controller.steps["compiling kernels"].total == 23


def test_states_of_row_1() -> None:
    events = streams.diverged_run()
    controller, link = started(streams.until(events, 171))
    controller.drain()
    assert state_text(controller).startswith("RUN #17")
    controller.pause()
    assert state_text(controller).startswith("PAUSED #17")
    controller.pause()
    controller.stop()
    assert [type(c) for c in link.commands] == [Run, Pause, Resume, Stop]
    link.waiting += [ArmFinished("run-1", arm, 0, "stop", 172) for arm in (0, 1)]
    link.waiting += [RunFinished("run-1", -1, 0, None, "stopped")]
    controller.drain()
    assert controller.state is RunState.CANCELLED
    assert state_text(controller).startswith("STOPPED #17")


def test_prefill_progress() -> None:
    events = streams.diverged_run()
    at = next(n for n, e in enumerate(events) if isinstance(e, LoadProgress))
    controller, _ = started(events[: at + 2])
    controller.drain()
    assert state_text(controller) == "PREFILL 9/18"


def test_a_new_run_drops_the_old_one_and_its_last_words() -> None:
    first = streams.diverged_run()
    second = streams.identical_run()
    controller, link = started(first[:200], second)
    controller.drain()
    controller.run(Prompt("another"))
    assert [type(c) for c in link.commands] == [Run, Cancel, Run]
    link.waiting = [*first[200:210], *second[:300], *first[210:], *second[300:]]
    controller.drain()
    assert controller.record is not None
    assert controller.record.started is not None
    assert controller.record.started.run_id == "run-2"
    assert controller.state is RunState.DONE


def test_a_run_that_is_refused_keeps_the_text() -> None:
    controller, link = started(streams.diverged_run())
    controller.drain()
    controller.run(Prompt("x" * 100_000))
    link.waiting += [RunFailed("run-9", -1, 0, "Prompt too long", "It has 25,000 tokens.", "Cut.")]
    changes = controller.drain()
    assert changes.ended
    assert controller.state is RunState.FAILED
    assert controller.failure is not None
    assert controller.record is not None
    assert len(controller.record.arms[0].ids) == 400
    controller.run(Prompt("short"))
    assert controller.failure is None
    assert isinstance(link.commands[-1], Run)


def test_a_dead_engine_is_started_again_by_the_next_run() -> None:
    controller, link = started(streams.failed_run(), streams.identical_run())
    link.greeting = [READY]
    controller.drain()
    link.is_alive = False
    assert controller.state is RunState.FAILED
    assert controller.record is not None
    assert len(controller.record.arms[0].ids) > 200
    controller.run()
    assert link.is_alive
    assert controller.state is RunState.LOADING
    controller.drain()
    controller.drain()
    assert controller.state is RunState.DONE


def test_death_between_runs_leaves_the_verdict() -> None:
    controller, link = started(streams.identical_run())
    controller.drain()
    link.waiting += [RunFailed("", -1, 0, "Engine process ended", "Signal 9.", "")]
    link.is_alive = False
    changes = controller.drain()
    assert controller.failure is None
    assert changes.notices == [("error", "Signal 9.")]
    assert controller.record is not None
    assert controller.record.finished is not None


def test_failure_while_loading_is_shown() -> None:
    failure = RunFailed("", -1, 0, "File not found", "x.gguf does not exist.", "")
    link = FakeLink((failure,))
    controller = make_controller(link=link)
    controller.start()
    controller.drain()
    assert controller.state is RunState.FAILED
    assert controller.failure is failure


def test_knobs_wait_for_the_next_run() -> None:
    controller, link = started(streams.diverged_run(), streams.identical_run())
    controller.drain()
    controller.turn("policy", 1)
    controller.turn("numerics", 1)
    controller.turn("confidence", -1)
    controller.turn("block", -1)
    assert [type(c) for c in link.commands] == [Run]
    shown = shown_settings(controller, "")
    assert shown.policy == ("direct", "prefix")
    assert shown.numerics == ("split", "invariant")
    assert shown.confidence == (0.9, 0.8)
    assert shown.block == (5, 4)
    controller.run()
    last = link.commands[-1]
    assert isinstance(last, Run)
    assert last.request.settings.numerics == "invariant"
    assert last.request.settings.dspark[0].commit == "prefix"
    controller.drain()
    assert shown_settings(controller, "").policy == ("prefix", None)


def test_knobs_act_on_a_running_run_and_wait_for_the_engine() -> None:
    controller, link = started(streams.until(streams.diverged_run(), 50))
    controller.drain()
    controller.turn("policy", 1)
    last = link.commands[-1]
    assert isinstance(last, Turn)
    assert (last.arm, last.knobs.commit) == (1, "prefix")
    assert shown_settings(controller, "").policy == ("direct", "prefix")
    link.waiting += [SettingsChanged("run-1", 1, 0, 20, (("commit", "prefix"),))]
    controller.drain()
    assert shown_settings(controller, "").policy == ("prefix", None)


def test_knobs_are_of_the_arm_that_is_shown() -> None:
    script = path_script(list(range(2, 31)) * 5, 13)
    drafters = [ScriptedDrafter(continuation(script, n), lambda _: [1.0] * 9, n) for n in (5, 9)]
    wanted = (
        Knobs("direct", mtp="drafter.gguf"),
        Knobs("prefix", 0.3, 3, "drafter.gguf"),
        Knobs("prefix", None, None, "drafter1.gguf"),
    )
    made = engine(ScriptedModel(script), *drafters)
    made._parts = replace(made._parts, gates={"drafter.gguf": 0.0, "drafter1.gguf": 0.5})
    events = race(made, *wanted, max_tokens=60).events
    link = FakeLink((made.ready(),), events[: len(events) // 2])
    controller = make_controller(link=link, settings=Settings(dspark=wanted))
    controller.start()
    controller.drain()
    controller.drain()
    record = controller.record
    assert record is not None
    seen = []
    for arm in (1, 2, 3):
        record.choose(arm)
        shown = shown_settings(controller, "")
        seen.append((shown.policy, shown.confidence, shown.block))
    assert seen == [
        (("direct", None), (0.0, None), (5, None)),
        (("prefix", None), (0.3, None), (3, None)),
        (("prefix", None), (0.5, None), (9, None)),
    ]
    controller.turn("block", -1)
    assert [knobs.draft_max for knobs in controller.settings.dspark] == [None, 3, 8]
    last = link.commands[-1]
    assert isinstance(last, Turn)
    assert (last.arm, last.knobs.draft_max) == (3, 8)
    # A sweep's runs have other arms, and may have as many of them.
    request = SweepSheet(controller).request(controller.prompts[:1], 1, "")
    assert [knobs.mtp for knobs in request.settings.dspark] == ["drafter1.gguf"]
    link.waiting += events[len(events) // 2 :]
    controller.drain()
    controller.run_suite(request)
    swept = (
        replace(e, suite_id="s", run_id="r") if isinstance(e, RunStarted) else e for e in events
    )
    link.waiting += [SuiteStarted("", -1, 0, "s", "sweep", ("0",)), *swept]
    controller.drain()
    assert controller.wanted == controller.settings.dspark[2]


@pytest.mark.parametrize(("knob", "step"), [("confidence", 1), ("block", 1), ("block", -1)])
def test_knobs_stop_at_their_ends(knob: str, step: int) -> None:
    controller, _ = started(streams.diverged_run())
    controller.drain()
    for _ in range(12):
        controller.turn(knob, step)
    wanted = controller.wanted
    assert wanted is not None
    assert wanted.confidence in (None, 0.99)
    assert wanted.draft_max in (None, 1)


def test_a_plain_run_has_no_knobs() -> None:
    controller, _ = started(settings=Settings(dspark=()))
    for knob in ("policy", "confidence", "block"):
        assert not controller.can_turn(knob)
        controller.turn(knob, 1)
    assert controller.wanted is None


def test_strict_has_no_threshold_and_no_block() -> None:
    controller, _ = started(streams.run(streams.Script(policy="strict", diverges=False)))
    controller.drain()
    shown = shown_settings(controller, "")
    assert shown.policy[0] == "strict"
    assert (shown.confidence[0], shown.block[0]) == (None, None)
    row = text_of(prompt_row("a prompt", shown, 120, False, UNICODE))
    assert "conf" not in row
    assert "block" not in row


def test_prompts_of_the_set() -> None:
    controller, link = started(streams.diverged_run())
    controller.drain()
    assert controller.choose_prompt(1)
    assert controller.prompt.text == "What is a mutex?"
    controller.run()
    last = link.commands[-1]
    assert isinstance(last, Run)
    assert last.request.prompt_index == 1
    assert last.request.category == "open"
    controller.choose_prompt(-1)
    controller.choose_prompt(-1)
    assert controller.prompt.text == "Explain quicksort."


def test_a_prompt_of_ones_own_goes_on_to_the_set() -> None:
    controller, _ = started(prompt="My own.")
    controller.choose_prompt(1)
    assert controller.prompt.text == streams.PROMPT


def test_history_has_each_prompt_once_in_a_row() -> None:
    controller, _ = started(streams.diverged_run(), streams.diverged_run(), streams.diverged_run())
    controller.drain()
    controller.run()
    controller.run(Prompt("b"))
    assert controller.history == [streams.PROMPT, "b"]


def test_prompts_are_rendered_on_request() -> None:
    controller, link = started(prompt=None)
    controller.render(Prompt("a"))
    assert isinstance(link.commands[-1], Render)
    link.waiting += [PromptRendered("", -1, 0, "a", (0, 3, 17))]
    assert controller.drain().rendered
    assert controller.rendered is not None
    assert controller.rendered.prompt_ids == (0, 3, 17)


def test_slow_motion_ends_with_the_whole_run() -> None:
    clock = Clock()
    controller, _ = started(streams.diverged_run(), clock=clock)
    controller.drain()
    assert controller.slow_motion()
    assert state_text(controller) == "REPLAY 0.05x"
    clock.now += 10.0
    controller.drain()
    record = controller.record
    assert record is not None
    plain, dspark = (len(arm.ids) for arm in record.arms)
    assert 199 <= plain <= 202
    assert dspark > plain
    clock.now += 1000.0
    controller.drain()
    assert controller.playback is None
    assert controller.record is not None
    assert controller.record.finished is not None


def two_arms() -> list[Event]:
    """A run of two DSpark arms."""
    script = path_script(list(range(2, 31)) * 5, 13)
    made = engine(ScriptedModel(script), ScriptedDrafter(continuation(script)))
    return race(made, "direct", "prefix", max_tokens=20).events


def test_slow_motion_shows_the_arm_that_was_shown() -> None:
    clock = Clock()
    controller, _ = started(two_arms(), clock=clock)
    controller.drain()
    record = controller.record
    assert record is not None
    record.choose(2)
    assert controller.slow_motion()
    clock.now += 0.5
    controller.drain()
    played = controller.record
    assert played is not None
    assert played is not record
    assert played.beside is played.arms[2]


def test_beside_two_compared_arms_the_knobs_stay_those_of_the_newest_run() -> None:
    wanted = (Knobs("direct"), Knobs("prefix"))
    controller, _ = started(two_arms(), settings=Settings(dspark=wanted))
    controller.drain()
    record = controller.record
    assert record is not None
    controller.open_run(PairRecord((record, 2), (record, 1)))
    assert controller.wanted == wanted[0]


def test_slow_motion_needs_a_finished_run() -> None:
    controller, _ = started(streams.until(streams.diverged_run(), 50))
    controller.drain()
    assert not controller.slow_motion()


def test_notices_reach_the_screen() -> None:
    controller, link = started()
    link.waiting += [Notice("", -1, 0, "warning", "no drafter")]
    assert controller.drain().notices == [("warning", "no drafter")]


def test_a_full_disk_ends_the_trace_not_the_run() -> None:
    def full(events: object) -> None:
        raise Ds4Error("Trace file", "x.jsonl cannot be written: No space left on device.")

    link = FakeLink((READY,), streams.diverged_run())
    controller = make_controller(link=link)
    controller._recorder = full
    controller.start()
    assert "No space left" in controller.drain().notices[0][1]
    controller.drain()
    assert controller.state is RunState.DONE


def test_row_2_is_of_the_run_shown() -> None:
    events = streams.diverged_run()
    hostile = [
        replace(e, prompt="a\x1b[2J\nb") if type(e).__name__ == "RunStarted" else e for e in events
    ]
    controller, _ = started(hostile)
    controller.drain()
    assert prompt_text(controller) == "a␛[2J⏎b"


@pytest.mark.parametrize(
    ("settings", "can_turn"),
    [
        (Settings(batch_ops=("head",)), False),
        (Settings(pin=("router",)), False),
        (Settings(pin=("router",), perturb=Perturb("head", 4, 0)), True),
    ],
)
def test_numerics_do_not_turn_to_what_would_ignore_an_option(
    settings: Settings, can_turn: bool
) -> None:
    link = FakeLink((READY,), streams.diverged_run())
    controller = Controller(lambda: link, prompt=Prompt("a"), settings=settings)
    controller.start()
    controller.drain()
    assert controller.can_turn("numerics") is can_turn
    controller.turn("numerics", 1)
    assert controller.settings.numerics == ("invariant" if can_turn else "split")
    matrix = matrix_of_prompt(controller)
    assert matrix is not None
    assert matrix.numerics == (("split", "invariant") if can_turn else ("split",))


def test_switches_of_the_prompt_are_visible() -> None:
    controller, _ = started(prompt=None)
    controller.prompt = Prompt("a", control_tokens=True, chat=False)
    assert shown_settings(controller, "").flags == ("raw", "control tokens")


def test_a_recorded_run_offers_no_knobs() -> None:
    link = FakeLink((READY,), streams.diverged_run())
    controller = Controller(lambda: link, prompt=Prompt("a"), choices=NO_CHOICES)
    assert not controller.can_turn("policy")
    assert not controller.can_turn("numerics")
    assert shown_settings(controller, "").policy == ("direct", None)


def test_footer_offers_the_cure_after_a_divergence() -> None:
    keys = {"run": "r", "numerics": "n", "policy": "p", "divergence": "d", "help": "?"}
    controller, _ = started(streams.diverged_run())
    controller.drain()
    entries = footer_entries(controller, keys, lambda name: name in keys)
    assert [(key, label) for key, label, _ in entries] == [
        ("r", "Run"),
        ("n", "Try invariant"),
        ("p", "Try prefix"),
        ("d", "Divergence"),
        ("?", "Help"),
    ]
    controller.turn("numerics", 1)
    assert footer_entries(controller, keys, lambda name: name in keys)[0][1] == "Run invariant"
    assert footer_entries(controller, keys, lambda name: name == "help") == [("?", "Help", "help")]
