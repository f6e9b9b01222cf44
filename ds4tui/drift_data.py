"""How far an arm's state is from plain's, by tensor and position: what the drift screen draws.

Owns the samples, their grouping and what a column of positions shows. Knows the events, no text.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from engine.events import StateDrift

EQUAL = -1.0
"""A sample whose live bits were all equal; a difference of 0.0 is one of signs or NaNs."""

Group = Literal["kinds", "layers", "all"]
GROUPS: tuple[Group, ...] = ("kinds", "layers", "all")
LOGITS = -1
"""Layer number of the logits."""


@dataclass(slots=True)
class DriftTrack:
    """All comparisons of one arm's state with plain's, four bytes a tensor and boundary.

    What a screen asks for again and again is kept up to date with each comparison.

    `boundaries` are indexes: the generated tokens evaluated before each comparison.
    """

    boundaries: list[int] = field(default_factory=list)
    tensors: tuple[tuple[int, str], ...] = ()
    _tracks: list[TensorTrack] = field(default_factory=list)
    _groups: dict[Group, list[DriftRow]] = field(default_factory=dict)

    def feed(self, event: StateDrift) -> None:
        """Take the next comparison; one that names other tensors is left out."""
        names = tuple((layer, tensor) for layer, tensor, _ in event.tensors)
        if not self.tensors:
            self.tensors = names
            self._tracks = [TensorTrack() for _ in names]
        if names != self.tensors or (self.boundaries and event.index <= self.boundaries[-1]):
            return
        self.boundaries.append(event.index)
        for track, (_, _, value) in zip(self._tracks, event.tensors, strict=True):
            track.add(event.index, value)

    def at(self, index: int) -> int | None:
        """The newest sample at or before an index; None before the first one."""
        found = bisect_right(self.boundaries, index) - 1
        return found if found >= 0 else None

    def differing(self, sample: int) -> tuple[int, int]:
        """(tensors of the state that differ, all of them) at one sample; logits are no state."""
        states = [
            track.values[sample]
            for (layer, _), track in zip(self.tensors, self._tracks, strict=True)
            if layer != LOGITS
        ]
        return sum(value != EQUAL for value in states), len(states)

    def logits_at(self, sample: int) -> float | None:
        """Largest difference of the logits at one sample; None when equal or not compared."""
        for (layer, _), track in zip(self.tensors, self._tracks, strict=True):
            if layer == LOGITS and track.values[sample] != EQUAL:
                return track.values[sample]
        return None

    def rows(self, group: Group) -> list[DriftRow]:
        """One row per tensor, per layer, or per kind of tensor; the logits last."""
        if group not in self._groups or not self._groups[group]:
            members: dict[tuple[str, str], list[TensorTrack]] = {}
            for (layer, tensor), track in zip(self.tensors, self._tracks, strict=True):
                if layer == LOGITS or group == "kinds":
                    name = ("", tensor)
                else:
                    name = (f"L{layer}", tensor if group == "all" else "")
                members.setdefault(name, []).append(track)
            rows = [DriftRow(*name, self.boundaries, found) for name, found in members.items()]
            self._groups[group] = rows
        return self._groups[group]

    def range(self) -> tuple[float, float] | None:
        """Smallest and largest finite difference above 0; None when there is none."""
        low = min((track.low for track in self._tracks), default=math.inf)
        return (low, max(track.high for track in self._tracks)) if low < math.inf else None


@dataclass(slots=True)
class TensorTrack:
    """One tensor's differences at all boundaries, and what they come to.

    Args:
        first: index of the first boundary at which it differed.
        largest: of all values, or EQUAL.
        low, high: smallest and largest finite value above 0.
    """

    values: array[float] = field(default_factory=lambda: array("f"))
    first: int | None = None
    largest: float = EQUAL
    low: float = math.inf
    high: float = 0.0

    def add(self, index: int, value: float | None) -> None:
        """Take the next value, of the comparison at an index."""
        self.values.append(EQUAL if value is None else value)
        if value is None:
            return
        kept = self.values[-1]  # of four bytes
        if self.first is None:
            self.first = index
        self.largest = max(self.largest, kept)
        if 0 < kept < math.inf:
            self.low, self.high = min(self.low, kept), max(self.high, kept)


@dataclass(slots=True)
class DriftRow:
    """One line of the chart: the largest of its tensors at every boundary."""

    layer: str
    tensor: str
    boundaries: list[int]
    members: list[TensorTrack]
    _joined: array[float] = field(default_factory=lambda: array("f"))

    @property
    def values(self) -> array[float]:
        """The largest difference, or EQUAL, at each sample; only what is new is computed."""
        if len(self.members) == 1:
            return self.members[0].values
        done = len(self._joined)
        if done < len(self.boundaries):
            self._joined.extend(map(max, *(each.values[done:] for each in self.members)))
        return self._joined

    def value(self, sample: int) -> float:
        """The largest difference at one sample, or EQUAL."""
        return max(each.values[sample] for each in self.members)

    def first(self) -> int | None:
        """Index of the first boundary at which it differed."""
        found = (each.first for each in self.members if each.first is not None)
        return min(found, default=None)

    def largest(self) -> float:
        """Largest difference of all samples, or EQUAL."""
        return max((each.largest for each in self.members), default=EQUAL)

    def columns(self, positions: int, columns: int) -> list[float | None]:
        """What each of `columns` equal ranges of 0..positions - 1 shows; None = no sample yet.

        A column shows the largest of its positions. Between two boundaries the last value stays;
        after the last one nothing is known.
        """
        out: list[float | None] = []
        values, last = self.values, self.boundaries[-1] if self.boundaries else -1
        for column in range(columns):
            begin = positions * column // columns
            end = max(begin + 1, positions * (column + 1) // columns)
            first = max(0, bisect_right(self.boundaries, begin) - 1)
            after = bisect_left(self.boundaries, end, first) if begin <= last else first
            out.append(max(values[first:after], default=None))
        return out


@dataclass(frozen=True, slots=True)
class Scale:
    """Eight steps on a log scale."""

    low: float
    high: float

    STEPS: ClassVar[int] = 8

    def level(self, value: float) -> int:
        """1 to 8; what is not finite is the highest."""
        if value <= self.low:
            return 1
        if not value < self.high:
            return self.STEPS
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return min(self.STEPS, 1 + int(share * self.STEPS))

    def edges(self) -> list[float]:
        """The least value of each step."""
        ratio = self.high / self.low
        return [self.low * ratio ** (step / self.STEPS) for step in range(self.STEPS)]


def scale_of(track: DriftTrack) -> Scale:
    """A scale over whole decades around what was seen."""
    low, high = track.range() or (1e-6, 1e-2)
    floor = math.floor(math.log10(low))
    return Scale(10.0**floor, 10.0 ** max(math.ceil(math.log10(high)), floor + 1))
