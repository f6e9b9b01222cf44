"""Figures of a run, as pure functions of its events: ids, times, rates, speed-up, loops.

Owns the definitions that reports, charts and boxes share; those over cycles alone are
`engine.cycle_counts`'. Rates count tokens, never events; rates with a zero denominator are None.
Knows no widgets and no files.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter

from engine.cycle_counts import CycleCounts, ratio
from engine.events import (
    CycleFinished,
    Diverged,
    Event,
    FirstDrift,
    RunStarted,
    StateDrift,
    TimeSplit,
    TokensCommitted,
)

RATE_TOKENS = 16
"""Tokens of one range of a rate over the index: a few cycles."""
BLOCK_TOKENS = 8
"""Least tokens of a bootstrap block: more than one cycle."""
MOST_BLOCKS = 64
"""Long runs get longer blocks, since what slows a machine lasts for many steps."""
LEAST_BLOCKS = 4
"""With fewer blocks there is no interval, so no speed-up is given."""
RESAMPLES = 1000
SEED = 20658
"""Of the bootstrap, fixed so that the same run always gets the same interval."""
NGRAM = 8
Draw = Callable[[Sequence[float]], tuple[float, ...]]
"""Picks the values of the blocks that one resample drew."""


def ids_sha256(ids: Sequence[int]) -> str:
    """Hash of ids as little-endian u32."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()


_IDS: dict[int, int] = {}
"""One object per id: an id that came through a pipe is a new one each time."""


@dataclass(slots=True)
class ArmTally:
    """Counts of one arm, fed with its events in order.

    `token_ns` holds per id the engine time of its step, spread evenly over the step's tokens;
    0 for the token that comes from prefill. `gaps` are the top-2 gaps of the rows that the ids
    came from, `best` the highest logits of those rows. `counts` are those of `cycles`; the depths
    add up to ids - 1. `compared` counts the boundaries at which the states were compared.
    """

    block_size: int = 0
    ids: list[int] = field(default_factory=list)
    token_ns: array[float] = field(default_factory=lambda: array("d"))
    gaps: array[float] = field(default_factory=lambda: array("d"))
    best: array[float] = field(default_factory=lambda: array("d"))
    cycles: MutableSequence[CycleFinished] = field(default_factory=list)
    time: TimeSplit = field(default_factory=TimeSplit)
    first_drift: FirstDrift | None = None
    diverged: Diverged | None = None
    compared: int = 0
    counts: CycleCounts = field(init=False)
    _ends: array[int] = field(default_factory=lambda: array("q"))

    def __post_init__(self) -> None:
        self.counts = CycleCounts.of(self.cycles, self.block_size)

    def feed(self, event: Event) -> None:
        """Take the next event of this arm."""
        match event:
            case TokensCommitted():
                self._committed(event)
            case CycleFinished():
                self.cycles.append(event)
                self.counts.add(event)
                self._ends.append(event.index + event.depth - 1)
            case Diverged():
                self.diverged = event
                # States compared at the very index where the ids part are no drift before it.
                if self.first_drift is not None and self.first_drift.position >= event.index:
                    self.first_drift = None
            case StateDrift():
                self.compared += 1
                if self.first_drift is None:
                    self.first_drift = event.first_difference
            case _:
                pass

    def _committed(self, event: TokensCommitted) -> None:
        self.ids.extend(_IDS.setdefault(token, token) for token in event.ids)
        self.time = self.time + event.time
        spent = event.time.total - event.time.prefill
        decoded = sum(source != "prefill" for source in event.sources)
        for source, row in zip(event.sources, event.top, strict=True):
            self.token_ns.append(0.0 if source == "prefill" else spent / decoded)
            self.gaps.append(row[0][1] - row[1][1] if len(row) > 1 else math.inf)
            self.best.append(row[0][1] if row else math.nan)

    @property
    def decode_ns(self) -> int:
        """Engine time of everything but prefill."""
        return self.time.total - self.time.prefill

    @property
    def tokens_per_s(self) -> float | None:
        """(ids - 1) / (all time but prefill); None below two ids."""
        if len(self.ids) < 2:
            return None
        return ratio((len(self.ids) - 1) * 1e9, self.decode_ns)

    @property
    def boundaries(self) -> int:
        """Boundaries at which the states could have been compared, up to where the ids part.

        A DSpark arm has one before its first cycle and one after each.
        """
        parted = self.diverged
        ends = len(self._ends) if parted is None else bisect_right(self._ends, parted.index)
        return 1 + ends

    def smallest_gap(self, among: int | None = None) -> int | None:
        """Index of the smallest top-2 gap that was met; the first of equal ones.

        Args:
            among: look at so many ids from the start; None = at all.
        """
        finite = [i for i, gap in enumerate(self.gaps[:among]) if math.isfinite(gap)]
        return min(finite, key=lambda i: self.gaps[i], default=None)


def tally(events: Iterable[Event]) -> list[ArmTally]:
    """One tally per arm of a run's whole stream."""
    arms: list[ArmTally] = []
    for event in events:
        if isinstance(event, RunStarted):
            arms = [ArmTally(event.block_of(info)) for info in event.arms]
        elif 0 <= event.arm < len(arms):
            arms[event.arm].feed(event)
    return arms


