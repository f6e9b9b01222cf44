"""The playground under a pilot: keys, panes, states. Waits on conditions, never on time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from ds4tui.app import Ds4App
from ds4tui.controller import Controller
from ds4tui.run_state import RunState
from ds4tui.screens.help import HelpScreen
from ds4tui.screens.prompt_editor import PromptEditor, PromptText
from ds4tui.screens.token_popup import TokenPopup
from ds4tui.spans import text_of
from ds4tui.widgets.bars import KeyFooter, PromptBar, RunBar, VerdictBar
from ds4tui.widgets.charts import ChartBox, DepthBox
from ds4tui.widgets.toggle import Toggle
from engine.events import Event, Notice, PromptRendered, RunStarted, TokenText
from engine.process import Pause, Run, Stop
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle

Size = tuple[int, int]
SMALL: Size = (80, 24)
LARGE: Size = (120, 36)


def done(controller: Controller) -> bool:
    return controller.state in (RunState.DONE, RunState.FAILED)


class Session:
    """An app on a fake link, with short words for what tests look at."""

    def __init__(self, *runs: list[Event], prompt: str | None = streams.PROMPT, **config: object):
        self.link = FakeLink((READY,), *runs)
        self.controller = make_controller(link=self.link, prompt=prompt)
        self.app: Ds4App = make_app(self.controller, **config)

    def row(self, kind: type[RunBar | PromptBar | VerdictBar | KeyFooter]) -> str:
        return text_of(self.app.playground.query_one(kind).rows()[0]).rstrip()

    @property
    def screen(self) -> list[str]:
        """What the terminal shows, row by row."""
        size = self.app.size
        strips = self.app.screen._compositor.render_strips()
        return [strip.text for strip in strips][: size.height]


async def finished(pilot: Pilot[int], session: Session) -> None:
    await settle(pilot, lambda: done(session.controller))


async def test_from_start_to_divergence() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        names = "ds4tui [1 Play] 2 Cycle  3 Drift  4 Matrix  5 Econ  6 Sweep  7 Runs"
        assert session.row(RunBar) == f"{names}  DONE 1.9 s"
        assert session.row(VerdictBar).startswith('≠ DIVERGED at 163  " reply" / " respond"')
        assert session.row(KeyFooter).startswith("r Run  n Try invariant  p Try prefix")
        left, right = session.app.playground.left, session.app.playground.right
        assert left.has_focus
        # The parting row is at a third of the height, and on the same row in both panes.
        rows = [pane.lines.row_of(163) - pane.scroll_offset.y for pane in (left, right)]
        assert rows == [left.size.height // 3] * 2
        screen = session.screen
        assert sum("►" in row for row in screen[4:16]) == 1
        assert sum(row.count("►") for row in screen[4:16]) == 2
        assert any("┊" in row for row in screen)


async def test_first_paint_comes_before_the_engine() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: bool(session.link.commands))
        assert isinstance(session.link.commands[0], Run)


async def test_running_follows_the_end_until_scrolled() -> None:
    events = streams.run(streams.Script(diverges=False, drifts=False))
    part = streams.until(events, 200)
    session = Session(part)
    async with session.app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: session.controller.state is RunState.DECODING)
        left, right = session.app.playground.left, session.app.playground.right
        assert left.follows
        assert left.scroll_offset.y == left.max_scroll_y
        await pilot.press("pageup")
        await settle(pilot)
        assert not left.follows
        assert left.scroll_offset.y == right.scroll_offset.y
        top = left.scroll_offset.y
        session.link.waiting += events[len(part) : len(part) + 120]
        await settle(pilot)
        assert left.scroll_offset.y == top
        assert left.unseen > 0
        assert "new, end follows" in "".join(session.screen)
        await pilot.press("G")
        await settle(pilot)
        assert left.follows
        assert left.scroll_offset.y == left.max_scroll_y


async def test_the_cursor_is_at_one_index_in_both_panes() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        left, right = session.app.playground.left, session.app.playground.right
        await pilot.press("l")
        assert left.cursor == right.cursor == 163
        await pilot.press("h", "h")
        assert left.cursor == right.cursor == 161
        assert '#161 " does"' in "".join(session.screen)
        await pilot.press("j")
        assert left.cursor is not None
        assert left.lines.row_of(left.cursor) == left.lines.row_of(161) + 1
        await pilot.press("g")
        assert left.cursor == 0
        assert left.scroll_offset.y == right.scroll_offset.y == 0
        await pilot.press("d")
        assert left.cursor == right.cursor == 163
        await pilot.press("D")
        assert left.cursor == 3
        await pilot.press("full_stop")
        starts = session.controller.record.arms[1].cycle_starts  # type: ignore[union-attr]
        assert right.cursor in starts
        await pilot.press("comma", "comma")
        assert right.cursor in starts
        await pilot.press("escape")
        assert left.cursor is None


async def test_scrolling_apart() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        left, right = session.app.playground.left, session.app.playground.right
        await pilot.press("s", "pageup")
        await settle(pilot)
        assert left.scroll_offset.y != right.scroll_offset.y
        await pilot.press("s")
        await settle(pilot)
        assert left.scroll_offset.y == right.scroll_offset.y


async def test_mouse_puts_the_cursor_and_uses_the_footer() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        left = session.app.playground.left
        await pilot.click(left, offset=(5, 3))
        assert left.cursor is not None
        assert left.lines.row_of(left.cursor) == left.scroll_offset.y + 2
        await pilot.click(KeyFooter, offset=(8, 0))
        await settle(pilot)
        assert session.controller.settings.numerics == "invariant"
        assert "split>invariant" in session.row(PromptBar)


async def test_rejected_drafts_and_marks() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        right = session.app.playground.right
        before = len(right.lines.lines)
        await pilot.press("x")
        assert any("[" in right.lines.row_text(row) for row in range(len(right.lines.lines)))
        assert "[" not in session.controller.record.arms[1].texts  # type: ignore[union-attr]
        await pilot.press("x")
        assert len(right.lines.lines) == before
        drafts = {right._style(index, 0).underline for index in range(20)}
        assert True in drafts
        await pilot.press("v")
        assert not any(right._style(index, 0).underline for index in range(20))
        assert right._style(163, 0).reverse


async def test_token_popup_moves_and_leaves_the_cursor_there() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("enter")
        assert isinstance(session.app.screen, TokenPopup)
        assert session.app.screen.index == 163
        await settle(pilot)
        assert any('> " respond"' in row for row in session.screen)
        await pilot.press("right", "right", "escape")
        await settle(pilot)
        assert session.app.playground.left.cursor == 165


async def test_boxes_flip_and_maximise() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        playground = session.app.playground
        await pilot.press("tab", "tab")
        depth = playground.query_one(DepthBox)
        assert depth.has_focus
        await pilot.press("f")
        await settle(pilot)
        assert "proposed and accepted" in "".join(session.screen)
        await pilot.press("m")
        await settle(pilot)
        assert depth.size.width == 118
        assert not playground.left.display or not playground.query_one("#panes").display
        assert session.screen[2].startswith("≠ DIVERGED")
        await pilot.press("m")
        await settle(pilot)
        assert depth.size.width < 60
        await pilot.press("shift+tab", "m")
        await settle(pilot)
        assert playground.right.size.width == 118
        await pilot.press("escape")
        await settle(pilot)
        assert playground.right.size.width == 58


async def test_boxes_can_be_maximised_from_the_strip() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("tab", "tab", "m")
        await settle(pilot)
        screen = session.screen
        assert "accepted/reached" in "".join(screen)
        assert screen[2].startswith("≠ DIVERGED")
        assert screen[-1].startswith("m Restore")


async def test_knobs_by_key_and_run_again() -> None:
    session = Session(streams.diverged_run(), streams.identical_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("n", "p")
        await settle(pilot)
        assert "split>invariant direct>prefix" in session.row(PromptBar)
        assert session.row(KeyFooter).startswith("r Run invariant prefix")
        await pilot.press("r")
        await settle(pilot, lambda: len(session.controller.runs) == 2 and done(session.controller))
        assert session.row(VerdictBar).startswith("= IDENTICAL")
        assert session.app.playground.left.parting is None
        assert "►" not in "".join(session.screen[3:17])


async def test_pause_and_stop_keys() -> None:
    session = Session(streams.until(streams.diverged_run(), 60))
    async with session.app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: session.controller.state is RunState.DECODING)
        assert session.row(KeyFooter).startswith("space Pause  esc Stop")
        await pilot.press("space")
        assert session.row(KeyFooter).startswith("space Resume")
        assert session.row(RunBar).endswith("PAUSED #60")
        await pilot.press("escape")
        assert [type(c) for c in session.link.commands] == [Run, Pause, Stop]
        await pilot.press("r", "right_square_bracket")
        assert [type(c) for c in session.link.commands] == [Run, Pause, Stop]


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


async def test_failure_keeps_the_text_and_retries() -> None:
    session = Session(streams.failed_run(), streams.identical_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        screen = "\n".join(session.screen)
        assert "signal 9" in screen
        assert "Killed" in screen
        assert len(session.app.playground.left.lines) > 200
        assert session.row(KeyFooter).startswith("r Retry")
        session.link.is_alive = False
        await pilot.press("r")
        await settle(pilot, lambda: session.controller.state is RunState.DONE)
        assert "signal 9" not in "\n".join(session.screen)


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


async def test_an_empty_prompt_is_not_run() -> None:
    session = Session(prompt=None)
    async with session.app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: session.controller.ready is not None)
        await pilot.press("i", "enter")
        assert isinstance(session.app.screen, PromptEditor)
        assert session.app.screen.query_one("#chat", Toggle).value


async def test_help_lists_the_keys_and_closes() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        await pilot.press("question_mark")
        assert isinstance(session.app.screen, HelpScreen)
        await settle(pilot)
        assert any("Numerics, from the next run on" in row for row in session.screen)
        await pilot.press("G", "escape")
        assert not isinstance(session.app.screen, HelpScreen)


async def test_slow_motion_by_key() -> None:
    session = Session(streams.diverged_run())
    clock = session.controller._clock
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("z")
        clock.now += 12.0  # type: ignore[attr-defined]
        await settle(pilot)
        assert session.row(RunBar).endswith("REPLAY 0.05x")
        left, right = session.app.playground.left, session.app.playground.right
        assert 0 < len(left.lines) < len(right.lines) < 400
        await pilot.press("greater_than_sign")
        assert session.row(RunBar).endswith("REPLAY 0.10x")
        await pilot.press("escape")
        await settle(pilot)
        assert len(left.lines) == len(right.lines) == 400
        assert session.row(VerdictBar).startswith("≠ DIVERGED")


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


@pytest.mark.parametrize("size", [(40, 10), (20, 5), (200, 60)])
async def test_every_size_survives(size: Size) -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        await pilot.resize_terminal(*size)
        await settle(pilot)
        await pilot.press("d", "tab", "tab", "m")
        await settle(pilot)
        await pilot.resize_terminal(*SMALL)
        await settle(pilot)
        await pilot.press("escape")
        await settle(pilot)
        assert session.screen[2].startswith("≠ DIVERGED at 163")


async def test_a_small_terminal_shows_one_pane_and_tab_the_other() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=(58, 20)) as pilot:
        await finished(pilot, session)
        playground = session.app.playground
        assert (playground.left.display, playground.right.display) == (True, False)
        assert "[plain]" in session.screen[3]
        await pilot.press("tab")
        await settle(pilot)
        assert playground.right.has_focus
        assert "[DSpark]" in session.screen[3]
        await pilot.press("tab")
        await settle(pilot)
        assert "[plain]" in session.screen[3]


async def test_themes_and_palette() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        for name in ("light", "contrast", "dark"):
            await pilot.press("t")
            assert session.app.theme == name
        await pilot.press("ctrl+p")
        await pilot.press(*"first drift", "enter")
        await settle(pilot, lambda: session.app.playground.left.cursor == 3)


async def test_ascii_draws_ascii() -> None:
    session = Session(streams.diverged_run(), ascii=True)
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        await pilot.press("d", "x")
        await settle(pilot)
        assert "".join(session.screen).isascii()


async def test_keys_can_be_remapped() -> None:
    session = Session(streams.diverged_run(), keys={"divergence": "g"})
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        assert "g Divergence" in session.row(KeyFooter)


async def test_wide_screens_have_boxes() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        assert all(box.is_boxed for box in session.app.playground.query(ChartBox))
        assert any("lengths vary" in row and "mean 2.71" in row for row in session.screen)


async def test_several_arms_take_turns_in_the_right_pane() -> None:
    events = streams.diverged_run()
    at = next(n for n, e in enumerate(events) if isinstance(e, RunStarted))
    started = events[at]
    assert isinstance(started, RunStarted)
    third = replace(started.arms[1], name="second", commit="prefix")
    events[at] = replace(started, arms=(*started.arms, third))
    events = [
        e
        for event in events
        for e in ([event, replace(event, arm=2)] if event.arm == 1 else [event])
    ]
    session = Session(events)
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        assert "DSpark · direct" in session.screen[3]
        await pilot.press("w")
        await settle(pilot)
        assert "DSpark · prefix" in session.screen[3]
        assert len(session.app.playground.right.lines) == 400
        await pilot.press("w")
        await settle(pilot)
        assert "DSpark · direct" in session.screen[3]


async def test_a_plain_run_says_why_nothing_is_compared() -> None:
    events = [e for e in streams.diverged_run() if e.arm < 1]
    at = next(n for n, e in enumerate(events) if isinstance(e, RunStarted))
    started = events[at]
    assert isinstance(started, RunStarted)
    events[at] = replace(started, arms=started.arms[:1])
    events.insert(at + 1, Notice("run-1", -1, 0, "info", "No drafter was given."))
    session = Session(events)
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        assert session.row(VerdictBar) == "· PLAIN ONLY  No drafter was given."
        assert "No drafter was given." in session.screen[4]
        assert not session.app._notifications


async def test_the_mouse_selects_text() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("g")
        left = session.app.playground.left
        await pilot.mouse_down(left, offset=(3, 1))
        await pilot.hover(left, offset=(12, 1))
        await pilot.mouse_up(left, offset=(12, 1))
        assert session.app.playground.get_selected_text() == "TCP opens "


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


async def test_quit_closes_the_engine() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("q")
    assert session.link.closed
    assert session.app.return_code == 0


async def test_a_follow_up_is_a_further_turn_and_r_still_runs_the_first() -> None:
    link = FakeLink((READY,), streams.diverged_run())
    app = make_app(make_controller(link=link))
    async with app.run_test(size=SMALL) as pilot:
        assert not app.can("follow_up")
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        first = app.controller.prompt
        await pilot.press("I", *"why", "enter")
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
