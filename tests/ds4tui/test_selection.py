"""Text selected with the mouse: from every place to every other, also outside the text."""

from __future__ import annotations

from itertools import product

import pytest
from textual.app import App
from textual.geometry import Offset
from textual.selection import Selection

from ds4tui.widgets.token_lines import Token
from ds4tui.widgets.token_stream import GUTTER, TokenStream
from tests.ds4tui import streams
from tests.ds4tui.harness import settle
from tests.ds4tui.session import SMALL, Session, finished

ROWS = {
    "full": "abcdefghij",
    "empty": "",
    "short": "a b",
    "wide": "漢字漢字漢",
    "wide, one cell left": "a漢字漢字",
    "emoji": "🙂👩🇩🇪👧",
    "combining": "e\u0301e\u0301",
}
PLACES = (0, 1, 2, 3, 5, 9, 10, 11, 40)


class Pane(App[None]):
    """A pane of ten cells beside its gutter."""

    def compose(self):  # type: ignore[no-untyped-def]
        yield TokenStream()


@pytest.mark.parametrize("text", ROWS.values(), ids=ROWS)
async def test_every_part_of_a_row_can_be_selected(text: str) -> None:
    app = Pane()
    async with app.run_test(size=(10 + GUTTER, 5)) as pilot:
        pane = app.query_one(TokenStream)
        pane.append([Token(part, "decode") for part in ("x\n", text, "\ny")])
        await pilot.pause()
        plain = [pane.render_line(y).text for y in range(3)]
        ends = [None, *(Offset(x, y) for y in range(4) for x in PLACES)]
        for start, end in product(ends, ends):
            if start is None or end is None or (start.y, start.x) <= (end.y, end.x):
                selection = Selection(start, end)
                drawn = [pane._draw(y, 10 + GUTTER, selection) for y in range(3)]
                assert [strip.text for strip in drawn] == plain, selection
                assert {strip.cell_length for strip in drawn} == {10 + GUTTER}, selection
                got = pane.get_selection(selection)
                assert got is not None
                assert got[0] in f"x\n{text}\ny"


@pytest.mark.parametrize("last", [(60, 21), (79, 23)])
async def test_the_mouse_may_begin_and_end_outside_the_text(last: tuple[int, int]) -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        left = session.app.playground.left
        left.append([Token("\n" + "x" * left.lines.width, "decode")])
        await pilot.press("G")
        await settle(pilot)
        beside_full_row = (left.region.right - 1, left.content_region.bottom - 1)
        for first in (beside_full_row, (0, 5), (79, 9), (5, 0)):
            for start, end in ((first, last), (last, first)):
                await pilot.mouse_down(offset=start)
                await pilot.hover(offset=end)
                await pilot.mouse_up(offset=end)
                await pilot.pause()
                assert session.app.playground.get_selected_text() is not None
