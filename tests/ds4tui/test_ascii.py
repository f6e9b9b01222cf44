"""`--ascii`: not one other character anywhere, popups, palette, frames and fields included."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from rich.cells import cell_len

from ds4tui.app import Ds4App
from ds4tui.ascii_lines import ascii_cells
from ds4tui.run_state import RunState
from tests.ds4tui import streams
from tests.ds4tui.harness import make_app, make_controller, settle


def drawn(app: Ds4App) -> list[str]:
    """The rows of the screen as they go to the terminal."""
    return [strip.text for strip in app.screen._compositor.render_strips()][: app.size.height]


OPENED_BY = (
    (), ("question_mark",), ("ctrl+p",), ("i",), ("o",), ("2",), ("3",), ("4",), ("4", "o"),
    ("5",), ("6",), ("7",), ("7", "o"), ("y",), ("d", "enter"),
)  # fmt: skip
"""Keys from the playground to each screen and popup, and to a message."""


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_every_screen_and_popup(size: tuple[int, int]) -> None:
    controller = make_controller(streams.diverged_run())
    app = make_app(controller, ascii=True)
    async with app.run_test(size=size) as pilot:
        await settle(pilot, lambda: controller.state is RunState.DONE)
        kinds = set()
        for keys in OPENED_BY:
            await pilot.press(*keys)
            await pilot.pause()
            rows = drawn(app)
            assert [row for row in rows if not row.isascii()] == [], keys
            assert {len(row) for row in rows} == {size[0]}, keys
            kinds.add(type(app.screen))
            await pilot.press("escape", "1")
        assert len(kinds) == 14


async def test_a_prompt_in_any_script() -> None:
    controller = make_controller(streams.diverged_run(), prompt="日本 é e\u0301 🙂")
    app = make_app(controller, ascii=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: controller.state is RunState.DONE)
        await pilot.press("i")
        await pilot.pause()
        rows = drawn(app)
        assert any("???? ? e ??" in row for row in rows), "a character for each cell"
        assert all(row.isascii() for row in rows)


@pytest.mark.parametrize("text", ["plain", "┌─│ a · b…", "日本", "e\u0301", "█▆", "🙂x", ""])
def test_each_cell_has_one_character(text: str) -> None:
    shown = ascii_cells(text)
    assert shown.isascii()
    assert len(shown) == cell_len(text)


@pytest.mark.skipif(os.name != "posix", reason="needs locales by name")
@pytest.mark.parametrize(("name", "is_ascii"), [("C", True), ("POSIX", True), ("C.UTF-8", False)])
def test_a_locale_without_utf_8_gets_ascii(name: str, is_ascii: bool) -> None:
    program = "from ds4tui.marks import choose; print(choose(False).ascii)"
    environment = {**os.environ, "LC_ALL": name}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{is_ascii}\n"
