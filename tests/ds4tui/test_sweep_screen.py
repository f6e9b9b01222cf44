"""The sweep screen: driven by events alone, from the keys that start it to the knob it sets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from textual.pilot import Pilot

from ds4tui import exports
from ds4tui.app import Ds4App
from ds4tui.run_state import RunState
from ds4tui.screens.set_chooser import SetChooser
from ds4tui.screens.sweep import SweepScreen
from ds4tui.spans import text_of
from ds4tui.widgets.bars import KeyFooter, RunBar, VerdictBar
from ds4tui.widgets.box import Box
from engine.events import Event, RunFailed
from engine.process import RunSuite, Stop
from engine.settings import Knobs, Settings
from engine.sweep import SweepRequest
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, replayed, settle
from tests.ds4tui.session import screen_of
from tests.ds4tui.sweeps import BLOCKS, CYCLES, SweepScript, stopped, sweep

CURED = Settings(numerics="invariant", dspark=(Knobs("prefix"),))
SIZE = (120, 36)


def started(link: FakeLink, settings: Settings = CURED) -> Ds4App:
    return make_app(make_controller(link=link, prompt=None, settings=settings))


async def opened(pilot: Pilot[int], link: FakeLink, events: Sequence[Event] = ()) -> SweepScreen:
    """Screen 6 with a prompt, after these events."""
    app = pilot.app
    assert isinstance(app, Ds4App)
    await settle(pilot, lambda: app.controller.ready is not None)
    app.controller.prompt = app.controller.prompts[0].prompt
    await pilot.press("6")
    link.waiting += events
    await settle(pilot)
    screen = app.instrument
    assert isinstance(screen, SweepScreen)
    return screen


def shown(screen: SweepScreen, box: str = "#sweep-table") -> str:
    return "\n".join(text_of(row).rstrip() for row in screen.query_one(box, Box).rows())


def verdict(screen: SweepScreen) -> str:
    return text_of(screen.query_one(VerdictBar).rows()[0])


def footer(screen: SweepScreen) -> str:
    return text_of(screen.query_one(KeyFooter).rows()[0])


async def test_r_sweeps_the_prompt_once_with_the_coarse_values_first() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        assert "no sweep yet" in verdict(screen)
        assert "r sweeps 8 values" in shown(screen, "#sweep-chart")
        await pilot.press("r")
        (command,) = link.commands
        assert isinstance(command, RunSuite)
        request = command.request
        assert isinstance(request, SweepRequest)
        assert request.values == (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
        assert request.first == (0.0, 0.5, 0.9, 0.9)
        assert (len(request.prompts), request.repeats) == (1, 1)
        assert request.settings == CURED


async def test_all_prompts_three_times() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        await opened(pilot, link)
        await pilot.press("R")
        command = link.commands[-1]
        assert isinstance(command, RunSuite)
        assert isinstance(command.request, SweepRequest)
        assert len(command.request.prompts) == 3
        assert command.request.repeats == 3
        assert command.request.prompts[0].category == "open"


async def test_a_finished_sweep_answers_which_threshold_pays() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep(SweepScript(noise=0.05)))
        assert verdict(screen).startswith("= IDENTICAL")
        assert "in all 9 rows, 200 ids: the rows did the same work" in verdict(screen)
        chart = shown(screen, "#sweep-chart")
        assert "not resolved from each other (95 %)" in chart
        assert "over plain: it pays" in chart
        assert "default 0.90 loses nothing" in chart
        assert re.search(r"plain 3[78]\d", chart)
        rows = shown(screen).splitlines()
        assert [row.split()[0] for row in rows[1:11]] == [
            *("plain", "strict", "0.00", "0.30", "0.50", "0.70", "0.80", "0.90", "0.95", "0.99"),
        ]
        assert rows[8].rstrip().endswith("default")
        assert "Use 0." in footer(screen)


async def test_rows_with_other_ids_have_no_speedup_and_a_cure() -> None:
    link = FakeLink()
    script = SweepScript(differs={"confidence 0.3": 163, "confidence 0.5": 163}, numerics="split")
    async with started(link, Settings()).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep(script))
        assert verdict(screen).startswith("≠ DIFFERENT WORK")
        assert "in 0.30, 0.50: no speed-up for those rows   n takes invariant" in verdict(screen)
        rows = {row.split()[0]: row for row in shown(screen).splitlines()[1:]}
        assert "≠ #163" in rows["0.30"]
        assert "x" not in rows["0.30"]
        assert "x" in rows["0.70"]
        assert "n Try invariant" in footer(screen)


async def test_without_a_best_value_none_is_offered() -> None:
    link = FakeLink()
    slow = {cell: (1.4, 1, 1, 4.2) for cell in CYCLES} | {"strict": CYCLES["strict"]}
    script = SweepScript(cycles=slow, differs={"confidence 0": 20}, numerics="split")
    async with started(link, Settings()).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep(script))
        chart = shown(screen, "#sweep-chart")
        assert "no confidence threshold is faster than plain with plain's ids" in chart
        assert "n takes invariant" in chart
        assert "best" not in chart
        assert "Use" not in footer(screen)
        await pilot.press("j")
        await settle(pilot)
        assert "Use 0." in footer(screen), "the cursor was moved there"


async def test_row_1_says_how_long_the_whole_sweep_took() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep())
        assert screen.state_text() == f"DONE {screen.sheet.suite.elapsed_s:.0f} s"  # type: ignore[union-attr]
        assert screen.sheet.suite is not None
        assert screen.sheet.suite.elapsed_s > 5, "of both runs, not of the last one"
        link.waiting += stopped(SweepScript(suite_id="s2"))
        await settle(pilot)
        assert screen.state_text() == "STOPPED 1/2"


async def test_the_pattern_of_block_lengths_is_named() -> None:
    link = FakeLink()
    script = SweepScript(
        groups=BLOCKS, differs={"block 3": 40, "block 5": 40}, numerics="split", policy="direct"
    )
    async with started(link, Settings()).run_test(size=(160, 36)) as pilot:
        screen = await opened(pilot, link, sweep(script))
        assert screen.sheet.axis == "block"
        assert "40" in verdict(screen)
        assert screen.sheet.default == 5


@pytest.mark.parametrize("script", [SweepScript(), SweepScript(groups=BLOCKS)])
async def test_the_footer_has_room_for_another_set_on_both_axes(script: SweepScript) -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep(script))
        assert "o Other set" in footer(screen)


async def test_a_sweep_in_progress_counts_and_stops() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep(until_run=1))
        assert screen.query_one(RunBar).state == "SWEEP 1/2"
        assert "identical so far" in verdict(screen)
        assert "esc Stop" in footer(screen)
        assert "Sweep" not in footer(screen)
        await pilot.press("escape")
        assert isinstance(link.commands[-1], Stop)


async def test_a_stopped_sweep_says_what_is_missing() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, stopped())
        (row,) = [row for row in shown(screen).splitlines() if row.startswith(" 0.30")]
        assert set(row.split()[1:]) == {"-"}
        assert "r Sweep again" in footer(screen)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_an_engine_that_dies_leaves_the_rows(size: tuple[int, int]) -> None:
    link = FakeLink()
    failure = RunFailed("", -1, 0, "Engine process ended", "It ended by signal 9.", "Run again.")
    async with started(link).run_test(size=size) as pilot:
        screen = await opened(pilot, link, [*sweep(until_run=1), failure])
        assert "FAILED" in verdict(screen)
        assert "0.50" in shown(screen)
        link.is_alive = False
        await settle(pilot)
        assert "r Retry" in footer(screen)
        await pilot.press("r")
        await settle(pilot, lambda: link.is_alive)
        await settle(pilot)
        assert isinstance(link.commands[-1], RunSuite)


async def test_enter_makes_the_value_the_playgrounds() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep())
        await pilot.press("k", *("k",) * 9, "j")
        assert screen.sheet.cursor is not None
        assert screen.sheet.cursor.value == 0.3
        await pilot.press("enter")
        wanted = screen.controller.wanted
        assert wanted is not None
        assert (wanted.confidence, wanted.commit) == (0.3, "prefix")
        assert screen.sheet.chosen == 0.3
        await settle(pilot)
        assert "chosen" in shown(screen)


async def test_x_sweeps_block_lengths() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep())
        await pilot.press("x")
        await settle(pilot)
        assert "r sweeps 5 values of the block length" in shown(screen, "#sweep-chart")
        await pilot.press("r")
        command = link.commands[-1]
        assert isinstance(command, RunSuite)
        assert isinstance(command.request, SweepRequest)
        assert (command.request.axis, command.request.values) == ("block", (1, 2, 3, 4, 5))
        assert command.request.first == (1, 3, 5)
        link.waiting += sweep(SweepScript(groups=BLOCKS, suite_id="s2"))
        await settle(pilot)
        await pilot.press("k", "k", "k", "k", "k", "enter")
        wanted = screen.controller.wanted
        assert wanted is not None
        assert wanted.draft_max == 1
        await pilot.press("x")
        await settle(pilot)
        assert "0.70" in shown(screen)


async def test_plus_adds_a_value_for_the_next_sweep() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep())
        await pilot.press(*("k",) * 10, "+")
        assert 0.15 in screen.sheet.values()
        assert screen.sheet.cursor is not None
        assert screen.sheet.cursor.value == 0.15
        await settle(pilot)
        (row,) = [row for row in shown(screen).splitlines() if row.startswith(" 0.15")]
        assert set(row.split()[1:]) == {"-"}
        await pilot.press("r")
        command = link.commands[-1]
        assert isinstance(command, RunSuite)
        assert isinstance(command.request, SweepRequest)
        assert 0.15 in command.request.values


async def test_knobs_keep_turning_and_the_run_key_says_so() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep())
        await pilot.press("n", "b")
        await settle(pilot)
        assert "r Sweep again split" in footer(screen)
        assert not any(isinstance(command, RunSuite) for command in link.commands)


async def test_without_a_drafter_nothing_can_be_swept() -> None:
    link = FakeLink()
    async with started(link, Settings(dspark=())).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        assert "a sweep needs a drafter" in shown(screen, "#sweep-chart")
        await pilot.press("r", "R", "enter")
        assert link.commands == []


async def test_a_trace_without_a_sweep_offers_none() -> None:
    controller, clock = replayed(streams.diverged_run())
    app = make_app(controller)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot, lambda: controller.state is RunState.PREFILL)
        clock.now += 1000
        await settle(pilot, lambda: controller.state is RunState.DONE)
        await pilot.press("6")
        await settle(pilot)
        screen = screen_of(app)
        assert screen[2].startswith("· no sweep yet      This trace holds no sweep.")
        assert "This trace holds no sweep." in screen[4]
        assert not any("sweeps" in row or "strict" in row for row in screen)


async def test_the_screen_is_drawn_by_events_alone() -> None:
    live, replayed = FakeLink(), FakeLink()
    events = sweep(SweepScript(noise=0.05))
    texts = []
    for link, pieces in ((live, 7), (replayed, 1)):
        async with started(link).run_test(size=SIZE) as pilot:
            screen = await opened(pilot, link)
            for n in range(pieces):
                share = slice(len(events) * n // pieces, len(events) * (n + 1) // pieces)
                link.waiting += events[share]
                await settle(pilot)
            assert screen.controller.state is RunState.DONE
            texts.append((shown(screen), shown(screen, "#sweep-chart"), verdict(screen)))
    assert texts[0] == texts[1]


async def test_csv_and_report_are_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep(SweepScript(differs={"confidence 0.8": 40})))
        screen.export()
        screen.report()
        await pilot.press("y")
        await pilot.pause()
    table = (exports.exports_folder() / "sweep-s1.csv").read_text().splitlines()
    assert table[0].startswith("row,value,runs,tokens")
    assert len(table) == 11
    odd = next(line for line in table if line.startswith("confidence 0.8"))
    assert odd.split(",")[-2] == "40"
    assert ",,,," in odd
    report = (exports.exports_folder() / "sweep-s1.md").read_text()
    assert "≠ DIFFERENT WORK in 0.80: no speed-up for those rows" in report
    assert "-n 200 --numerics invariant --arm commit=prefix,confidence=0.0 --arm" in report
    assert "--arm commit=prefix,confidence=0.5" in report
    assert "ab" * 32 in report
    assert (exports.exports_folder() / "s1-sweep-table.txt").is_file()


async def test_a_run_that_is_no_sweep_leaves_the_table(tmp_path: Path) -> None:
    link = FakeLink((READY,), streams.identical_run())
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep())
        before = shown(screen)
        screen.controller.run()
        await settle(pilot, lambda: screen.controller.state is RunState.DONE)
        assert shown(screen) == before


async def test_m_shows_the_focused_box_alone_and_escape_restores() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, sweep())
        await pilot.press("m")
        await settle(pilot)
        assert [box.id for box in screen.query(Box) if box.display] == ["sweep-table"]
        assert "m Restore" in footer(screen)
        await pilot.press("escape")
        await settle(pilot)
        assert len([box for box in screen.query(Box) if box.display]) == 2


async def test_o_chooses_the_set_of_the_big_sweep() -> None:
    link = FakeLink()
    async with started(link).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        await pilot.press("o")
        await settle(pilot)
        assert isinstance(pilot.app.screen, SetChooser)
        await pilot.press("enter")
        await settle(pilot)
        total = len(screen.controller.prompts)
        assert total > 3
        assert f"R takes all {total} prompts, 3 times" in shown(screen, "#sweep-chart")
