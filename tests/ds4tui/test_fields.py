"""Fields that are edited: their text is kept as it is, what is drawn cannot act on the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual._xterm_parser import XTermParser
from textual.widgets import Input

from ds4tui.screens.prompt_editor import PromptText
from ds4tui.visible import drawable_field
from engine.process import Run
from tests.ds4tui import streams
from tests.ds4tui.harness import settle
from tests.ds4tui.session import LARGE, Session, finished

HOSTILE = "a\x1b[2Jb\x07\u202ec\x9b31m [bold] é👍"
DRAWN = "a␛[2Jb␇\ufffdc\ufffd31m [bold] é👍"


@pytest.mark.parametrize(
    ("text", "drawn"),
    [(HOSTILE, DRAWN), ("\x00\x7f\ud800", "␀␡\ufffd"), ("tab\there ❤️ 👩‍👧", "tab\there ❤️ 👩‍👧")],
)
def test_one_glyph_for_each_character(text: str, drawn: str) -> None:
    assert drawable_field(text) == drawn


@given(st.text(st.characters(), max_size=60))
def test_cursors_stay_in_place(text: str) -> None:
    drawn = drawable_field(text)
    assert len(drawn) == len(text)
    assert not any("\x00" <= char < " " and char not in "\t\n" for char in drawn)


async def test_a_prompt_is_drawn_in_glyphs_and_run_as_it_is() -> None:
    session = Session(streams.diverged_run(), streams.identical_run(), prompt=HOSTILE)
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        await pilot.press("i")
        field = session.app.screen.query_one("#system", Input)
        field.value = f"system {HOSTILE}"
        await settle(pilot)
        rows = session.screen
        assert any(DRAWN in row for row in rows)
        assert any("system a␛[2Jb" in row for row in rows)
        assert not any(char in row for row in rows for char in "\x1b\x07\u202e\x9b")
        assert session.app.screen.query_one(PromptText).text == HOSTILE
        await pilot.press("enter")
        run = session.link.commands[-1]
        assert isinstance(run, Run)
        assert (run.request.prompt.text, run.request.prompt.system) == (
            HOSTILE,
            f"system {HOSTILE}",
        )


TYPED = (
    "\U0001f468\u200d\U0001f469\u200d\U0001f467"  # a family, joined
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"  # a Persian word with a non-joiner
    "x\u3000y\u00a0z"  # spaces of other widths
    "\u2764\ufe0f\U0001fae8\ue0b0"  # a selector, a newer emoji, private use
    "\U0001f3f4\U000e0067\U000e007f"  # tags of a flag
)


def typed(text: str) -> list[events.Key]:
    """The keys that Textual makes from what a terminal sends."""
    keys = [event for event in XTermParser().feed(text) if isinstance(event, events.Key)]
    assert [key.character for key in keys] == list(text)
    return keys


async def test_what_is_typed_arrives_as_what_is_pasted_does() -> None:
    session = Session(streams.diverged_run(), prompt="a")
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        await pilot.press("i")
        prompt = session.app.screen.query_one(PromptText)
        for key in typed(TYPED):
            session.app.screen.post_message(key)
        await settle(pilot, lambda: len(prompt.text) > len(TYPED))
        assert prompt.text == "a" + TYPED
        prompt.select_all()
        for key in typed("\u200d\x00b"):
            session.app.screen.post_message(key)
        await settle(pilot, lambda: prompt.text.endswith("b"))
        assert prompt.text == "\u200db", "what is selected gives way, a control is no text"
        system = session.app.screen.query_one("#system", Input)
        system.focus()
        for key in typed(TYPED):
            session.app.screen.post_message(key)
        await settle(pilot, lambda: len(system.value) >= len(TYPED))
        assert system.value == TYPED


@pytest.mark.parametrize("keys", ["7 o", "4 o"])
async def test_a_field_of_a_dialog_too(keys: str) -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        await pilot.press(*keys.split())
        field = session.app.screen.query_one(Input)
        field.value = "x\x1b[2J"
        await settle(pilot)
        shown = "".join(session.screen)
        assert "x␛[2J" in shown
        assert "\x1b" not in shown
        assert field.value == "x\x1b[2J"
