"""The numbered screens: opening them, the rows they share, suites and measurements."""

from __future__ import annotations

import pytest

from ds4tui import exports
from ds4tui.app import INSTRUMENTS
from ds4tui.run_state import RunState
from ds4tui.screens.boxed import Boxed, Boxes
from ds4tui.widgets.bars import KeyFooter, RunBar, VerdictBar
from engine.costs import CostRequest
from engine.events import CostMeasured, MeasuringFinished, RunFailed, SuiteFinished, SuiteStarted
from engine.process import Measure, Run, RunSuite, Stop
from engine.settings import Settings
from engine.suite import MatrixRequest, SuitePrompt
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (40, 10)])
async def test_every_screen_is_one_key_away_and_shows_the_verdict(size: tuple[int, int]) -> None:
    app = make_app(make_controller(streams.diverged_run()))
    async with app.run_test(size=size) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        verdict = app.instrument.query_one(VerdictBar).rows()
        for kind in reversed(INSTRUMENTS):
            await pilot.press(kind.KEY)
            await settle(pilot)
            assert app.instrument.KEY == kind.KEY
            assert app.instrument.query_one(RunBar).active == kind.KEY
            if kind.KEY not in "46":
                assert app.instrument.query_one(VerdictBar).rows() == verdict
        await pilot.press("5", "escape")
        await settle(pilot)
        assert app.instrument.KEY == "1"


async def test_a_screen_catches_up_when_it_is_shown() -> None:
    link = FakeLink((READY,), streams.diverged_run())
    app = make_app(make_controller(link=link, prompt=None))
    async with app.run_test(size=(120, 36)) as pilot:
        await settle(pilot)
        await pilot.press("2")
        app.controller.run(app.controller.prompts[0].prompt)
        await settle(pilot)
        assert len(app.playground.left.lines) == 0
        await pilot.press("1")
        await settle(pilot)
        assert len(app.playground.left.lines) > 10
        assert app.playground.left.parting == 163


def suite_request() -> MatrixRequest:
    return MatrixRequest((SuitePrompt(make_controller().prompts[0].prompt),), Settings())


def test_a_suite_gathers_its_runs_and_stops_as_one() -> None:
    link = FakeLink()
    controller = make_controller(link=link, prompt=None)
    controller.start()
    controller.drain()
    controller.run_suite(suite_request())
    assert isinstance(link.commands[-1], RunSuite)
    link.waiting += [SuiteStarted("", -1, 0, "s1", "matrix", ("split direct",))]
    link.waiting += streams.of_suite(streams.diverged_run(), "s1", "split", 0)
    controller.drain()
    assert controller.is_busy
    controller.stop()
    assert isinstance(link.commands[-1], Stop)
    link.waiting += [SuiteFinished("", -1, 0, "s1", "matrix", ("split direct",))]
    controller.drain()
    suite = controller.suites["matrix"]
    assert not controller.is_busy
    assert suite.is_over
    assert suite.runs == [controller.record]


def test_a_failure_ends_the_suite() -> None:
    link = FakeLink()
    controller = make_controller(link=link, prompt=None)
    controller.start()
    controller.drain()
    controller.run_suite(suite_request())
    link.waiting += [SuiteStarted("", -1, 0, "s1", "matrix", ("split direct",))]
    link.waiting += [RunFailed("", -1, 0, "Engine failed", "it ended", "")]
    controller.drain()
    assert controller.suites["matrix"].is_over
    assert not controller.is_busy


def test_costs_come_until_measuring_has_finished() -> None:
    link = FakeLink()
    controller = make_controller(link=link, prompt=None)
    controller.start()
    controller.drain()
    controller.measure(CostRequest(repeat=3))
    assert isinstance(link.commands[-1], Measure)
    assert controller.is_busy
    cost = CostMeasured("", -1, 0, "verify", 2, 10, 9, 11, 3)
    link.waiting += [cost]
    controller.drain()
    assert controller.is_busy
    link.waiting += [MeasuringFinished("", -1, 0)]
    controller.drain()
    assert controller.costs == [cost]
    assert not controller.is_busy
    assert not any(isinstance(command, Run) for command in link.commands)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
@pytest.mark.parametrize("key", ["2", "3", "4", "5", "6"])
async def test_boxes_are_walked_maximised_and_copied_alike_on_every_screen(
    key: str, size: tuple[int, int]
) -> None:
    app = make_app(make_controller(streams.diverged_run()))
    async with app.run_test(size=size) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        await pilot.press(key)
        await settle(pilot)
        screen = app.instrument
        assert isinstance(screen, Boxed)
        at = screen.box
        await pilot.press("tab")
        await settle(pilot)
        assert screen.focused is screen.box
        assert (screen.box is at) == (len(screen.boxes) == 1)
        was_one = screen.shows_one
        assert app.can("maximise") is not was_one
        await pilot.press("m")
        await settle(pilot)
        assert [box for box in screen.boxes if box.display] == [screen.box] or not was_one
        if app.can("maximise"):
            whole = screen.query_one(Boxes).size
            assert screen.box.outer_size == whole
            labels = [label for _, label, _ in screen.query_one(KeyFooter).entries]
            assert labels[0] == "Restore"
        await pilot.press("y")
        await settle(pilot, lambda: bool(app._notifications))
        assert app.clipboard == screen.box.text()
        assert next(iter(app._notifications)).message.startswith("copied the box ")
        files = list(exports.exports_folder().iterdir())
        assert [file.name.endswith(f"-{screen.box.id}.txt") for file in files] == [True]
