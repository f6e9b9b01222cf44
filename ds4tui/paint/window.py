"""The part of a longer list of rows that is shown. Knows nothing of what the rows say."""

from __future__ import annotations

from collections.abc import Sequence

from ds4tui.marks import Marks
from ds4tui.spans import Row


def first_shown(at: int, count: int, room: int) -> int:
    """Where a window of `room` of `count` rows begins, so that row `at` is about its middle."""
    return max(0, min(at - room // 2, count - room))


def around(rows: Sequence[Row], at: int, room: int, marks: Marks, hint: str = "") -> list[Row]:
    """The rows around one of them; what does not fit is counted in a row of its own.

    Args:
        at: the row that must be seen.
        hint: how the rest can be seen.
    """
    count = len(rows)
    if count <= room or room < 3:
        first = first_shown(at, count, room)
        return list(rows[first : first + max(0, room)])
    inner = room - 1
    first = first_shown(at, count, inner)
    if 0 < first < count - inner:
        inner -= 1
        first = first_shown(at, count, inner)
    shown = list(rows[first : first + inner])
    if first:
        shown.insert(0, _rest(first, "above", marks, hint))
    below = count - first - inner
    return [*shown, _rest(below, "below", marks, hint)] if below else shown


def _rest(count: int, where: str, marks: Marks, hint: str) -> Row:
    return [(f" {marks.ellipsis} {count} more {where}{f', {hint}' if hint else ''}", "dim")]
