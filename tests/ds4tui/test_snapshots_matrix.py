"""Pictures of screen 4 in each state at both sizes; written by `pytest --snapshot-update`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from textual.pilot import Pilot

from engine.events import Event, RunFailed, SuiteFinished
from engine.settings import Settings
from tests.ds4tui import streams, suite_streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle
from tests.ds4tui.test_matrix_screen import fresh, whole
from tests.ds4tui.test_matrix_view import until_run

SIZES = [pytest.param((80, 24), id="80x24"), pytest.param((120, 36), id="120x36")]
Compare = Callable[..., bool]


def take(
    compare: Compare,
    size: tuple[int, int],
    events: Sequence[Event] = (),
    keys: tuple[str, ...] = (),
    greeting: Sequence[Event] = (READY,),
    settings: Settings | None = None,
    **config: object,
) -> bool:
    link = FakeLink(greeting)
    controller = make_controller(link=link, prompt=None, settings=settings)
    app = make_app(controller, **config)

    async def before(pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: bool(controller.ready or controller.steps))
        await pilot.press("4")
        link.waiting += events
        await settle(pilot)
        await fresh(pilot)
        await pilot.press(*keys)
        await settle(pilot)

    return compare(app, terminal_size=size, run_before=before)


def stopped() -> list[Event]:
    part = until_run(whole(), 3, 100)
    return [*part, SuiteFinished("", -1, part[-1].t_ns, "5u17e", "matrix", ())]


def failed() -> list[Event]:
    part = until_run(whole(), 3, 100)
    text = "The engine's process ended by signal 9, perhaps out of memory."
    return [*part, RunFailed("", -1, part[-1].t_ns, "Engine process ended", text, "")]


def missed() -> list[Event]:
    parted = {*suite_streams.PARTED, ("invariant prefix", 1)}
    return suite_streams.suite(parted=parted)


@pytest.mark.parametrize("size", SIZES)
def test_empty(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.diverged_run())


@pytest.mark.parametrize("size", SIZES)
def test_loading(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, greeting=streams.load_steps()[:20])


@pytest.mark.parametrize("size", SIZES)
def test_running(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, until_run(whole(), 3, 100))


@pytest.mark.parametrize("size", SIZES)
def test_paused(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, until_run(whole(), 3, 100), keys=("space",))


@pytest.mark.parametrize("size", SIZES)
def test_done(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, whole(), keys=("j", "l"))


@pytest.mark.parametrize("size", SIZES)
def test_by_prompt(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, whole(), keys=("tab", "j"))


@pytest.mark.parametrize("size", SIZES)
def test_by_category(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, whole(), keys=("f",))


@pytest.mark.parametrize("size", SIZES)
def test_missed(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, missed())


@pytest.mark.parametrize("size", SIZES)
def test_stopped(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, stopped())


@pytest.mark.parametrize("size", SIZES)
def test_failed(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, failed())


@pytest.mark.parametrize("size", SIZES)
def test_set(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, suite_streams.suite("set", ("split",), ("direct", "prefix")))


@pytest.mark.parametrize("size", SIZES)
def test_no_drafter(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, settings=Settings(dspark=()))


def test_chooser(snap_compare: Compare) -> None:
    keys = ("o", *"nothing.txt", "enter")
    assert take(snap_compare, (80, 24), keys=keys)


def test_ascii(snap_compare: Compare) -> None:
    assert take(snap_compare, (80, 24), whole(), ascii=True)


def test_light(snap_compare: Compare) -> None:
    assert take(snap_compare, (120, 36), missed(), theme="light")


def test_no_color(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert take(snap_compare, (80, 24), missed())
