"""Screen 7: the list, marks, comparison of two arms, traces on disk."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ds4tui.app import Ds4App
from ds4tui.config import UiConfig
from ds4tui.controller import Controller
from ds4tui.marks import UNICODE
from ds4tui.options import DRAFTER_FILE, embedded_hashes
from ds4tui.paint import pair as pair_rows
from ds4tui.paint import runs as paint
from ds4tui.pair import PairRecord, pair_verdict
from ds4tui.run_record import RunRecord
from ds4tui.run_state import RunState
from ds4tui.runs_list import lines_as_json, lines_from_json, lines_of
from ds4tui.screens.runs import RunsScreen
from ds4tui.spans import text_of, width_of
from ds4tui.status import shown_settings
from ds4tui.trace_store import KEPT, TraceStore, runs_of
from ds4tui.widgets.bars import RunBar, VerdictBar
from engine.events import Event, RunStarted
from engine.trace import TraceWriter, read_trace
from tests.ds4tui import streams
from tests.ds4tui.harness import make_app, make_controller, record_of, settle

NOON = datetime(2026, 3, 1, 12, 0, 5)


DIVERGED = record_of(streams.diverged_run())
IDENTICAL = record_of(streams.identical_run())


def test_a_line_says_what_a_run_was_and_found() -> None:
    (line,) = lines_of(DIVERGED, "14:08")
    assert (line.numerics, line.policy, line.confidence) == ("split", "direct", 0.9)
    assert line.verdict == "≠ #163 near-tie"
    assert line.versus == "different work"
    (other,) = lines_of(IDENTICAL, "14:09")
    assert other.verdict == "= IDENTICAL"
    assert other.versus.startswith("1.5")
    assert lines_from_json(lines_as_json([line, other])) == [line, other]
    assert lines_from_json([{"other": 1}]) == []
    part = record_of(streams.until(streams.diverged_run(), 50))
    (running,) = lines_of(part, "", goes_on=True)
    assert (running.verdict, running.goes_on) == ("running #53", True)
    (stored,) = lines_from_json(lines_as_json([running]))
    assert (stored.verdict, stored.goes_on) == ("cut off #53", False)
    assert lines_of(part, "") == [stored]


@pytest.mark.parametrize("width", [78, 118])
def test_rows_fit_and_keep_hash_verdict_and_speed(width: int) -> None:
    listed = [
        paint.ListedRun(line, str(n), n)
        for n, record in enumerate((DIVERGED, IDENTICAL))
        for line in lines_of(record, "14:08")
    ]
    rows = paint.rows(listed, 1, width, 10, UNICODE)
    assert all(width_of(row) <= width for row in rows)
    text = [text_of(row) for row in rows]
    assert "≠ #163 near-tie" in text[1]
    assert DIVERGED.arms[1].ids_hash in text[1]
    assert "= IDENTICAL" in text[2]
    assert text[2].startswith("+1")


def test_long_lists_show_the_rows_around_the_cursor() -> None:
    (line,) = lines_of(DIVERGED, "")
    listed = [paint.ListedRun(line, str(n)) for n in range(50)]
    rows = paint.rows(listed, 30, 100, 11, UNICODE)
    assert len(rows) == 11
    assert any(role == "reverse" and " 30 " in text for row in rows for text, role in row)


# Two arms


def test_only_the_embedded_drafter_is_called_so() -> None:
    def called(path: str, sha256: str) -> str:
        def own(event: Event) -> Event:
            if not isinstance(event, RunStarted):
                return event
            arms = tuple(replace(arm, drafter=path if arm.commit else "") for arm in event.arms)
            files = tuple(replace(file, path=path, sha256=sha256) for file in event.files)
            return replace(event, arms=arms, files=files)

        (line,) = lines_of(record_of(map(own, streams.identical_run())), "")
        return line.drafter

    _, embedded = embedded_hashes()
    assert called("a/b.gguf", embedded) == "embedded"
    assert called(f"own/{DRAFTER_FILE}", "cd" * 32) == "tiny-v4-dspark"
    assert called("own.gguf", "") == "own"


def test_two_arms_part_where_their_ids_do() -> None:
    pair = PairRecord((IDENTICAL, 1), (DIVERGED, 1))
    line = pair_verdict(pair)
    assert line.head == "≠ PART at 163"
    assert "numerics differ" in line.bodies[0]
    assert '" reply"' in line.bodies[0]
    own = pair_verdict(PairRecord((DIVERGED, 0), (DIVERGED, 1)))
    assert own.bodies[0].startswith('plain " reply"  direct " respond"  near-tie 0.012 = 1.5 ulp')
    assert "numerics" not in own.bodies[0]
    assert DIVERGED.arms[1].diverged is not None, "the runs themselves stay as they were"
    assert IDENTICAL.arms[1].diverged is None


def test_an_arm_has_the_ids_of_itself() -> None:
    pair = PairRecord((DIVERGED, 1), (DIVERGED, 1))
    line = pair_verdict(pair)
    assert (line.head, line.bodies[1]) == ("= SAME IDS", "400 ids")
    assert pair.speedup is not None
    assert not pair.speedup.resolved


def test_other_prompts_are_not_compared() -> None:
    other = record_of(streams.diverged_run())
    assert other.started is not None
    object.__setattr__(other.started, "prompt_ids", (1, 2))
    pair = PairRecord((DIVERGED, 1), (other, 1))
    assert pair_verdict(pair).head == "? OTHER PROMPT"
    assert pair.speedup is None


def test_depths_and_times_are_left_right_and_difference() -> None:
    from ds4tui.figures import depths

    tallies = DIVERGED.arms[1].tally, IDENTICAL.arms[1].tally
    left, right = (depths(tally.counts) for tally in tallies)
    names = ("direct", "prefix 0.90")
    rows = [text_of(row) for row in pair_rows.depth_rows(left, right, names, 34, 5)]
    assert rows[1].split()[:2] == ["direct", "55"]
    assert rows[2].startswith(" prefix 0.90 ")
    assert all(len(row) <= 34 for row in rows)
    times = pair_rows.ledger_rows(*tallies, names, 28, 8)
    assert text_of(times[0]).split() == ["direct", "prefix", "diff"]
    kinds = {text_of(row).split()[0]: text_of(row).split()[1:] for row in times[1:]}
    assert float(kinds["replay"][1]) == 0
    assert float(kinds["replay"][2]) < 0


# On disk


def stored(folder: Path, *records: RunRecord) -> TraceStore:
    store = TraceStore(folder, lambda: NOON)
    for record in records:
        store.save(record)
    store.close()
    return store


def test_a_stored_run_is_a_trace_and_lists_itself(tmp_path: Path) -> None:
    store = stored(tmp_path, DIVERGED)
    (trace,) = store.stored()
    assert trace.lines == tuple(lines_of(DIVERGED, "12:00"))
    (again,) = runs_of(read_trace(str(trace.path)))
    assert [arm.ids for arm in again.arms] == [arm.ids for arm in DIVERGED.arms]


def test_only_the_last_traces_stay(tmp_path: Path) -> None:
    for number in range(KEPT + 5):
        (tmp_path / f"20200101-0000{number:02}-x.jsonl").write_text("{}\n")
    stored(tmp_path, DIVERGED)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == KEPT
    assert names[-1].startswith("20260301-120005-000000-run-1")


def test_what_is_no_trace_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("<html>")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe")
    (tmp_path / "c.jsonl").write_text('{"schema": "other/9"}\n')
    assert TraceStore(tmp_path).stored() == []


def test_a_full_disk_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *args: Any, **more: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    store = stored(tmp_path, DIVERGED, DIVERGED)
    assert "No space left on device" in store.problem()
    assert store.problem() == ""
    store.save(DIVERGED)


# The screen


def runs_screen(app: Ds4App) -> RunsScreen:
    screen = app.instruments["7"]
    assert isinstance(screen, RunsScreen)
    return screen


async def two_runs(pilot: Pilot[int], controller: Controller) -> None:
    await settle(pilot, lambda: controller.state is RunState.DONE)
    await pilot.press("r")
    await settle(pilot, lambda: len(controller.runs) == 2 and controller.state is RunState.DONE)
    await pilot.press("7")
    await settle(pilot)


async def test_marked_arms_go_into_the_panes() -> None:
    controller = make_controller(streams.diverged_run(), streams.identical_run())
    app = make_app(controller)
    async with app.run_test(size=(120, 36)) as pilot:
        await two_runs(pilot, controller)
        screen = runs_screen(app)
        assert [found.number for found in screen.listed()] == ["2", "1"]
        await pilot.press("plus", "j", "plus", "equals_sign")
        await settle(pilot, lambda: isinstance(controller.record, PairRecord))
        assert app.instrument.KEY == "1"
        verdict = text_of(app.instrument.query_one(VerdictBar).rows()[0])
        assert verdict.startswith("≠ PART at 163")
        assert "numerics differ" in verdict
        assert app.playground.right.parting == 163
        await pilot.press("r")
        await settle(pilot)
        assert not isinstance(controller.record, PairRecord)


async def test_enter_opens_an_earlier_run_and_delete_removes_it() -> None:
    controller = make_controller(streams.diverged_run(), streams.identical_run())
    app = make_app(controller)
    async with app.run_test(size=(80, 24)) as pilot:
        await two_runs(pilot, controller)
        await pilot.press("j", "enter")
        await settle(pilot, lambda: app.instrument.KEY == "1")
        assert controller.record is controller.runs[0]
        await pilot.press("7", "delete")
        await settle(pilot)
        assert [found.number for found in runs_screen(app).listed()] == ["2"]


async def test_a_trace_is_opened_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    writer = TraceWriter(str(path))
    writer.write(streams.identical_run())
    writer.close()
    app = make_app(make_controller(prompt=None))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("7", "o")
        app.screen.query_one(Input).value = str(path)
        await pilot.press("enter")
        await settle(pilot, lambda: bool(runs_screen(app).opened))
        assert runs_screen(app).listed()[0].line.verdict == "= IDENTICAL"
        await pilot.press("o")
        app.screen.query_one(Input).value = "nothing.jsonl"
        await pilot.press("enter")
        await settle(pilot, lambda: len(app._notifications) == 2)
        assert "nothing.jsonl cannot be read" in list(app._notifications)[-1].message


def session(folder: Path, *runs: list[Event]) -> Ds4App:
    """An interface that keeps its runs in a folder."""
    controller = make_controller(*runs, prompt=streams.PROMPT if runs else None)
    store = TraceStore(folder, lambda: NOON)
    return Ds4App(controller, UiConfig(fps=1), "embedded", store=store)


async def test_how_far_a_trace_is_read_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = threading.Event()

    def slow(path: str, progress: Callable[[int, int], object]) -> list[Event]:
        progress(42, 100)
        goes_on.wait(60)
        return streams.identical_run()

    monkeypatch.setattr("ds4tui.screens.runs.read_trace", slow)
    app = make_app(make_controller(prompt=None))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("7", "o")
        await settle(pilot, lambda: bool(app.screen.query(Input)))
        await pilot.press(*"x", "enter")
        await settle(pilot, lambda: app.instrument.query_one(RunBar).state == "READ 42%")
        goes_on.set()
        await settle(pilot, lambda: app.instrument.query_one(RunBar).state == "READY")
        assert runs_screen(app).chosen is not None


async def test_finished_runs_are_stored_and_come_back(tmp_path: Path) -> None:
    first = session(tmp_path, streams.diverged_run())
    async with first.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: first.controller.state is RunState.DONE)
    again = session(tmp_path)
    async with again.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: again.controller.ready is not None)
        await pilot.press("7")
        await settle(pilot)
        assert [found.number for found in runs_screen(again).listed()] == ["d1"]
        await pilot.press("enter")
        await settle(pilot, lambda: again.instrument.KEY == "1")
        assert again.controller.record is not None
        assert len(again.controller.record.arms[1].ids) == 400
        await pilot.press("7", "delete")
        await settle(pilot)
    assert list(tmp_path.iterdir()) == []


def test_row_2_names_both_arms_of_a_pair() -> None:
    controller = make_controller(streams.diverged_run())
    for right, words in (
        (DIVERGED, "split · left direct | right direct"),
        (IDENTICAL, "split direct | invariant prefix"),
    ):
        controller.open_run(PairRecord((DIVERGED, 1), (right, 1)))
        assert shown_settings(controller, "").words == words
    controller.open_run(DIVERGED)
    assert shown_settings(controller, "").words == ""
