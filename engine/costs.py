"""What a step costs: prefill, decode, verifies, drafts, commits, and a copy in this memory.

Owns the one way to time a step outside of a run: all kinds take turns, in a new order every turn,
so that what slows the machine slows all of them; read the ratios. The steps are the arms' own code.
Knows neither files nor reports.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from engine.arrays import copy_of
from engine.commit import COMMITS, Verified
from engine.errors import Ds4Error
from engine.events import ArmInfo, CostKind, CostMeasured
from engine.greedy import Rules
from engine.lanes import prefill_plan
from engine.parts import Parts
from engine.paths import Numerics, Plan, Policy
from engine.propose import Chain, Limit
from engine.settings import KvRounding
from engine.timeline import Target, Timeline

COPIED_BYTES, COPIED_ON_DEVICE = 1 << 26, 1 << 30
"""Far more than the caches hold; on a device enough to outlast the launch of a copy."""
MOST_RARE_TURNS = 10
"""Turns that measure what takes long: prefill and copy."""
ROWS_WITHOUT_DRAFTER = 6

Key = TypeVar("Key", bound=Hashable)
Nanoseconds = Callable[[], int]
"""Takes one step and returns how long the part of it took that is measured."""


@dataclass(frozen=True, slots=True)
class CostRequest:
    """What to measure.

    Args:
        commit: the policy whose commits are measured.
        positions: tokens evaluated before the steps; everything is measured at each.
        repeat: turns.
        mtp: the drafter; None = the engine's first one.
    """

    numerics: Numerics = "split"
    commit: Policy = "direct"
    positions: tuple[int, ...] = (512,)
    repeat: int = 30
    seed: int = 0
    mtp: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.repeat < 1:
            raise Ds4Error("Invalid option", f"--repeat is {self.repeat}; expected 1 or more.")
        for position in self.positions:
            if position < 1:
                raise Ds4Error("Invalid option", f"--depths has {position}; expected 1 or more.")


def timed(step: Callable[[], object], settle: Callable[[], None] | None = None) -> int:
    """Nanoseconds of one step, until the device has finished it."""
    began = time.perf_counter_ns()
    step()
    if settle is not None:
        settle()
    return time.perf_counter_ns() - began


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    low, median, high = np.percentile(samples, [25, 50, 75])
    return float(low), float(median), float(high)


def in_turns(
    steps: Mapping[Key, Nanoseconds],
    repeat: int,
    seed: int = 0,
    rare: Mapping[Key, Nanoseconds] | None = None,
    turned: Callable[[int], object] | None = None,
) -> dict[Key, list[int]]:
    """Take every step once per turn, in a new order every turn; a turn before them is not counted.

    Args:
        rare: steps of a few turns only, spread evenly, at a turn's beginning.
        turned: called with the number of turns done; a true value ends them.
    Returns:
        Nanoseconds of every step, in the order of the turns.
    """
    rng = random.Random(seed)
    found: dict[Key, list[int]] = {key: [] for key in (*steps, *(rare or {}))}
    every = -(-repeat // MOST_RARE_TURNS)
    for step in steps.values():
        step()
    for turn in range(repeat):
        if rare and turn % every == 0:
            for key, step in rare.items():
                found[key].append(step())
            for step in steps.values():  # brings back what the caches lost
                step()
        order = list(steps)
        rng.shuffle(order)
        for key in order:
            found[key].append(steps[key]())
        if turned is not None and turned(turn + 1):
            break
    return found


class Steps:
    """The steps of a DSpark arm at one position, each of which leaves the state as it was.

    Tokens are pseudo-random: what a step costs hardly depends on them.

    Args:
        numerics: pairs decode and verify.
        commit: policy of `commit`.
        mtp: the drafter; None = the engine's first one.
    """

    def __init__(
        self,
        parts: Parts,
        numerics: Numerics,
        commit: Policy,
        position: int,
        *,
        kv_rounding: KvRounding = "fp8",
        seed: int = 0,
        mtp: str | None = None,
    ) -> None:
        self._parts = parts
        self._commit = commit
        self._prefill = prefill_plan(numerics, kv_rounding)
        self.mtp = mtp or next(iter(parts.drafters), "")
        self._drafter = parts.drafters.get(self.mtp)
        self.block_size = self._drafter.block_size if self._drafter else 0
        self.rows = 1 + self.block_size if self._drafter else ROWS_WITHOUT_DRAFTER
        if position + self.rows > parts.context:
            raise Ds4Error(
                "No room",
                f"Measuring at position {position} needs {position + self.rows} tokens, the "
                f"context holds {parts.context}.",
                parts.room_hint(position + self.rows, "Give smaller --depths"),
            )
        rng = random.Random(seed)
        ids = [rng.randrange(parts.vocab_size) for _ in range(position + self.rows)]
        self._prompt, self._batch = ids[:position], ids[position:]
        verify = Plan("invariant") if numerics == "invariant" else Plan("batch")
        target = Target(parts.model, numerics, verify, None)
        info = ArmInfo("bench", "arm", "dspark", numerics, commit, None, None)
        state = parts.new_state()
        rows = parts.model.forward(state, self._prompt, self._prefill, all_logits=False)
        self._timeline = Timeline(info, target, state, position, Rules())
        self._timeline.begin(np.array(rows.logits)[-1])
        self._timeline.ids.append(self._batch[0])
        self._snapshot = state.snapshot()
        self._taps = copy_of(rows.taps[-parts.drafter_window :])
        self._context: Any = None
        if self._drafter is not None:
            self._context = self._drafter.new_context()
            self._drafter.extend(self._context, self._taps, position - len(self._taps))

    def prefill(self) -> int:
        """Evaluate the tokens before the position, all at once."""
        state = self._parts.new_state()
        return self._timed(
            lambda: self._parts.model.forward(state, self._prompt, self._prefill, all_logits=False)
        )

    def decode(self) -> int:
        """One token by the decode path."""
        spent = self._timed(lambda: self._timeline.decode(self._batch[0]))
        self._timeline.state.restore(self._snapshot)
        return spent

    def verify(self, rows: int) -> int:
        """A verify of so many rows."""
        timeline = self._timeline
        spent = self._timed(lambda: timeline.evaluate(self._batch[:rows], timeline.target.verify))
        timeline.state.restore(self._snapshot)
        return spent

    def draft(self, gate: float = 0.0) -> int:
        """One context row and a block; a gate over 1 ends it after the first confidence."""
        return self._timed(partial(self._draft, gate))

    def _draft(self, gate: float) -> None:
        drafter, position = self._drafter, self._timeline.state.position
        assert drafter is not None
        drafter.extend(self._context, self._taps[-1:], position - 1)
        block = drafter.block(self._context, self._batch[0], position, gate=gate)
        chain = Chain(block, Rules(), self._batch[0], markov=True, gate=gate, eos_id=None)
        chain.run(Limit(drafter.block_size, ""))

    def carry(self) -> int:
        """One context row: all that a drafter costs when nothing is drafted."""
        drafter, position = self._drafter, self._timeline.state.position
        assert drafter is not None
        return self._timed(lambda: drafter.extend(self._context, self._taps[-1:], position - 1))

    def commit(self, policy: Policy | None = None) -> int:
        """Snapshot, state of all rows but the last, bookkeeping; no re-decode.

        Args:
            policy: another one than the measured arm's.
        """
        timeline, clock = self._timeline, self._timeline.clock
        clock.take()
        with clock("commit"):
            snapshot = timeline.state.snapshot()
        rows, taps = timeline.evaluate(self._batch, timeline.target.verify)
        drafts = tuple(self._batch[1:])
        verified = Verified(
            snapshot, self._batch[0], drafts, rows, taps, len(drafts) - 1, ends=False
        )
        settled = COMMITS[policy or self._commit](timeline, verified)
        with clock("commit"):
            timeline.keep_taps(snapshot.position, settled.taps)
            timeline.commit(settled.ids, settled.rows, settled.last)
        del timeline.ids[1:]
        timeline.taps.clear()
        timeline.state.restore(self._snapshot)
        return clock.take().commit

    def _timed(self, step: Callable[[], object]) -> int:
        return timed(step, self._parts.settle)


def copy_step(parts: Parts) -> tuple[int, Nanoseconds]:
    """Copies from one place to another in the memory that the models are in; how many bytes.

    On the CPU with one thread.
    """
    size = COPIED_BYTES if parts.arrays.device == "cpu" else COPIED_ON_DEVICE
    source, target = (parts.arrays.zeros((size // 4,)) for _ in range(2))
    source[...], target[...] = 1.0, 0.0  # the memory is there before a copy asks for it

    def copy() -> None:
        target[...] = source

    return size, lambda: timed(copy, parts.settle)


def measure(
    parts: Parts,
    request: CostRequest,
    stamp: Callable[[], tuple[str, int, int]],
    *,
    kv_rounding: KvRounding = "fp8",
    progress: Callable[[int, int], bool] | None = None,
) -> Iterator[CostMeasured]:
    """Costs at every position asked for.

    Args:
        progress: called with (turns done, turns in all); when it says true there are no more
            turns, and the costs are those of the turns done.
    """
    (copied, copy), stopped = copy_step(parts), False
    for number, position in enumerate(request.positions):
        steps = Steps(
            parts,
            request.numerics,
            request.commit,
            position,
            kv_rounding=kv_rounding,
            seed=request.seed,
            mtp=request.mtp,
        )

        def turned(done: int, before: int = number * request.repeat) -> bool:
            nonlocal stopped
            if progress is not None:
                stopped = progress(before + done, request.repeat * len(request.positions))
            return stopped

        rare: dict[tuple[CostKind, int], Nanoseconds] = {
            ("prefill", position): steps.prefill,
            ("copy", copied): copy,
        }
        found = in_turns(
            _regular(steps, request.commit),
            request.repeat,
            request.seed,
            rare,
            turned,
        )
        for (kind, rows), samples in found.items():
            low, median, high = (round(value) for value in quartiles(samples))
            yield CostMeasured(
                *(*stamp(), kind, rows, median, low, high, len(samples), position, min(samples)),
                *(request.numerics, request.commit, steps.mtp),
            )
        if stopped:
            break


def _regular(steps: Steps, commit: Policy) -> dict[tuple[CostKind, int], Nanoseconds]:
    """Steps of every turn, by kind and rows."""
    found: dict[tuple[CostKind, int], Nanoseconds] = {("decode", 1): steps.decode}
    for rows in range(2, steps.rows + 1):  # a single row is a decode
        found["verify", rows] = partial(steps.verify, rows)
    if steps.block_size:
        found["draft", 0] = partial(steps.draft, 2.0)
        found["draft", steps.block_size] = steps.draft
        found["carry", 1] = steps.carry
        if commit != "strict":
            found["commit", steps.rows - 1] = steps.commit
        if commit != "reproject":
            found["reproject", steps.rows - 1] = partial(steps.commit, "reproject")
    return found
