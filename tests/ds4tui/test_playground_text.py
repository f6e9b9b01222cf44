"""Text of the playground: copied, selected, hostile, without colour, in ASCII."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine.events import RunStarted, TokenText
from tests.ds4tui import streams
from tests.ds4tui.harness import settle
from tests.ds4tui.session import LARGE, SMALL, Session, finished


async def test_copy_says_what_and_writes_the_same(tmp_path: Path) -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("y")
        (path,) = (tmp_path / "exports").iterdir()
        text = path.read_text(encoding="utf-8")
        assert text == session.app.clipboard
        assert text.startswith("TCP opens a connection")
        note = next(iter(session.app._notifications)).message
        assert "400 tokens of plain" in note
        assert str(path) in note
        await pilot.press("tab", "tab", "y")
        await settle(pilot)
        assert "46+9" in session.app.clipboard


@pytest.mark.parametrize(("size", "most"), [((120, 36), 2), ((80, 24), 2), ((40, 10), 3)])
async def test_a_notice_lies_over_the_footer_and_few_rows(
    size: tuple[int, int], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own words, whole, and nothing but the last rows hidden; the newest of two shows."""
    monkeypatch.setenv("HOME", str(tmp_path))
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=size, notifications=True) as pilot:
        await finished(pilot, session)
        before = session.screen
        await pilot.press("Y", "y")
        (path,) = (tmp_path / "exports").glob("*plain.txt")
        await settle(pilot, lambda: len(session.app._notifications) == 2)
        await settle(pilot)
        shown = session.screen
        hidden = [row for row in range(size[1]) if shown[row] != before[row]]
        words = "".join(shown[row].lstrip("\u258c ") for row in hidden).replace(" ", "")
        assert hidden == list(range(hidden[0], size[1]))
        assert len(hidden) <= most
        told = f"copied 400 tokens of plain, 1914 characters; file ~/exports/{path.name}"
        assert words.endswith(told.replace(" ", ""))


async def test_hostile_text_is_drawn_as_it_is() -> None:
    events = streams.diverged_run()
    started = next(e for e in events if isinstance(e, RunStarted))
    at = events.index(started)
    events[at] = replace(started, prompt="[/INST] a[i] [bold]\x1b[2J")
    events = [
        replace(e, entries=tuple((n, b" [/x]\x1b[2J") for n, _ in e.entries))
        if isinstance(e, TokenText)
        else e
        for e in events
    ]
    session = Session(events)
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        screen = "\n".join(session.screen)
        assert "» [/INST] a[i] [bold]␛[2J" in screen
        assert "[/x]␛[2J" in screen
        assert "\x1b" not in screen
        await pilot.press("d", "enter")
        await settle(pilot)
        assert "[/x]␛[2J" in "\n".join(session.screen)


async def test_an_error_with_brackets_is_literal() -> None:
    from engine.events import RunFailed

    session = Session()
    session.link.greeting = [RunFailed("", -1, 0, "a[i]", "bad [/INST] [bold", "")]
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        assert "bad [/INST] [bold" in "\n".join(session.screen)


async def test_ascii_draws_ascii() -> None:
    session = Session(streams.diverged_run(), ascii=True)
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        await pilot.press("d", "x")
        await settle(pilot)
        assert "".join(session.screen).isascii()


def note(session: Session) -> str:
    """The newest notice."""
    return list(session.app._notifications)[-1].message


async def test_a_selection_is_copied_without_the_breaks_of_its_rows(tmp_path: Path) -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("g")
        left = session.app.playground.left
        first, second = (left.lines.row_text(row) for row in (0, 1))
        await pilot.mouse_down(left, offset=(3, 1))
        await pilot.hover(left, offset=(12, 2))
        await pilot.mouse_up(left, offset=(12, 2))
        await pilot.press("y")
        assert session.app.clipboard.startswith(f"{first} {second[:5]}")
        assert "\n" not in session.app.clipboard


async def test_the_mouse_selects_text(tmp_path: Path) -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("g")
        left = session.app.playground.left
        await pilot.mouse_down(left, offset=(3, 1))
        await pilot.hover(left, offset=(12, 1))
        await pilot.mouse_up(left, offset=(12, 1))
        assert session.app.playground.get_selected_text() == "TCP opens "
        await pilot.press("y")
        (path,) = (tmp_path / "exports").iterdir()
        assert session.app.clipboard == path.read_text(encoding="utf-8") == "TCP opens "
        assert path.name.endswith("selection.txt")
        assert "copied the selection, 10 characters" in note(session)
        # What was selected is copied once: the next time it is the pane again.
        await pilot.press("y")
        assert "400 tokens of plain" in note(session)


@contextmanager
def no_color(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NO_COLOR", "1")
    yield
    monkeypatch.delenv("NO_COLOR")


async def test_marks_survive_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    with no_color(monkeypatch):
        session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        right = session.app.playground.right
        assert right._style(163, 0).reverse
        assert any(right._style(index, 0).bold for index in range(10))
