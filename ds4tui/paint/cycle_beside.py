"""What stands beside a cycle's batch as rows of text: the five best, the time, the text around."""

from __future__ import annotations

from rich.cells import cell_len

from ds4tui.cycle_data import time_of
from ds4tui.knobs_now import policy_at
from ds4tui.marks import Marks
from ds4tui.paint.numbers import bar, logits, ulps
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.spans import Row, Span, crop, fit, spread
from ds4tui.visible import drawable_line
from engine.events import CycleFinished
from engine.verdict import margin, ulp


def top_title(record: RunRecord, arm: ArmRecord, place: int) -> tuple[str, str]:
    """`#163 top 5, logits`, and one ulp there."""
    right = ""
    if place < len(arm.ids) and arm.top[place]:
        of_type = _ulp_type(record, arm)
        right = f"{of_type} ulp {ulp(arm.top[place][0][1], of_type):.2g}"
    parted = record.parts_at
    other = ", other text" if parted is not None and place > parted else ""
    return f"#{place} top 5, logits{other}", right


def _ulp_type(record: RunRecord, arm: ArmRecord) -> str:
    assert record.started is not None
    return record.started.ulp_type(arm.info)


def top_rows(record: RunRecord, arm: ArmRecord, place: int, width: int, marks: Marks) -> list[Row]:
    """Top 5 of both arms side by side, with the margins."""
    column = max(10, (width - 2) // 2)
    blocks = [
        _top_block(record, shown, f"{name}, {_source(shown, place)}", place, column, marks)
        for shown, name in zip((record.arms[0], arm), record.names, strict=True)
    ]
    rows: list[Row] = []
    for left, right in zip(*blocks, strict=True):
        edge = marks.ellipsis
        rows.append([*fit(left, column, edge), ("  ", ""), *fit(right, column, edge)])
    return rows


def _source(arm: ArmRecord, place: int) -> str:
    """Which row of which batch a token was chosen from."""
    cycle = arm.cycle_of(place)
    if cycle is None:
        return "prefill" if place == 0 else "1 row"
    at = place - cycle.index
    replays = policy_at(arm, cycle.cycle) == "replay"
    if at < len(cycle.replay_ids) and (replays or at == cycle.accepted):
        return "re-decoded"
    return f"row {at} of {cycle.proposed + 1}"


def _top_block(
    record: RunRecord, arm: ArmRecord, title: str, place: int, width: int, marks: Marks
) -> list[Row]:
    rows: list[Row] = [crop([(title, "dim")], width, marks.ellipsis)]
    top = arm.top[place] if place < len(arm.ids) else ()
    for token, value in top[:5]:
        chosen = token == arm.ids[place]
        name: Row = [(record.text(token), "strong" if chosen else "")]
        number: Row = [(f"{value:.3f}", "strong" if chosen else "")]
        rows.append(spread(crop(name, width - 9, marks.ellipsis), number, width))
    rows += [[]] * (6 - len(rows))
    gap: Row = []
    if len(top) > 1:
        found = margin(top[0][1], top[1][1], _ulp_type(record, arm))
        text = f"gap {logits(found.logits)} = {ulps(found.ulps)} ulp"
        gap = [(text if len(text) <= width else text.removeprefix("gap "), "dim")]
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
    against = record.names[0]
    rows.append([(f"{word} {abs(time.saved):.2f} ms against {against}", role)])
    if cycle.time.replay:
        rest = time.saved + cycle.time.replay / 1e6
        rows.append([(f"without replay {rest:+.2f} ms", "dim")])
    return rows


def text_rows(
    record: RunRecord, arm: ArmRecord, cycle: CycleFinished, place: int, width: int, marks: Marks
) -> list[Row]:
    """The text around the cycle of both arms, with the panes' marks, on one row each."""
    rows: list[Row] = []
    names = record.names
    cells = min(width // 3, max(map(len, names)) + 2)
    for shown, name in zip((record.arms[0], arm), names, strict=True):
        room = width - cells
        before = _before(shown, cycle.index, room // 3)
        spans: Row = [*before, *_after(record, shown, arm, cycle, place, marks)]
        label = fit([(name, "dim")], cells - 1, marks.ellipsis)
        rows += [crop([*label, (" ", ""), *spans], width, marks.ellipsis), []]
    return rows[:-1]


def _characters(arm: ArmRecord, index: int) -> str:
    return drawable_line(arm.texts[index])


def _before(arm: ArmRecord, index: int, room: int) -> Row:
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
    parting = record.parts_at
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
