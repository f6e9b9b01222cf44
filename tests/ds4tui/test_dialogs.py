"""Dialogs when several keys come at once: each is left once, and takes nothing else with it."""

from __future__ import annotations

import pytest
from textual import events
from textual.pilot import Pilot
from textual.screen import ModalScreen

from ds4tui.commands import Palette
from ds4tui.screens.ask import AskText
from ds4tui.screens.help import HelpScreen
from ds4tui.screens.instrument import Instrument
from ds4tui.screens.model_panel import ModelPanel
from ds4tui.screens.prompt_editor import PromptEditor
from ds4tui.screens.set_chooser import SetChooser
from ds4tui.screens.token_popup import TokenPopup
from ds4tui.themes import next_theme
from engine.process import Run
from tests.ds4tui import streams
from tests.ds4tui.harness import settle
from tests.ds4tui.session import SMALL, Session, finished

OPENED_BY: dict[type[ModalScreen[object]], tuple[str, ...]] = {
    AskText: ("7", "o"),
    HelpScreen: ("?",),
    ModelPanel: ("o",),
    Palette: ("ctrl+p",),
    PromptEditor: ("i",),
    SetChooser: ("4", "o", "down"),
    TokenPopup: ("enter",),
}
BURSTS = ("enter enter", "escape escape", "enter escape", "enter x enter j enter")
CHARACTERS = {"enter": "\r", "escape": "\x1b"}


def at_once(session: Session, *names: str) -> None:
    """Keys as they come in one read: all are there before the first is acted on."""
    for name in names:
        session.app.post_message(events.Key(name, CHARACTERS.get(name, name)))


async def back_to_an_instrument(pilot: Pilot[int], session: Session) -> None:
    """Close what a key behind the dialog may have opened in its turn."""
    for _ in range(5):
        await settle(pilot)
        if isinstance(session.app.screen, Instrument):
            return
        await pilot.press("escape")
    raise AssertionError(f"{session.app.screen_stack} has no instrument on top")


def test_every_modal_screen_is_tried() -> None:
    def kinds_below(kind: type) -> set[type]:
        below = set(kind.__subclasses__())
        return below.union(*map(kinds_below, below))

    ours = {kind for kind in kinds_below(ModalScreen) if kind.__module__.startswith("ds4tui.")}
    assert {kind for kind in ours if not kind.__subclasses__()} == set(OPENED_BY)


@pytest.mark.parametrize("burst", BURSTS)
@pytest.mark.parametrize("kind", OPENED_BY)
async def test_keys_in_one_read(kind: type[ModalScreen[object]], burst: str) -> None:
    session = Session(streams.diverged_run(), streams.identical_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press(*OPENED_BY[kind])
        assert type(session.app.screen) is kind
        below = session.app.screen_stack[:-1]
        at_once(session, *burst.split())
        await settle(pilot)
        assert session.app.screen_stack[: len(below)] == below or burst.startswith("escape")
        await back_to_an_instrument(pilot, session)
        await pilot.press("3")
        await settle(pilot)
        assert session.app.screen is session.app.instruments["3"]


async def test_the_first_enter_runs_what_was_written_before_it() -> None:
    session = Session(streams.diverged_run(), streams.identical_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("i")
        at_once(session, "x", "enter", "y", "enter")
        await settle(pilot)
        assert session.app.screen is session.app.playground
        _, run = [command for command in session.link.commands if isinstance(command, Run)]
        assert run.request.prompt.text == f"{streams.PROMPT}x"


@pytest.mark.parametrize("enters", [2, 4])
async def test_the_palette_does_a_command_once(enters: int) -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("ctrl+p", *"change theme")
        await settle(pilot, lambda: "view: Change theme" in "\n".join(session.screen))
        theme = session.app.theme
        at_once(session, *["enter"] * enters)
        await settle(pilot, lambda: not isinstance(session.app.screen, Palette))
        await back_to_an_instrument(pilot, session)
        assert session.app.theme == next_theme(theme)
