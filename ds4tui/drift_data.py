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

    `boundaries` are indexes: the generated tokens evaluated before each comparison.
    """

    boundaries: list[int] = field(default_factory=list)
    tensors: tuple[tuple[int, str], ...] = ()
    _values: list[array[float]] = field(default_factory=list)

    def feed(self, event: StateDrift) -> None:
        """Take the next comparison; one that names other tensors is left out."""
        names = tuple((layer, tensor) for layer, tensor, _ in event.tensors)
        if not self.tensors:
            self.tensors = names
            self._values = [array("f") for _ in names]
        if names != self.tensors or (self.boundaries and event.index <= self.boundaries[-1]):
            return
        self.boundaries.append(event.index)
        for values, (_, _, value) in zip(self._values, event.tensors, strict=True):
            values.append(EQUAL if value is None else value)

    def at(self, index: int) -> int | None:
        """The newest sample at or before an index; None before the first one."""
        found = bisect_right(self.boundaries, index) - 1
        return found if found >= 0 else None

    def differing(self, sample: int) -> tuple[int, int]:
        """(tensors of the state that differ, all of them) at one sample; logits are no state."""
        states = [
            values[sample]
            for (layer, _), values in zip(self.tensors, self._values, strict=True)
            if layer != LOGITS
        ]
        return sum(value != EQUAL for value in states), len(states)

    def logits_at(self, sample: int) -> float | None:
        """Largest difference of the logits at one sample; None when equal or not compared."""
        for (layer, _), values in zip(self.tensors, self._values, strict=True):
            if layer == LOGITS and values[sample] != EQUAL:
                return values[sample]
        return None

    def rows(self, group: Group) -> list[DriftRow]:
        """One row per tensor, per layer, or per kind of tensor; the logits last."""
        members: dict[tuple[str, str], list[array[float]]] = {}
        for (layer, tensor), values in zip(self.tensors, self._values, strict=True):
            if layer == LOGITS or group == "kinds":
                name = ("", tensor)
            else:
                name = (f"L{layer}", tensor if group == "all" else "")
            members.setdefault(name, []).append(values)
        return [DriftRow(*name, self.boundaries, found) for name, found in members.items()]

    def range(self) -> tuple[float, float] | None:
        """Smallest and largest finite difference above 0; None when there is none."""
        found = [v for values in self._values for v in values if 0 < v < math.inf]
        return (min(found), max(found)) if found else None


@dataclass(slots=True)
class DriftRow:
    """One line of the chart: the largest of its tensors at every boundary."""

    layer: str
    tensor: str
    boundaries: list[int]
    members: list[array[float]]

    def value(self, sample: int) -> float:
        """The largest difference at one sample, or EQUAL."""
        return max(values[sample] for values in self.members)

    def first(self) -> int | None:
        """Index of the first boundary at which it differed."""
        for sample, boundary in enumerate(self.boundaries):
            if self.value(sample) != EQUAL:
                return boundary
        return None

    def largest(self) -> float:
        """Largest difference of all samples, or EQUAL."""
        return max((max(values, default=EQUAL) for values in self.members), default=EQUAL)

    def columns(self, positions: int, columns: int) -> list[float | None]:
        """What each of `columns` equal ranges of 0..positions - 1 shows; None = no sample yet.

        A column shows the largest of its positions. Between two boundaries the last value stays;
        after the last one nothing is known.
        """
        out: list[float | None] = []
        last = self.boundaries[-1] if self.boundaries else -1
        for column in range(columns):
            begin = positions * column // columns
            end = max(begin + 1, positions * (column + 1) // columns)
            first = bisect_right(self.boundaries, begin) - 1
            after = bisect_left(self.boundaries, end)
            samples = range(max(0, first), after) if begin <= last else range(0)
            out.append(max((self.value(sample) for sample in samples), default=None))
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
