"""The sweep's chart as rows of text: a point for each value over lines for plain and `strict`.

Knows no widgets; the figures are `ds4tui.sweep_rows`'.
"""

from __future__ import annotations

from collections.abc import Sequence

from ds4tui.marks import Marks
from ds4tui.paint.numbers import rate
from ds4tui.paint.sweep import SWEPT, amount, best_rows, label, role_of
from ds4tui.spans import Row, Span
from ds4tui.sweep_rows import PLAIN, STRICT, SweepRow, SweepTable

AXIS_CELLS = 7


def title(table: SweepTable | None) -> tuple[str, str]:
    """Left and right part of the title."""
    if table is None:
        return "tok/s", ""
    return f"tok/s over {SWEPT[table.axis]}, by step", amount(table)


def rows(table: SweepTable, width: int, height: int, marks: Marks, cure: str = "") -> list[Row]:
    """A point for each value, lines for plain and `strict`, the best range on the axis.

    Args:
        cure: of `best_sentences`.
    """
    shown = [row for row in table.rows if row.tokens_per_s is not None]
    if not shown or height < 5:
        return []
    said = best_rows(table, width, marks, cure)
    plot, columns = max(3, height - 2 - len(said)), width - AXIS_CELLS - 1
    rates = [row.tokens_per_s or 0.0 for row in shown]
    low, high = _ends(rates)

    def line_of(value: float) -> int:
        return max(0, min(plot - 1, round((high - value) / (high - low) * (plot - 1))))

    grid: list[list[Span]] = [[(" ", "")] * columns for _ in range(plot)]
    labels: dict[int, str] = {0: f"{high:.0f}", plot - 1: f"{low:.0f}"}
    for name, glyph in ((STRICT, marks.dot), (PLAIN, marks.horizontal)):
        row = table.row(name)
        if row is not None and row.tokens_per_s is not None:
            grid[line_of(row.tokens_per_s)] = [(glyph, role_of(row))] * columns
    axis, below = [marks.horizontal] * columns, [" "] * columns
    for n, row in enumerate(table.values):
        at = int((n + 0.5) * columns / len(table.values))
        _put(below, at - 1, label(table, row))
        if row.tokens_per_s is not None:
            _point(grid[line_of(row.tokens_per_s)], at, row, columns // len(table.values), marks)
        if table.best is not None and row.speedup is not None and table.best.has(row.value):
            half = columns // len(table.values) // 2
            for cell in range(max(0, at - half + 1), min(columns, at + half)):
                axis[cell] = marks.bar
    for name in (PLAIN, STRICT):
        row = table.row(name)
        if row is not None and row.tokens_per_s is not None:
            words = f" {name} {rate(row.tokens_per_s)} "
            _name(grid[line_of(row.tokens_per_s)], words, marks)
    out: list[Row] = []
    for n, line in enumerate(grid):
        out.append([(f"{labels.get(n, ''):>5} ", "dim"), (marks.tick, "dim"), *line])
    out.append([(" " * (AXIS_CELLS - 1) + marks.corner, "dim"), ("".join(axis), "dspark")])
    out.append([(" " * AXIS_CELLS, ""), ("".join(below), "dim")])
    return [*out, *said]


def _point(line: list[Span], at: int, row: SweepRow, room: int, marks: Marks) -> None:
    text = f"{marks.fast} {rate(row.tokens_per_s)}"
    text += " ≠" if row.differs else ""
    line[at] = (marks.fast, "dspark")
    if room > len(text) + 1 and at + len(text) <= len(line):  # never a part of a number
        _write(line, at, text + " ", "warn" if row.differs else "dspark")


def _name(line: list[Span], words: str, marks: Marks) -> None:
    """A line's name as far to the right as nothing but lines is overwritten."""
    free = marks.dot + marks.horizontal
    for first in range(len(line) - len(words) - 2, 0, -1):
        if all(char in free for char, _ in line[first : first + len(words)]):
            _write(line, first, words, "plain")
            return


def _write(line: list[Span], first: int, text: str, role: str) -> None:
    for n, char in enumerate(text, max(0, first)):
        if n < len(line):
            line[n] = (char, role)


def _put(line: list[str], first: int, text: str) -> None:
    for n, char in enumerate(text, max(0, first)):
        if n < len(line):
            line[n] = char


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Round numbers around the values."""
    low, high = min(values), max(values)
    step = 10.0 if high > 50 else 1.0
    return max(0.0, (low - step // 2) // step * step), (high // step + 1) * step
