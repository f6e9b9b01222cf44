"""Runs of one setting over several prompts put together, and what the economics say of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ds4tui.economics_figures import economics_of
from ds4tui.economics_report import json_text, report_text
from ds4tui.pooled_runs import alike, joined
from ds4tui.run_record import RunRecord
from ds4tui.run_state import RunState
from ds4tui.screens.economics import EconomicsScreen
from ds4tui.widgets.bars import KeyFooter
from ds4tui.widgets.box import Box
from engine.events import CostMeasured, Event, RunStarted
from tests.ds4tui import streams
from tests.ds4tui.costs import measurement
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, record_of, settle
from tests.ds4tui.streams import Script

EXACT = Script(diverges=False, drifts=False)


def of_prompt(number: int, script: Script = EXACT) -> list[Event]:
    """A scripted run as one of another prompt."""
    events = streams.run(replace(script, run_id=f"run-{number}-{script.policy}", seed=number))
    ids = (*streams.PROMPT_IDS, number)
    return [
        replace(event, prompt=f"prompt {number}", prompt_ids=ids)
        if isinstance(event, RunStarted)
        else event
        for event in events
    ]


ONE, TWO, AGAIN = (record_of(of_prompt(number)) for number in (1, 2, 2))
OTHER = record_of(of_prompt(3, Script(policy="prefix", diverges=False, drifts=False)))
GOING_ON = record_of(streams.until(of_prompt(4), 100))
PARTED = record_of(of_prompt(5, Script()))


def test_a_prompt_counts_once_and_only_with_the_same_settings() -> None:
    runs = (TWO, OTHER, GOING_ON, AGAIN, ONE)
    assert [work.run for work in alike(ONE, runs)] == [ONE, AGAIN]
    assert [work.run for work in alike(OTHER, runs)] == [OTHER]
    assert [work.run for work in alike(GOING_ON, runs)] == [GOING_ON, ONE, AGAIN]
    assert alike(RunRecord(), runs) == []


def test_a_run_whose_knobs_were_turned_stands_alone() -> None:
    mixed = record_of(streams.mixed_run())
    assert [work.run for work in alike(mixed, (ONE, TWO))] == [mixed]
    assert [work.run for work in alike(ONE, (mixed, TWO))] == [ONE, TWO]


def test_tallies_are_joined_as_one_long_run() -> None:
    parts = [run.arms[1].tally for run in (ONE, TWO)]
    whole = joined(parts)
    assert len(whole.ids) - 1 == sum(len(part.ids) - 1 for part in parts)
    assert len(whole.token_ns) == len(whole.ids)
    assert whole.decode_ns == sum(part.decode_ns for part in parts)
    assert whole.counts.accepted == sum(part.counts.accepted for part in parts)
    assert whole.counts.mean_depth == pytest.approx(len(whole.ids[1:]) / len(whole.cycles))


def test_the_figures_of_all_prompts_are_those_of_all_their_cycles() -> None:
    one, two = (economics_of(alike(run, ()), ()) for run in (ONE, TWO))
    both = economics_of(alike(ONE, (TWO,)), ())
    assert both.prompts == 2
    assert both.shape is not None
    assert one.shape is not None
    assert two.shape is not None
    assert both.shape.tokens == one.shape.tokens + two.shape.tokens
    assert both.ledger is not None
    assert both.ledger.cycles == len(ONE.arms[1].cycles) + len(TWO.arms[1].cycles)
    accepted = sum(value.accepted for value in both.ledger.positions)
    assert accepted == ONE.arms[1].tally.counts.accepted + TWO.arms[1].tally.counts.accepted
    assert both.speedup is not None
    assert both.speedup.resolved
    assert both.parted == 0
    assert both.calibration is not None
    assert one.calibration is not None
    assert two.calibration is not None
    assert both.calibration.n == one.calibration.n + two.calibration.n


def test_costs_that_were_measured_with_another_drafter_are_not_taken() -> None:
    events = [
        replace(event, arms=(event.arms[0], replace(event.arms[1], drafter="a.gguf")))
        if isinstance(event, RunStarted)
        else event
        for event in of_prompt(1)
    ]
    works = alike(record_of(events), [])
    told = [cost for cost in measurement("split", "direct") if isinstance(cost, CostMeasured)]
    for drafter, source in (("a.gguf", "measured"), ("", "measured"), ("b.gguf", "run")):
        costs = [replace(cost, drafter=drafter) for cost in told]
        table = economics_of(works, costs).table
        assert table is not None
        assert table.source == source


def test_a_head_is_calibrated_on_the_arms_of_its_own_drafter() -> None:
    events: list[Event] = []
    for event in of_prompt(1):
        if isinstance(event, RunStarted):
            plain, arm = event.arms
            other = replace(arm, drafter="b.gguf", confidence=0.0)
            event = replace(event, arms=(plain, replace(arm, drafter="a.gguf"), other))
        events += [event, *([replace(event, arm=2)] if event.arm == 1 else [])]
    record = record_of(events)
    alone = economics_of(alike(ONE, []), ()).calibration
    assert alone is not None
    gates = []
    for arm in (1, 2):
        record.choose(arm)
        found = economics_of(alike(record, []), ()).calibration
        assert found is not None
        assert found.n == alone.n
        gates.append(found.gate)
    assert gates == [alone.gate, 0.0]


def test_different_ids_in_one_prompt_are_different_work_of_all() -> None:
    found = economics_of(alike(ONE, (PARTED, TWO)), ())
    assert (found.prompts, found.parted, found.parts_at) == (3, 1, 163)
    assert json.loads(json_text(found, ONE))["speedup"] is None
    report = report_text(found, ONE)
    assert "figures of this prompt and 2 more" in report
    assert "ids differ in 1 of 3 prompts" in report
    assert found.ids[0] != found.ids[1]


async def test_f_goes_from_this_run_to_all_prompts_and_back() -> None:
    link = FakeLink((READY,), of_prompt(1), of_prompt(2))
    app = make_app(make_controller(link=link))
    async with app.run_test(size=(120, 36)) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        await pilot.press("5")
        await settle(pilot)
        screen = app.instrument
        assert isinstance(screen, EconomicsScreen)
        assert not app.can("economics_source")
        app.controller.run()
        await settle(pilot, lambda: len(app.controller.runs) == 2)
        labels = [label for _, label, _ in screen.query_one(KeyFooter).entries]
        assert "All 2 prompts" in labels
        pays = screen.query_one("#economics-pays", Box)
        assert "2 prompts" not in pays.titles(False)[1]
        await pilot.press("f")
        await settle(pilot)
        assert pays.titles(False)[1].endswith("2 prompts")
        assert "the steps of 2 prompts" in pays.text()
        await pilot.press("f")
        await settle(pilot)
        assert "the steps of this run" in pays.text()
