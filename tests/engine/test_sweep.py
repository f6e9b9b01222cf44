"""Sweeps: which arms share a run, in which order, and what a stop leaves."""

from __future__ import annotations

import pickle

import pytest

from engine.decode import Control
from engine.errors import Ds4Error
from engine.events import Event, RunFinished, RunStarted, SuiteFinished, SuiteStarted
from engine.settings import Knobs, Prompt, Settings
from engine.stats import tally
from engine.suite import SuitePrompt
from engine.sweep import SweepRequest, groups_of
from tests.engine.races import engine
from tests.engine.scripted import ScriptedDrafter, ScriptedModel, continuation, path_script

IDS = [2 + i * 7 % 29 for i in range(200)]
SCRIPT = path_script(IDS, 13)
PROMPTS = (SuitePrompt(Prompt("abcdefghij"), "open"), SuitePrompt(Prompt("bcdefghijk"), "code"))
SETTINGS = Settings("invariant", (Knobs("prefix"),), max_tokens=30)


def events(request: SweepRequest, control: Control | None = None) -> list[Event]:
    made = engine(ScriptedModel(SCRIPT), ScriptedDrafter(continuation(SCRIPT)))
    return list(request.events(made, control))


def started(found: list[Event]) -> list[RunStarted]:
    return [event for event in found if isinstance(event, RunStarted)]


def test_coarse_values_come_first_and_strict_with_them() -> None:
    values = (0.99, 0.0, 0.3, 0.5, 0.9, 0.95)
    request = SweepRequest(PROMPTS[:1], SETTINGS, values)
    found = events(request)
    head = found[0]
    assert isinstance(head, SuiteStarted)
    assert head.kind == "sweep"
    assert head.cells == (
        *("strict", "confidence 0", "confidence 0.3", "confidence 0.5"),
        *("confidence 0.9", "confidence 0.95", "confidence 0.99"),
    )
    assert head.runs == 2
    arms = [[(a.commit, a.confidence) for a in run.arms] for run in started(found)]
    assert arms == [
        [(None, None), ("prefix", 0.0), ("prefix", 0.5), ("prefix", 0.9), ("strict", None)],
        [(None, None), ("prefix", 0.3), ("prefix", 0.95), ("prefix", 0.99)],
    ]
    assert isinstance(found[-1], SuiteFinished)
    assert len([event for event in found if isinstance(event, RunFinished)]) == 2


def test_every_value_meets_every_prompt_before_the_next_repeat() -> None:
    values = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
    runs = started(events(SweepRequest(PROMPTS, SETTINGS, values, repeats=2)))
    first = "confidence 0, confidence 0.9"
    rest = ", ".join(f"confidence {value:g}" for value in (0.2, 0.4, 0.6, 0.8, 1.0))
    once = [(first, 0), (first, 1), (rest, 0), (rest, 1)]
    assert [(run.cell, run.prompt_index) for run in runs] == once * 2
    assert {run.category for run in runs} == {"open", "code"}


def test_block_lengths_keep_the_threshold() -> None:
    settings = Settings("invariant", (Knobs("prefix", 0.3),), max_tokens=20)
    request = SweepRequest(PROMPTS[:1], settings, (1, 2, 3), "block", first=(1, 3))
    runs = started(events(request))
    arms = [(arm.draft_max, arm.confidence) for run in runs for arm in run.arms[1:]]
    assert arms == [(1, 0.3), (3, 0.3), (None, None), (2, 0.3)]
    assert request.cells() == ("strict", "block 1", "block 2", "block 3")


def test_all_rows_of_an_exact_policy_have_plains_ids() -> None:
    request = SweepRequest(PROMPTS[:1], SETTINGS, (0.0, 0.5))
    arms = tally(event for event in events(request))
    assert {tuple(arm.ids) for arm in arms} == {tuple(IDS[:30])}


def test_a_stop_ends_the_sweep_after_the_run_in_progress() -> None:
    control = Control(0)
    made = engine(ScriptedModel(SCRIPT), ScriptedDrafter(continuation(SCRIPT)))
    found: list[Event] = []
    for event in SweepRequest(PROMPTS, SETTINGS, (0.0, 0.5)).events(made, control):
        found.append(event)
        control.stopped |= isinstance(event, RunStarted)
    assert len(started(found)) == 1
    assert isinstance(found[-1], SuiteFinished)


def test_a_prompt_that_cannot_be_run_is_named() -> None:
    huge = SuitePrompt(Prompt("x" * 5000), label="huge")
    with pytest.raises(Ds4Error, match=r"^Prompt 2 \(huge\): The prompt has 5003 tokens"):
        events(SweepRequest((PROMPTS[0], huge), SETTINGS, (0.5,)))


def test_strict_as_the_base_sweeps_direct() -> None:
    settings = Settings(dspark=(Knobs("strict"),), max_tokens=10)
    (run,) = started(events(SweepRequest(PROMPTS[:1], settings, (0.5,))))
    assert [arm.commit for arm in run.arms] == [None, "direct", "strict"]


def test_groups_without_a_coarse_value() -> None:
    assert groups_of((0.1, 0.2), (0.5,)) == [(0.1, 0.2)]
    assert groups_of(tuple(n / 10 for n in range(1, 8)), ()) == [
        (0.1, 0.2, 0.3, 0.4),
        (0.5, 0.6, 0.7),
    ]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"values": ()}, "needs a prompt"),
        ({"prompts": ()}, "needs a prompt"),
        ({"values": (1.5,)}, "--dspark-confidence is 1.5"),
        ({"values": (0.0,), "axis": "block"}, "--draft-max is 0"),
        ({"repeats": 0}, "--repeat is 0"),
    ],
)
def test_what_cannot_be_swept_is_refused(changed: dict[str, object], sentence: str) -> None:
    asked: dict[str, object] = {"prompts": PROMPTS, "settings": SETTINGS, "values": (0.5,)}
    with pytest.raises(Ds4Error, match=sentence):
        SweepRequest(**(asked | changed))  # type: ignore[arg-type]


def test_a_request_crosses_a_pipe() -> None:
    request = SweepRequest(PROMPTS, SETTINGS, (0.0, 0.5))
    assert pickle.loads(pickle.dumps(request)) == request
