"""A recorded trace drives the interface: every screen, speed, steps, seeking, a cut-off end."""

from __future__ import annotations

import os
import threading
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ds4tui.app import Ds4App, controller_for
from ds4tui.controller import Controller
from ds4tui.options import replay_options
from ds4tui.paint.bars import footer_row
from ds4tui.run_state import RunState
from ds4tui.spans import text_of
from ds4tui.status import footer_entries, state_text
from engine.errors import Ds4Error
from engine.events import Event, LoadProgress, RunFinished, SuiteFinished, SuiteStarted
from engine.trace import read_trace, trace_text
from tests.ds4tui import streams
from tests.ds4tui.harness import Clock, make_app, replayed, settle
from tests.ds4tui.session import screen_of


def begun(events: Sequence[Event]) -> tuple[Controller, Clock]:
    controller, clock = replayed(events)
    controller.start()
    controller.drain()
    return controller, clock


def ids_of(controller: Controller) -> list[int]:
    assert controller.record is not None
    return [len(arm.ids) for arm in controller.record.arms]


def test_a_trace_without_a_run_is_refused(tmp_path: Path) -> None:
    """Its writer was killed while the model was being loaded."""
    path = tmp_path / "none.jsonl"
    path.write_text(trace_text([LoadProgress("", -1, 0, "reading", 0, 2)]))
    with pytest.raises(Ds4Error, match=r"none\.jsonl holds no run: it ends before one began"):
        read_whole(controller_of(path))


def controller_of(path: Path) -> Controller:
    args = Namespace(trace=str(path), config=None, ascii=False)
    return controller_for(replay_options(args))


def read_whole(controller: Controller) -> None:
    controller.start()
    while controller.state is RunState.LOADING:
        controller.drain()


