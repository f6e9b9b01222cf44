"""Later turns of a conversation on the real target: every arm goes on from a state that it may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.decode import Control
from engine.events import ArmFinished, CycleFinished, RunStarted, StateDrift
from engine.load import load_parts
from engine.paths import POLICIES, Numerics, Perturb, Plan, Policy
from engine.session import Engine
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings
from engine.stats import tally
from tests.engine.proof import Draft, Told
from tests.engine.random_pair import write_pair

PROMISED: dict[Numerics, tuple[Policy, ...]] = {
    "invariant": POLICIES,
    "split": ("replay", "strict"),
}


class Talk:
    """A conversation with one loaded target, drafts told from plain's own ids."""

    def __init__(self, engine: Engine, told: Told) -> None:
        self.engine = engine
        self.told = told

    def turn(
        self,
        numerics: Numerics,
        policies: Sequence[Policy],
        text: str,
        *,
        first: bool = False,
        stop: int = 0,
        **settings: Any,
    ) -> list[Any]:
        """One turn; `stop` ends it after so many steps."""
        request = RunRequest(
            Prompt(text, chat=False),
            Settings(numerics, tuple(map(Knobs, policies)), 24, ignore_eos=True, **settings),
            follow_up=not first,
        )
        control = Control(0)
        if stop:
            steps = iter(range(10**9))

            def checkpoint() -> None:
                control.stopped = control.stopped or next(steps) >= stop

            control.checkpoint = checkpoint
        kept = self.engine._conversation
        # Plain's ids first: they are what the drafter is told.
        self.engine._conversation = replace(kept, timelines=dict(kept.timelines))
        said = list(
            self.engine.run(replace(request, settings=replace(request.settings, dspark=())))
        )
        self.told.ids = tuple(tally(said)[0].ids)
        started = next(e for e in said if isinstance(e, RunStarted))
        self.told.start = len(started.prompt_ids)
        self.engine._conversation = kept
        return list(self.engine.run(request, control))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    target, drafter = write_pair(tmp_path_factory.mktemp("pair"), types="ds4")
    files = EngineFiles(str(target), (str(drafter),))
    return Engine(load_parts(files, lambda event: None), files)


@pytest.fixture
def talk(loaded: Engine) -> Talk:
    told = Told(lambda position: Draft(5, position % 6, "half"), 0, 5)
    parts = replace(loaded._parts, drafters={"told": told}, gates={"told": 0.0})
    return Talk(Engine(parts, EngineFiles("told.gguf", ("told",))), told)


def assert_exact(events: list[Any], policies: Sequence[Policy]) -> None:
    arms = tally(events)
    for arm, policy in enumerate(policies, start=1):
        assert arms[arm].ids == arms[0].ids, policy
        drifts = [e for e in events if isinstance(e, StateDrift) and e.arm == arm]
        assert all(value is None for drift in drifts for *_, value in drift.tensors), policy
        cycles = sum(isinstance(e, CycleFinished) and e.arm == arm for e in events)
        assert len(drifts) == cycles + 1, policy


@pytest.mark.parametrize("numerics", ["invariant", "split"])
@pytest.mark.parametrize("stop", [9, 14, 23, 31])
def test_after_a_stop_inside_a_block(talk: Talk, numerics: Numerics, stop: int) -> None:
    """The state covers every shown token but the last; the next turn prefills only what is new."""
    policies = PROMISED[numerics]
    first = talk.turn(numerics, policies, "A first question", first=True, stop=stop)
    shown = {len(arm.ids) for arm in tally(first)}
    assert len(shown) == 1
    assert {e.reason for e in first if isinstance(e, ArmFinished)} == {"stop"}
    cached = len(next(e for e in first if isinstance(e, RunStarted)).prompt_ids) + shown.pop()
    for timeline in talk.engine._conversation.timelines.values():
        assert timeline.state.position == cached - 1
    second = talk.turn(numerics, policies, " and then what?")
    assert next(e for e in second if isinstance(e, RunStarted)).cached == cached
    assert_exact(second, policies)
    if numerics == "invariant":
        timelines = talk.engine._conversation.timelines
        ids = talk.engine._conversation.ids
        anew = talk.engine._parts.new_state()
        talk.engine._parts.model.forward(anew, ids[:-1], Plan("invariant"), all_logits=False)
        for timeline in timelines.values():
            assert timeline.state.digest() == anew.digest()


@pytest.mark.parametrize("numerics", ["invariant", "split"])
def test_a_promise_holds_after_a_turn_that_made_none(talk: Talk, numerics: Numerics) -> None:
    """An arm of the same name has drifted in an earlier turn: other numerics, or a fault."""
    policies = PROMISED[numerics]
    fault = Perturb("compressor", 2**16, 1)
    for before in ({"perturb": fault}, {}):
        first = talk.turn("split", POLICIES, "Something else", first=True, **before)
        drifted = {
            e.arm
            for e in first
            if isinstance(e, StateDrift) and any(t[0] >= 0 and t[2] for t in e.tensors)
        }
        assert {1, 2, 3} <= drifted
        assert_exact(talk.turn(numerics, policies, " and now this"), policies)
