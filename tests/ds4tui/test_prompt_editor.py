"""Prompts written by the user: the editor, its history, its switches, follow-up turns."""

from __future__ import annotations

from dataclasses import replace

from ds4tui.run_state import RunState
from ds4tui.screens.prompt_editor import PromptEditor, PromptText
from ds4tui.spans import text_of
from ds4tui.widgets.bars import PromptBar, RunBar
from ds4tui.widgets.toggle import Toggle
from engine.events import PromptRendered, RunStarted, TokenText
from engine.process import Run
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle
from tests.ds4tui.session import SMALL, Session, finished


async def test_loading_is_shown_and_the_prompt_can_be_edited_meanwhile() -> None:
    session = Session()
    session.link.greeting = streams.load_steps()[:20]
    async with session.app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: bool(session.controller.steps))
        screen = "\n".join(session.screen)
        assert "1 read files" in screen
        assert "3 compile kernels" in screen
        assert "8/23" in screen
        assert session.row(RunBar).endswith("LOADING 3/3")
        await pilot.press("i")
        assert isinstance(session.app.screen, PromptEditor)


async def test_prompt_editor_runs_what_was_typed() -> None:
    session = Session(streams.diverged_run(), streams.identical_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("i")
        editor = session.app.screen
        assert isinstance(editor, PromptEditor)
        text = editor.query_one(PromptText)
        assert text.text == streams.PROMPT
        text.text = ""
        await pilot.press(*"q [r] z")
        await pilot.press("ctrl+j", "x")
        assert text.text == "q [r] z\nx"
        await pilot.press("tab", "h", "i", "tab", "space", "tab", "tab", "space")
        prompt = editor.prompt
        assert (prompt.system, prompt.chat, prompt.think, prompt.control_tokens) == (
            "hi",
            False,
            False,
            True,
        )
        await pilot.press("enter")
        await settle(pilot, lambda: len(session.controller.runs) == 2)
        last = session.link.commands[-1]
        assert isinstance(last, Run)
        assert last.request.prompt == prompt


async def test_prompt_editor_history_and_leave() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        session.controller.history = ["first", "second"]
        await pilot.press("i", "up")
        text = session.app.screen.query_one(PromptText)
        assert text.text == "second"
        await pilot.press("up")
        assert text.text == "first"
        await pilot.press("down", "down")
        assert text.text == streams.PROMPT
        await pilot.press("escape")
        assert len(session.link.commands) >= 1
        assert sum(isinstance(c, Run) for c in session.link.commands) == 1


async def test_prompt_editor_shows_the_rendered_ids() -> None:
    session = Session(prompt=None)
    async with session.app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: session.controller.ready is not None)
        await pilot.press("i", "x")
        session.link.waiting += [
            PromptRendered("", -1, 0, "an earlier text", (1, 2, 3)),
            TokenText("", -1, 0, ((3, "<｜User｜>".encode()), (17, b"[b]"))),
            PromptRendered("", -1, 0, "x", (3, 17)),
        ]
        await settle(pilot)
        assert any("2 ids: 3=<｜User｜> 17=[b]" in row for row in session.screen)


async def test_ids_that_come_while_the_editor_opens() -> None:
    """What an editor asked for that has been left."""
    session = Session(prompt=None)
    async with session.app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: session.controller.ready is not None)
        session.link.waiting += [PromptRendered("", -1, 0, "an earlier text", (1, 2, 3))]

        def open_and_drain() -> None:
            session.app.action_prompt()
            session.app.drain()

        session.app.call_later(open_and_drain)
        await settle(pilot)
        await pilot.press("x")
        assert session.app.screen.query_one(PromptText).text == "x"


async def test_an_empty_prompt_is_not_run() -> None:
    session = Session(prompt=None)
    async with session.app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: session.controller.ready is not None)
        await pilot.press("i", "enter")
        assert isinstance(session.app.screen, PromptEditor)
        assert session.app.screen.query_one("#chat", Toggle).value


async def test_a_follow_up_is_a_further_turn_and_r_still_runs_the_first() -> None:
    link = FakeLink((READY,), streams.diverged_run())
    app = make_app(make_controller(link=link))
    async with app.run_test(size=SMALL) as pilot:
        assert not app.can("follow_up")
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        first = app.controller.prompt
        await pilot.press("I", *"why", "tab")
        assert isinstance(app.screen.focused, Toggle), "the system prompt is the first turn's"
        await pilot.press("enter")
        await settle(pilot)
        asked = link.commands[-1]
        assert isinstance(asked, Run)
        assert asked.request.follow_up
        assert (asked.request.prompt.text, asked.request.prompt.chat) == ("why", first.chat)
        assert app.controller.history[-1] == "why"
        assert not app.can("follow_up")
        turn = [
            replace(event, cached=30, prompt="why") if isinstance(event, RunStarted) else event
            for event in streams.renamed(streams.identical_run(), "run-2")
        ]
        link.waiting += turn
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        assert "(after 30 ids) why" in text_of(app.instrument.query_one(PromptBar).rows()[0])
        await pilot.press("r")
        again = link.commands[-1]
        assert isinstance(again, Run)
        assert not again.request.follow_up
        assert again.request.prompt == first
