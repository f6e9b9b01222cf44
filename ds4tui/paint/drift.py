"""The drift screen as rows of text: a line of eighth blocks per tensor over the position."""

from __future__ import annotations

from dataclasses import dataclass

from ds4tui.drift_data import EQUAL, DriftRow, DriftTrack, Group, Scale, scale_of
from ds4tui.knobs_now import policy_at
from ds4tui.marks import Marks
from ds4tui.paint.numbers import logits
from ds4tui.paint.panes import wrapped
from ds4tui.paint.window import around, first_shown
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.spans import Row, crop
from engine.events import CycleFinished

NAME_CELLS = 24
TAIL_CELLS = 17
DETAILS = 6
"""Rows below the chart, when none of them is wider than the box."""
LEAST_ROWS = 3
"""Rows of the chart that the sentences below it leave."""
LABEL = 13


@dataclass(frozen=True, slots=True)
class DriftView:
    """What of the drift is shown.

    Args:
        chosen: row of the chart under the cursor.
        chart_only: without the sentences below it.
    """

    group: Group
    chosen: int
    width: int
    height: int
    chart_only: bool = False


def title(group: Group, names: tuple[str, str]) -> tuple[str, str]:
    """What is drawn, and how."""
    by = {"kinds": "by kind", "layers": "by layer", "all": "all"}[group]
    return f"max |{names[1]} - {names[0]}| of the state, {by}", "log scale · equal = ·"


def finest(track: DriftTrack, height: int) -> Group:
    """Every tensor where each has a row of its own, else layers, else kinds."""
    room = height - 2 - DETAILS
    groups: tuple[Group, ...] = ("all", "layers")
    return next((group for group in groups if len(track.rows(group)) <= room), "kinds")


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


def rows(record: RunRecord, arm: ArmRecord, view: DriftView, marks: Marks) -> list[Row]:
    """Chart, axis, and in sentences what they show at the cursor, first and in the end."""
    track, width, group = arm.drift, view.width, view.group
    lines = track.rows(group)
    chosen = min(view.chosen, len(lines) - 1)
    names = [f"{line.layer} {line.tensor}".strip() for line in lines]
    name_cells = min(NAME_CELLS, max(map(len, names)) + 3)
    columns = max(8, width - name_cells - TAIL_CELLS)
    positions = positions_of(record, arm)
    scale = scale_of(track)
    details = [_scale(scale, width, marks)]
    if not view.chart_only:
        details += _details(record, arm, lines[chosen], names[chosen], width)
    room = view.height - 2 - len(details)
    if room < LEAST_ROWS:
        room = min(len(lines), max(1, view.height - 2), LEAST_ROWS)
    first = first_shown(chosen, len(lines), room)  # no row is drawn that is not seen
    chart: list[Row] = []
    for at, line in enumerate(lines):
        if not first - 2 <= at <= first + room + 2:
            chart.append([])
            continue
        largest, began = line.largest(), line.first()
        begins = "-" if began is None else f"#{began}"
        chart.append(
            [
                (f"{marks.cursor if at == chosen else ' '} ", "strong"),
                (f"{names[at][: name_cells - 3]:<{name_cells - 2}}", "reverse" * (at == chosen)),
                (_cells(line, positions, columns, scale, marks), "dspark"),
                (f" {number(largest):>7}  {begins:<6}", ""),
            ]
        )
    head: Row = [
        (f"  {'layer tensor' if group == 'all' else group[:-1]:<{name_cells - 2}}", "dim"),
        (_ends(positions, columns), "dim"),
        (f"{'max':>8}  {'first':<6}", "dim"),
    ]
    axis = _axis(record, arm, positions, columns, name_cells, marks)
    below = around(details, 0, view.height - 2 - min(len(chart), room), marks)
    out = [head, *around(chart, chosen, room, marks), axis, *below]
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


def _details(record: RunRecord, arm: ArmRecord, line: DriftRow, name: str, width: int) -> list[Row]:
    track = arm.drift
    out = [_first_drift(arm), _cursor(record, arm, line, name)]
    parted = arm.diverged
    every = record.settings.get("digest_every", "1")
    if parted is None:
        sample = len(track.boundaries) - 1
        out.append((f"at #{track.boundaries[sample]}", _states(*track.differing(sample)), ""))
    else:
        at = track.at(parted.index)
        words = "not compared"
        if at is not None:
            words = _states(*track.differing(at))
            apart = track.logits_at(at)
            words += f"; logits by {logits(apart)} at most" if apart is not None else ""
            words += f", the gap was {logits(parted.margin_logits)}"
        words += f"; cause: {parted.cause}" if parted.cause else ""
        out.append((f"at #{parted.index}", f"{words}; after it other ids, not compared", ""))
    if every not in ("1", "none"):
        note = f"compared at every {every}th boundary: a drift may begin earlier"
        out.append(("sampled", note, "strong"))
    rows: list[Row] = []
    for label, words, role in out:
        heads = [f"{label:<{LABEL}}"]
        for part in wrapped(words, width - LABEL, role):
            rows.append([(heads.pop() if heads else " " * LABEL, "dim"), *part])
    return rows


def _first_drift(arm: ArmRecord) -> tuple[str, str, str]:
    drift, parted, track = arm.first_drift, arm.diverged, arm.drift
    if drift is None:
        count = len(track.boundaries)
        return "first drift", f"none at {count} boundaries compared", "same"
    words = f"#{drift.position}, L{drift.layer} {drift.tensor}, {number(drift.max_abs)}"
    sample = track.at(drift.position)
    others = track.differing(sample)[0] - 1 if sample is not None else 0
    words += f" and {others} tensors more" if others > 0 else ""
    if parted is not None:
        words += f"; {parted.index - drift.position} tokens before the ids part"
    return "first drift", words, "strong"


def _states(differ: int, count: int) -> str:
    return f"{differ} of {count} tensors differ" if differ else f"all {count} tensors equal"


def _scale(scale: Scale, width: int, marks: Marks) -> Row:
    edges = [f"{edge:.0e}".replace("e-0", "e-").replace("e+0", "e+") for edge in scale.edges()]
    steps = [(block(at, marks), edge) for at, edge in enumerate(edges, 1)]
    wide = "  ".join(f"{glyph} {edge}" for glyph, edge in steps)
    narrow = " ".join(f"{glyph}{edge}" for glyph, edge in steps)
    fits = LABEL + len("· equal  ") + len(wide) <= width
    return [(f"{'scale':<{LABEL}}· equal  {wide if fits else narrow}", "dim")]


def _cursor(record: RunRecord, arm: ArmRecord, line: DriftRow, name: str) -> tuple[str, str, str]:
    place = record.place
    assert record.started is not None
    position = place + len(record.started.prompt_ids)
    sample = arm.drift.at(place)
    head = f"#{place} pos {position}, {name}"
    parted = arm.diverged
    if sample is None or (parted is not None and place > parted.index):
        return "cursor", f"{head}: not compared here", ""
    value = line.value(sample)
    boundary = arm.drift.boundaries[sample]
    cycle = arm.cycle_of(boundary)
    after = f", after {_after(arm, cycle)}" if cycle is not None and boundary else ""
    return "cursor", f"{head}: {'equal' if value == EQUAL else number(value)}{after}", ""


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
