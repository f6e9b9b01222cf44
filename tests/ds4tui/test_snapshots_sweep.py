"""Pictures of the sweep screen in each state; written by `pytest --snapshot-update`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from textual.pilot import Pilot

from engine.events import Event, RunFailed
from engine.settings import Settings
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle
from tests.ds4tui.sweeps import BLOCKS, SweepScript, stopped, sweep
from tests.ds4tui.test_snapshots import CURED, SIZES, Compare

NOISY = SweepScript(noise=0.05)


def take(
    compare: Compare,
    size: tuple[int, int],
    events: Sequence[Event] = (),
    keys: Sequence[str] = (),
    greeting: Sequence[Event] = (READY,),
    settings: Settings = CURED,
    **config: object,
) -> bool:
    """The screen after the events and the keys."""
    link = FakeLink(greeting)
    controller = make_controller(link=link, prompt=None, settings=settings)
    controller.prompt = controller.prompts[0].prompt

    async def before(pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: controller.ready is not None or bool(controller.steps))
        await pilot.press("6")
        link.waiting += events
        await settle(pilot)
        await pilot.press(*keys)
        await settle(pilot)

    return compare(make_app(controller, **config), terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
def test_empty(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, settings=Settings())


@pytest.mark.parametrize("size", SIZES)
def test_loading(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, greeting=streams.load_steps()[:20])


@pytest.mark.parametrize("size", SIZES)
def test_running(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, sweep(NOISY, until_run=1))


@pytest.mark.parametrize("size", SIZES)
def test_done(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, sweep(NOISY), keys=("k",))


@pytest.mark.parametrize("size", SIZES)
def test_different_work(snap_compare: Compare, size: tuple[int, int]) -> None:
    script = SweepScript(
        noise=0.05,
        differs={"confidence 0.3": 163, "confidence 0.5": 87},
        numerics="split",
        policy="direct",
        prompts=2,
        tokens=170,
    )
    assert take(snap_compare, size, sweep(script), settings=Settings())


@pytest.mark.parametrize("size", SIZES)
def test_stopped(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, stopped(NOISY))


@pytest.mark.parametrize("size", SIZES)
def test_failed(snap_compare: Compare, size: tuple[int, int]) -> None:
    failure = RunFailed("", -1, 0, "Engine process ended", "It ended by signal 9.", "Run again.")
    assert take(snap_compare, size, [*sweep(NOISY, until_run=0), failure])


@pytest.mark.parametrize("size", SIZES)
def test_block_lengths(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, sweep(SweepScript(groups=BLOCKS, noise=0.05)))


def test_added_value(snap_compare: Compare) -> None:
    keys = (*("k",) * 10, "plus")
    assert take(snap_compare, (80, 24), sweep(NOISY), keys=keys)


def test_small(snap_compare: Compare) -> None:
    assert take(snap_compare, (58, 15), sweep(NOISY))


def test_light(snap_compare: Compare) -> None:
    assert take(snap_compare, (120, 36), sweep(NOISY), theme="light")


def test_ascii(snap_compare: Compare) -> None:
    assert take(snap_compare, (120, 36), sweep(NOISY), ascii=True)


def test_no_color(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert take(snap_compare, (80, 24), sweep(NOISY))
