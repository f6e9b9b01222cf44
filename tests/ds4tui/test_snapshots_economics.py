"""Pictures of the economics screen in each state; written by `pytest --snapshot-update`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from textual.pilot import Pilot

from ds4tui.controller import Controller
from engine.events import Event, LoadProgress, RunFailed
from tests.ds4tui import streams
from tests.ds4tui.costs import measurement
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle
from tests.ds4tui.sweeps import SweepScript, sweep
from tests.ds4tui.test_snapshots import CURED, SIZES, Compare


def take(
    compare: Compare,
    size: tuple[int, int],
    *runs: Sequence[Event],
    greeting: Sequence[Event] = (READY,),
    keys: Sequence[str] = (),
    then: Sequence[Event] = (),
    prompt: str | None = streams.PROMPT,
    **config: object,
) -> bool:
    """The screen after the runs, the keys, and what comes then."""
    link = FakeLink(greeting, *runs)
    controller = make_controller(link=link, prompt=prompt, settings=CURED)

    def ready(controller: Controller) -> bool:
        return bool(controller.steps) or (controller.ready is not None and not link.waiting)

    async def before(pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: ready(controller))
        await pilot.press("5", *keys)
        link.waiting += then
        await settle(pilot)
        await settle(pilot)

    return compare(make_app(controller, **config), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
def test_empty(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, prompt=None)


@pytest.mark.parametrize("size", SIZES)
def test_loading(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, greeting=streams.load_steps()[:20])


@pytest.mark.parametrize("size", SIZES)
def test_running(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.until(streams.identical_run(), 171))


@pytest.mark.parametrize("size", SIZES)
def test_diverged(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.diverged_run())


@pytest.mark.parametrize("size", SIZES)
def test_measuring(snap_compare: Compare, size: tuple[int, int]) -> None:
    step = LoadProgress("", -1, 0, "measuring", 12, 31)
    assert take(snap_compare, size, streams.identical_run(), keys=("r",), then=[step])


@pytest.mark.parametrize("size", SIZES)
def test_measured(snap_compare: Compare, size: tuple[int, int]) -> None:
    then = [*sweep(SweepScript(noise=0.05)), *streams.identical_run()]
    then += measurement("invariant", "prefix")
    assert take(snap_compare, size, then=then, prompt=None)


@pytest.mark.parametrize("size", SIZES)
def test_failed(snap_compare: Compare, size: tuple[int, int]) -> None:
    failure = RunFailed("", -1, 0, "No room", "Measuring at 4090 needs 4096 tokens.", "Run less.")
    assert take(snap_compare, size, keys=("r",), then=[failure], prompt=None)


@pytest.mark.parametrize("tabs", [1, 2, 3])
def test_boxes_of_a_small_terminal(snap_compare: Compare, tabs: int) -> None:
    then = measurement("invariant", "prefix")
    keys = (*("tab",) * tabs, "j", "j")
    assert take(snap_compare, (80, 24), streams.identical_run(), keys=keys, then=then)


def test_small(snap_compare: Compare) -> None:
    assert take(snap_compare, (58, 15), streams.diverged_run())


def test_light(snap_compare: Compare) -> None:
    assert take(snap_compare, (120, 36), streams.diverged_run(), theme="light")


def test_ascii(snap_compare: Compare) -> None:
    assert take(snap_compare, (120, 36), streams.diverged_run(), ascii=True)
