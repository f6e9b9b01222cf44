"""Pictures of the cycle inspector's and the drift's states at both design sizes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ds4tui.run_state import RunState
from engine.events import Event, RunFailed
from engine.settings import Settings
from tests.ds4tui import streams
from tests.ds4tui.test_snapshots import CURED, SIZES, Compare, take
from tests.ds4tui.test_snapshots_runs import take as take_runs

KEYS = [pytest.param("2", id="cycle"), pytest.param("3", id="drift")]
each_screen = pytest.mark.parametrize("key", KEYS)
each_size = pytest.mark.parametrize("size", SIZES)
PREFIX = streams.run(
    streams.Script(run_id="run-4", policy="prefix", diverges=False, drifts=False, speed=0.8)
)
DIED = RunFailed("", -1, 0, "Engine process ended", "It ended by signal 9.", "Run again.", "Killed")
STATES = {
    "identical": (streams.identical_run(), CURED),
    "strict": (streams.strict_run(), Settings()),
    "plain only": (streams.plain_run(), Settings(dspark=())),
    "43 layers": (streams.run(streams.Script(layer_kinds=streams.FULL_SIZE)), Settings()),
    "failed at once": ([DIED], Settings()),
    "failed": (streams.failed_run(), Settings()),
}


@each_screen
@each_size
def test_empty(snap_compare: Compare, size: tuple[int, int], key: str) -> None:
    ready = lambda c: c.ready is not None  # noqa: E731
    assert take(snap_compare, size, prompt=None, until=ready, keys=(key,))


@each_screen
@each_size
def test_loading(snap_compare: Compare, size: tuple[int, int], key: str) -> None:
    steps = streams.load_steps()[:20]
    loads = lambda c: bool(c.steps)  # noqa: E731
    assert take(snap_compare, size, greeting=steps, until=loads, keys=(key,))


@each_screen
@each_size
def test_running(snap_compare: Compare, size: tuple[int, int], key: str) -> None:
    part = streams.until(streams.diverged_run(), 90)
    decodes = lambda c: c.state is RunState.DECODING  # noqa: E731
    assert take(snap_compare, size, part, until=decodes, keys=(key,))


@each_screen
@each_size
def test_diverged(snap_compare: Compare, size: tuple[int, int], key: str) -> None:
    assert take(snap_compare, size, streams.diverged_run(), keys=("d", key))


@each_screen
@each_size
def test_maximised(snap_compare: Compare, size: tuple[int, int], key: str) -> None:
    assert take(snap_compare, size, streams.diverged_run(), keys=("d", key, "m"))


@each_screen
@each_size
@pytest.mark.parametrize("state", STATES)
def test_ended(snap_compare: Compare, size: tuple[int, int], key: str, state: str) -> None:
    events, settings = STATES[state]
    assert take(snap_compare, size, events, settings=settings, keys=(key,))


@each_screen
@each_size
def test_compared_pair(snap_compare: Compare, size: tuple[int, int], key: str) -> None:
    runs: Sequence[list[Event]] = (PREFIX, streams.diverged_run())
    keys = ("7", "plus", "j", "plus", "equals_sign", key)
    assert take_runs(snap_compare, size, *runs, keys=keys)


@each_screen
def test_light(snap_compare: Compare, key: str) -> None:
    assert take(snap_compare, (120, 36), streams.diverged_run(), theme="light", keys=(key,))


@each_screen
def test_ascii(snap_compare: Compare, key: str) -> None:
    assert take(snap_compare, (80, 24), streams.diverged_run(), ascii=True, keys=(key,))


@each_screen
def test_no_color(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert take(snap_compare, (120, 36), streams.diverged_run(), keys=("D", key))


@each_screen
def test_small(snap_compare: Compare, key: str) -> None:
    assert take(snap_compare, (40, 10), streams.diverged_run(), keys=("d", key))
