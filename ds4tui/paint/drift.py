"""The drift screen as rows of text: a line of eighth blocks per tensor over the position."""

from __future__ import annotations

from ds4tui.cycle_data import policy_at
from ds4tui.drift_data import EQUAL, DriftRow, DriftTrack, Group, Scale, scale_of
from ds4tui.marks import Marks
from ds4tui.paint.numbers import logits
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.spans import Row, crop
from engine.events import CycleFinished

NAME_CELLS = 24
TAIL_CELLS = 17
LINES_BELOW = 6
"""Rows below the tensors: axis, cursor, scale, first drift, at the parting, after it."""


def title(group: Group) -> tuple[str, str]:
    """What is drawn, and how."""
    by = {"kinds": "by kind", "layers": "by layer", "all": "all"}[group]
    return f"max |DSpark - plain| of the state, {by}", "log scale · equal = ·"


def fits_all(track: DriftTrack, height: int) -> bool:
    """Every tensor has a row of its own."""
    return len(track.tensors) <= height - 1 - LINES_BELOW


def number(value: float) -> str:
    """A difference: `6.1e-4`, `0` for equal bits."""
    if value == EQUAL:
        return "0"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def positions_of(record: RunRecord, arm: ArmRecord) -> int:
    """Indexes on the axis: to where the ids part, else to the run's end."""
    if arm.diverged is not None:
        return arm.diverged.index + 1
    assert record.started is not None
    return max(1, len(arm.ids) if arm.finished else max(len(arm.ids), record.started.max_tokens))


