"""What the matrix screen shows of a suite: cells, prompts, progress, from its record alone.

Owns which state each place of the table is in and how long the rest will take. The figures are
`ds4tui.matrix_report`'s; how they look is `ds4tui.paint.matrix`'s. Knows no widgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ds4tui.matrix_cells import place_of
from ds4tui.matrix_names import numerics_of, row_of
from ds4tui.report import Document
from ds4tui.run_record import ArmRecord
from ds4tui.suite_record import SuiteRecord
from engine.verdict import NO_NEAR_TIE_LOGITS

CellState = Literal["idle", "queued", "running", "done"]
SEVERITY = ("exact-tie", "near-tie", "large-margin")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the table.

    Args:
        figures: of `matrix_report`, None before its first run has ended.
        done: prompts that its figures are over; `total` of how many.
        state: what it waits for: somebody to start it, its turn, its run in progress, nothing.
        fastest: the most tokens per second of all finished cells with identical ids.
    """

    name: str
    figures: Document | None
    done: int
    total: int
    state: CellState
    fastest: bool = False


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One prompt: `places` has what each cell shows, in the order of the cells.

    Args:
        gap: smallest top-2 gap that plain met.
        places: what `matrix_cells.place_of` says, `..` running, `.` not run yet.
        missed: cells that must be identical and are not.
    """

    label: str
    category: str
    gap: float | None
    places: tuple[str, ...]
    missed: frozenset[str]
    verdict: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a suite is: cells times prompts, and what its own clock says."""

    done: int = 0
    total: int = 0
    elapsed_s: float = 0.0
    left_s: float | None = None
    prompt: str = ""
    prompt_at: int = 0
    numerics: str = ""


@dataclass(frozen=True, slots=True)
class MatrixView:
    """All of it. `plain` has the figures of plain decode by numerics."""

    kind: str
    set_name: str
    numerics: tuple[str, ...]
    rows: tuple[str, ...]
    cells: Mapping[str, Cell] = field(default_factory=dict)
    plain: Mapping[str, Document] = field(default_factory=dict)
    prompts: tuple[PromptRow, ...] = ()
    max_tokens: int = 0
    progress: Progress = Progress()

    def cell(self, row: str, numerics: str) -> Cell | None:
        """The cell of a row and a numerics; None where the suite has none."""
        return self.cells.get(f"{numerics} {row}")


def planned(
    kind: str,
    cells: Sequence[str],
    prompts: Sequence[tuple[str, str]],
    name: str,
    max_tokens: int,
) -> MatrixView:
    """The table before anything has run.

    Args:
        prompts: (label, category) of every prompt.
    """
    rows = tuple(
        PromptRow(label, category, None, (".",) * len(cells), frozenset(), "")
        for label, category in prompts
    )
    return MatrixView(
        kind,
        name,
        tuple(dict.fromkeys(map(numerics_of, cells))),
        tuple(dict.fromkeys(map(row_of, cells))),
        {cell: Cell(cell, None, 0, len(prompts), "idle") for cell in cells},
        prompts=rows,
        max_tokens=max_tokens,
    )


def view_of(record: SuiteRecord) -> MatrixView:
    """What a suite has shown so far."""
    report = record.report
    order = tuple(report.order)
    count = len(report.labels)
    fastest = _fastest(record, order, count)
    numerics = tuple(dict.fromkeys(map(numerics_of, order))) or tuple(report.numerics)
    plain = {name: found for name in numerics if (found := report.plain(name))}
    return MatrixView(
        record.kind,
        report.name,
        numerics,
        tuple(dict.fromkeys(map(row_of, order))),
        {cell: _cell(record, cell, count, cell == fastest) for cell in order},
        plain,
        tuple(_prompt(record, order, index) for index in range(count)),
        record.started.max_tokens,
        progress_of(record),
    )


def _cell(record: SuiteRecord, name: str, count: int, fastest: bool) -> Cell:
    figures = record.report.latest(name)
    done = figures["prompts"] if figures else 0
    running = record.running
    state: CellState = "done"
    if running is not None and any(run is running for run, _ in _places(record, name)):
        state = "running"
    elif not record.is_over and _waits(record, name):
        state = "queued"
    elif done < count:
        state = "idle"
    return Cell(name, figures, done, count, state, fastest)


def _places(record: SuiteRecord, cell: str) -> list[tuple[object, int]]:
    return [place for (name, _), place in record.places.items() if name == cell]


def _waits(record: SuiteRecord, cell: str) -> bool:
    """A cell of the suite in progress still has runs to come."""
    ours = [run for run, _ in _places(record, cell) if any(run is own for own in record.runs)]
    return cell in record.started.cells and len(ours) < _prompts_of(record)


def _prompts_of(record: SuiteRecord) -> int:
    """Prompts that the suite in progress runs."""
    kinds = len({numerics_of(cell) for cell in record.started.cells}) or 1
    return record.started.runs // kinds or len(record.started.prompts)


