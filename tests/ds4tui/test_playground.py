"""The playground under a pilot: keys, panes, states. Waits on conditions, never on time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4tui.run_state import RunState
from ds4tui.screens.help import HelpScreen
from ds4tui.screens.token_popup import TokenPopup
from ds4tui.spans import text_of
from ds4tui.widgets.bars import KeyFooter, PromptBar, RunBar, VerdictBar
from ds4tui.widgets.charts import SidedBox
from engine.events import Event, RunFailed, RunStarted
from engine.process import Pause, Run, Stop
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle
from tests.ds4tui.session import LARGE, SMALL, Session, Size, done, finished


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
        depth = playground.query_one("#depth", SidedBox)
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


async def test_a_failed_load_without_a_prompt_is_tried_again_by_its_key() -> None:
    failed = RunFailed("", -1, 0, "File not found", "x.gguf does not exist.", "Check the path.")
    link = FakeLink((failed,))
    controller = make_controller(link=link, prompt=None)
    app = make_app(controller)
    async with app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: controller.state is RunState.FAILED)
        assert "r retries" in app.instrument.verdict().bodies[0]
        assert app.instrument.footer()[0][:2] == ("r", "Retry")
        link.greeting = [READY]
        await pilot.press("r")
        await settle(pilot, lambda: controller.state is RunState.IDLE)
        assert link.commands == [], "there is still nothing to run"
        assert app.instrument.verdict().bodies == ("i takes a prompt",)
        assert not app.can("run")


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


async def test_keys_can_be_remapped() -> None:
    session = Session(streams.diverged_run(), keys={"divergence": "g"})
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        assert "g Divergence" in session.row(KeyFooter)


async def test_wide_screens_have_boxes() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        assert all(box.is_boxed for box in session.app.playground.query(SidedBox))
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
        assert "DSpark 1/2 · direct" in session.screen[3]
        await pilot.press("w")
        await settle(pilot)
        assert "DSpark 2/2 · prefix" in session.screen[3]
        assert len(session.app.playground.right.lines) == 400
        await pilot.press("w")
        await settle(pilot)
        assert "DSpark 1/2 · direct" in session.screen[3]


async def test_a_plain_run_says_why_nothing_is_compared() -> None:
    session = Session(streams.plain_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        assert session.row(VerdictBar) == "· PLAIN ONLY  No drafter was given."
        assert "No drafter was given." in session.screen[4]
        assert not session.app._notifications


async def test_the_mean_depth_stays_in_the_title_however_many_sides_a_box_has() -> None:
    other = [
        replace(event, prompt_ids=(9,)) if isinstance(event, RunStarted) else event
        for event in streams.diverged_run()
    ]
    session = Session(streams.diverged_run(), streams.renamed(other, "run-9"))
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        await pilot.press("r")
        await finished(pilot, session)
        depth = session.app.playground.query_one("#depth", SidedBox)
        assert depth.counter == "1/4"
        assert str(depth.border_title).endswith("mean 2.71")


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_without_a_focused_box_f_turns_the_first_one_that_has_another_side(
    size: Size,
) -> None:
    session = Session(streams.mixed_run())
    async with session.app.run_test(size=size) as pilot:
        await finished(pilot, session)
        depth = session.app.playground.query_one("#depth", SidedBox)
        first = depth.side
        await pilot.press("f")
        assert session.app.playground.focused is session.app.playground.left
        assert depth.side is not None
        assert depth.side is not first
        # A box that has the focus is the one that turns.
        rates = session.app.playground.query_one("#rates", SidedBox)
        rates.focus()
        turned, before = depth.side, rates.side
        await pilot.press("f")
        assert depth.side is turned
        assert (rates.side is before) == (size == SMALL), "a strip has one side of the rates"


async def test_quit_closes_the_engine() -> None:
    session = Session(streams.diverged_run())
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("q")
    assert session.link.closed
    assert session.app.return_code == 0


async def test_a_turned_knob_begins_the_charts_anew_and_f_shows_what_was_before() -> None:
    session = Session(streams.mixed_run())
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        record = session.controller.record
        assert record is not None
        (turn,) = record.arms[1].segments.turns
        charts = "\n".join(session.screen[22:])
        assert f"depth from #{turn}, replay" in charts
        assert f"ms per token from #{turn}" in charts
        assert "┊ turned" in charts
        assert f"MIXED: direct to #{turn}, then replay" in session.row(VerdictBar)
        await pilot.press("tab", "tab")
        assert session.row(KeyFooter).startswith("f Other side")
        others = (f"depth to #{turn - 1}, direct", "depth, the whole run", "proposed and accepted")
        for title in (*others, f"depth from #{turn}, replay"):
            await pilot.press("f")
            await settle(pilot)
            assert title in "\n".join(session.screen[22:])


async def test_the_histogram_over_all_prompts_is_live() -> None:
    def on(prompt: int) -> list[Event]:
        events = streams.renamed(streams.diverged_run(), f"run-{prompt}")
        return [
            replace(event, prompt_ids=(prompt,)) if isinstance(event, RunStarted) else event
            for event in events
        ]

    session = Session(on(1), streams.until(on(2), 60), on(3))
    async with session.app.run_test(size=SMALL) as pilot:
        await finished(pilot, session)
        await pilot.press("tab", "tab")
        assert not session.app.can("flip")
        await pilot.press("r")
        await settle(pilot, lambda: session.controller.state is RunState.DECODING)
        await pilot.press("f")
        await settle(pilot)
        assert "depth, 2 prompts" in session.screen[17]
        counts = session.app.playground.query_one("#depth", SidedBox).strip_rows(31)[3]
        one = 147
        total = sum(int(n) for n in text_of(counts).replace("+", " ").split())
        assert one < total < 2 * one
