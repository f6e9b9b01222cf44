"""Races of the real target against scripted drafts, from any position, without files or prompts.

A random drafter is hardly ever right, so the drafts are given: of any length, right up to some
row, and after it wrong, or right again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from engine.ab import Race, RaceRules
from engine.arms import ArmPlan
from engine.decode import Control
from engine.events import (
    ArmFinished,
    ArmInfo,
    CycleFinished,
    Diverged,
    Event,
    RunFinished,
    StateDrift,
)
from engine.greedy import Rules
from engine.lanes import LaneMaker, Start, prefill_plan
from engine.model import Model
from engine.paths import OP_CLASSES, Numerics, Perturb, Plan, Policy
from engine.settings import Knobs
from engine.timeline import Target
from tests.engine.loaded import model, random_ids
from tests.engine.random_pair import SMALL

VOCAB = SMALL.vocab
IDS = random_ids(900)
"""The prompt: what every state has evaluated up to its position."""
Wrong = Literal["wrong", "half", "noise", "same"]


@dataclass(frozen=True)
class Draft:
    """A block: `length` drafts, the first `right` of them right; what the others are."""

    length: int
    right: int
    wrong: Wrong = "wrong"

    def ids(self, true: Sequence[int]) -> list[int]:
        """The drafts where plain decode would give `true`."""
        made = []
        for i, token in enumerate([*true, *([9] * self.length)][: self.length]):
            if i < self.right or (self.wrong == "half" and i > self.right):
                made.append(token)
            elif self.wrong == "noise":
                made.append(8 if token != 8 else 9)
            elif self.wrong == "same" and made and made[-1] != token:
                made.append(made[-1])
            else:
                made.append((token + 1) % VOCAB)
        return made


@dataclass(frozen=True)
class _Block:
    drafts: Sequence[int]

    def best(self, row: int, previous: int | None) -> int | None:
        return None

    def confidence(self, row: int, previous: int) -> float:
        return 1.0 if row < len(self.drafts) else 0.0

    def logits(self, row: int) -> np.ndarray:
        logits = np.zeros(VOCAB, np.float32)
        logits[self.drafts[min(row, len(self.drafts) - 1)]] = 1
        return logits

    def scores(self, row: int, previous: int) -> np.ndarray:
        return self.logits(row)


@dataclass
class Told:
    """A drafter that proposes what a test says, by the position of the anchor."""

    drafts: Callable[[int], Draft]
    start: int
    block_size: int
    noise_id: int = 8
    window: int = 128
    ids: tuple[int, ...] = ()

    def new_context(self) -> Told:
        return self

    def clone(self) -> Told:
        return self

    def extend(self, context: Any, taps: np.ndarray, position: int) -> None:
        assert np.isfinite(taps).all()

    def block(
        self, context: Any, anchor: int, position: int, rows: int | None = None, gate: float = 0.0
    ) -> _Block:
        index = position - self.start
        return _Block(self.drafts(position).ids(self.ids[index + 1 :]))


@cache
def shortened(context: int) -> Model:
    """The same target with room for fewer tokens."""
    whole = model()
    return Model(whole.weights, whole.config, context=context)


@cache
def start(numerics: Numerics, position: int, context: int = 0) -> Start:
    """After so many tokens of the prompt, prefilled as that numerics prefills."""
    target = shortened(context) if context else model()
    state = target.new_state()
    rows = target.forward(state, IDS[:position], prefill_plan(numerics, "fp8"), all_logits=False)
    return Start(state, np.array(rows.logits)[-1], ())


@dataclass(frozen=True)
class Result:
    """A finished race."""

    events: list[Event]
    names: tuple[str, ...]
    ids: list[list[int]]

    def of(self, kind: type[Any], arm: int | None = None) -> list[Any]:
        """Events of a kind."""
        return [e for e in self.events if isinstance(e, kind) and arm in (None, e.arm)]

    def assert_exact(self, *names: str) -> None:
        """Plain's ids, and all live bytes equal before the first cycle and after each one."""
        for arm, name in enumerate(self.names):
            if not arm or (names and name not in names):
                continue
            assert self.ids[arm] == self.ids[0], name
            assert not self.of(Diverged, arm), name
            drifts = self.of(StateDrift, arm)
            for drift in drifts:
                wrong = [(layer, t) for layer, t, value in drift.tensors if value is not None]
                assert not wrong, f"{name} at {drift.position}: {wrong}"
            assert len(drifts) == len(self.of(CycleFinished, arm)) + 1, name
            (end,) = self.of(ArmFinished, arm)
            assert end.state_equal is True, name


def race(
    numerics: Numerics,
    policies: Sequence[Policy],
    position: int,
    drafts: Callable[[int], Draft],
    tokens: int,
    *,
    block_size: int = 5,
    context: int = 0,
    eos: Callable[[Sequence[int]], int] | None = None,
    no_repeat: int = 0,
    perturb: Perturb | None = None,
    batch_ops: Sequence[str] = OP_CLASSES,
    every: int = 1,
) -> Result:
    """Plain and an arm per policy from a position; drafts are told from plain's own ids.

    Args:
        drafts: by the anchor's position.
        eos: plain's ids without an end -> the token that ends the text.
        every: states are compared at every n-th boundary.
    """
    told = Told(drafts, position, block_size)
    said = _race(numerics, (), position, tokens, told, context, None, no_repeat, None, (), 0)
    ends = eos(said.ids[0]) if eos is not None else None
    told.ids = tuple(said.ids[0])
    return _race(
        numerics, policies, position, tokens, told, context, ends, no_repeat, perturb, batch_ops,
        every,
    )  # fmt: skip


def _race(
    numerics: Numerics,
    policies: Sequence[Policy],
    position: int,
    tokens: int,
    told: Told,
    context: int,
    eos: int | None,
    no_repeat: int,
    perturb: Perturb | None,
    batch_ops: Sequence[str],
    every: int,
) -> Result:
    begin = start(numerics, position, context)
    verify = (
        Plan("invariant", perturb=perturb)
        if numerics == "invariant"
        else Plan("batch", frozenset(batch_ops), perturb=perturb)
    )
    target = Target(shortened(context) if context else model(), numerics, verify, eos)
    plans = [ArmPlan(ArmInfo("plain", "arm", "plain", numerics, None, None, None))]
    for policy in policies:
        info = ArmInfo(policy, "arm", "dspark", numerics, policy, 0.5, None)
        plans.append(ArmPlan(info, told, Knobs(policy, 0.5)))
    knobs = {arm: plan.knobs for arm, plan in enumerate(plans) if plan.knobs is not None}
    control = Control(tokens, knobs)
    maker = LaneMaker(
        "proof", target, Rules(no_repeat), plans, [begin] * len(plans), control, markov=False
    )
    lanes = maker.lanes()
    found = list(Race("proof", lanes, control, RaceRules(every, 32.0, "F32")).events())
    assert isinstance(found[-1], RunFinished)
    return Result(found, ("plain", *policies), [lane.timeline.ids for lane in lanes])
