"""Tokens per second over the token index, and the race: rows of text for strip and box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ds4tui.figures import Depths, rates
from ds4tui.marks import Marks
from ds4tui.paint.numbers import fraction, mean, rate
from ds4tui.spans import Row

Series = list[float | None]


@dataclass(frozen=True, slots=True)
class RateData:
    """What the chart shows of two arms.

    Args:
        plain_ns, dspark_ns: decode time of each token; empty when there is no such arm.
        total: tokens that the run may have; the chart's right end.
        parting: index at which the ids part, or None.
    """

    plain_ns: Sequence[float]
    dspark_ns: Sequence[float]
    plain_rate: float | None
    dspark_rate: float | None
    total: int
    parting: int | None


def title(narrow: bool, race: bool) -> tuple[str, str]:
    """Left and right part of the box's title."""
    if race:
        return "tokens over engine time", "2/2"
    return ("tok/s", "") if narrow else ("tok/s over token index", "1/2")


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
    axis = list(marks.horizontal * columns)
    if data.parting is not None:
        axis[min(columns - 1, data.parting * columns // max(1, data.total))] = marks.parting
    last = f"#{max(0, data.total - 1)}"
    rows: list[Row] = [
        [(" D ", "dspark"), (_spark(dspark, top, marks), "dspark"), _number(data.dspark_rate)],
        [(" P ", "plain"), (_spark(plain, top, marks), "plain"), _number(data.plain_rate)],
        [(" #0", "dim"), (" " + "".join(axis[2:]) + " ", "dim"), (last, "dim")],
    ]
    if depths is not None:
        counted = f"{depths.accepted}/{depths.proposed}"
        text = f" accepted {counted} {fraction(depths.accept_rate)}"
        rows.append([(text if len(text) <= width else text.replace("accepted ", ""), "")])
        rows.append([(f" of proposed  avg {mean(depths.avg_accept)}", "dim")])
    return rows


def _number(value: float | None) -> tuple[str, str]:
    return (f" {rate(value):>4}", "strong")


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
    for series, mark, role in ((plain, marks.slow, "plain"), (dspark, marks.fast, "dspark")):
        for at, value in enumerate(series):
            if value is not None:
                column = min(columns - 1, int((at + 0.5) * columns / points))
                grid[row_of(value)][column] = (mark, role)
    labels = {0: f"{high:.0f}", plot_rows - 1: f"{low:.0f}"}
    roles = dict.fromkeys(labels, "dim")
    for value, letter, role in ((data.plain_rate, "P", "plain"), (data.dspark_rate, "D", "dspark")):
        if value is not None:
            labels[row_of(value)], roles[row_of(value)] = rate(value) + letter, role
    rows: list[Row] = []
    for at, cells in enumerate(grid):
        label = labels.get(at, "")
        shown = label if label.endswith(("D", "P")) else label + " " * bool(label)
        rows.append([(f"{shown:>5}", roles.get(at, "")), (marks.tick, "dim"), *cells])
    return [*rows, *_axis(data, columns, marks), _legend(marks)]


def _axis(data: RateData, columns: int, marks: Marks) -> list[Row]:
    line = list(marks.horizontal * columns)
    below = [" "] * (columns + 1)
    last = f"#{max(0, data.total - 1)}"
    below[0:2] = "#0"
    below[columns + 1 - len(last) :] = last
    if data.parting is not None:
        at = min(columns - 1, data.parting * columns // max(1, data.total))
        line[at] = marks.parting
        label = f"#{data.parting}"
        first = max(4, min(columns - len(last) - len(label) - 1, at + 1 - len(label) // 2))
        below[first : first + len(label)] = label
    return [
        [(f"     {marks.corner}", "dim"), ("".join(line), "dim")],
        [("     ", ""), ("".join(below), "dim")],
    ]


def _legend(marks: Marks) -> Row:
    return [
        (f"     {marks.fast} DSpark", "dspark"),
        (f"   {marks.slow} plain", "plain"),
    ]


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
        for index, each in enumerate(token_ns):
            spent += each
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
    return [*rows, _legend(marks)]