def rows(
    record: RunRecord,
    arm: ArmRecord,
    group: Group,
    chosen: int,
    width: int,
    height: int,
    marks: Marks,
) -> list[Row]:
    """Chart and the lines below it.

    Args:
        chosen: row of the chart under the cursor.
    """
    track = arm.drift
    lines = track.rows(group)
    chosen = min(chosen, len(lines) - 1)
    names = [f"{line.layer} {line.tensor}".strip() for line in lines]
    name_cells = min(NAME_CELLS, max(map(len, names)) + 3)
    columns = max(8, width - name_cells - TAIL_CELLS)
    positions = positions_of(record, arm)
    scale = scale_of(track)
    room = max(1, height - 1 - LINES_BELOW)
    first = max(0, min(chosen - room // 2, len(lines) - room))
    out: list[Row] = [
        [
            (f"  {'layer tensor' if group == 'all' else group[:-1]:<{name_cells - 2}}", "dim"),
            (_ends(positions, columns), "dim"),
            (f"{'max':>8}  {'first':<6}", "dim"),
        ]
    ]
    for at in range(first, min(len(lines), first + room)):
        line = lines[at]
        largest, began = line.largest(), line.first()
        begins = "-" if began is None else f"#{began}"
        out.append(
            [
                (f"{marks.cursor if at == chosen else ' '} ", "strong"),
                (f"{names[at][: name_cells - 3]:<{name_cells - 2}}", "reverse" * (at == chosen)),
                (_cells(line, positions, columns, scale, marks), "dspark"),
                (f" {number(largest):>7}  {begins:<6}", ""),
            ]
        )
    out.append(_axis(record, arm, positions, columns, name_cells, marks))
    out += _below(record, arm, lines[chosen], names[chosen], scale, width, marks)
    return [crop(row, width, marks.ellipsis) for row in out]


def _ends(positions: int, columns: int) -> str:
    return f"#0{f'#{positions - 1}':>{max(1, columns - 2)}}"


def _cells(line: DriftRow, positions: int, columns: int, scale: Scale, marks: Marks) -> str:
    glyphs = []
    for value in line.columns(positions, columns):
        if value is None:
            glyphs.append(" ")
        elif value == EQUAL:
            glyphs.append("·")
        else:
            glyphs.append(block(scale.level(value), marks))
    return "".join(glyphs)


def block(level: int, marks: Marks) -> str:
    """The glyph of a step of the scale; digits where there are no blocks."""
    return str(level) if marks.ascii else marks.blocks[level]


def _axis(
    record: RunRecord,
    arm: ArmRecord,
    positions: int,
    columns: int,
    name_cells: int,
    marks: Marks,
) -> Row:
    axis = list(marks.horizontal * columns)

    def put(index: int, glyph: str) -> None:
        axis[min(columns - 1, max(0, index) * columns // positions)] = glyph

    drift = arm.first_drift
    if drift is not None:
        put(drift.position, marks.drift)
    if record.cursor is not None:
        put(record.cursor, marks.cursor)
    if arm.diverged is not None:
        put(arm.diverged.index, marks.parting)
    legend = f"{marks.drift} drift {marks.parting} parts"
    return [(" " * name_cells, ""), ("".join(axis), "strong"), (f" {legend}", "dim")]


def _below(
    record: RunRecord,
    arm: ArmRecord,
    line: DriftRow,
    name: str,
    scale: Scale,
    width: int,
    marks: Marks,
) -> list[Row]:
    track = arm.drift
    out = [_cursor(record, arm, line, name), _scale(scale, marks)]
    drift, parted = arm.first_drift, arm.diverged
    if drift is None:
        count = len(track.boundaries)
        out.append([("first drift  ", "dim"), (f"none at {count} boundaries compared", "same")])
    else:
        where = f"#{drift.position}  L{drift.layer} {drift.tensor}  {number(drift.max_abs)}"
        before = f"   {parted.index - drift.position} tokens before the ids part" if parted else ""
        out.append([("first drift  ", "dim"), (where + before, "strong")])
    every = record.settings.get("digest_every", "1")
    if parted is None:
        sample = len(track.boundaries) - 1
        differ, count = track.differing(sample)
        at = f"at #{track.boundaries[sample]}"
        out.append([(f"{at:<13}", "dim"), (_states(differ, count), "")])
    else:
        sample_at = track.at(parted.index)
        words = "not compared"
        if sample_at is not None:
            words = _states(*track.differing(sample_at))
            apart = track.logits_at(sample_at)
            words += f"; logits by {logits(apart)} at most" if apart is not None else ""
            words += f", the gap was {logits(parted.margin_logits)}"
        cause = f"; cause: {parted.cause}" if parted.cause else ""
        out.append([(f"{f'at #{parted.index}':<13}", "dim"), (words + cause, "")])
        out.append([(f"{f'after #{parted.index}':<13}", "dim"), ("not compared: other ids", "dim")])
    if every not in ("1", "none"):
        note = f"compared at every {every}th boundary: a drift may begin earlier"
        out.append([(f"{'sampled':<13}", "dim"), (note, "strong")])
    return [crop(row, width, marks.ellipsis) for row in out]


def _states(differ: int, count: int) -> str:
    return f"{differ} of {count} tensors differ" if differ else f"all {count} tensors equal"


def _scale(scale: Scale, marks: Marks) -> Row:
    steps = [
        f"{block(at, marks)} {f'{edge:.0e}'.replace('e-0', 'e-').replace('e+0', 'e+')}"
        for at, edge in enumerate(scale.edges(), 1)
    ]
    return [("scale        ", "dim"), ("· equal  " + "  ".join(steps), "dim")]


def _cursor(record: RunRecord, arm: ArmRecord, line: DriftRow, name: str) -> Row:
    place = record.place
    assert record.started is not None
    position = place + len(record.started.prompt_ids)
    sample = arm.drift.at(place)
    head = f"#{place} pos {position}  {name}  "
    parted = arm.diverged
    if sample is None or (parted is not None and place > parted.index):
        return [("cursor       ", "dim"), (head + "not compared here", "")]
    value = line.value(sample)
    boundary = arm.drift.boundaries[sample]
    cycle = arm.cycle_of(boundary)
    after = f"  after {_after(arm, cycle)}" if cycle is not None and boundary else ""
    shown = "equal" if value == EQUAL else number(value)
    return [("cursor       ", "dim"), (f"{head}{shown}", "strong"), (after, "")]


def _after(arm: ArmRecord, cycle: CycleFinished) -> str:
    policy = policy_at(arm, cycle.cycle)
    if not cycle.proposed:
        return f"cycle {cycle.cycle}: one row decoded"
    if cycle.replay_ids:
        what = f"{policy} re-decoded {len(cycle.replay_ids)} rows"
    elif cycle.accepted == cycle.proposed:
        what = f"all accepted, {policy} kept the verify's state"
    else:
        what = f"{policy} kept {cycle.accepted + 1} rows"
    return f"cycle {cycle.cycle}: {what}"
