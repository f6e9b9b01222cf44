"""Drift: samples, columns and the scale as pure functions, and screen 3 under a pilot."""

from __future__ import annotations

import math

import pytest

from ds4tui.drift_data import EQUAL, DriftTrack, Scale, scale_of
from ds4tui.marks import ASCII, UNICODE, Marks
from ds4tui.paint import drift as paint
from ds4tui.run_state import RunState
from ds4tui.screens.drift import DriftScreen
from ds4tui.spans import text_of, width_of
from ds4tui.widgets.box import Box
from engine.events import StateDrift
from tests.ds4tui import streams
from tests.ds4tui.harness import make_app, make_controller, record_of, settle


def track_of(*samples: tuple[int, float | None, float | None]) -> DriftTrack:
    track = DriftTrack()
    for index, raw, deeper in samples:
        tensors = ((0, "raw", raw), (1, "raw", deeper), (-1, "logits", None))
        track.feed(StateDrift("r", 1, 0, index, index + 9, tensors))
    return track


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
        rows = paint.rows(record, arm, paint.DriftView(group, 0, *size), marks)
        assert len(rows) <= size[1]
        assert all(width_of(row) <= size[0] for row in rows)
    rows = paint.rows(record, arm, paint.DriftView("kinds", 0, 78, 18), UNICODE)
    assert " " not in text_of(rows[1][2:3])
    assert set(text_of(rows[1][2:3])) == {"·"}
    text = " ".join(" ".join(map(text_of, rows)).split())
    assert "#3, L2 frontier_kv, 9.3e-5 and 8 tensors more" in text
    assert "160 tokens before the ids part" in text
    assert "after it other ids" in text


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
        assert record.cursor == record.arms[1].drift.boundaries[2]
        screen = app.instrument
        assert isinstance(screen, DriftScreen)
        assert screen.group == "all"
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


def test_rows_grow_with_each_comparison() -> None:
    track = track_of((2, None, 0.5))
    raw = track.rows("kinds")[0]
    assert (list(raw.values), raw.first(), raw.largest()) == ([0.5], 2, 0.5)
    more = track_of((2, None, 0.5), (5, 0.75, None), (6, None, None))
    track.feed(
        StateDrift("r", 1, 0, 5, 14, ((0, "raw", 0.75), (1, "raw", None), (-1, "logits", 1.0)))
    )
    track.feed(
        StateDrift("r", 1, 0, 6, 15, ((0, "raw", None), (1, "raw", None), (-1, "logits", None)))
    )
    assert track.rows("kinds")[0] is raw
    assert list(raw.values) == [0.5, 0.75, EQUAL] == list(more.rows("kinds")[0].values)
    assert (raw.first(), raw.largest(), track.range()) == (2, 0.75, (0.5, 1.0))


@pytest.mark.parametrize(
    ("kinds", "height", "group"),
    [
        (streams.LAYER_KINDS, 44, "all"),
        (streams.LAYER_KINDS, 18, "layers"),
        (streams.FULL_SIZE, 30, "kinds"),
    ],
)
def test_the_finest_grouping_that_fits(kinds: tuple[int, ...], height: int, group: str) -> None:
    record = record_of(streams.run(streams.Script(layer_kinds=kinds)))
    assert paint.finest(record.arms[1].drift, height) == group


async def test_m_leaves_the_chart_alone() -> None:
    app = make_app(make_controller(streams.diverged_run()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        await pilot.press("3")
        await settle(pilot)
        box = app.instrument.query_one(Box)
        assert "first drift" in box.text()
        await pilot.press("g", "m")
        await settle(pilot)
        assert "first drift" not in box.text()
        assert "more below" in box.text()
        await pilot.press("m")
        await settle(pilot)
        assert "first drift" in box.text()
