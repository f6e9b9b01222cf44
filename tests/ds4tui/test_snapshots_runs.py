"""Pictures of screen 7, of two compared arms, of the model panel and of a replayed trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from textual.pilot import Pilot

from ds4tui.app import Ds4App
from ds4tui.config import UiConfig
from ds4tui.run_record import RunRecord
from ds4tui.run_state import RunState
from ds4tui.trace_store import TraceStore
from engine.events import Event, FileInfo, RunStarted
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, replayed, settle
from tests.ds4tui.test_snapshots import SIZES

Compare = Callable[..., bool]
NOON = datetime(2026, 3, 1, 12, 0, 5)
SLOW = streams.run(streams.Script(run_id="run-4", policy="replay", diverges=False, drifts=False))


def take(
    compare: Compare,
    size: tuple[int, int],
    *runs: list[Event],
    keys: tuple[str, ...] = ("7",),
    folder: Path | None = None,
    **config: object,
) -> bool:
    link = FakeLink((READY,), *runs)
    controller = make_controller(link=link, prompt=streams.PROMPT if runs else None)
    store = TraceStore(folder, lambda: NOON)
    app = Ds4App(controller, UiConfig(fps=1, **config), "embedded", store=store)  # type: ignore[arg-type]

    async def before(pilot: Pilot[int]) -> None:
        for number in range(1, len(runs) + 1):
            await settle(pilot, lambda number=number: len(controller.runs) == number)
            if number < len(runs):
                await pilot.press("r")
        await settle(pilot)
        for key in keys:
            await pilot.press(key)
            await settle(pilot)

    return compare(app, terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
def test_empty(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size)


@pytest.mark.parametrize("size", SIZES)
def test_done(snap_compare: Compare, size: tuple[int, int]) -> None:
    runs = (streams.diverged_run(), streams.identical_run(), SLOW)
    assert take(snap_compare, size, *runs, keys=("7", "j", "plus", "j", "plus"))


@pytest.mark.parametrize("size", SIZES)
def test_running(snap_compare: Compare, size: tuple[int, int]) -> None:
    part = streams.renamed(streams.until(streams.identical_run(), 171), "run-9")
    assert take(snap_compare, size, streams.diverged_run(), part)


@pytest.mark.parametrize("size", SIZES)
def test_failed(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.diverged_run(), streams.failed_run())


@pytest.mark.parametrize("size", SIZES)
def test_compared(snap_compare: Compare, size: tuple[int, int]) -> None:
    keys = ("7", "j", "plus", "k", "plus", "equals_sign")
    assert take(snap_compare, size, streams.diverged_run(), SLOW, keys=keys)


def test_disk(snap_compare: Compare, tmp_path: Path) -> None:
    store = TraceStore(tmp_path, lambda: NOON)
    record = RunRecord()
    for event in streams.diverged_run():
        record.feed(event)
    store.save(record)
    store.close()
    assert take(snap_compare, (80, 24), folder=tmp_path)


@pytest.mark.parametrize("size", SIZES)
def test_model_panel(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.diverged_run(), keys=("o",))


def test_model_panel_without_colour(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert take(snap_compare, (80, 24), streams.diverged_run(), keys=("o",))


def test_model_panel_before_a_run(snap_compare: Compare) -> None:
    assert take(snap_compare, (80, 24), keys=("space", "o"))


@pytest.mark.parametrize("size", SIZES)
def test_model_panel_of_a_large_model(snap_compare: Compare, size: tuple[int, int]) -> None:
    keys = ("o",) if size == (80, 24) else ("o", "G")
    assert take(snap_compare, size, large_run(), keys=keys)


def large_run() -> list[Event]:
    """A run of a model of 43 layers with many kinds of tensors."""
    mix = (("Q8_0", 388, 10_737_418_240), ("IQ2_XXS", 86, 67_108_864_000), ("Q2_K", 43, 9_126_805))
    kinds = (0, 0, *(4, 128) * 20, 4)
    files = (
        FileInfo(
            "target", "/models/DeepSeek-V4-Flash-Q2.gguf", "", 86_973_407_232, "deepseek4",
            "DeepSeek-V4-Flash", 284_331_409_408, mix,
        ),
        FileInfo(
            "drafter", "/models/dspark.gguf", "5a" * 32, 2_147_483_648, "deepseek4-dspark",
            "DSpark", 4_100_000_000, (("F16", 121, 2_147_000_000), ("F32", 40, 483_648)),
        ),
    )  # fmt: skip
    return [
        replace(event, files=files, layer_kinds=kinds) if isinstance(event, RunStarted) else event
        for event in streams.diverged_run()
    ]


@pytest.mark.parametrize("size", SIZES)
def test_replay_paused_at_an_index(snap_compare: Compare, size: tuple[int, int]) -> None:
    controller, _ = replayed(streams.diverged_run())

    async def before(pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: controller.state is RunState.PREFILL)
        await pilot.press("number_sign", "1", "2", "0", "enter")
        await settle(pilot)
        await pilot.press("right_parenthesis")
        await settle(pilot)

    assert snap_compare(make_app(controller), terminal_size=size, run_before=before)


def test_light(snap_compare: Compare) -> None:
    runs = (streams.diverged_run(), streams.identical_run())
    assert take(snap_compare, (120, 36), *runs, theme="light")


def test_no_color(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert take(snap_compare, (80, 24), streams.diverged_run(), streams.identical_run())
