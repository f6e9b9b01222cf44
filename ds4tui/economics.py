"""What drafting is worth: break-even depths, the value of each position, predicted speed-ups.

Owns every definition that the economics screen shows. Pure functions of tallies and of a table of
costs; times are milliseconds. Knows no screens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ds4tui.economics_costs import LEAST_VALUES, CostTable, along, has_block
from engine.events import CycleFinished
from engine.paths import POLICIES
from engine.stats import ArmTally

Pays = Literal["pays", "loses", "never", "open", "few"]
"""`never`: break-even lies deeper than a cycle can go; `open`: the depth's interval has it; `few`:
too few steps for a break-even."""
TOO_FEW = "too few cycles yet"

Z95 = 1.96


@dataclass(frozen=True, slots=True)
class Shape:
    """How a run's cycles went: what costs are laid upon.

    Args:
        counts: cycles by (drafts proposed, accepted), those that made a block.
        idle: cycles that made none: pauses, and all of `strict`.
        tokens: committed by all cycles.
        block: drafts of a whole block.
    """

    counts: dict[tuple[int, int], int]
    idle: int
    tokens: int
    block: int

    @property
    def cycles(self) -> int:
        """All cycles."""
        return self.idle + sum(self.counts.values())

    @property
    def depth(self) -> float:
        """Mean tokens of a cycle."""
        return self.tokens / self.cycles


def shape_of(cycles: Sequence[CycleFinished], block: int) -> Shape | None:
    """The shape of a run's cycles; None before the first one."""
    if not cycles:
        return None
    counts: dict[tuple[int, int], int] = {}
    for cycle in filter(has_block, cycles):
        key = cycle.proposed, cycle.accepted
        counts[key] = counts.get(key, 0) + 1
    deepest = max(block, *(cycle.proposed for cycle in cycles))
    idle = sum(not has_block(cycle) for cycle in cycles)
    return Shape(counts, idle, sum(cycle.depth for cycle in cycles), deepest)


def replayed_rows(policy: str, proposed: int, accepted: int) -> int:
    """Rows that a policy decodes again after a verify."""
    if policy == "replay":
        return accepted + 1
    return accepted + 1 if policy == "direct" and accepted < proposed else 0


# Break-even by rows


@dataclass(frozen=True, slots=True)
class CurveRow:
    """One length of the verify batch.

    Args:
        rows: 1 is a decode: nothing was proposed.
        verify: (median, half of the distance between quartiles) milliseconds; None = not seen.
        replay: mean re-decode per cycle of this length, at this run's depths.
        cycle: draft, verify, commit and replay together; None = seen too rarely to say.
        break_even: the depth at which a cycle costs as much as decoding its tokens.
        depth: mean depth of this run's cycles of this length, with half of its 95 % interval.
        cycles: how many there were.
        steps: how many the cost is the median of.
    """

    rows: int
    verify: tuple[float, float | None] | None
    replay: float
    cycle: float | None
    break_even: float | None
    depth: float | None
    half: float | None
    cycles: int
    steps: int

    @property
    def pays(self) -> Pays | None:
        """Whether cycles of this length paid; None without cycles or cost."""
        if self.break_even is None:
            return "few" if self.cycles else None
        if self.break_even > self.rows and self.steps >= LEAST_VALUES:
            return "never" if self.rows > 1 else "loses"
        if self.depth is None:
            return None
        if self.half is None or abs(self.depth - self.break_even) <= self.half:
            return "open"
        return "pays" if self.depth > self.break_even else "loses"


def curve(table: CostTable, cycles: Sequence[CycleFinished], policy: str) -> list[CurveRow]:
    """One row for each length of verify that is known or was used."""
    lengths = {1, *table.verify, *(cycle.proposed + 1 for cycle in cycles)}
    found = []
    for rows in range(1, max(lengths) + 1):
        own = [cycle for cycle in cycles if cycle.proposed == rows - 1 and has_block(cycle)]
        depth, half = mean_of([cycle.depth for cycle in own])
        again = [replayed_rows(policy, cycle.proposed, cycle.accepted) for cycle in own]
        replay = table.replay_ms * sum(again) / len(own) if own and rows > 1 else 0.0
        cost = table.decode if rows == 1 else table.verify.get(rows)
        draft, verify = table.draft_ms(rows - 1), table.verify_ms(rows)
        whole = None
        if draft is not None and verify is not None and table.is_sure(rows):
            whole = draft + verify + table.commit_ms + replay
        found.append(
            CurveRow(
                rows,
                (cost.median, cost.half) if cost is not None else None,
                replay,
                whole,
                whole / table.decode.median if whole is not None else None,
                depth,
                half,
                len(own),
                cost.n if cost is not None else 0,
            )
        )
    return found


