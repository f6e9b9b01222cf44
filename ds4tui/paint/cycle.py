"""The cycle inspector as rows of text: the list of cycles, and one cycle's verify batch."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from ds4tui.cycle_data import (
    BatchRow,
    batch_rows,
    committed_words,
    context_of,
    plain_ms,
    state_after,
)
from ds4tui.knobs_now import policy_at
from ds4tui.marks import Marks
from ds4tui.paint.numbers import fraction, logits, ms
from ds4tui.paint.panes import wrapped
from ds4tui.paint.window import around, first_shown
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.spans import Row, crop, width_of
from engine.events import CycleFinished

DROPPED, REJECTED = "o", "\u00d7"
NONE = "-"
MOST_GLYPHS = 8
"""Drafts of a cycle in the list; of longer blocks they are counted."""


def drafts_glyphs(cycle: CycleFinished, marks: Marks) -> str:
    """Accepted, rejected, dropped by a re-decode; `-` for none proposed."""
    rest = cycle.proposed - cycle.accepted - cycle.recheck_cut
    counts = ((cycle.accepted, marks.fast), (cycle.recheck_cut, DROPPED), (rest, REJECTED))
    glyphs = "".join(glyph * count for count, glyph in counts)
    if len(glyphs) > MOST_GLYPHS:
        glyphs = "".join(f"{count}{glyph}" for count, glyph in counts if count)
    return marks.text(glyphs) or NONE


def list_rows(
    record: RunRecord, arm: ArmRecord, chosen: int, height: int, marks: Marks
) -> list[Row]:
    """All cycles, the chosen one about the middle; what it means below."""
    legend = [
        f"{marks.fast} accepted  {REJECTED} rejected",
        f"{NONE} no draft proposed",
        f"{marks.parting} ids part  {marks.drift} first drift",
    ]
    if arm.tally.counts.recheck_cut:
        legend.insert(1, f"{DROPPED} dropped by re-decode")
    each = plain_ms(record)
    if each is not None:
        legend.append(f"ms/tok > {ms(each)}: cycle lost")
    room = max(1, height - 2 - len(legend))
    first = first_shown(chosen, len(arm.cycles), room)
    rows: list[Row] = [[("  cycle first  drafts  ms/tok", "dim")]]
    for cycle in arm.cycles[first : first + room]:
        cost = cycle.time.total / 1e6 / max(1, cycle.depth)
        lost = each is not None and cost > each
        glyphs = drafts_glyphs(cycle, marks).ljust(MOST_GLYPHS)
        left = f"{cycle.cycle:>5} {f'#{cycle.index}':<6} {glyphs}"
        role = "reverse" if len(rows) - 1 == chosen - first else ""
        number = f"{ms(cost):>6}"
        rows.append(
            [
                (_gutter(record, arm, cycle, marks) + " ", "strong"),
                (left, role),
                (number, role or ("lost" if lost else "")),
            ]
        )
    rows += [[]] * (height - len(legend) - len(rows))
    return rows + [[(f" {line}", "dim")] for line in legend]


def _gutter(record: RunRecord, arm: ArmRecord, cycle: CycleFinished, marks: Marks) -> str:
    last = cycle.index + cycle.depth
    if record.parts_at is not None and cycle.index <= record.parts_at < last:
        return marks.parting
    drift = arm.first_drift
    return marks.drift if drift is not None and cycle.index <= drift.position < last else " "


def cycle_title(arm: ArmRecord, cycle: CycleFinished, alone: bool, marks: Marks) -> tuple[str, str]:
    """Which cycle it is, and its policy.

    Args:
        alone: there is no list of cycles beside it that says of how many.
    """
    last = cycle.index + cycle.depth - 1
    ids = f"#{cycle.index}" if cycle.depth == 1 else f"#{cycle.index}..#{last}"
    name = f"cycle {cycle.cycle}:"
    if alone:
        ends = ("<", ">") if marks.ascii else ("◄", "►")
        name = f"{ends[0]} cycle {cycle.cycle} of {len(arm.cycles)} {ends[1]}"
    left = f"{name} anchor #{cycle.index - 1}, commits {ids}, depth {cycle.depth}"
    return left, f"{policy_at(arm, cycle.cycle)} · {arm.info.numerics}"


def cycle_rows(
    record: RunRecord,
    arm: ArmRecord,
    cycle: CycleFinished,
    place: int,
    width: int,
    height: int,
    marks: Marks,
    *,
    below: int = 0,
    hint: str = "",
) -> list[Row]:
    """The rows of the batch, then what became of it; those around the cursor when not all fit.

    Args:
        below: rows under the cursor's that are to be seen too.
        hint: how the rest can be seen.
    """
    batch = batch_rows(record, arm, cycle)
    plain = record.names[0]
    columns = _columns(batch, plain, width, marks)
    cells = zip(("in", "draft", "no bias", "verify", plain), columns, strict=True)
    heads = [name[: room - 1].ljust(room) for name, room in cells]
    head = "     " + heads[0] + "conf " + "".join(heads[1:4]) + "gap".ljust(6) + heads[4]
    row = place - cycle.index
    rows: list[Row] = []
    for entry in batch:
        rows += _batch_row(entry, entry.number == row, columns, width, marks)
    rows += _notes(record, arm, cycle, width)
    shown = around(rows, row + below, height - 1, marks, hint)
    return [crop([(head + "outcome", "dim")], width), *shown]


LEAST_CELLS, MOST_CELLS = 7, 14
"""Of a column of tokens."""
FIXED_CELLS = 5 + 5 + 6
"""Of a row's cursor and number, its confidence and its gap."""