def rates_by_index(token_ns: Sequence[float], tokens: int = RATE_TOKENS) -> list[float]:
    """Tokens per second of consecutive ranges of about `tokens` decoded ids; a partition.

    The rate of the whole is their mean weighted by time, so none is needed that the largest of
    them does not reach.
    """
    decoded = token_ns[1:]
    count = max(1, len(decoded) // tokens)
    edges = [len(decoded) * i // count for i in range(count + 1)]
    parts = [decoded[a:b] for a, b in itertools.pairwise(edges)]
    return [len(part) * 1e9 / sum(part) for part in parts if sum(part) > 0]


def peak_rate(token_ns: Sequence[float]) -> float | None:
    """The fastest range's tokens per second; never below the average."""
    return max(rates_by_index(token_ns), default=None)


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times faster than plain, with a 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    @property
    def resolved(self) -> bool:
        """The interval leaves out 1."""
        return not self.low <= 1 <= self.high


def speedup(plain: Sequence[Sequence[float]], arm: Sequence[Sequence[float]]) -> Speedup | None:
    """Ratio of tokens per second, with a block bootstrap over the interleaved steps.

    Both arms ran in turns, so a block is the same range of ids in both, and what the machine did
    meanwhile falls into the same blocks.

    Args:
        plain, arm: `token_ns` per repeat, of equal repeats.
    Returns:
        None when no time was measured or there are too few common ids for an interval.
    """
    whole_plain, whole_arm = _per_token(plain), _per_token(arm)
    if not whole_plain or not whole_arm:
        return None
    value = whole_plain / whole_arm
    blocks = [block for a, b in zip(plain, arm, strict=False) for block in _blocks(a, b)]
    if len(blocks) < LEAST_BLOCKS:
        return None
    ours, theirs = [block[0] for block in blocks], [block[1] for block in blocks]
    ratios = []
    for draw in _draws(len(blocks)):
        drawn = sum(draw(theirs))
        ratios.append(sum(draw(ours)) / drawn if drawn else math.inf)
    ratios.sort()
    # The interval is of the common range of ids; shift it to the value of the whole.
    shift = value / (sum(b[0] for b in blocks) / sum(b[1] for b in blocks))
    low, high = ratios[int(RESAMPLES * 0.025)], ratios[int(RESAMPLES * 0.975)]
    return Speedup(value, low * shift, high * shift)


@lru_cache(maxsize=2)
def _draws(count: int) -> tuple[Draw, ...]:
    """The resamples of so many blocks: the same ones for every arm that was run beside plain."""
    choose = random.Random(SEED)
    return tuple(itemgetter(*choose.choices(range(count), k=count)) for _ in range(RESAMPLES))


def _per_token(repeats: Sequence[Sequence[float]]) -> float | None:
    tokens = sum(max(0, len(token_ns) - 1) for token_ns in repeats)
    return ratio(sum(sum(token_ns[1:]) for token_ns in repeats), tokens)


def _blocks(plain: Sequence[float], arm: Sequence[float]) -> list[tuple[float, float]]:
    """Engine time of both arms in each whole block of their common ids."""
    known = max(0, min(len(plain), len(arm)) - 1)
    count = known // max(BLOCK_TOKENS, known // MOST_BLOCKS)
    edges = [1 + known * i // count for i in range(count + 1)] if count else []
    pairs = itertools.pairwise(edges)
    blocks = [(sum(plain[a:b]), sum(arm[a:b])) for a, b in pairs]
    return [block for block in blocks if block[0] > 0 and block[1] > 0]


def repeated(ids: Sequence[int], n: int = NGRAM) -> list[bool]:
    """Per id: it lies inside an n-gram that occurred before."""
    seen: set[tuple[int, ...]] = set()
    inside = [False] * len(ids)
    for end in range(n, len(ids) + 1):
        gram = tuple(ids[end - n : end])
        if gram in seen:
            inside[end - n : end] = [True] * n
        seen.add(gram)
    return inside


@dataclass(frozen=True, slots=True)
class WithoutLoops:
    """Acceptance over the ids outside repeated n-grams; `share` of the ids lie inside.

    A cycle counts by the share of its tokens that lie outside.
    """

    share: float
    mean_depth: float | None
    accept_rate: float | None
    avg_accept: float | None


def without_loops(arm: ArmTally) -> WithoutLoops:
    """The acceptance figures that loops do not flatter."""
    inside = repeated(arm.ids)
    weighted = []
    for cycle in arm.cycles:
        tokens = inside[cycle.index : cycle.index + cycle.depth]
        weighted.append((cycle, ratio(tokens.count(False), len(tokens)) or 0.0))
    cycles = sum(weight for _, weight in weighted)
    depth = sum(weight * cycle.depth for cycle, weight in weighted)
    accepted = sum(weight * cycle.accepted for cycle, weight in weighted)
    proposed = sum(weight * cycle.proposed for cycle, weight in weighted)
    return WithoutLoops(
        ratio(sum(inside), len(inside)) or 0.0,
        ratio(depth, cycles),
        ratio(accepted, proposed),
        ratio(accepted, cycles),
    )
