"""What the matrix screen says in words: rows 1 and 2, and what to press before anything has run.

Pure functions of what the screen knows. The verdict is `ds4tui.matrix_verdict`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ds4tui import suite_requests
from ds4tui.controller import Controller
from ds4tui.matrix_view import MatrixView
from ds4tui.paint.bars import Shown
from ds4tui.run_state import RunState
from ds4tui.suite_record import SuiteRecord
from ds4tui.visible import drawable_line

if TYPE_CHECKING:
    from engine.suite import MatrixRequest

NO_DRAFTER = "There is no drafter, so there are no policies to compare."


def seconds(value: float) -> str:
    """A time to wait: `20 s`, `3 min`."""
    return f"{value:.0f} s" if value < 100 else f"{value / 60:.0f} min"


def notes(
    kind: str, controller: Controller, plan: MatrixRequest | None, keys: Mapping[str, str]
) -> list[str]:
    """What to press, and how long it takes, in sentences.

    Args:
        plan: what `R` would run; None = nothing can.
        keys: the key of an action by its id.
    """
    if not controller.choices.numerics and controller.state is RunState.LOADING:
        return [f"{controller.loads.capitalize()}."]
    if not controller.choices.numerics:
        return [f"This trace holds no {kind}."]
    if plan is None:
        return [NO_DRAFTER if kind == "matrix" else "There is no prompt set."]
    cells = f" x {len(plan.cells())} cells" if plan.cells() else ", plain only"
    said = [
        f"{keys['run_all']} runs {len(plan.prompts)} prompts{cells}, at most "
        f"{plan.settings.max_tokens} tokens each."
    ]
    about = suite_requests.seconds_for(controller, plan)
    if controller.state is RunState.LOADING:
        loads = controller.loads.capitalize()
        said.append(f"{loads}; what is started now runs when it is there.")
    elif about is None:
        said.append("How long that takes is known after the first run of a prompt.")
    else:
        said.append(f"That takes about {seconds(about)} here, judged by the last run.")
    part = f"{keys['run']} runs only the cell under the cursor, or the prompt in the other table. "
    part = part if kind == "matrix" else ""
    said.append(f"{part}{keys['open']} takes another set.")
    return said


def state_words(record: SuiteRecord, view: MatrixView, state: RunState, is_running: bool) -> str:
    """`RUNNING 84/100  95 s` for row 1."""
    progress = view.progress
    word = "DONE" if progress.done >= progress.total else "STOPPED"
    if is_running:
        word = "PAUSED" if state is RunState.PAUSED else "RUNNING"
    elif record.failed is not None:
        word = "FAILED"
    return f"{word} {progress.done}/{progress.total}  {progress.elapsed_s:.0f} s"


def set_words(view: MatrixView, is_running: bool) -> str:
    """The set, and the prompt in work, for row 2."""
    progress, count = view.progress, len(view.prompts)
    prompts = "1 prompt" if count == 1 else f"{count} prompts"
    text = ", ".join(part for part in (drawable_line(view.set_name), prompts) if part)
    if is_running and progress.prompt:
        text += f": {progress.prompt_at + 1} {drawable_line(progress.prompt)}"
        text += f", {progress.numerics}" if progress.numerics else ""
    return text


def left_words(view: MatrixView) -> Shown:
    """What is left, in place of row 2's settings."""
    progress = view.progress
    left = f"{progress.total - progress.done} runs left"
    if progress.left_s is not None:
        left += f", {seconds(progress.left_s)}"
    return _shown(left)


def settings_words(view: MatrixView, controller: Controller) -> Shown:
    """The settings that all cells share, in place of those of one run; and the knobs of the next.

    Thresholds and block lengths that differ between cells are in the cells' names.
    """
    gate_of, block = controller.gate_of, controller.block_size or None
    figures = [cell.figures for cell in view.cells.values() if cell.figures]
    wanted = controller.settings.dspark if controller.choices.numerics else ()
    now = _shared(
        [
            (each["confidence"], each["draft_max"], each["drafter"])
            for each in figures
            if each["commit"] != "strict"
        ],
        block,
    )
    then = _shared(
        [
            (
                gate_of(knobs.mtp) if knobs.confidence is None else knobs.confidence,
                knobs.draft_max,
                knobs.mtp,
            )
            for knobs in wanted
            if knobs.commit != "strict"
        ],
        block,
    )
    parts = [now if figures else then, f"max {view.max_tokens}"]
    if now and then and now != then:
        parts.append(f"next: {then}")
    return _shown(" · ".join(part for part in parts if part))


def _shared(arms: Sequence[tuple[float | None, int | None, str | None]], block: int | None) -> str:
    """The threshold and the block length that all of some arms have.

    Args:
        arms: threshold, most drafts and drafter of each.
        block: most drafts of arms that say none and have one drafter.
    """
    gates, lengths, drafters = ({arm[n] for arm in arms} for n in range(3))
    whole = block if len(drafters) == 1 else None
    gate = gates.pop() if len(gates) == 1 else None
    length = (lengths.pop() or whole) if len(lengths) == 1 else None
    parts = [] if gate is None else [f"conf ≥ {gate:.2f}"]
    parts += [] if length is None else [f"block {length}"]
    return " · ".join(parts)


def _shown(text: str) -> Shown:
    return Shown(("", None), ("", None), (None, None), (None, None), 0, words=text)
