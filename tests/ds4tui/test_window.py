"""The part of a longer list that is shown, and what is said of the rest."""

from __future__ import annotations

import pytest

from ds4tui.marks import UNICODE
from ds4tui.paint.window import around, first_shown
from ds4tui.spans import Row, text_of

ROWS: list[Row] = [[(f"row {n}", "")] for n in range(10)]


def shown(at: int, room: int, hint: str = "") -> list[str]:
    return [text_of(row) for row in around(ROWS, at, room, UNICODE, hint)]


def test_what_fits_is_shown_whole() -> None:
    assert shown(3, 10) == [text_of(row) for row in ROWS]


def test_the_rest_is_counted_above_and_below() -> None:
    assert shown(0, 4) == ["row 0", "row 1", "row 2", " … 7 more below"]
    assert shown(9, 4, "m shows all") == [
        *(" … 7 more above, m shows all", "row 7", "row 8", "row 9"),
    ]
    assert shown(5, 5) == [" … 4 more above", "row 4", "row 5", "row 6", " … 3 more below"]


@pytest.mark.parametrize("room", range(1, 12))
@pytest.mark.parametrize("at", range(10))
def test_every_row_is_shown_or_counted_and_the_chosen_one_is_seen(at: int, room: int) -> None:
    rows = shown(at, room)
    assert len(rows) == min(room, 10)
    assert f"row {at}" in rows
    if room >= 3:
        counted = sum(int(row.split()[1]) for row in rows if "more" in row)
        assert counted + sum("more" not in row for row in rows) == 10


def test_a_window_stays_inside() -> None:
    assert [first_shown(at, 10, 4) for at in (0, 2, 5, 9)] == [0, 0, 3, 6]
