"""The cycle inspector as rows of text: list, verify batch, top 5, time, text around it."""

from __future__ import annotations

from typing import cast

from rich.cells import cell_len, set_cell_size

from ds4tui.cycle_data import (
    BatchRow,
    batch_rows,
    committed_words,
    context_of,
    plain_ms,
    policy_at,
    state_after,
    time_of,
)
from ds4tui.marks import Marks
from ds4tui.paint.numbers import bar, logits, ms, ulps
from ds4tui.paint.panes import wrapped
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.spans import Row, Span, crop, fit, spread
from ds4tui.visible import drawable_line
from engine.events import CycleFinished
from engine.paths import Numerics
from engine.verdict import margin, ulp, ulp_type

DROPPED, REJECTED = "o", "\u00d7"
NONE = "-"


def drafts_glyphs(cycle: CycleFinished, marks: Marks) -> str:
    """Accepted, rejected, dropped by a re-decode; `-` for none proposed."""
    rest = cycle.proposed - cycle.accepted - cycle.recheck_cut
    glyphs = marks.fast * cycle.accepted + DROPPED * cycle.recheck_cut + REJECTED * rest
    return marks.text(glyphs) or NONE


def list_rows(
    record: RunRecord, arm: ArmRecord, chosen: int, width: int, height: int, marks: Marks
) -> list[Row]:
    """All cycles, the chosen one about the middle; what it means below."""
    legend = [
        f"{marks.fast} accepted  {REJECTED} rejected",
        f"{NONE} no draft proposed",
        f"{marks.parting} ids part  {marks.drift} first drift",
    ]
    if any(cycle.recheck_cut for cycle in arm.cycles):
        legend.insert(1, f"{DROPPED} dropped by re-decode")
    each = plain_ms(record)
    if each is not None:
        legend.append(f"ms/tok > {ms(each)}: cycle lost")
    room = max(1, height - 2 - len(legend))
    first = max(0, min(chosen - room // 2, len(arm.cycles) - room))
    rows: list[Row] = [[("  cycle first  drafts  ms/tok", "dim")]]
    for cycle in arm.cycles[first : first + room]:
        cost = cycle.time.total / 1e6 / max(1, cycle.depth)
        lost = each is not None and cost > each
        left = f"{cycle.cycle:>5} {f'#{cycle.index}':<6} {drafts_glyphs(cycle, marks):<8}"
        role = "reverse" if cycle.cycle == arm.cycles[chosen].cycle else ""
        number = f"{ms(cost):>6}"
        rows.append(
            [
                (_gutter(arm, cycle, marks) + " ", "strong"),
                (left, role),
                (number, role or ("lost" if lost else "")),
            ]
        )
    rows += [[]] * (height - len(legend) - len(rows))
    return rows + [[(f" {line}", "dim")] for line in legend]


def _gutter(arm: ArmRecord, cycle: CycleFinished, marks: Marks) -> str:
    last = cycle.index + cycle.depth
    if arm.diverged is not None and cycle.index <= arm.diverged.index < last:
        return marks.parting
    drift = arm.first_drift
    return marks.drift if drift is not None and cycle.index <= drift.position < last else " "


def line_row(arm: ArmRecord, cycle: CycleFinished, width: int, marks: Marks) -> Row:
    """The list in one row: `, cycle 59 of 147, #161 .`."""
    ends = ("<", ">") if marks.ascii else ("◄", "►")
    middle = f"cycle {cycle.cycle} of {len(arm.cycles)}, #{cycle.index}"
    glyphs = drafts_glyphs(cycle, marks)
    mark = _gutter(arm, cycle, marks)
    row: Row = [(f"{ends[0]} ", "key"), (middle, "strong"), (f" {ends[1]}", "key")]
    return fit([*row, (f"   {glyphs}   ", ""), (mark, "strong")], width)


def cycle_title(arm: ArmRecord, cycle: CycleFinished) -> tuple[str, str]:
    """Which cycle it is, and its policy."""
    last = cycle.index + cycle.depth - 1
    ids = f"#{cycle.index}" if cycle.depth == 1 else f"#{cycle.index}..#{last}"
    left = f"cycle {cycle.cycle}: anchor #{cycle.index - 1}, commits {ids}, depth {cycle.depth}"
    return left, f"{policy_at(arm, cycle.cycle)} · {arm.info.numerics}"


def cycle_rows(
    record: RunRecord,
    arm: ArmRecord,
    cycle: CycleFinished,
    place: int,
    width: int,
    height: int,
    marks: Marks,
) -> list[Row]:
    """The rows of the batch, then what became of it, as far as there is room."""
    columns = _columns(width)
    head = "     in".ljust(5 + columns[0]) + "conf  "
    for name, cells in zip(("draft", "no bias", "verify"), columns[1:], strict=False):
        head += name.ljust(cells)
    head += "gap".ljust(7) + "plain".ljust(columns[3]) + "outcome"
    batch = batch_rows(record, arm, cycle)
    notes = _notes(record, arm, cycle, width)
    room = max(1, height - 1 - min(len(notes), 3))
    row = place - cycle.index
    first = max(0, min(row - room // 2, len(batch) - room))
    rows: list[Row] = [crop([(head, "dim")], width)]
    for entry in batch[first : first + room]:
        rows.append(_batch_row(entry, entry.number == row, columns, width, marks))
    return [*rows, *notes][:height]


def _columns(width: int) -> tuple[int, int, int, int]:
    """Cells of input, draft (twice), verify and plain."""
    spare = width - 5 - 6 - 7 - 20
    each = max(7, min(14, spare // 5))
    return each, each, each, each


def _cell(text: str, cells: int, marks: Marks) -> str:
    if cell_len(text) > cells - 1:
        text = set_cell_size(text, cells - 2) + marks.ellipsis
    return set_cell_size(text, cells)


def _batch_row(
    entry: BatchRow, chosen: bool, columns: tuple[int, ...], width: int, marks: Marks
) -> Row:
    confidence = "-" if entry.confidence is None else f"{entry.confidence:.2f}"
    confidence = confidence.replace("0.", ".", 1) if confidence.startswith("0.") else confidence
    gap = "-" if entry.gap is None else logits(entry.gap)
    text = f"{entry.number:<3}" + _cell(entry.token, columns[0], marks) + f"{confidence:<6}"
    for word in (entry.draft, entry.unbiased, entry.verify):
        text += _cell(word, columns[1], marks)
    text += f"{gap:<7}" + _cell(entry.plain, columns[3], marks)
    parts = f" {marks.parting} ids part" if entry.parts else ""
    base = "reverse" if chosen else "strong" if entry.parts else ""
    cursor = marks.cursor if chosen else " "
    return crop([(f"{cursor} ", ""), (text, base), (entry.outcome + parts, base)], width, "…")


def _notes(record: RunRecord, arm: ArmRecord, cycle: CycleFinished, width: int) -> list[Row]:
    assert record.started is not None
    started = record.started
    words = committed_words(record, arm, cycle)
    state = state_after(arm, cycle)
    if state is not None:
        differ, count = state
        words += ". State after: "
        words += f"{differ} of {count} tensors differ (3 Drift)" if differ else "equal to plain's"
    rows = wrapped(words, width, "")
    drafted, proposed, accepted = len(cycle.drafts), cycle.proposed, cycle.accepted
    bonus = int(cycle.bonus >= 0)
    counts = f"drafted {drafted} · proposed {proposed} · accepted {accepted} · bonus {bonus}"
    shares = f"accepted/proposed {accepted}/{proposed}   of drafted {accepted}/{drafted}"
    rows += wrapped(f"{counts}   {shares}", width, "dim")
    block = f"block input  {record.text(cycle.anchor)} + {started.block_size - 1} x noise"
    first, last = context_of(cycle, started.window)
    where = f"drafter context: positions {first}..{last}"
    rows.append(crop([(f"{block} (id {started.noise_id})   {where}", "dim")], width))
    return rows


def top_title(record: RunRecord, arm: ArmRecord, place: int) -> tuple[str, str]:
    """`#163 top 5, logits`, and one ulp there."""
    right = ""
    if place < len(arm.ids) and arm.top[place]:
        of_type = _ulp_type(record, arm)
        right = f"{of_type} ulp {ulp(arm.top[place][0][1], of_type):.2g}"
    return f"#{place} top 5, logits", right


def _ulp_type(record: RunRecord, arm: ArmRecord) -> str:
    return ulp_type(cast(Numerics, arm.info.numerics), record.settings.get("device", "cpu"))


def top_rows(
    record: RunRecord, arm: ArmRecord, cycle: CycleFinished, place: int, width: int
) -> list[Row]:
    """Top 5 of plain and of the DSpark arm side by side, with the margins."""
    at = place - cycle.index
    replayed = at < len(cycle.replay_ids)
    source = f"row {at} of {cycle.proposed + 1}"
    if replayed and (policy_at(arm, cycle.cycle) == "replay" or at == cycle.accepted):
        source = "re-decoded"
    column = max(10, (width - 2) // 2)
    blocks = [
        _top_block(record, record.arms[0], "plain, 1 row", place, column),
        _top_block(record, arm, f"DSpark, {source}", place, column),
    ]
    rows: list[Row] = []
    for left, right in zip(*blocks, strict=True):
        rows.append([*fit(left, column), ("  ", ""), *fit(right, column)])
    parted = arm.diverged
    if parted is not None and place > parted.index:
        rows.insert(1, [("after the ids part: other text", "dim")])
    return rows


def _top_block(record: RunRecord, arm: ArmRecord, title: str, place: int, width: int) -> list[Row]:
    rows: list[Row] = [crop([(title, "dim")], width)]
    top = arm.top[place] if place < len(arm.ids) else ()
    for token, value in top[:5]:
        chosen = token == arm.ids[place]
        name: Row = [(record.text(token), "strong" if chosen else "")]
        number: Row = [(f"{value:.3f}", "strong" if chosen else "")]
        rows.append(spread(crop(name, width - 9, "…"), number, width))
    rows += [[]] * (6 - len(rows))
    gap: Row = []
    if len(top) > 1:
        found = margin(top[0][1], top[1][1], _ulp_type(record, arm))
        gap = [(f"gap {logits(found.logits)} = {ulps(found.ulps)} ulp", "dim")]
    return [rows[0], *rows[1:6], gap]


def time_title(record: RunRecord, cycle: CycleFinished) -> tuple[str, str]:
    """What it took in all."""
    return "time of this cycle", f"{time_of(record, cycle).total:.2f} ms"


def time_rows(record: RunRecord, cycle: CycleFinished, width: int, marks: Marks) -> list[Row]:
    """Kinds of time with bars, and what the cycle lost or won against plain."""
    time = time_of(record, cycle)
    name_cells = max((len(name) for name, _ in time.kinds), default=0)
    cells = max(1, width - name_cells - 10)
    most = max((value for _, value in time.kinds), default=0.0)
    rows: list[Row] = []
    for name, value in time.kinds:
        drawn = bar(value, most, cells, marks.bar, marks.bar_half)
        rows.append([(f"{name:<{name_cells}}  {value:>6.2f}  ", ""), (drawn, "dspark")])
    if time.saved is None:
        return rows
    word, role = ("won", "saved") if time.saved >= 0 else ("lost", "lost")
    rows.append([(f"{word} {abs(time.saved):.2f} ms against plain", role)])
    if cycle.time.replay:
        rest = time.saved + cycle.time.replay / 1e6
        rows.append([(f"without replay {rest:+.2f} ms", "dim")])
    return rows


def text_rows(
    record: RunRecord, arm: ArmRecord, cycle: CycleFinished, place: int, width: int, marks: Marks
) -> list[Row]:
    """The text around the cycle of both arms, with the panes' marks, on one row each."""
    rows: list[Row] = []
    for shown, name in ((record.arms[0], "plain"), (arm, "DSpark")):
        room = width - 9
        before = _before(shown, cycle.index, room // 3, marks)
        spans: Row = [*before, *_after(record, shown, arm, cycle, place, marks)]
        rows += [crop([(f"{name:<9}", "dim"), *spans], width, marks.ellipsis), []]
    return rows[:-1]


def _characters(arm: ArmRecord, index: int) -> str:
    return drawable_line(arm.texts[index])


def _before(arm: ArmRecord, index: int, room: int, marks: Marks) -> Row:
    text = ""
    at = min(index, len(arm.texts)) - 1
    while at >= 0 and cell_len(text) < room:
        text = _characters(arm, at) + text
        at -= 1
    while text and cell_len(text) > room - 4:
        text = text[1:]
    return [("..." if at >= 0 else "", "dim"), (text, "dim")]


AHEAD = 40
"""Tokens after the cycle's first one that may fit on a row."""


def _after(
    record: RunRecord,
    shown: ArmRecord,
    arm: ArmRecord,
    cycle: CycleFinished,
    place: int,
    marks: Marks,
) -> Row:
    spans: list[Span] = []
    parting = arm.diverged.index if arm.diverged is not None else None
    for index in range(cycle.index, min(len(shown.texts), cycle.index + AHEAD)):
        inside = index < cycle.index + cycle.depth
        text = _characters(shown, index)
        if shown is arm and inside:
            rejected = arm.rejected.get(index, ())
            if rejected:
                words = "".join(f" {record.text(token)}" for token in rejected)
                spans.append((f"[{words.strip()}]", "rejected"))
        role = "dim"
        if index == parting:
            role = "reverse"
        elif inside and shown is arm:
            role = "draft" if shown.sources[index] == "draft" else "bonus"
        elif inside:
            role = ""
        lead = text[: len(text) - len(text.lstrip(" "))]
        mark = marks.parting if index == parting else marks.cursor if index == place else ""
        spans += [(lead + mark, ""), (text[len(lead) :], role)]
    return spans
