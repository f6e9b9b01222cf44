"""Tokens per second over the token index, and the race: rows of text for strip and box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ds4tui.figures import Depths, rates
from ds4tui.marks import Marks
from ds4tui.paint.numbers import fraction, mean, rate
from ds4tui.spans import Row, crop

Series = list[float | None]


@dataclass(frozen=True, slots=True)
class RateData:
    """What the chart shows of two arms.

    Args:
        plain_ns, dspark_ns: decode time of each token of the left and the right arm; empty when
            there is no such arm.
        total: tokens that the run may have; the chart's right end.
        parting: index at which the ids part, or None.
        names: of both arms; the right one is "" when there is no such arm.
        turns: indexes from which on a knob of the right arm stood differently.
    """

    plain_ns: Sequence[float]
    dspark_ns: Sequence[float]
    plain_rate: float | None
    dspark_rate: float | None
    total: int
    parting: int | None
    names: tuple[str, str] = ("plain", "DSpark")
    turns: Sequence[int] = ()

    @property
    def letters(self) -> tuple[str, str]:
        """What stands for the arms beside the scale: their initials, else left and right."""
        first, second = (name[:1].upper() for name in self.names)
        return (first, second) if first != second else ("L", "R")

    def column_of(self, index: int, columns: int) -> int:
        """Where an index lies on an axis of so many columns."""
        return min(columns - 1, index * columns // max(1, self.total))


def _spark(values: Series, top: float, marks: Marks) -> str:
    levels = len(marks.blocks) - 1
    cells = []
    for value in values:
        level = 0 if value is None else max(1, min(levels, round(value / top * levels)))
        cells.append(marks.blocks[level])
    return "".join(cells)


def strip(data: RateData, depths: Depths | None, width: int, marks: Marks) -> list[Row]:
    """One line of eighth blocks per arm on one scale, the axis, and the acceptance."""
    columns = max(4, width - 10)
    plain = rates(data.plain_ns, data.total, columns)
    dspark = rates(data.dspark_ns, data.total, columns)
    # A tail of a few tokens can be far off; the scale leaves room above the mean instead.
    top = max(1.0, *(1.25 * (value or 0.0) for value in (data.plain_rate, data.dspark_rate)))
    axis = _axis_line(data, columns, marks, first=AXIS_LABEL)
    last = f"#{max(0, data.total - 1)}"
    rows: list[Row] = [
        *(
            [_spark_row(data.letters[1], dspark, data.dspark_rate, top, "dspark", marks)]
            if data.names[1]
            else []
        ),
        _spark_row(data.letters[0], plain, data.plain_rate, top, "plain", marks),
        [(" #0", "dim"), (" " + "".join(axis[AXIS_LABEL:]) + " ", "dim"), (last, "dim")],
    ]
    if depths is not None:
        counted = f"{depths.accepted}/{depths.proposed}"
        text = f" accepted {counted} {fraction(depths.accept_rate)}"
        rows.append([(text if len(text) <= width else text.replace("accepted ", ""), "")])
        rows.append([(f" of proposed  avg {mean(depths.avg_accept)}", "dim")])
    return rows


def _spark_row(
    letter: str, series: Series, mean_rate: float | None, top: float, role: str, marks: Marks
) -> Row:
    number = (f" {rate(mean_rate):>4}", "strong")
    return [(f" {letter} ", role), (_spark(series, top, marks), role), number]


POINT_TOKENS = 10
"""Least tokens of a point in the scatter: with fewer a single cycle makes it jump."""


def _scale(values: Sequence[float]) -> tuple[float, float]:
    """Lower and upper end of an axis on round numbers around the values."""
    low, high = min(values), max(values)
    step = 10.0
    while (high - low) / step > 12:
        step *= 2 if str(step)[0] in "15" else 2.5
    return max(0.0, (low // step) * step), (high // step + 1) * step


def box(data: RateData, width: int, height: int, marks: Marks) -> list[Row]:
    """A scatter of both arms with the means on the axis."""
    plot_rows, columns = max(3, height - 3), max(8, width - 7)
    points = max(8, min(columns, data.total // POINT_TOKENS))
    plain = rates(data.plain_ns, data.total, points)
    dspark = rates(data.dspark_ns, data.total, points)
    values = sorted(value for value in (*plain, *dspark) if value is not None)
    if not values:
        return []
    # The lowest and highest twentieth would flatten the rest; they are drawn on the edge.
    trim = len(values) // 20
    kept = values[trim : len(values) - trim] or values
    means = [value for value in (data.plain_rate, data.dspark_rate) if value is not None]
    low, high = _scale([*kept, *means])

    def row_of(value: float) -> int:
        share = (high - value) / (high - low)
        return max(0, min(plot_rows - 1, round(share * (plot_rows - 1))))

    grid: list[list[tuple[str, str]]] = [[(" ", "")] * columns for _ in range(plot_rows)]
    for index in data.turns:
        for cells in grid:
            cells[data.column_of(index, columns)] = (marks.after, "dim")
    for series, mark, role in ((plain, marks.slow, "plain"), (dspark, marks.fast, "dspark")):
        for at, value in enumerate(series):
            if value is not None:
                column = min(columns - 1, int((at + 0.5) * columns / points))
                grid[row_of(value)][column] = (mark, role)
    labels = {0: f"{high:.0f}", plot_rows - 1: f"{low:.0f}"}
    roles = dict.fromkeys(labels, "dim")
    letters = data.letters
    means_of = ((data.plain_rate, letters[0], "plain"), (data.dspark_rate, letters[1], "dspark"))
    for value, letter, role in means_of:
        if value is not None:
            labels[row_of(value)], roles[row_of(value)] = rate(value) + letter, role
    rows: list[Row] = []
    for at, cells in enumerate(grid):
        label = labels.get(at, "")
        shown = label if label[-1:] in letters else label + " " * bool(label)
        rows.append([(f"{shown:>5}", roles.get(at, "")), (marks.tick, "dim"), *cells])
    return [*rows, *_axis(data, columns, marks), _legend(data, width, marks)]


AXIS_LABEL = 2
"""Cells of a strip's axis that its `#0` covers."""


