"""Makes the arms of a run: one prefill, its state cloned to every arm, controls and recordings.

Owns what happens before the first step and the second look at a large-margin divergence. Knows
neither files nor tokenizers nor the schedule.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.arms import ArmPlan
from engine.arrays import copy_of
from engine.clock import Clock
from engine.compare import Lane
from engine.decode import Control, Stamp, Step, dspark_arm, plain_arm, recorded_arm
from engine.greedy import Rules
from engine.paths import Numerics, Plan
from engine.roles import State
from engine.settings import KvRounding
from engine.timeline import Target, Timeline

MOST_NAMED = 8
"""Differing choices named in a verdict; the ones nearest to the divergence."""

Progress = Callable[[int, int], None]


def prefill_plan(numerics: Numerics, kv_rounding: KvRounding) -> Plan:
    """How prompts are evaluated: all op classes, never restricted, pinned or perturbed."""
    if numerics == "invariant":
        return Plan("invariant")
    return Plan("batch", round_rows=kv_rounding != "none")


@dataclass(frozen=True, slots=True)
class Start:
    """An arm's state before its first id.

    Args:
        state: covers the prompt; not advanced, only cloned.
        logits: (V,) of the prompt's last row.
        taps: pending (position, taps) for a drafter.
        drafter_context: of earlier turns, None = new.
        prefill_ns: time of evaluating the prompt.
    """

    state: State
    logits: Any
    taps: tuple[tuple[int, Any], ...]
    drafter_context: Any = None
    prefill_ns: int = 0


def evaluate_prompt(
    target: Target,
    state: State,
    ids: Sequence[int],
    plan: Plan,
    window: int,
    progress: Progress | None = None,
) -> Start:
    """Advance `state` over the prompt's new ids.

    Args:
        window: rows that a drafter can see; older taps are dropped.
    """
    position = state.position
    began = time.perf_counter_ns()
    rows = target.model.forward(state, ids, plan, all_logits=False, on_rows=progress)
    logits = np.array(rows.logits)[-1]
    spent = time.perf_counter_ns() - began
    kept = min(window, len(ids))
    taps = copy_of(rows.taps[len(ids) - kept :])
    return Start(state, logits, ((position + len(ids) - kept, taps),), None, spent)


class LaneMaker:
    """Makes lanes from starts, as often as asked.

    Args:
        rules: of the run; cloned for every lane.
        starts: per arm; arms of a first turn share one.
        markov: add the drafters' Markov bias.
    """

    def __init__(
        self,
        run_id: str,
        target: Target,
        rules: Rules,
        arms: Sequence[ArmPlan],
        starts: Sequence[Start],
        control: Control,
        *,
        markov: bool,
        settle: Callable[[], None] | None = None,
    ) -> None:
        self._run_id = run_id
        self._target = target
        self._rules = rules
        self._arms = arms
        self._starts = starts
        self._control = control
        self._markov = markov
        self._settle = settle

    def lanes(self, target: Target | None = None) -> list[Lane]:
        """One lane per arm; the shared prefill's time is arm 0's."""
        lanes = [self.lane(arm, target) for arm in range(len(self._arms))]
        shown: list[Start] = []
        for lane, start in zip(lanes, self._starts, strict=True):
            if not any(start is other for other in shown):
                lane.timeline.clock.add("prefill", start.prefill_ns)
                shown.append(start)
        return lanes

    def lane(self, arm: int, target: Target | None = None) -> Lane:
        """A fresh lane of one arm.

        Args:
            target: in place of the run's own, to record choices.
        """
        plan, start = self._arms[arm], self._starts[arm]
        target = target or self._target
        timeline = Timeline(
            plan.info,
            target,
            start.state.clone(),
            start.state.position,
            self._rules.clone(),
            clock=Clock(settle=self._settle),
            drafter=plan.drafter,
            gate=plan.gate,
        )
        timeline.begin(start.logits)
        if plan.drafter is not None:
            known = start.drafter_context
            fresh = known is None
            timeline.drafter_context = plan.drafter.new_context() if fresh else known.clone()
            timeline.taps = list(start.taps)
        stamp = Stamp(self._run_id, arm)
        return Lane(timeline, stamp, self._steps(plan, timeline, stamp))

    def _steps(self, plan: ArmPlan, timeline: Timeline, stamp: Stamp) -> Iterator[Step]:
        if plan.recorded is not None:
            return recorded_arm(timeline, stamp, self._control, plan.recorded.ids)
        if plan.drafter is not None:
            return dspark_arm(timeline, stamp, self._control, markov=self._markov)
        return plain_arm(timeline, stamp, self._control)

    def record_plain(self, choices: Any, progress: Progress) -> None:
        """Plain decode to its end with its choices written to `choices`, outside all clocks."""
        lane = self.lane(0, replace(self._target, new_choices=lambda: choices))
        for done, _ in enumerate(lane.steps):
            progress(done + 1, self._control.limit)

    def differing_choices(
        self, new_choices: Callable[[], Any], arm: int, index: int
    ) -> tuple[str, ...]:
        """Decode plain and one arm again up to an id, recording; name the choices that differ.

        Returns:
            The latest few, as `experts L3 #41: 6 / 7` (plain's / the arm's).
        """
        target = replace(self._target, new_choices=new_choices)
        plain, other = (self._choices(self.lane(a, target), index) for a in (0, arm))
        named: list[str] = []
        for at in range(min(index, len(plain) - 1, len(other) - 1), 0, -1):
            named += _differences(at, plain[at], other[at])
        return tuple(named[:MOST_NAMED])

    def _choices(self, lane: Lane, index: int) -> list[Mapping[tuple[int, str], tuple[int, ...]]]:
        """Per id, the choices of the row that it came from."""
        found: list[Mapping[tuple[int, str], tuple[int, ...]]] = []
        while len(found) <= index:
            step: Step | None = next(lane.steps, None)
            if step is None:
                break
            for row in lane.timeline.sources:
                found.append(row.choices.at(row.position) if row.choices is not None else {})
        return found


_KINDS = {"router": "experts", "indexer": "indexer rows"}


def _differences(
    index: int,
    plain: Mapping[tuple[int, str], tuple[int, ...]],
    other: Mapping[tuple[int, str], tuple[int, ...]],
) -> list[str]:
    named = []
    for (layer, kind), chosen in sorted(plain.items()):
        ours, theirs = set(chosen), set(other.get((layer, kind), chosen))
        if ours != theirs:
            left, right = (",".join(map(str, sorted(s))) for s in (ours - theirs, theirs - ours))
            named.append(f"{_KINDS[kind]} L{layer} #{index}: {left} / {right}")
    return named
