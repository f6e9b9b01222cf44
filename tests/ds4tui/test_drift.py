"""Drift: samples, columns and the scale as pure functions, and screen 3 under a pilot."""

from __future__ import annotations

import math

import pytest

from ds4tui.drift_data import EQUAL, DriftTrack, Scale, scale_of
from ds4tui.marks import ASCII, UNICODE, Marks
from ds4tui.paint import drift as paint
from ds4tui.run_record import RunRecord
from ds4tui.run_state import RunState
from ds4tui.screens.drift import DriftScreen
from ds4tui.spans import text_of, width_of
from engine.events import Event, StateDrift
from tests.ds4tui import streams
from tests.ds4tui.harness import make_app, make_controller, settle


def track_of(*samples: tuple[int, float | None, float | None]) -> DriftTrack:
    track = DriftTrack()
    for index, raw, deeper in samples:
        tensors = ((0, "raw", raw), (1, "raw", deeper), (-1, "logits", None))
        track.feed(StateDrift("r", 1, 0, index, index + 9, tensors))
    return track


def record_of(events: list[Event]) -> RunRecord:
    record = RunRecord()
    for event in events:
        record.feed(event)
    return record


def test_a_column_shows_its_largest_and_the_last_value_stays() -> None:
    raw = track_of((2, 0.5, None), (3, None, None), (6, 0.25, None)).rows("all")[0]
    assert raw.columns(8, 8) == [None, None, 0.5, EQUAL, EQUAL, EQUAL, 0.25, None]
    # Positions 4 and 5 carry the equal sample of 3; position 2 is larger than 3.
    assert raw.columns(8, 4) == [None, 0.5, EQUAL, 0.25]
    assert len(raw.columns(3, 10)) == 10


def test_groups_take_the_largest_and_logits_are_no_state() -> None:
    track = track_of((0, None, 0.5), (1, 0.0, None))
    kinds, logits = track.rows("kinds")
    assert (kinds.tensor, kinds.value(0), kinds.value(1)) == ("raw", 0.5, 0.0)
    assert kinds.first() == 0
    assert (logits.tensor, logits.largest(), logits.first()) == ("logits", EQUAL, None)
    assert [row.layer for row in track.rows("layers")] == ["L0", "L1", ""]
    assert track.differing(0) == (1, 2)
    assert track.differing(1) == (1, 2)  # equal numbers, other bits


def test_the_scale_has_eight_steps_and_holds_what_is_not_finite() -> None:
    scale = Scale(1e-6, 1e-2)
    assert [scale.level(v) for v in (0.0, 1e-6, 9e-3, 1.0, math.inf)] == [1, 1, 8, 8, 8]
    assert scale.edges()[0] == pytest.approx(1e-6)
    found = scale_of(track_of((0, 3e-5, 0.2)))
    assert (found.low, found.high) == pytest.approx((1e-5, 1.0))
    assert scale_of(track_of((0, None, None))).low < 1


@pytest.mark.parametrize("marks", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(30, 5), (78, 18), (118, 30)])
def test_rows_fit_and_equal_is_never_blank(size: tuple[int, int], marks: Marks) -> None:
    record = record_of(streams.diverged_run())
    arm = record.arms[1]
    for group in ("kinds", "layers", "all"):
        rows = paint.rows(record, arm, group, 0, *size, marks)
        assert all(width_of(row) <= size[0] for row in rows)
    rows = paint.rows(record, arm, "kinds", 0, 78, 18, UNICODE)
    assert " " not in text_of(rows[1][2:3])
    assert set(text_of(rows[1][2:3])) == {"·"}
    text = "\n".join(map(text_of, rows))
    assert "#3  L2 frontier_kv" in text
    assert "160 tokens before the ids part" in text
    assert "after #163" in text


async def test_keys_move_the_run_s_cursor_and_open_its_cycle() -> None:
    app = make_app(make_controller(streams.diverged_run()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        await pilot.press("3", "D")
        await settle(pilot)
        record = app.controller.record
        assert record is not None
        assert record.cursor == 3
        await pilot.press("l", "j", "g")
        await settle(pilot)
        assert record.cursor == record.arms[1].drift.boundaries[1]
        screen = app.instrument
        assert isinstance(screen, DriftScreen)
        assert screen.group == "layers"
        await pilot.press("D", "enter")
        await settle(pilot)
        assert app.instrument.KEY == "2"
        await pilot.press("1")
        await settle(pilot)
        assert app.playground.panes.cursor == 3


async def test_without_a_comparison_it_says_why() -> None:
    events = [e for e in streams.identical_run() if not isinstance(e, StateDrift)]
    app = make_app(make_controller(events))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        await pilot.press("3")
        await settle(pilot)
        screen = app.instrument
        assert isinstance(screen, DriftScreen)
        assert "No comparison" in text_of(screen._rows(60, 10)[0])