def _axis_line(data: RateData, columns: int, marks: Marks, first: int = 0) -> list[str]:
    """The axis with its marks, none of them before `first`."""
    line = list(marks.horizontal * columns)
    for index in data.turns:
        line[max(first, data.column_of(index, columns))] = marks.turn
    if data.parting is not None:
        line[max(first, data.column_of(data.parting, columns))] = marks.parting
    return line


def _axis(data: RateData, columns: int, marks: Marks) -> list[Row]:
    below = [" "] * (columns + 1)
    last = f"#{max(0, data.total - 1)}"
    below[0:2] = "#0"
    below[columns + 1 - len(last) :] = last
    parting = () if data.parting is None else (data.parting,)
    for index in (*parting, *data.turns):
        at, label = data.column_of(index, columns), f"#{index}"
        first = max(4, min(columns - len(last) - len(label) - 1, at + 1 - len(label) // 2))
        if not "".join(below[max(0, first - 1) : first + len(label) + 1]).strip():
            below[first : first + len(label)] = label
    line = "".join(_axis_line(data, columns, marks))
    return [
        [(f"     {marks.corner}", "dim"), (line, "dim")],
        [("     ", ""), ("".join(below), "dim")],
    ]


def _legend(data: RateData, width: int, marks: Marks) -> Row:
    left, right = data.names
    row: Row = [(f"     {marks.fast} {right}", "dspark"), ("   ", "")] if right else [("     ", "")]
    row.append((f"{marks.slow} {left}", "plain"))
    if data.turns:
        row.append((f"   {marks.after} turned", "dim"))
    return crop(row, width)


def race(data: RateData, width: int, height: int, marks: Marks) -> list[Row]:
    """Tokens over engine time: how far each arm is after the same time of its own clock."""
    plot_rows, columns = max(3, height - 3), max(8, width - 7)
    end_ns = max(sum(data.plain_ns), sum(data.dspark_ns))
    if not end_ns:
        return []
    most = max(len(data.plain_ns), len(data.dspark_ns), 2)
    grid: list[list[tuple[str, str]]] = [[(" ", "")] * columns for _ in range(plot_rows)]
    series = ((data.plain_ns, marks.slow, "plain"), (data.dspark_ns, marks.fast, "dspark"))
    for token_ns, mark, role in series:
        spent = 0.0
        stride = max(1, len(token_ns) // (RACE_POINTS * columns))
        for index in range(0, len(token_ns), stride):
            spent += sum(token_ns[index : index + stride])
            column = min(columns - 1, int(spent / end_ns * columns))
            row = plot_rows - 1 - round(index / (most - 1) * (plot_rows - 1))
            grid[row][column] = (mark, role)
    rows: list[Row] = []
    for at, cells in enumerate(grid):
        label = f"#{most - 1}" if at == 0 else "#0" if at == plot_rows - 1 else ""
        rows.append([(f"{label:>5}", "dim"), (marks.tick, "dim"), *cells])
    end = f"{end_ns / 1e6:.0f} ms"
    rows.append([(f"     {marks.corner}", "dim"), (marks.horizontal * columns, "dim")])
    rows.append([("     0", "dim"), (f"{end:>{columns}}", "dim")])
    return [*rows, _legend(replace(data, turns=()), width, marks)]


RACE_POINTS = 16
"""Points of a long run's line in each column: enough to fill it."""
