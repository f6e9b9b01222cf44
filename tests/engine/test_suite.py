"""Suites over prompts: which cells and runs there are, several drafters, what ends them."""

from __future__ import annotations

import pickle

import pytest

from engine.decode import Control
from engine.errors import Ds4Error
from engine.events import RunFinished, RunStarted, SuiteFinished, SuiteStarted
from engine.prompt_set import PromptEntry
from engine.session import Engine
from engine.settings import Knobs, Prompt, Settings
from engine.suite import MatrixRequest, matrix_arms, set_request, suite_prompts
from tests.engine.races import engine
from tests.engine.scripted import (
    ScriptedDrafter,
    ScriptedModel,
    continuation,
    path_script,
    spoiled,
)

IDS = [2 + i * 7 % 29 for i in range(900)]
ENTRIES = (
    PromptEntry("one", "facts", Prompt("abcdefghij")),
    PromptEntry("two", "code", Prompt("klmnopqrst")),
)
PROMPTS = suite_prompts(ENTRIES)


def scripted() -> Engine:
    """Two drafters: one is always right, one never."""
    script = path_script(IDS, 13)
    return engine(
        ScriptedModel(script),
        ScriptedDrafter(continuation(script)),
        ScriptedDrafter(spoiled(continuation(script), lambda tokens: 0)),
    )


def started(request: MatrixRequest) -> tuple[SuiteStarted, list[RunStarted]]:
    events = list(request.events(scripted()))
    assert isinstance(events[0], SuiteStarted)
    assert isinstance(events[-1], SuiteFinished)
    return events[0], [event for event in events if isinstance(event, RunStarted)]


def test_a_suite_says_what_it_will_run() -> None:
    request = MatrixRequest(PROMPTS, Settings(dspark=matrix_arms(), max_tokens=9), name="mine")
    head, runs = started(request)
    assert head.prompts == (("one", "facts"), ("two", "code"))
    assert (head.name, head.max_tokens, head.runs) == ("mine", 9, len(runs))
    assert len(head.cells) == 10
    assert pickle.loads(pickle.dumps(request)) == request


def test_a_set_has_the_settings_own_numerics_and_arms() -> None:
    settings = Settings("invariant", (Knobs("prefix"), Knobs("direct")), max_tokens=9)
    head, runs = started(set_request(PROMPTS, settings, "mine"))
    assert head.kind == "set"
    assert head.cells == ("invariant prefix", "invariant direct")
    assert [(run.prompt_index, run.cell) for run in runs] == [(0, "invariant"), (1, "invariant")]


def test_only_some_cells_and_prompts_keep_their_names_and_places() -> None:
    arms = matrix_arms(bases=(Knobs(confidence=0.0), Knobs(confidence=0.9)))
    only = ("invariant prefix confidence 0.9",)
    settings = Settings(dspark=arms, max_tokens=9)
    head, runs = started(MatrixRequest(PROMPTS, settings, only=only, indexes=(1,)))
    assert head.cells == only
    assert [(run.prompt_index, run.cell) for run in runs] == [(1, "invariant")]
    assert [arm.confidence for arm in runs[0].arms[1:]] == [0.9]
    assert [label for label, _ in head.prompts] == ["one", "two"]


def test_several_drafters_are_cells_of_their_own() -> None:
    bases = (Knobs(mtp="drafter.gguf"), Knobs(mtp="drafter1.gguf"))
    arms = matrix_arms(("direct", "strict"), bases)
    settings = Settings(dspark=arms, max_tokens=30)
    head, runs = started(MatrixRequest(PROMPTS, settings, ("split",)))
    assert head.cells == (
        "split direct mtp drafter.gguf", "split direct mtp drafter1.gguf", "split strict",
    )  # fmt: skip
    drafters = [arm.drafter for arm in runs[0].arms]
    assert drafters == ["", "drafter.gguf", "drafter1.gguf", "drafter.gguf"]


def test_the_same_arm_is_run_once() -> None:
    assert matrix_arms(("direct",), (Knobs(), Knobs())) == (Knobs(),)


def test_a_stop_ends_all_of_it() -> None:
    control = Control(0)
    events = []
    request = MatrixRequest(PROMPTS, Settings(dspark=matrix_arms(), max_tokens=40))
    for event in request.events(scripted(), control):
        events.append(event)
        control.stopped |= isinstance(event, RunFinished)
    assert sum(isinstance(event, RunStarted) for event in events) == 1
    assert isinstance(events[-1], SuiteFinished)


def test_a_prompt_that_cannot_be_run_is_named() -> None:
    entries = (*ENTRIES, PromptEntry("huge", "", Prompt("x" * 5000)))
    request = set_request(suite_prompts(entries), Settings(max_tokens=3))
    with pytest.raises(Ds4Error, match=r"^Prompt 3 \(huge\): The prompt has 5003 tokens"):
        list(request.events(scripted()))


@pytest.mark.parametrize("empty", [{"prompts": ()}, {"settings": Settings(dspark=())}])
def test_a_matrix_without_cells_is_refused(empty: dict[str, object]) -> None:
    given: dict[str, object] = {"prompts": PROMPTS, "settings": Settings()}
    with pytest.raises(Ds4Error, match="needs a prompt"):
        MatrixRequest(**{**given, **empty})  # type: ignore[arg-type]


def test_a_set_may_be_plain_only() -> None:
    head, runs = started(set_request(PROMPTS, Settings(dspark=(), max_tokens=5)))
    assert head.cells == ()
    assert [len(run.arms) for run in runs] == [1, 1]


def test_what_one_of_the_numerics_cannot_have_is_refused_before_the_first_run() -> None:
    with pytest.raises(Ds4Error, match="--batch-ops"):
        MatrixRequest(PROMPTS, Settings(batch_ops=("head",)))