def test_what_is_no_trace_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text("no trace\n")
    with pytest.raises(Ds4Error, match=r"text\.jsonl is no trace"):
        controller_of(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_trace_may_come_through_a_pipe(tmp_path: Path) -> None:
    """As in `ds4tui replay <(zcat trace.jsonl.gz)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = trace_text(streams.diverged_run())
    writer = threading.Thread(target=lambda: pipe.write_text(text), daemon=True)
    writer.start()
    controller = controller_of(pipe)
    read_whole(controller)
    controller.drain()
    assert controller.record is not None
    writer.join(60)


async def test_a_large_trace_is_read_while_the_interface_says_how_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, may_go_on = tmp_path / "large.jsonl", threading.Event()
    path.write_text(trace_text(streams.diverged_run()))

    def slowly(name: str, progress: Callable[[int, int], None]) -> list[Event]:
        def told(done: int, total: int) -> None:
            progress(done, total)
            if done:
                progress(total, 2 * total)
                assert may_go_on.wait(60)

        return read_trace(name, told)

    monkeypatch.setattr("ds4tui.link.read_trace", slowly)
    controller = controller_of(path)
    app = make_app(controller)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: state_text(controller) == "READ 50%")
        shown = screen_of(app)
        assert "large.jsonl" in shown[1]
        assert "the trace is being read" in shown[2]
        assert "read the trace" in shown[4]
        assert not any(word in "".join(shown) for word in ("split", "edits", "Play again"))
        for key, words in (("4", "The trace is being read."), ("7", "here")):
            await pilot.press(key)
            await settle(pilot)
            assert words in "".join(screen_of(app))
        may_go_on.set()
        await settle(pilot, lambda: controller.record is not None)
        assert "REPLAY" in screen_of(app)[0]


async def test_a_damaged_trace_closes_the_interface_with_its_sentence(tmp_path: Path) -> None:
    path = tmp_path / "damaged.jsonl"
    path.write_text(trace_text(streams.diverged_run()).replace('"ids"', '"idz"', 40))
    app = make_app(controller_of(path))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: app.problem is not None)
    assert "is no event" in str(app.problem)


def test_pause_speed_step_and_seek() -> None:
    controller, clock = begun(streams.diverged_run())
    player = controller.player
    assert player is not None
    clock.now += 0.5
    controller.drain()
    assert state_text(controller) == "REPLAY 1.0x"
    before = ids_of(controller)
    controller.pause()
    clock.now += 10
    controller.drain()
    assert ids_of(controller) == before
    assert controller.state is RunState.PAUSED
    player.seek(163)
    changes = controller.drain()
    assert changes.parted
    assert min(ids_of(controller)) > 163
    player.seek(20)
    controller.drain()
    assert 20 < min(ids_of(controller)) < 40
    assert len(controller.runs) == 1, "the run again is the same run"
    player.faster(4)
    controller.pause()
    clock.now += 1.0
    controller.drain()
    assert controller.state is RunState.DONE
    assert state_text(controller) == "DONE 1.9 s"
    assert not controller.is_busy


@pytest.mark.parametrize(
    ("cannot", "shown"),
    [
        ("divergence other_arm", "space Pause  < > Speed  ( ) Cycle  esc End  # Index  ? Help"),
        ("divergence", "space Pause  < > Speed  ( ) Cycle  w Other arm  esc End  ? Help"),
        ("", "space Pause  < > Speed  ( ) Cycle  d Divergence  w Other arm  ? Help"),
    ],
)
def test_while_it_plays_80_columns_offer_what_there_is_to_look_at(cannot: str, shown: str) -> None:
    controller, _ = begun(streams.diverged_run())
    keys = make_app(controller).keys_by_id()
    entries = footer_entries(controller, keys, lambda name: name not in cannot.split())
    row = footer_row([(key, label) for key, label, _ in entries], 80)
    assert "  ".join(text_of(spans) for _, spans in row) == shown


def test_after_the_end_it_can_be_gone_back_into() -> None:
    controller, clock = begun(streams.diverged_run())
    clock.now += 100
    controller.drain()
    assert controller.state is RunState.DONE
    assert controller.player is not None
    controller.player.step(-1)
    controller.drain()
    assert controller.state is RunState.PAUSED
    assert ids_of(controller)[0] < 400
    controller.pause()
    clock.now += 100
    controller.drain()
    assert controller.state is RunState.DONE
    assert ids_of(controller) == [400, 400]


def test_run_plays_the_run_again_from_its_start() -> None:
    controller, clock = begun(streams.diverged_run())
    clock.now += 100
    controller.drain()
    controller.run()
    controller.drain()
    assert controller.record is not None
    assert controller.record.finished is None
    clock.now += 100
    controller.drain()
    assert ids_of(controller) == [400, 400]
    assert len(controller.runs) == 1


def test_a_trace_that_was_cut_off_ends_with_what_there_is() -> None:
    controller, clock = begun(streams.until(streams.diverged_run(), 60))
    clock.now += 100
    controller.drain()
    changes = controller.drain()
    assert changes.notices == [("warning", "The trace ends here, inside a run.")]
    assert controller.state is RunState.CANCELLED
    assert not controller.is_busy
    assert controller.drain().notices == []
    assert controller.can_slow


def suite_trace() -> list[Event]:
    head = ("s1", "matrix", ("split direct", "invariant prefix"))
    return [
        SuiteStarted("", -1, 0, *head),  # type: ignore[arg-type]
        *streams.of_suite(streams.diverged_run(), "s1", "split", 0),
        *streams.of_suite(streams.identical_run(), "s1", "invariant", 0),
        SuiteFinished("", -1, 10**10, *head),  # type: ignore[arg-type]
    ]


def test_a_trace_with_a_suite_fills_it_and_can_be_gone_back_into() -> None:
    controller, clock = begun(suite_trace())
    clock.now += 100
    controller.drain()
    assert [len(suite.runs) for suite in controller.suites.values()] == [2]
    assert controller.player is not None
    controller.player.step(-5)
    controller.drain()
    suite = controller.suites["matrix"]
    assert len(suite.runs) == 2
    assert not suite.is_over
    controller.pause()
    clock.now += 100
    controller.drain()
    assert controller.suites["matrix"].is_over
    assert len(controller.suites["matrix"].runs) == 2
    assert len(controller.runs) == 2


def test_going_back_inside_a_run_of_a_suite_takes_it_once() -> None:
    controller, clock = begun(suite_trace())
    player = controller.player
    assert player is not None
    player._go(len(suite_trace()) - 100)
    controller.drain()
    suite = controller.suites["matrix"]
    player.step(-3)
    controller.drain()
    assert controller.suites["matrix"] is suite
    assert [run.started.cell for run in suite.runs if run.started] == ["split", "invariant"]
    assert suite.running is controller.record
    controller.pause()
    clock.now += 100
    controller.drain()
    assert [run.finished is not None for run in suite.runs] == [True, True]
    run = suite.report.run("invariant prefix", 0)
    assert run is not None
    assert len(run["ids"]) == 400


@pytest.mark.parametrize("events", [streams.diverged_run(), suite_trace()], ids=["run", "suite"])
async def test_every_screen_is_driven_by_a_trace(events: list[Event]) -> None:
    controller, clock = replayed(events)
    app: Ds4App = make_app(controller)
    async with app.run_test(size=(120, 36)) as pilot:
        await settle(pilot, lambda: controller.state is RunState.PREFILL)
        clock.now += 0.3
        await settle(pilot)
        for key in "7654321":
            await pilot.press(key)
            clock.now += 0.1
            await settle(pilot)
            assert key == app.instrument.KEY
        await pilot.press("right_parenthesis", "left_parenthesis", "number_sign", "9", "enter")
        await settle(pilot)
        assert controller.player is not None
        assert controller.player.is_paused
        await pilot.press("space", "greater_than_sign")
        clock.now += 200
        await settle(pilot, lambda: not controller.is_busy)
        for key in "1234567":
            await pilot.press(key)
            await settle(pilot)
        finished = [run for run in controller.runs if run.finished is not None]
        assert len(finished) == sum(isinstance(event, RunFinished) for event in events)
        assert not app.can("prompt")
        assert not app.can("run_all")
