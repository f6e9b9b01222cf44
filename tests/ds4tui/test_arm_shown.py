"""Which arm of a run is shown beside plain stays from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ds4tui.changes import Changes
from ds4tui.controller import Controller
from ds4tui.intake import Intake
from ds4tui.playback import Playback
from ds4tui.widgets.charts import SidedBox
from engine.events import (
    Event,
    RunStarted,
    SuiteFinished,
    SuiteKind,
    SuiteStarted,
    TokensCommitted,
)
from engine.settings import Knobs, Settings
from tests.ds4tui import streams
from tests.ds4tui.harness import Clock, settle
from tests.ds4tui.session import LARGE, SMALL, Session, Size, finished
from tests.ds4tui.test_controller import started, two_arms

ARMS = Settings(dspark=(Knobs("direct"), Knobs("prefix")))


def arms_shown(controller: Controller) -> tuple[int, int]:
    """The newest run's arm, and that of the next run's knobs."""
    assert controller.record is not None
    assert controller.record is controller.newest
    return controller.record.shown_arm, 1 + controller._turned


def numbered(events: Sequence[Event], run_id: str, suite_id: str = "") -> list[Event]:
    """The same run under another name."""
    return [
        replace(event, run_id=run_id, suite_id=suite_id)
        if isinstance(event, RunStarted)
        else replace(event, run_id=run_id)
        for event in events
    ]


def of_suite(kind: SuiteKind, name: str, *runs: Sequence[Event]) -> list[Event]:
    """A suite of some runs from its start to its end."""
    head = ("", -1, 0, name, kind, ("a", "b"))
    each = [event for n, run in enumerate(runs) for event in numbered(run, f"{name}{n}", name)]
    return [SuiteStarted(*head), *each, SuiteFinished(*head)]


def test_the_next_run_shows_the_arm_that_was_shown() -> None:
    events = two_arms()
    runs = [numbered(events, str(n)) for n in range(3)]
    controller, link = started(*runs, streams.diverged_run(), settings=ARMS)
    controller.drain()
    assert arms_shown(controller) == (1, 1)
    first = controller.record
    assert first is not None
    first.choose(2)
    controller.run()
    controller.drain()
    assert controller.record is not first
    assert arms_shown(controller) == (2, 2)
    controller.open_run(first, 1)
    controller.run()
    controller.drain()
    assert arms_shown(controller) == (1, 1), "of the run that was open, not of the newest"
    controller.record.choose(2)
    controller.run()
    controller.drain()
    assert controller.record.shown_arm == 1, "this one has no other arm"
    link.waiting += numbered(events, "last")
    controller.drain()
    assert arms_shown(controller)[0] == 1


@pytest.mark.parametrize(("kind", "arm"), [("set", 2), ("matrix", 1)])
def test_a_set_shows_the_same_arm_and_a_matrix_its_own(kind: SuiteKind, arm: int) -> None:
    events = two_arms()
    controller, link = started(events, numbered(events, "last"), settings=ARMS)
    controller.drain()
    assert controller.record is not None
    controller.record.choose(2)
    suite = of_suite(kind, "s", events, events)
    link.waiting += suite[: 1 + len(events)]
    controller.drain()
    assert controller.record.shown_arm == arm
    controller.record.choose(3 - arm)
    link.waiting += suite[1 + len(events) :]
    controller.drain()
    assert controller.record.shown_arm == 3 - arm
    controller.run()
    controller.drain()
    assert controller.record.shown_arm == (1 if kind == "set" else 2)


def test_plain_runs_follow_each_other_and_keep_what_was_shown_before() -> None:
    events = two_arms()
    controller, link = started(events, numbered(streams.plain_run(), "1"), settings=ARMS)
    controller.drain()
    assert controller.record is not None
    controller.record.choose(2)
    link.waiting += numbered(streams.plain_run(), "2")
    controller.run()
    controller.drain()
    assert len(controller.record.arms) == 1
    link.waiting += numbered(events, "last")
    controller.run()
    controller.drain()
    assert arms_shown(controller) == (2, 2)


def test_a_look_at_a_matrix_s_run_changes_nothing_of_the_next_run() -> None:
    events = two_arms()
    runs = numbered(events, "1"), numbered(events, "2")
    controller, _ = started(of_suite("matrix", "s", events), *runs, settings=ARMS)
    controller.drain()
    cell = controller.record
    controller.run()
    controller.drain()
    assert cell is not None
    assert controller.record is not None
    assert controller.record is not cell
    controller.record.choose(2)
    controller.open_run(cell, 1)
    assert controller._turned == 1, "of the arm that the next run shows"
    controller.run()
    controller.drain()
    assert arms_shown(controller) == (2, 2)


def test_every_set_has_the_arms_of_the_settings() -> None:
    events = two_arms()
    controller, link = started(settings=ARMS)
    shown = []
    for name in ("s", "t", "u"):
        link.waiting += of_suite("set", name, events)
        controller.drain()
        assert controller.record is not None
        shown.append(controller.record.shown_arm)
        controller.record.choose(3 - shown[-1])
    assert shown == [1, 2, 1], "as in a trace, where nobody begins them"
    first = controller.runs[0]
    assert first.shown_arm == 2
    controller.record.choose(1)
    controller.open_run(first)
    assert controller._turned == 1
    link.waiting += numbered(events, "last")
    controller.drain()
    assert controller.record.shown_arm == 2


def test_a_jump_back_in_a_trace_of_a_set_shows_the_same_arm() -> None:
    events = two_arms()
    trace = of_suite("set", "s", events, events)[:-1]
    playback = Playback([(0, event) for event in trace], Clock(), float("inf"))
    intake = Intake()
    for _ in range(2):
        found = playback.poll()
        intake.rewind(playback)
        for event in found:
            intake.take(event, Changes())
        assert intake.record is not None
        arm = intake.record.shown_arm
        intake.record.choose(2)
        playback.step(-20)
    assert playback.is_paused
    assert len(intake.runs) == 1, "back in the first run"
    assert arm == 2


def test_slow_motion_leaves_the_arm_that_it_showed() -> None:
    clock = Clock()
    controller, _ = started(two_arms(), clock=clock)
    controller.drain()
    assert controller.slow_motion()
    clock.now += 0.5
    controller.drain()
    assert controller.record is not None
    controller.record.choose(2)
    controller.end_playback()
    assert controller.record is controller.newest
    assert controller.record.shown_arm == 2
    controller.record.choose(1)
    assert controller.slow_motion()
    controller.end_playback()
    assert controller.record.shown_arm == 1, "it ended before its first event"


def twice(events: Sequence[Event]) -> list[Event]:
    """The same run with its DSpark arm twice, the second one at half the speed."""
    found: list[Event] = []
    for event in events:
        if isinstance(event, RunStarted):
            plain, arm = event.arms
            found.append(replace(event, arms=(plain, arm, replace(arm, name="second"))))
            continue
        found.append(event)
        if event.arm == 1:
            if isinstance(event, TokensCommitted):
                event = replace(event, time=event.time + event.time)
            found.append(replace(event, arm=2))
    return found


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_another_arm_is_shown_at_the_place_that_was_looked_at(size: Size) -> None:
    session = Session(twice(streams.diverged_run()))
    async with session.app.run_test(size=size) as pilot:
        await finished(pilot, session)
        panes = session.app.playground.panes
        for _ in range(2):  # where the ids part, then at a cursor before it
            seen = [pane.scroll_offset.y for pane in panes.both]
            before = session.screen[4:10]
            await pilot.press("w")
            await settle(pilot)
            assert [pane.scroll_offset.y for pane in panes.both] == seen
            assert session.screen[4:10] == before
            await pilot.press("w", "g", "l", "l")
            await settle(pilot)
        assert panes.cursor == panes.left.cursor == panes.right.cursor == 2


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_every_screen_along_the_run_offers_the_other_arm(size: Size) -> None:
    session = Session(twice(streams.diverged_run()))
    async with session.app.run_test(size=size) as pilot:
        await finished(pilot, session)
        for screen in ("1", "2", "3"):
            await pilot.press(screen)
            await settle(pilot)
            assert "w Other arm" in session.screen[-1]


@pytest.mark.parametrize("keys", [["w"], ["2", "w", "1"]], ids=["here", "on another screen"])
async def test_the_chosen_arm_is_drawn_everywhere(keys: list[str]) -> None:
    session = Session(twice(streams.diverged_run()))
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        rates = session.app.playground.query_one("#rates", SidedBox)
        first = rates.text()
        await pilot.press(*keys)
        await settle(pilot)
        assert "DSpark 2/2 · direct" in session.screen[3]
        assert rates.text() != first, "as many tokens, and other times"