def mean_of(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and half of its 95 % interval (normal); the half is None of too few values."""
    if not values:
        return None, None
    mean = sum(values) / len(values)
    if len(values) < LEAST_VALUES:
        return mean, None
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, Z95 * math.sqrt(variance / len(values))


# The value of each position: a ledger of the run


@dataclass(frozen=True, slots=True)
class PositionValue:
    """What proposing the i-th draft was worth over the run, milliseconds.

    Args:
        gain: an accepted draft spares a plain step.
        row_cost: every proposed one makes its verify a row longer; at most 0.
    """

    position: int
    proposed: int
    accepted: int
    gain: float
    row_cost: float

    @property
    def net(self) -> float:
        """What is left."""
        return self.gain + self.row_cost


@dataclass(frozen=True, slots=True)
class ValueLedger:
    """Where the saving comes from: `saved` = all positions' net + draft + replay + commit + rest.

    All from this run's own times and means. `no_draft` cycles made a block of which the gate let
    nothing through, `paused` ones made none; both with what they lost in all. `rest` is what rows
    without a draft cost more or less than plain's, what verifies of a length that was seen rarely
    cost more or less than the line between their neighbours, and the bonus that a cycle which ends
    the text does not have.
    """

    positions: tuple[PositionValue, ...]
    cycles: int
    draft: float
    replay: float
    replay_rows: int
    commit: float
    rest: float
    saved: float
    plain_ms: float
    no_draft: int
    no_draft_ms: float
    paused: int
    paused_ms: float

    @property
    def net(self) -> float:
        """All positions together."""
        return sum(position.net for position in self.positions)

    @property
    def first_negative(self) -> int | None:
        """The first position that cost more than it gave; None = there is none."""
        negative = (value.position for value in self.positions if value.proposed and value.net < 0)
        return next(negative, None)


def value_ledger(plain: ArmTally | None, dspark: ArmTally | None) -> ValueLedger | None:
    """The ledger of two arms; None until both have decoded something."""
    if plain is None or dspark is None or len(plain.ids) < 2 or not dspark.cycles:
        return None
    step = plain.decode_ns / 1e6 / (len(plain.ids) - 1)
    cycles = dspark.cycles
    drafting = [cycle for cycle in cycles if cycle.proposed]
    idle = [cycle for cycle in cycles if not cycle.proposed]
    seen: dict[int, list[float]] = {}
    for cycle in drafting:
        seen.setdefault(cycle.proposed + 1, []).append(cycle.time.verify / 1e6)
    longest = max(seen, default=1)
    means = {1: step} | _means(seen)
    by_rows = [along(means, rows) or 0.0 for rows in range(1, longest + 1)]
    positions = []
    for i in range(1, longest):
        proposed = sum(cycle.proposed >= i for cycle in drafting)
        accepted = sum(cycle.accepted >= i for cycle in drafting)
        row = by_rows[i] - by_rows[i - 1]
        positions.append(PositionValue(i, proposed, accepted, accepted * step, -proposed * row))
    draft, replay, commit, decode = (
        sum(getattr(cycle.time, kind) for cycle in cycles) / 1e6
        for kind in ("draft", "replay", "commit", "decode")
    )
    missing = sum(cycle.depth <= cycle.accepted for cycle in cycles)
    rare = sum(by_rows[cycle.proposed] - cycle.time.verify / 1e6 for cycle in drafting)
    rest = step * len(idle) - decode - step * missing + rare
    saved = sum(value.net for value in positions) - draft - replay - commit + rest
    lost = [(has_block(cycle), _lost(cycle, step)) for cycle in idle]
    return ValueLedger(
        tuple(positions),
        len(cycles),
        -draft,
        -replay,
        sum(len(cycle.replay_ids) for cycle in cycles),
        -commit,
        rest,
        saved,
        step * sum(cycle.depth for cycle in cycles),
        sum(blocked for blocked, _ in lost),
        sum(ms for blocked, ms in lost if blocked),
        sum(not blocked for blocked, _ in lost),
        sum(ms for blocked, ms in lost if not blocked),
    )


def _means(seen: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """Mean cost of each length that was seen often enough; of all when none was."""
    often = {rows: ms for rows, ms in seen.items() if len(ms) >= LEAST_VALUES} or seen
    return {rows: sum(ms) / len(ms) for rows, ms in often.items()}


def _lost(cycle: CycleFinished, step: float) -> float:
    """What a cycle of one token cost more than a plain step."""
    time = cycle.time
    return (time.draft + time.commit + time.decode) / 1e6 - step


# Predictions


@dataclass(frozen=True, slots=True)
class Prediction:
    """A policy's speed on this run's cycles, by the table of costs.

    Args:
        speedup: predicted; None when a cost is not known.
        break_even: mean depth from which on it pays, at these lengths; infinite when every
            token of a cycle costs as much as a plain step; None = seen too rarely to say.
        never: break-even lies beyond the deepest cycle.
        why: a reason for `never`, or what is missing.
    """

    policy: str
    speedup: float | None
    break_even: float | None
    never: bool
    why: str = ""


def predict(table: CostTable, shape: Shape, policy: str) -> Prediction:
    """Speed-up = plain time of the shape's tokens / the cycles' time under a policy.

    A cycle takes draft + verify + commit + the rows that the policy decodes again, one without a
    block a decode and what it carries; `strict` has only such cycles.
    """
    step = table.decode.median
    if policy == "strict":
        if table.carry is None:
            return Prediction(policy, None, None, False, "carry not measured")
        speed = step / (step + table.carry.median)
        return Prediction(policy, speed, None, True, "carries state, drafts nothing")
    commit = table.commit_ms
    if policy == "reproject":
        if table.reproject is None:
            return Prediction(policy, None, None, False, "re-projection not measured")
        commit = table.reproject.median
    if shape.idle and table.carry is None:
        return Prediction(policy, None, None, False, "carry not measured")
    carried = step + table.carry.median if table.carry is not None else 0.0
    fixed, again = shape.idle * carried, 0
    for (proposed, accepted), count in shape.counts.items():
        draft, verify = table.draft_ms(proposed), table.verify_ms(proposed + 1)
        if draft is None or verify is None:
            return Prediction(policy, None, None, False, "draft not measured")
        fixed += count * (draft + verify + (commit if proposed else table.commit_ms))
        if proposed:
            again += count * replayed_rows(policy, proposed, accepted)
    time = fixed + again * table.replay_ms
    if not _is_sure(table, shape):
        return Prediction(policy, shape.tokens * step / time, None, False, TOO_FEW)
    break_even = _break_even(table, shape, policy, fixed, again)
    never = break_even > shape.block + 1
    return Prediction(policy, shape.tokens * step / time, break_even, never, _why(policy, never))


def _is_sure(table: CostTable, shape: Shape) -> bool:
    """Most cycles are of lengths whose costs were seen often enough."""
    sure = sum(n for (proposed, _), n in shape.counts.items() if table.is_sure(proposed + 1))
    return 2 * sure >= sum(shape.counts.values()) and table.decode.n >= LEAST_VALUES


def _break_even(table: CostTable, shape: Shape, policy: str, fixed: float, again: int) -> float:
    """Mean depth at which the cycles cost what plain decode of their tokens does.

    `replay` decodes every token again, so its cost grows with the depth; the others' re-decodes
    are taken as they were.
    """
    step, cycles = table.decode.median, shape.cycles
    if policy != "replay":
        return (fixed + again * table.replay_ms) / cycles / step
    left = step - table.replay_ms
    return fixed / cycles / left if left > 0 else math.inf


def _why(policy: str, never: bool) -> str:
    if not never:
        return ""
    return "replaying costs a plain step" if policy == "replay" else "deeper than a block"


def predictions(table: CostTable, shape: Shape) -> list[Prediction]:
    """All policies on the same cycles."""
    return [predict(table, shape, policy) for policy in POLICIES]
