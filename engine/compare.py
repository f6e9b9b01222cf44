"""One arm against plain: state drift at common boundaries, the first divergence, its cause.

Owns the comparison of states and ids and what is remembered of it. Takes no steps: `engine.ab`
calls it after each one. All of it runs outside the arms' clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from engine.decode import Stamp, Step
from engine.events import Diverged, Event, FirstDrift, StateDrift, TokensCommitted
from engine.timeline import Timeline
from engine.verdict import margin, verdict

Tensors = tuple[tuple[int, str, float | None], ...]

LOGITS_LAYER = -1
"""Layer number of the logits: compared and shown, but no state."""


@dataclass(slots=True)
class Lane:
    """An arm in a race: its timeline and the last event of ids that it sent."""

    timeline: Timeline
    stamp: Stamp
    steps: Iterator[Step]
    committed: TokensCommitted | None = None
    announced: bool = False

    @property
    def done(self) -> bool:
        """No further step will be taken."""
        return self.timeline.reason is not None

    def is_argmax(self, index: int) -> bool:
        """An id of the last step is the argmax of the row that its policy says it came from."""
        assert self.committed is not None
        offset = index - self.committed.index
        return self.committed.ids[offset] == self.committed.top[offset][0][0]


def max_abs(left: Any, right: Any) -> float:
    """Largest absolute difference; infinite where only one side is finite or a NaN."""
    a, b = np.asarray(left), np.asarray(right)
    if not a.size:
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(a - b)
        at = np.unravel_index(np.argmax(distance), distance.shape)  # the first NaN, if any
        if np.isfinite(distance[at]):
            return abs(float(a[at]) - float(b[at]))
        wide = np.where(a == b, 0.0, np.abs(a.astype(np.float64) - b.astype(np.float64)))
    return float(np.nan_to_num(wide, nan=np.inf, posinf=np.inf).max())


def difference(left: Any, right: Any) -> float | None:
    """None when all bits are equal, else the largest absolute difference."""
    a, b = np.ascontiguousarray(left), np.ascontiguousarray(right)
    if np.array_equal(a.view(np.uint32), b.view(np.uint32)):
        return None
    return max_abs(a, b)


def compare_states(plain: Timeline, other: Timeline) -> Tensors:
    """Every (layer, tensor) of the states, then the logits.

    Both states are in this process, so their live bytes themselves are compared, which costs less
    than hashing them and leaves nothing to chance.
    """
    states = plain.state, other.state
    found = [
        (layer, name, difference(*(state.live(layer, name) for state in states)))
        for layer, name in other.state.names()
    ]
    return (*found, (LOGITS_LAYER, "logits", difference(plain.row.logits, other.row.logits)))


@dataclass(slots=True)
class Comparison:
    """What is known of one arm against plain.

    Args:
        every: compare states at every n-th common boundary and at the last one, 0 = never.
        recorded: the other arm's ids are given, so its states and rows are not compared.
        explain: (arm, index) -> the discrete choices that differ up to the row of that index.
    """

    plain: Lane
    other: Lane
    every: int
    near_tie_ulps: float
    ulp_type: str
    recorded: bool
    explain: Callable[[int, int], tuple[str, ...]]
    agreed: int = 0
    first_drift: FirstDrift | None = None
    diverged: Diverged | None = None
    _equal: dict[int, bool] = field(default_factory=dict)
    _boundaries: int = 0
    _newest: int = -1

    def after_step(self) -> list[Event]:
        """Look at what the last step of either arm made comparable."""
        if self.diverged is not None:
            return []
        left, right = self.plain.timeline.ids, self.other.timeline.ids
        known = min(len(left), len(right))
        while self.agreed < known and left[self.agreed] == right[self.agreed]:
            self.agreed += 1
        events: list[Event] = []
        if self._is_due():
            events.append(self._compare())
        if self.agreed < known:
            self.diverged = self._divergence(self.agreed)
            events.append(self.diverged)
        return events

    def state_equal(self) -> bool | None:
        """Whether the states were equal at every boundary compared, the last one included."""
        if self.diverged is not None or self.other.timeline.boundary not in self._equal:
            return None
        return self.first_drift is None

    def _is_due(self) -> bool:
        """Both stand at one boundary, up to which their ids agree, and it is one to compare at."""
        plain, other = self.plain.timeline, self.other.timeline
        boundary = plain.boundary
        if self.recorded or not self.every or not plain.ids or not other.ids:
            return False
        if boundary != other.boundary or boundary > self.agreed or boundary in self._equal:
            return False
        if boundary != self._newest:
            self._newest = boundary
            self._boundaries += 1
        at_end = self.plain.done and self.other.done
        return at_end or (self._boundaries - 1) % self.every == 0

    def _compare(self) -> StateDrift:
        other = self.other.timeline
        boundary = other.boundary
        tensors = compare_states(self.plain.timeline, other)
        drift = StateDrift(*self.other.stamp(), boundary, other.state.position, tensors)
        self._equal[boundary] = drift.first_difference is None
        # At the index where the ids part the state no longer matters to the verdict.
        if self.first_drift is None and boundary < self.agreed:
            self.first_drift = drift.first_difference
        return drift

    def _divergence(self, index: int) -> Diverged:
        plain, other = self.plain.timeline, self.other.timeline
        assert index == len(plain.ids) - 1, "plain's newest id is the one compared"
        left, right = plain.ids[index], other.ids[index]
        row = plain.row.processed
        gap = margin(float(row[left]), float(row[right]), self.ulp_type)
        kind = verdict(gap, self.near_tie_ulps)
        error = not self.plain.is_argmax(index)
        if not self.recorded:
            error = error or not self.other.is_argmax(index)
        cause = self._cause()
        named = kind == "large-margin" and not error and not self.recorded
        return Diverged(
            *self.other.stamp(),
            index,
            left,
            right,
            cause,
            gap.logits,
            gap.ulps,
            gap.ulp_type,
            kind,
            error,
            self.explain(self.other.stamp.arm, index) if named else (),
            self.first_drift if cause == "state" else None,
        )

    def _cause(self) -> Literal["verify_row", "state"] | None:
        """Whether the states differed where the cycle that committed the divergent id began."""
        if self.recorded or self.other.committed is None:
            return None
        equal = self._equal.get(self.other.committed.index - 1)
        if equal is None:  # not compared there
            return "state" if self.first_drift is not None else None
        return "verify_row" if equal else "state"
