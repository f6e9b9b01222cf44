"""The runs of a session: each numbered, told as ended once and stored whole; what cannot be done
with it is said."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from ds4tui.app import Ds4App
from ds4tui.config import UiConfig
from ds4tui.pair import PairRecord
from ds4tui.run_record import RUNS_KEPT
from ds4tui.run_state import RunState
from ds4tui.screens.runs import RunsScreen
from ds4tui.spans import text_of
from ds4tui.trace_store import KEPT, TraceStore
from ds4tui.widgets.bars import KeyFooter
from engine.events import Event, RunFailed, RunFinished
from engine.trace import read_trace
from tests.ds4tui import streams, suite_streams
from tests.ds4tui.harness import (
    READY,
    FakeLink,
    make_app,
    make_controller,
    record_of,
    replayed,
    settle,
)
from tests.ds4tui.sweeps import SweepScript, sweep

NOON = datetime(2026, 3, 1, 12, 0, 5)
SET = suite_streams.suite("set", ("split",), ("direct",), ())


def numbered(count: int) -> list[Event]:
    """Events of several short runs, one after the other."""
    short = streams.run(streams.Script(tokens=12, diverges=False, drifts=False))
    return [event for n in range(count) for event in streams.renamed(short, f"r{n:03}")]


def on_disk(folder: Path, link: FakeLink) -> Ds4App:
    controller = make_controller(link=link, prompt=None)
    store = TraceStore(folder, lambda: NOON)
    return Ds4App(controller, UiConfig(fps=1), "embedded", store=store)


def runs_screen(app: Ds4App) -> RunsScreen:
    screen = app.instruments["7"]
    assert isinstance(screen, RunsScreen)
    return screen


def last_note(app: Ds4App) -> str:
    return list(app._notifications)[-1].message


# Whole traces


ENDS = [at + 1 for at, event in enumerate(SET) if isinstance(event, RunFinished)]


@pytest.mark.parametrize("cut", [0, 50, ENDS[0], ENDS[0] + 1, ENDS[1] - 1, ENDS[1] + 40])
async def test_runs_of_a_set_are_stored_whole_wherever_a_frame_ends(
    cut: int, tmp_path: Path
) -> None:
    link = FakeLink((READY,))
    app = on_disk(tmp_path, link)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        for part in (SET[:cut], SET[cut:]):
            link.waiting += part
            app.drain()
    traces = sorted(tmp_path.iterdir())
    assert len(traces) == len(suite_streams.PROMPTS)
    for path in traces:
        assert isinstance(list(read_trace(str(path)))[-1], RunFinished)
    lines = [line for trace in app.store.stored() for line in trace.lines]
    assert [line.verdict for line in lines] == ["= IDENTICAL"] * len(traces)
    assert all(line.tokens_per_s for line in lines)


async def test_more_runs_in_one_frame_than_stay_on_disk(tmp_path: Path) -> None:
    link = FakeLink((READY,))
    app = on_disk(tmp_path, link)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        link.waiting += numbered(KEPT + 5)
        await settle(pilot)
    kept = sorted(path.stem.rpartition("-")[2] for path in tmp_path.iterdir())
    assert kept == [f"r{n:03}" for n in range(5, KEPT + 5)]
    assert app.store.path_of("r004") is None
    assert app.store.path_of("r005") is not None


def test_runs_of_one_second_stay_in_their_order(tmp_path: Path) -> None:
    times = iter(NOON.replace(microsecond=micro) for micro in (1, 2, 30, 400))
    store = TraceStore(tmp_path, lambda: next(times))
    names = ("z", "m", "a", "k")
    for name in names:
        store.save(record_of(streams.renamed(streams.identical_run(), name)))
    store.close()
    assert [trace.lines[0].run_id for trace in store.stored()] == list(reversed(names))


async def test_what_ends_while_quitting_is_stored(tmp_path: Path) -> None:
    link = FakeLink((READY,))
    app = on_disk(tmp_path, link)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        link.waiting += numbered(1)
    assert len(list(tmp_path.iterdir())) == 1


async def test_a_run_without_an_end_on_disk_was_cut_off(tmp_path: Path) -> None:
    link = FakeLink((READY,))
    app = on_disk(tmp_path, link)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        link.waiting += numbered(1)
        await settle(pilot)
    (path,) = tmp_path.iterdir()
    head, *events = path.read_text().splitlines()
    found = json.loads(head)
    found["lines"][0]["verdict"] = "running #7"
    path.write_text("\n".join([json.dumps(found), *events[:9]]) + "\n")
    link = FakeLink((READY,))
    again = on_disk(tmp_path, link)
    async with again.run_test(size=(120, 36)) as pilot:
        await settle(pilot)
        link.waiting += streams.identical_run()
        await settle(pilot, lambda: len(list(tmp_path.iterdir())) == 2)
        await pilot.press("7")
        await settle(pilot)
        listed = [(found.number, found.line.verdict) for found in runs_screen(again).listed()]
        assert listed == [("1", "= IDENTICAL"), ("d1", "cut off #7")]
        assert runs_screen(again)._title()[1] == "1 here, 1 on disk"


# Ends


def test_runs_that_end_are_told_once() -> None:
    link = FakeLink((READY,))
    controller = make_controller(link=link, prompt=None)
    controller.start()
    link.waiting += numbered(3)
    controller.drain()
    ids = [run.started.run_id for run in controller.take_ended() if run.started]
    assert ids == ["r000", "r001", "r002"]
    assert controller.take_ended() == []


def test_a_run_that_another_one_took_over_from_ends_too() -> None:
    first, second = streams.diverged_run(), streams.identical_run()
    link = FakeLink((READY,))
    controller = make_controller(link=link, prompt=None)
    controller.start()
    link.waiting += [*first[:200], *second[:300], *first[200:], *second[300:]]
    controller.drain()
    assert [run.finished is not None for run in controller.take_ended()] == [True, True]
    verdicts = [run.lines[0].verdict for run in controller.session.newest_first()]
    assert verdicts == ["= IDENTICAL", "≠ #163 near-tie"]


def test_an_engine_that_fails_ends_its_run() -> None:
    link = FakeLink((READY,))
    controller = make_controller(link=link, prompt=None)
    controller.start()
    link.waiting += streams.until(streams.diverged_run(), 50)
    controller.drain()
    (run,) = controller.session.newest_first()
    assert run.lines[0].goes_on
    link.waiting += [RunFailed("run-1", -1, 0, "Killed", "The engine was killed.", "")]
    controller.drain()
    assert run.lines[0].verdict == "\u00d7 FAILED"
    assert len(controller.take_ended()) == 1


def test_a_trace_that_was_cut_off_leaves_no_running_run() -> None:
    part = streams.until(streams.diverged_run(), 50)
    controller, clock = replayed(part)
    controller.start()
    controller.drain()
    clock.now = 1e6
    for _ in range(3):
        controller.drain()
    assert controller.state is RunState.CANCELLED
    (run,) = controller.session.newest_first()
    assert run.lines[0].verdict.startswith("cut off #")


# The list


async def test_runs_after_a_sweep_stand_above_it_with_numbers_that_stay() -> None:
    link = FakeLink((READY,))
    controller = make_controller(link=link, prompt=None)
    app = make_app(controller)
    async with app.run_test(size=(120, 36)) as pilot:
        await settle(pilot)
        first = streams.renamed(streams.diverged_run(), "first")
        link.waiting += [*first, *sweep(SweepScript(repeats=RUNS_KEPT, tokens=20))]
        await settle(pilot)
        many = 2 * RUNS_KEPT
        link.waiting += numbered(RUNS_KEPT + 5)
        await settle(pilot)
        await pilot.press("7")
        await settle(pilot)
        screen = runs_screen(app)

        def by_run() -> dict[str, str]:
            return {found.line.run_id: found.number for found in screen.listed()}

        numbers = by_run()
        assert [int(n) for n in numbers.values()] == list(range(1 + many + RUNS_KEPT + 5, 0, -1))
        assert next(iter(numbers)) == f"r{RUNS_KEPT + 4:03}"
        assert numbers["first"] == "1"
        assert screen._title()[1].startswith(f"{len(numbers)} here")
        await pilot.press("G", "delete", "g", "j", "delete")
        await settle(pilot)
        left = by_run()
        assert len(left) == len(numbers) - 2
        assert left.items() <= numbers.items()
        link.waiting += streams.renamed(streams.identical_run(), "last")
        await settle(pilot)
        assert by_run()["last"] == str(len(numbers) + 1)


async def test_the_keys_of_a_list_move_the_cursor() -> None:
    link = FakeLink((READY,))
    app = make_app(make_controller(link=link, prompt=None))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        link.waiting += numbered(60)
        await settle(pilot)
        await pilot.press("7")
        await settle(pilot)
        screen = runs_screen(app)
        for key, low, high in (
            *(("end", 59, 59), ("home", 0, 0), ("G", 59, 59), ("g", 0, 0)),
            *(("pagedown", 10, 25), ("pagedown", 25, 45), ("pageup", 10, 25), ("down", 11, 26)),
        ):
            await pilot.press(key)
            await settle(pilot)
            assert low <= screen.cursor <= high, key
        await pilot.press("tab", "home")
        await settle(pilot)
        assert screen.cursor == 0


async def test_comparing_says_which_marks_are_missing() -> None:
    app = make_app(make_controller(streams.diverged_run()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        await pilot.press("7", "equals_sign")
        await settle(pilot)
        assert "+ marks the one under the cursor, 2 to go" in last_note(app)
        await pilot.press("plus", "equals_sign")
        await settle(pilot)
        assert "1 to go" in last_note(app)
        assert app.instrument.KEY == "7"


async def test_the_way_back_from_a_comparison() -> None:
    controller = make_controller(streams.diverged_run(), streams.identical_run())
    app = make_app(controller)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: controller.state is RunState.DONE)
        await pilot.press("r")
        await settle(pilot, lambda: len(controller.runs) == 2)
        await pilot.press("7", "plus", "j", "plus", "equals_sign")
        await settle(pilot, lambda: isinstance(controller.record, PairRecord))
        footer = text_of(app.playground.query_one(KeyFooter).rows()[0])
        assert footer.startswith("esc Back to runs")
        await pilot.press("Y")
        await settle(pilot)
        assert last_note(app) == "no report: a report is of one run, and this compares two"
        await pilot.press("right", "escape")
        await settle(pilot)
        assert isinstance(controller.record, PairRecord), "the cursor goes first"
        await pilot.press("escape")
        await settle(pilot)
        assert app.instrument.KEY == "7"
        assert controller.record is controller.newest
        await pilot.press("1", "escape")
        await settle(pilot)
        assert app.instrument.KEY == "1"


async def test_a_report_that_cannot_be_written_says_why() -> None:
    controller, clock = replayed(streams.diverged_run())
    app = make_app(controller)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: controller.state is RunState.PREFILL)
        await pilot.press("right_parenthesis")
        await settle(pilot)
        await pilot.press("Y")
        await settle(pilot)
        assert last_note(app) == "no report: the replay has not come to the end of the run"
        await pilot.press("space")
        clock.now = 1e6
        await settle(pilot, lambda: controller.state is RunState.DONE)
        await pilot.press("z")
        await settle(pilot)
        await pilot.press("Y")
        await settle(pilot)
        assert last_note(app).startswith("copied the report"), "slow motion is of a whole run"


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (streams.until(streams.diverged_run(), 50), "the run has not ended"),
        (streams.plain_run(), "a run of plain alone compares nothing"),
        (streams.failed_run(), "the run has failed"),
    ],
)
async def test_other_reasons_for_no_report(events: list[Event], why: str) -> None:
    app = make_app(make_controller(events))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: app.controller.newest is not None)
        await pilot.press("Y")
        await settle(pilot)
        assert last_note(app) == f"no report: {why}"


async def test_screen_1_says_how_far_a_set_is_and_what_the_next_run_is_of() -> None:
    link = FakeLink((READY,))
    app = make_app(make_controller(link=link))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        link.waiting += SET[: ENDS[0] + 50]
        await settle(pilot)
        assert app.playground.state_text() == "RUNNING 1/3"
        app.controller.pause()
        assert app.playground.state_text() == "PAUSED 1/3"
        link.waiting += SET[ENDS[0] + 50 :]
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        assert app.playground.state_text().startswith("DONE")
        footer = text_of(app.playground.query_one(KeyFooter).rows()[0])
        assert footer.startswith('r Run "Explain the TCP…"')
