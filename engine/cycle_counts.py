"""Cycles counted by drafts proposed and accepted: depths, rates and acceptance by position.

The counts of two runs, or of a run before and after a knob was turned, add up to those of both.
Knows no times and no ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.events import CycleFinished

CUT_AT_THE_END = ("budget", "context", "eos")
"""Clip reasons of a last cycle: its length says nothing of the lengths that were asked for."""


def ratio(part: float, whole: float) -> float | None:
    """part / whole, None when there is nothing to divide by."""
    return part / whole if whole else None


@dataclass(slots=True)
class CycleCounts:
    """Counts of cycles, in constant memory.

    Args:
        block_size: drafts of a whole block.
        drafted: drafts that blocks produced.
        recheck_cut: accepted drafts that re-decodes dropped.
        pairs: cycles by (proposed, accepted).
        depths: cycles by tokens committed.
        lengths: drafts proposed by cycles whose end was no budget's, 0 left out.
    """

    block_size: int = 0
    drafted: int = 0
    recheck_cut: int = 0
    pairs: Counter[tuple[int, int]] = field(default_factory=Counter)
    depths: Counter[int] = field(default_factory=Counter)
    lengths: set[int] = field(default_factory=set)

    @staticmethod
    def of(cycles: Iterable[CycleFinished], block_size: int) -> CycleCounts:
        """The counts of some cycles."""
        counts = CycleCounts(block_size)
        for cycle in cycles:
            counts.add(cycle)
        return counts

    def add(self, cycle: CycleFinished) -> None:
        """Count one more cycle."""
        self.drafted += len(cycle.drafts)
        self.recheck_cut += cycle.recheck_cut
        self.pairs[cycle.proposed, cycle.accepted] += 1
        self.depths[cycle.depth] += 1
        if cycle.proposed and cycle.clip not in CUT_AT_THE_END:
            self.lengths.add(cycle.proposed)

    def __add__(self, other: CycleCounts) -> CycleCounts:
        return CycleCounts(
            max(self.block_size, other.block_size),
            self.drafted + other.drafted,
            self.recheck_cut + other.recheck_cut,
            self.pairs + other.pairs,
            self.depths + other.depths,
            self.lengths | other.lengths,
        )

    @property
    def cycles(self) -> int:
        """Cycles counted."""
        return self.pairs.total()

    @property
    def proposed(self) -> int:
        """Drafts sent to verifies."""
        return sum(proposed * count for (proposed, _), count in self.pairs.items())

    @property
    def accepted(self) -> int:
        """Drafts committed."""
        return sum(accepted * count for (_, accepted), count in self.pairs.items())

    @property
    def tokens(self) -> int:
        """Tokens committed."""
        return sum(depth * count for depth, count in self.depths.items())

    @property
    def accept_rate(self) -> float | None:
        """Accepted of proposed."""
        return ratio(self.accepted, self.proposed)

    @property
    def accept_of_drafted(self) -> float | None:
        """Accepted of drafted."""
        return ratio(self.accepted, self.drafted)

    @property
    def avg_accept(self) -> float | None:
        """Accepted per cycle."""
        return ratio(self.accepted, self.cycles)

    @property
    def mean_depth(self) -> float | None:
        """Tokens per cycle."""
        return ratio(self.tokens, self.cycles)

    def depth_hist(self) -> dict[int, int]:
        """Cycles by depth, 1..block + 1; empty without cycles."""
        hist = dict.fromkeys(range(1, self.block_size + 2), 0) if self.cycles else {}
        return hist | dict(sorted(self.depths.items()))

    def shallow(self) -> tuple[int, int]:
        """Cycles that proposed nothing, and cycles whose first draft was rejected."""
        none = sum(count for (proposed, _), count in self.pairs.items() if not proposed)
        return none, sum(n for (proposed, got), n in self.pairs.items() if proposed and not got)

    def proposed_by_accepted(self) -> list[list[int]]:
        """Cycles by drafts proposed (row) and accepted (column), 0..block each."""
        sizes = range(self.block_size + 1)
        return [[self.pairs[proposed, accepted] for accepted in sizes] for proposed in sizes]

    def accept_by_position(self) -> list[tuple[int, int]]:
        """Per draft position i: cycles with accepted > i, and cycles that got as far as it."""
        table = []
        for i in range(self.block_size):
            reached = [(got, n) for (sent, got), n in self.pairs.items() if sent > i and got >= i]
            table.append((sum(n for got, n in reached if got > i), sum(n for _, n in reached)))
        return table

    def lengths_vary(self) -> bool:
        """Verifies of different lengths, the last ones that a budget cut left aside.

        The depth histogram alone is then incomplete.
        """
        return len(self.lengths) > 1
