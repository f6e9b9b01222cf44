"""A drafter that never proposes: from the 50th cycle on row 3 says so, with the last stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4tui.cycle_data import batch_rows
from ds4tui.marks import UNICODE
from ds4tui.run_state import RunState
from ds4tui.spans import text_of
from ds4tui.verdict_line import verdict_line, verdict_row
from engine.events import CycleFinished, Event
from engine.settings import Knobs
from tests.ds4tui.harness import record_of
from tests.engine.races import engine, run
from tests.engine.scripted import ScriptedDrafter, ScriptedModel, continuation, path_script

SCRIPT = path_script([2 + i * 7 % 29 for i in range(200)], 13)


def silent(tokens: int, confidence: float = 0.25) -> list[Event]:
    """Every block is cut by its first confidence."""
    drafter = ScriptedDrafter(continuation(SCRIPT), lambda tokens: [confidence] * 5)
    knobs = Knobs("direct", confidence=0.5)
    return run(engine(ScriptedModel(SCRIPT), drafter), knobs, max_tokens=tokens).events


@pytest.mark.parametrize(("cycles", "head"), [(49, "= IDENTICAL"), (50, "! 0 PROPOSALS")])
def test_the_banner_comes_after_fifty_cycles(cycles: int, head: str) -> None:
    line = verdict_line(record_of(silent(cycles + 1)), RunState.DONE)
    assert line.head == head


def test_the_banner_is_there_while_the_run_goes_on_and_names_the_stage() -> None:
    events = silent(120)
    ends = [at for at, event in enumerate(events) if isinstance(event, CycleFinished)]
    line = verdict_line(record_of(events[: ends[59] + 1]), RunState.DECODING)
    assert line.head == "! 0 PROPOSALS"
    assert line.bodies[0].startswith("in 60 cycles; last stage that ran: confidence")
    assert "highest .25 < .50" in line.bodies[0]


def test_a_run_that_has_ended_names_what_stopped_it_before_its_last_token() -> None:
    line = verdict_line(record_of(silent(120)), RunState.DONE)
    assert "last stage that ran: confidence, highest .25 < .50" in line.bodies[0]


def test_a_confidence_that_is_nan_is_told_as_what_it_is() -> None:
    record = record_of(silent(120, float("nan")))
    line = verdict_line(record, RunState.DONE)
    assert line.head == "! 0 PROPOSALS"
    assert line.bodies[0] == "in 119 cycles; every confidence is NaN, which the gate never passes"
    assert text_of(verdict_row(line, 80, UNICODE)).endswith("NaN, which the gate never passes")
    (warning,) = record.notices
    assert warning.text.startswith("direct: the drafter's confidence is NaN")
    arm = record.arms[1]
    assert batch_rows(record, arm, arm.cycles[0])[0].outcome.endswith("cut by gate: NaN")


def test_one_proposal_is_enough_to_take_it_away() -> None:
    drafter = ScriptedDrafter(
        continuation(SCRIPT), lambda tokens: [0.9 if len(tokens) == 14 else 0.1] * 5
    )
    knobs = Knobs("direct", confidence=0.5)
    found = run(engine(ScriptedModel(SCRIPT), drafter), knobs, max_tokens=150)
    assert found.arms[1].counts.proposed
    assert verdict_line(record_of(found.events), RunState.DONE).head == "= IDENTICAL"


def test_a_run_turned_to_strict_is_told_to_draft_nothing() -> None:
    events = [
        replace(event, clip="strict", confidences=())
        if isinstance(event, CycleFinished) and event.cycle > 20
        else event
        for event in silent(120)
    ]
    line = verdict_line(record_of(events), RunState.DONE)
    assert line.bodies == ("in 119 cycles; last stage that ran: strict",)
