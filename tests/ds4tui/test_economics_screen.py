"""The economics screen: from a run's own steps, from a measurement, and what it says of both."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from ds4tui import exports
from ds4tui.app import Ds4App
from ds4tui.economics_figures import economics_of
from ds4tui.economics_report import json_text, report_text
from ds4tui.marks import UNICODE
from ds4tui.paint import calibration as calibration_rows
from ds4tui.paint.economics import outcome, pays_rows
from ds4tui.paint.numbers import apportioned
from ds4tui.pooled_runs import alike
from ds4tui.run_state import RunState
from ds4tui.screens.economics import REPEAT, EconomicsScreen
from ds4tui.spans import text_of
from ds4tui.widgets.bars import KeyFooter, RunBar
from ds4tui.widgets.box import Box
from engine.costs import CostRequest
from engine.events import Event, LoadProgress, MeasuringFinished, RunFailed
from engine.process import Measure, Stop
from engine.settings import Settings
from engine.stats import Speedup
from tests.ds4tui import streams
from tests.ds4tui.costs import measured, measurement
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, record_of, settle

SIZE = (120, 36)


async def opened(
    pilot: Pilot[int], link: FakeLink, events: Sequence[Event] = ()
) -> EconomicsScreen:
    app = pilot.app
    assert isinstance(app, Ds4App)
    done = (RunState.DONE, RunState.IDLE, RunState.FAILED, RunState.DECODING)
    await settle(pilot, lambda: app.controller.ready is not None and app.controller.state in done)
    await pilot.press("5")
    link.waiting += events
    await settle(pilot)
    screen = app.instrument
    assert isinstance(screen, EconomicsScreen)
    return screen


def shown(screen: EconomicsScreen, box: str) -> str:
    return "\n".join(
        text_of(row).rstrip() for row in screen.query_one(f"#economics-{box}", Box).rows()
    )


def footer(screen: EconomicsScreen) -> str:
    return text_of(screen.query_one(KeyFooter).rows()[0])


async def test_a_finished_run_answers_from_its_own_steps() -> None:
    link = FakeLink((READY,), streams.diverged_run())
    async with make_app(make_controller(link=link)).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        pays = shown(screen, "pays")
        assert "the steps of this run" in pays
        assert "different work: ids differ from #163" in pays
        assert "replay 53 rows x mean 2.49 = 132 ms" in pays
        assert "break-even depth 2.16   pays" in pays
        assert "replay     0." in pays
        assert "cannot pay at any depth" in pays
        costs = shown(screen, "costs")
        assert [row.split()[0] for row in costs.splitlines()[1:7]] == list("123456")
        assert "fit: verify = 2.1" in costs
        assert "46 no-draft cycles lost .90 ms each (mean), 41 ms in all" in costs
        values = shown(screen, "values")
        assert "d1        101     92    +229" in values
        assert "first position with negative net: none up to 5" in values


async def test_the_printed_terms_sum_to_what_was_saved() -> None:
    link = FakeLink((READY,), streams.diverged_run())
    async with make_app(make_controller(link=link)).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        lines = shown(screen, "values").splitlines()
        nets = [int(line.split()[5]) for line in lines[1:6]]
        all_, *terms = [line.split() for line in lines[6:]]
        assert sum(nets) == int(all_[3])
        values = [int(term[-1]) for term in terms[:-2]]
        saved = int(terms[-2][1])
        assert int(all_[3]) + sum(values) == saved
        ledger = screen.found.ledger
        assert ledger is not None
        assert saved == round(ledger.saved)


async def test_r_measures_at_the_runs_middle_and_says_how_far() -> None:
    link = FakeLink((READY,), streams.identical_run())
    async with make_app(make_controller(link=link)).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        assert "r Measure" in footer(screen)
        await pilot.press("r")
        command = link.commands[-1]
        assert isinstance(command, Measure)
        assert command.request == CostRequest("invariant", "prefix", (218,), REPEAT)
        link.waiting += [LoadProgress("", -1, 0, "measuring", 12, 31)]
        await settle(pilot)
        assert screen.query_one(RunBar).state == "MEASURING 12/31"
        assert screen.query_one("#economics-costs", Box).titles(False)[1] == "measuring 12/31"
        assert "esc Stop" in footer(screen)
        await pilot.press("escape")
        assert isinstance(link.commands[-1], Stop)
        link.waiting += measurement("invariant", "prefix")
        await settle(pilot)
        assert screen.found.table is not None
        assert screen.found.table.source == "measured"
        assert "the costs measured at 218" in shown(screen, "pays")
        assert "reproject  1." in shown(screen, "pays")
        assert "carries state, drafts nothing" in shown(screen, "pays")
        await pilot.press("f")
        await settle(pilot)
        assert screen.found.table.source == "run"
        assert "Measured costs" in footer(screen)


async def test_costs_of_other_numerics_are_not_taken() -> None:
    link = FakeLink((READY,), streams.identical_run())
    async with make_app(make_controller(link=link)).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, measurement("split", "direct"))
        assert screen.found.sources == ("run",)


async def test_costs_alone_show_before_any_run() -> None:
    link = FakeLink()
    async with make_app(make_controller(link=link, prompt=None)).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        assert "r measures what steps cost" in shown(screen, "costs")
        await pilot.press("r")
        link.waiting += measurement("split", "direct")
        await settle(pilot)
        assert "fit: verify = 2.10 + 0.50 a row" in shown(screen, "costs")
        assert "no cycles yet" in shown(screen, "values")


async def test_a_running_run_shows_what_there_is() -> None:
    link = FakeLink((READY,), streams.until(streams.diverged_run(), 120))
    async with make_app(make_controller(link=link)).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        assert "so far" in shown(screen, "pays")
        assert screen.found.shape is not None
        assert screen.found.shape.tokens < 130


async def test_without_a_drafter_there_is_nothing_to_pay() -> None:
    link = FakeLink((READY,), _plain_run())
    controller = make_controller(link=link, settings=Settings(dspark=()))
    async with make_app(controller).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        assert "has no DSpark arm" in shown(screen, "pays")


def _plain_run() -> list[Event]:
    events = [event for event in streams.diverged_run() if event.arm < 1]
    return [
        replace(event, arms=event.arms[:1]) if hasattr(event, "arms") else event for event in events
    ]


async def test_an_engine_that_dies_says_so_and_is_loaded_again() -> None:
    link = FakeLink((READY,))
    async with make_app(make_controller(link=link, prompt=None)).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        screen.controller.prompt = screen.controller.prompts[0].prompt
        await pilot.press("r")
        link.is_alive = False
        link.waiting += [RunFailed("", -1, 0, "Engine process ended", "It ended by signal 9.", "")]
        await settle(pilot)
        assert "It ended by signal 9." in shown(screen, "pays")
        assert "r Retry" in footer(screen)
        await pilot.press("r")
        await settle(pilot, lambda: link.is_alive)


async def test_a_small_terminal_shows_one_box_the_answer_first() -> None:
    link = FakeLink((READY,), streams.diverged_run())
    async with make_app(make_controller(link=link)).run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot, link)
        seen = []
        for _ in range(4):
            seen += [box.id for box in screen.query(Box) if box.display]
            await pilot.press("tab")
            await settle(pilot)
        assert seen == [
            *("economics-pays", "economics-calibration", "economics-costs", "economics-values"),
        ]
        await pilot.press("shift+tab")
        await settle(pilot)
        assert [box.id for box in screen.query(Box) if box.display] == ["economics-values"]


async def test_the_row_under_the_cursor_is_taken_apart() -> None:
    link = FakeLink((READY,), streams.diverged_run())
    async with make_app(make_controller(link=link)).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        await pilot.press("j", "j", "j", "k", "j")
        await settle(pilot)
        assert "3 rows, 20 cycles: draft .85 + verify 3.6" in shown(screen, "costs")


async def test_files(tmp_path: Path) -> None:
    link = FakeLink((READY,), streams.diverged_run())
    async with make_app(make_controller(link=link)).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        screen.export()
        screen.report()
        await pilot.press("y")
        await pilot.pause()
    folder = exports.exports_folder()
    found = json.loads((folder / "economics-run-1.json").read_text())
    assert found["schema"] == "ds4tui.economics/1"
    assert found["speedup"] is None
    assert found["first_divergence"] == 163
    assert len(found["curve"]) == 6
    replay = next(each for each in found["predictions"] if each["policy"] == "replay")
    assert replay["never"]
    report = (folder / "economics-run-1.md").read_text()
    assert "does it pay?" in report
    assert "53 rows x mean 2.49" in report
    assert (folder / "run-1-economics-pays.txt").is_file()


def test_an_identical_run_has_its_speedup_in_the_file() -> None:
    record = record_of(streams.identical_run())
    found = json.loads(json_text(economics_of(alike(record, ()), ()), record))
    assert found["speedup"]["resolved"]
    assert found["first_divergence"] is None
    assert "=" in report_text(economics_of(alike(record, ()), ()), record)


def test_whole_numbers_that_sum_to_the_rounded_total() -> None:
    assert apportioned([1.4, 1.4, 1.4], 4.2) == [2, 1, 1]
    assert apportioned([-1.6, 2.5, -0.2], 0.7) == [-2, 3, 0]
    assert sum(apportioned([0.5] * 7, 3.5)) == round(3.5)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(1.01, 1.2, "faster"), (0.8, 0.99, "slower"), (0.97, 1.02, "not resolved")],
)
def test_a_speedup_is_not_resolved_while_its_interval_holds_one(
    low: float, high: float, word: str
) -> None:
    assert outcome(Speedup((low + high) / 2, low, high)) == word


def test_a_speedup_within_its_spread_says_so_on_the_screen() -> None:
    record = record_of(streams.identical_run())
    found = replace(economics_of(alike(record, ()), ()), speedup=Speedup(1.01, 0.99, 1.03))
    (line, *_) = pays_rows(found, 76, ())
    assert "1.01x ±.02" in text_of(line)
    assert text_of(line).rstrip().endswith("not resolved")


def test_the_head_is_judged_where_it_is_most_wrong() -> None:
    record = record_of(_with_confidences(0.9))
    found = economics_of(alike(record, ()), ()).calibration
    assert found is not None
    assert found.gate == 0.9
    assert found.n == 275
    rows = calibration_rows.rows(found, "6", 58, 14, UNICODE)
    text = "\n".join(text_of(row) for row in rows)
    assert "cut at the gate: 6 Sweep runs 0.00" in text
    assert calibration_rows.title(found)[1].startswith("cut at .90")


def _with_confidences(gate: float) -> list[Event]:
    return streams.run(streams.Script(confidence=gate))


def test_a_measurement_again_replaces_the_first() -> None:
    twice = [
        *(event for event in measurement("split", "direct")),
        *(measured("decode", 1, 5.0, 218),),
    ]
    costs = [event for event in twice if not isinstance(event, MeasuringFinished)]
    found = economics_of((), costs)  # type: ignore[arg-type]
    assert found.table is not None
    assert found.table.decode.median == 5.0


async def test_m_shows_the_focused_box_alone_and_escape_restores() -> None:
    link = FakeLink((READY,), streams.diverged_run())
    async with make_app(make_controller(link=link)).run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        await pilot.press("tab", "m")
        await settle(pilot)
        assert [box.id for box in screen.query(Box) if box.display] == ["economics-calibration"]
        await pilot.press("tab")
        await settle(pilot)
        assert [box.id for box in screen.query(Box) if box.display] == ["economics-costs"]
        await pilot.press("escape")
        await settle(pilot)
        assert len([box for box in screen.query(Box) if box.display]) == 4