def _columns(batch: Sequence[BatchRow], plain: str, width: int, marks: Marks) -> list[int]:
    """Cells of input, draft, draft without bias, verify and plain: as wide as what is in them,
    as long as the outcomes have room."""
    texts = {
        "in": [entry.token for entry in batch],
        "draft": [entry.draft for entry in batch],
        "no bias": [entry.unbiased for entry in batch],
        "verify": [entry.verify for entry in batch],
        plain: [entry.plain for entry in batch],
    }
    cells, least = [], []
    for head, words in texts.items():
        cells.append(max(LEAST_CELLS, *(min(MOST_CELLS, cell_len(w) + 1) for w in (head, *words))))
        least.append(max(LEAST_CELLS, min(MOST_CELLS, len(head) + 1)))
    outcome = max(cell_len(_outcome(entry, marks)) for entry in batch)
    while sum(cells) + FIXED_CELLS + outcome > width and cells != least:
        widest = max(range(len(cells)), key=lambda at: cells[at] - least[at])
        cells[widest] -= 1
    return cells


def _outcome(entry: BatchRow, marks: Marks) -> str:
    return entry.outcome + (f" {marks.parting} ids part" if entry.parts else "")


def _cell(text: str, cells: int, marks: Marks) -> str:
    if cell_len(text) > cells - 1:
        text = set_cell_size(text, cells - 2) + marks.ellipsis
    return set_cell_size(text, cells)


def _batch_row(
    entry: BatchRow, chosen: bool, columns: Sequence[int], width: int, marks: Marks
) -> list[Row]:
    """One row; the chosen one's outcome again below it where it does not fit."""
    confidence = "-" if entry.confidence is None else fraction(entry.confidence, 2)
    gap = "-" if entry.gap is None else logits(entry.gap)
    text = f"{entry.number:<3}" + _cell(entry.token, columns[0], marks) + f"{confidence:<5}"
    words = (entry.draft, entry.unbiased, entry.verify)
    for word, cells in zip(words, columns[1:4], strict=True):
        text += _cell(word, cells, marks)
    text += f"{gap:<6}" + _cell(entry.plain, columns[4], marks)
    outcome = _outcome(entry, marks)
    base = "reverse" if chosen else "strong" if entry.parts else ""
    cursor = marks.cursor if chosen else " "
    row: Row = [(f"{cursor} ", ""), (text, base), (outcome, base)]
    rows = [crop(row, width, marks.ellipsis)]
    if chosen and width_of(row) > width:
        rows += wrapped(f"row {entry.number}: {outcome}", width, "strong")
    return rows


def _notes(record: RunRecord, arm: ArmRecord, cycle: CycleFinished, width: int) -> list[Row]:
    assert record.started is not None
    started = record.started
    words = committed_words(record, arm, cycle)
    state = state_after(arm, cycle)
    if state is not None:
        differ, count = state
        words += ". State after: "
        words += f"{differ} of {count} tensors differ (3 Drift)" if differ else "equal to plain's"
    drafted, proposed, accepted = len(cycle.drafts), cycle.proposed, cycle.accepted
    bonus = int(cycle.bonus >= 0)
    counts = f"drafted {drafted} · proposed {proposed} · accepted {accepted} · bonus {bonus}"
    shares = f"accepted/proposed {accepted}/{proposed}   of drafted {accepted}/{drafted}"
    rows = [*wrapped(words, width, ""), *wrapped(f"{counts}   {shares}", width, "dim")]
    if not cycle.drafts and not cycle.confidences:
        return rows  # no block was made
    block = f"block input  {record.text(cycle.anchor)} + {started.block_of(arm.info) - 1} x noise"
    noise = started.noise_of(arm.info)
    first, last = context_of(cycle, started.window_of(arm.info))
    where = f"drafter context: positions {first}..{last}"
    return [*rows, *wrapped(f"{block} (id {noise})   {where}", width, "dim")]
