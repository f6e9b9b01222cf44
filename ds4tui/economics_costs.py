"""What one step of each kind costs here: a table from a measurement, or from a run's own steps.

Owns the table, how a gap in it is filled and the line through the verifies. Pure functions of
events and tallies; times are milliseconds. Knows no screens.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.events import CostMeasured, CycleFinished
from engine.stats import ArmTally

STRICT = "strict"
LEAST_VALUES = 5
"""Of fewer steps or cycles the scatter says nothing about how far their mean may be off."""
NOT_DRAFTED = ("strict", "pause")
"""Clips of steps that only carry the drafter's state: no block was made."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds of one kind of step: median, quartiles, samples."""

    median: float
    low: float
    high: float
    n: int

    @property
    def half(self) -> float | None:
        """Half of the distance between the quartiles; None of a single sample."""
        return (self.high - self.low) / 2 if self.n > 1 else None


@dataclass(frozen=True, slots=True)
class Fit:
    """The line `verify = fixed + per_row * rows` through the verifies of two rows and more.

    `error` is the root mean square of what it leaves, in milliseconds.
    """

    fixed: float
    per_row: float
    error: float

    def at(self, rows: int) -> float:
        """The line's value."""
        return self.fixed + self.per_row * rows


@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs of steps on this machine.

    Args:
        source: measured outside of a run, or taken from the steps of one.
        decode: a plain step.
        verify: by rows, from 2 on.
        draft: a cycle's drafting by drafts proposed.
        commit: of a cycle with a verify, by the policy measured; `reproject` that policy's own.
        replay: one re-decoded row; None = none was seen, so it is a decode.
        carry: what a step without a block spends beside its decode: `strict`, or a pause.
        position: tokens evaluated before the steps (a run's: at its middle).
        drafter: that was measured, by its file's path; "" where nobody told.
    """

    source: Literal["measured", "run"]
    decode: Cost
    verify: Mapping[int, Cost] = field(default_factory=dict)
    draft: Mapping[int, Cost] = field(default_factory=dict)
    commit: Cost | None = None
    reproject: Cost | None = None
    replay: Cost | None = None
    carry: Cost | None = None
    position: int = 0
    numerics: str = ""
    drafter: str = ""

    def verify_ms(self, rows: int) -> float | None:
        """A verify of so many rows; other lengths along straight lines between those seen often."""
        if rows == 1:
            return self.decode.median
        return along(_medians(self.verify), rows)

    def draft_ms(self, drafts: int) -> float | None:
        """Drafting until so many drafts are proposed."""
        return along(_medians(self.draft), drafts)

    def is_sure(self, rows: int) -> bool:
        """The cost of a cycle of this length rests on steps that were seen often enough.

        Those are steps of its own, or of two other lengths that a line goes through.
        """
        own = rows == 1 or _is_sure(self.verify, rows)
        return own and self.decode.n >= LEAST_VALUES and _is_sure(self.draft, rows - 1)

    @property
    def commit_ms(self) -> float:
        """Snapshot, state and bookkeeping of a cycle."""
        return self.commit.median if self.commit is not None else 0.0

    @property
    def replay_ms(self) -> float:
        """One re-decoded row."""
        return self.replay.median if self.replay is not None else self.decode.median

    def fit(self) -> Fit | None:
        """Least squares through the verifies that were seen often enough, weighted by samples.

        None below two lengths.
        """
        often = _often(self.verify).items()
        return line_through([(rows, cost.median, cost.n) for rows, cost in often if rows > 1])


def _often(costs: Mapping[int, Cost]) -> dict[int, Cost]:
    return {at: cost for at, cost in costs.items() if cost.n >= LEAST_VALUES}


def _medians(costs: Mapping[int, Cost]) -> dict[int, float]:
    """Of the lengths that were seen often enough; of all when none was."""
    return {at: cost.median for at, cost in (_often(costs) or costs).items()}


def _is_sure(costs: Mapping[int, Cost], at: int) -> bool:
    often = _often(costs)
    return at in often or len(often) > 1


def along(known: Mapping[int, float], at: int) -> float | None:
    """The value at a whole number: known, else on the line of the two nearest known ones."""
    if at in known:
        return known[at]
    if not known:
        return None
    below = [n for n in known if n < at]
    above = [n for n in known if n > at]
    if len(known) == 1:
        return next(iter(known.values()))
    if not below:
        first, second = sorted(above)[:2]
    elif not above:
        first, second = sorted(below)[-2:]
    else:
        first, second = max(below), min(above)
    slope = (known[second] - known[first]) / (second - first)
    return max(0.0, known[first] + slope * (at - first))


def line_through(points: Sequence[tuple[int, float, int]]) -> Fit | None:
    """Weighted least squares.

    Args:
        points: (rows, milliseconds, weight).
    """
    weight = sum(w for _, _, w in points)
    if len({rows for rows, _, _ in points}) < 2 or not weight:
        return None
    mean_x = sum(w * x for x, _, w in points) / weight
    mean_y = sum(w * y for _, y, w in points) / weight
    spread = sum(w * (x - mean_x) ** 2 for x, _, w in points)
    slope = sum(w * (x - mean_x) * (y - mean_y) for x, y, w in points) / spread
    fixed = mean_y - slope * mean_x
    left = sum(w * (y - fixed - slope * x) ** 2 for x, y, w in points) / weight
    return Fit(fixed, slope, math.sqrt(left))


def _cost(samples_ns: Sequence[float]) -> Cost | None:
    """Median and quartiles of samples; None when there are none."""
    if not samples_ns:
        return None
    in_ms = [sample / 1e6 for sample in samples_ns]
    if len(in_ms) == 1:
        return Cost(in_ms[0], in_ms[0], in_ms[0], 1)
    low, median, high = statistics.quantiles(in_ms, n=4, method="inclusive")
    return Cost(median, low, high, len(in_ms))


def measured_costs(events: Sequence[CostMeasured]) -> CostTable | None:
    """The table of the newest measurement; None without a decode.

    A later event of the same kind, rows and position replaces an earlier one.
    """
    if not events:
        return None
    position = events[-1].position
    newest = [event for event in events if event.position == position]
    by = {
        (event.kind, event.rows): Cost(
            event.median_ns / 1e6, event.low_ns / 1e6, event.high_ns / 1e6, event.n
        )
        for event in newest
    }
    if ("decode", 1) not in by:
        return None

    def of(kind: str) -> dict[int, Cost]:
        return {rows: cost for (name, rows), cost in by.items() if name == kind}

    return CostTable(
        "measured",
        by["decode", 1],
        {rows: cost for rows, cost in of("verify").items() if rows > 1},
        of("draft"),
        next(iter(of("commit").values()), None),
        next(iter(of("reproject").values()), None),
        None,
        next(iter(of("carry").values()), None),
        position,
        events[-1].numerics,
        events[-1].drafter,
    )


def run_costs(
    plain: ArmTally | None,
    dspark: ArmTally | None,
    commit: str | None,
    strict: ArmTally | None = None,
    prompt: int = 0,
    numerics: str = "",
) -> CostTable | None:
    """The table of a run's own steps; None before plain has decoded a token.

    Args:
        commit: policy of the DSpark arm.
        strict: the run's `strict` arm, if it has one.
        prompt: tokens of the prompt.
    """
    decode = _cost(plain.token_ns[1:]) if plain is not None else None
    if plain is None or decode is None:
        return None
    cycles = dspark.cycles if dspark is not None and commit != STRICT else []
    if strict is None and commit == STRICT:
        strict = dspark
    verify, draft = defaultdict(list), defaultdict(list)
    commits, replays = [], []
    for cycle in cycles:
        if has_block(cycle):
            draft[cycle.proposed].append(cycle.time.draft)
        if cycle.proposed:
            verify[cycle.proposed + 1].append(cycle.time.verify)
            commits.append(cycle.time.commit)
        if cycle.replay_ids:
            replays.append(cycle.time.replay / len(cycle.replay_ids))
    own = _cost(commits)
    return CostTable(
        "run",
        decode,
        _costs(verify),
        _costs(draft),
        own,
        own if commit == "reproject" else None,
        _cost(replays),
        _cost(_carried(strict.cycles if strict is not None else cycles)),
        prompt + len(plain.ids) // 2,
        numerics,
    )


def _costs(samples: Mapping[int, Sequence[float]]) -> dict[int, Cost]:
    found = {at: _cost(samples[at]) for at in sorted(samples)}
    return {at: cost for at, cost in found.items() if cost is not None}


def has_block(cycle: CycleFinished) -> bool:
    """The drafter made a block, whether or not something of it was proposed."""
    return cycle.clip not in NOT_DRAFTED


def _carried(cycles: Iterable[CycleFinished]) -> list[float]:
    """What steps without a block spent beside their decodes."""
    return [cycle.time.draft + cycle.time.commit for cycle in cycles if not has_block(cycle)]
