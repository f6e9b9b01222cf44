"""Pictures of the cycle screen's states at both design sizes."""

from __future__ import annotations

import pytest

from ds4tui.run_state import RunState
from tests.ds4tui import streams
from tests.ds4tui.test_snapshots import CURED, SIZES, Compare, take

KEY = "2"


@pytest.mark.parametrize("size", SIZES)
def test_empty(snap_compare: Compare, size: tuple[int, int]) -> None:
    ready = lambda c: c.ready is not None  # noqa: E731
    assert take(snap_compare, size, prompt=None, until=ready, keys=(KEY,))


@pytest.mark.parametrize("size", SIZES)
def test_running(snap_compare: Compare, size: tuple[int, int]) -> None:
    part = streams.until(streams.diverged_run(), 90)
    decodes = lambda c: c.state is RunState.DECODING  # noqa: E731
    assert take(snap_compare, size, part, until=decodes, keys=(KEY,))


@pytest.mark.parametrize("size", SIZES)
def test_diverged(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.diverged_run(), keys=("d", KEY))


@pytest.mark.parametrize("size", SIZES)
def test_identical(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.identical_run(), settings=CURED, keys=(KEY,))


@pytest.mark.parametrize("size", SIZES)
def test_failed(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.failed_run(), keys=(KEY,))


def test_light(snap_compare: Compare) -> None:
    assert take(snap_compare, (120, 36), streams.diverged_run(), theme="light", keys=(KEY,))


def test_ascii(snap_compare: Compare) -> None:
    assert take(snap_compare, (80, 24), streams.diverged_run(), ascii=True, keys=(KEY,))


def test_no_color(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert take(snap_compare, (120, 36), streams.diverged_run(), keys=("D", KEY))
