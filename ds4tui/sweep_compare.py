"""Two rows of a sweep compared: run by run of the same prompt, at one pace of the machine.

Owns what makes runs of different minutes comparable, and the intervals. Knows no tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.suite_record import SuiteRecord
from engine.stats import Speedup, speedup

PACE_TOKENS = 16
"""Tokens over which the pace of the machine is taken: more than a cycle, less than a slow spell."""


@dataclass(frozen=True, slots=True)
class Work:
    """One arm in one run, beside the plain arm of that run."""

    run: RunRecord
    arm: ArmRecord
    plain: ArmRecord

    @property
    def prompt_index(self) -> int:
        """Which prompt of the set it is."""
        assert self.run.started is not None
        return self.run.started.prompt_index

    @property
    def is_finished(self) -> bool:
        """The run has ended."""
        return self.run.finished is not None

    @property
    def parts_at(self) -> int | None:
        """The first index at which its ids are not plain's; None while they are."""
        if self.arm.diverged is not None:
            return self.arm.diverged.index
        if not self.is_finished or self.arm.ids_hash == self.plain.ids_hash:
            return None
        both = zip_longest(self.arm.ids, self.plain.ids)
        return next((at for at, (ours, plains) in enumerate(both) if ours != plains), None)


class Intervals:
    """Speed-ups with their intervals, each made once: a bootstrap takes some milliseconds."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str, int, int], Speedup | None] = {}

    def of(
        self, suite: SuiteRecord, name: str, other: str, ours: list[Work], theirs: list[Work]
    ) -> Speedup | None:
        """How many times faster one row's runs are than another's."""
        key = suite.started.suite_id, name, other, len(ours), len(theirs)
        if key in self._known:
            return self._known[key]
        found = compare(ours, theirs)
        self._known[key] = found
        return found


def compare(ours: Sequence[Work], theirs: Sequence[Work]) -> Speedup | None:
    """The speed-up of one row's finished runs over another's, run by run of the same prompt.

    Runs are laid end to end, so that the number of blocks does not grow with their number.
    """
    left: list[float] = [0.0]
    right: list[float] = [0.0]
    for own, other in _pairs(ours, theirs):
        paced = at_pace(own.arm, own.plain, other.plain) if own.run is not other.run else None
        mine = own.arm.tally.token_ns if paced is None else paced
        common = min(len(mine), len(other.arm.ids))
        left += mine[1:common]
        right += other.arm.tally.token_ns[1:common]
    return speedup([right], [left])


def _pairs(ours: Sequence[Work], theirs: Sequence[Work]) -> Iterator[tuple[Work, Work]]:
    """The n-th finished run of a prompt with the n-th finished one of the other."""
    waiting: dict[int, list[Work]] = {}
    for other in theirs:
        waiting.setdefault(other.prompt_index, []).append(other)
    for own in ours:
        same = waiting.get(own.prompt_index)
        if same:
            yield own, same.pop(0)


def at_pace(arm: ArmRecord, own: ArmRecord, other: ArmRecord) -> list[float]:
    """An arm's time of each token as it were at the pace of another run of the same prompt.

    Both plain arms decode the same ids, so the ratio of their times is that of the machine's pace.
    """
    paced = list(arm.tally.token_ns)
    for first in range(1, len(paced), PACE_TOKENS):
        last = min(first + PACE_TOKENS, len(paced))
        here, there = (sum(each.tally.token_ns[first:last]) for each in (own, other))
        if here > 0 and there > 0:
            for at in range(first, last):
                paced[at] *= there / here
    return paced
