"""Brackets, escapes and bidi marks in prompts, output, names and notices: literal everywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.events import Event, Notice, RunStarted, TokenText
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, settle
from tests.ds4tui.session import LARGE, Session, finished

HOSTILE = "[/INST] a[i] [bold \x1b[2J\u202e"
LITERAL = "[/INST] a[i] [bold ␛[2J"


def hostile_run() -> list[Event]:
    """A run whose prompt, tokens and notice are all hostile."""
    events: list[Event] = []
    for event in streams.diverged_run():
        if isinstance(event, RunStarted):
            files = tuple(replace(file, path=HOSTILE, name=HOSTILE) for file in event.files)
            event = replace(event, prompt=HOSTILE, files=files)
        elif isinstance(event, TokenText):
            event = replace(event, entries=tuple((n, HOSTILE.encode()) for n, _ in event.entries))
        events.append(event)
    started = next(at for at, event in enumerate(events) if isinstance(event, RunStarted))
    events.insert(started + 1, Notice("run-1", -1, 0, "warning", HOSTILE))
    return events


def hostile_session() -> Session:
    session = Session(hostile_run(), prompt=HOSTILE)
    files = tuple(replace(file, path=HOSTILE, name=HOSTILE) for file in READY.files)
    session.link.greeting = [replace(READY, files=files)]
    return session


def assert_harmless(session: Session) -> None:
    shown = "\n".join(session.screen)
    assert "\x1b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("key", "1234567")
async def test_every_screen_shows_it_literally(key: str) -> None:
    session = hostile_session()
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        await pilot.press(key)
        await settle(pilot)
        names_the_set = key == "4"
        assert (LITERAL in session.screen[1]) is not names_the_set
        assert_harmless(session)


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ("i", "prompt editor"),
        ("o", "model panel"),
        ("enter", "token"),
        ("7 enter", "an opened run"),
    ],
)
async def test_every_popup_shows_it_literally(keys: str, name: str) -> None:
    session = hostile_session()
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        await pilot.press(*keys.split())
        await settle(pilot)
        assert any("[/INST] a[i]" in row for row in session.screen[2:]), name
        assert_harmless(session)


async def test_notices_are_literal() -> None:
    session = hostile_session()
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        assert any("[/INST] a[i]" in note.message for note in session.app._notifications)
        assert any("[/INST] a[i] [bold" in row for row in session.screen[20:]), "the toast"
        assert_harmless(session)