def _fastest(record: SuiteRecord, order: Sequence[str], count: int) -> str | None:
    """The cell with the most tokens per second among the whole ones with identical ids."""
    rates = {
        cell: found["tokens_per_s"]
        for cell in order
        if (found := record.report.latest(cell))
        and found["prompts"] == found["identical"] == count
        and found["tokens_per_s"] is not None
    }
    return max(rates, key=lambda cell: rates[cell], default=None)


def _prompt(record: SuiteRecord, order: Sequence[str], index: int) -> PromptRow:
    report, arms = record.report, [record.arm_of(cell, index) for cell in order]
    places = [_place(record, cell, index, arm) for cell, arm in zip(order, arms, strict=True)]
    required = [
        cell for cell in order if (figures := report.latest(cell)) and figures["must_be_identical"]
    ]
    missed = frozenset(
        cell
        for cell, place in zip(order, places, strict=True)
        if cell in required and place.startswith(("#", "~"))
    )
    gap = _gap(record, order, index)
    label, category = (
        report.labels[index],
        dict(enumerate(record.started.prompts)).get(index, ("", ""))[1],
    )
    return PromptRow(
        label, category, gap, tuple(places), missed, _prompt_verdict(record, order, index, gap)
    )


def _place(record: SuiteRecord, cell: str, index: int, arm: ArmRecord | None) -> str:
    """What a cell shows: see `PromptRow`."""
    if arm is not None and arm.diverged is not None:
        return f"#{arm.diverged.index}"
    found = record.report.run(cell, index)
    if found is None:
        running = record.running
        mine = arm is not None and running is not None and any(arm is a for a in running.arms)
        return ".." if mine else "."
    return place_of(found)


def _gap(record: SuiteRecord, order: Sequence[str], index: int) -> float | None:
    """The smallest top-2 gap that plain met, in any numerics that was run."""
    gaps = []
    for numerics in dict.fromkeys(map(numerics_of, order)) or record.report.numerics:
        found = record.report.plain_run(numerics, index)
        if found is not None and found["smallest_margin"]:
            gaps.append(found["smallest_margin"]["logits"])
    return min(gaps, default=None)


def _prompt_verdict(
    record: SuiteRecord, order: Sequence[str], index: int, gap: float | None
) -> str:
    """The worst of what its divergences are; else what equal ids prove."""
    arms = [arm for cell in order if (arm := record.arm_of(cell, index))]
    parted = [arm.diverged for arm in arms if arm.diverged is not None]
    if any(event.logic_error for event in parted):
        return "LOGIC ERROR"
    if parted:
        return max((event.verdict for event in parted), key=SEVERITY.index)
    found = [record.report.run(cell, index) for cell in order]
    ended = [run for run in found if run is not None]
    differ = any(run["first_drift"] or run["state_equal"] is False for run in ended)
    if gap is not None and gap >= NO_NEAR_TIE_LOGITS:
        return "no near-tie ~" if differ else "no near-tie"
    if differ:
        return "states differ"
    seen = all(run["states_compared"] >= run["state_boundaries"] for run in ended)
    return "states equal" if ended and seen else ""


def progress_of(record: SuiteRecord) -> Progress:
    """How far a matrix or set is."""
    report, running = record.report, record.running
    cells = record.started.cells
    per_run = {n: sum(numerics_of(cell) == n for cell in cells) for n in map(numerics_of, cells)}
    done = 0
    for run in record.runs:
        has_ended = record.is_over or run.finished is not None
        if has_ended and not run.is_whole:
            continue  # it fills no cell
        ends = [arm.finished for arm in run.arms[1:]] if run.arms[1:] else [run.finished]
        done += sum(end is not None for end in ends)
    started = running.started if running is not None else None
    at = started.prompt_index if started is not None else 0
    return Progress(
        done,
        (len(cells) or 1) * _prompts_of(record),
        record.elapsed_s,
        None if record.is_over else _left_s(record, list(per_run) or report.numerics),
        report.labels[at] if started is not None and at < len(report.labels) else "",
        at,
        started.cell if started is not None else "",
    )


def _left_s(record: SuiteRecord, numerics: Sequence[str]) -> float | None:
    """Seconds that the rest will take if its runs take as long as those before them."""
    known = {n: sum(spent) / len(spent) for n, spent in record.spent_ns.items() if spent}
    if not known:
        return None
    others = sum(known.values()) / len(known)
    prompts = _prompts_of(record)
    left = 0.0
    for name in numerics:
        rest = max(0, prompts - len(record.spent_ns.get(name, ())))
        left += rest * known.get(name, others)
    started = record.running.started if record.running is not None else None
    if started is not None:
        begun = record.now_ns - started.t_ns
        left -= min(begun, known.get(started.cell, others))
    return max(0.0, left / 1e9)
