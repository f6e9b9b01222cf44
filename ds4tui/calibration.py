"""The confidence head against what the target did: reliability by bins and the calibration error.

A draft counts when all earlier drafts of its block were accepted; its label is that it was
accepted too. Behind a gate only confident drafts are proposed, so cycles without a gate are taken
when there are any, else those of the lowest threshold. Pure functions; knows no screens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ds4tui.knobs_now import gate_at
from ds4tui.run_record import ArmRecord
from engine.events import CycleFinished

WIDTHS = (0.02, 0.05, 0.1)
"""Widths of a bin: the first that gives no more than `MOST_BINS`."""
MOST_BINS = 10

Sample = tuple[float, bool]


@dataclass(frozen=True, slots=True)
class Bin:
    """Drafts whose confidence lies in [low, high); the last bin has 1 too.

    Args:
        said: mean confidence.
        accepted, reached: counts.
    """

    low: float
    high: float
    said: float
    accepted: int
    reached: int

    @property
    def rate(self) -> float:
        """Accepted of reached."""
        return self.accepted / self.reached


@dataclass(frozen=True, slots=True)
class Calibration:
    """Reliability of the head.

    Args:
        bins: those that hold a draft, in rising order.
        ece: expected calibration error: mean of |accepted - said| over bins, weighted by drafts.
        gate: threshold of the cycles; 0 = no gate, so the whole range is seen.
        runs: runs that the cycles come from.
    """

    bins: tuple[Bin, ...]
    ece: float
    n: int
    said: float
    accepted: float
    gate: float
    width: float
    runs: int = 1


def gated_cycles(arm: ArmRecord) -> dict[float, list[CycleFinished]]:
    """An arm's cycles by the threshold that was in force; none of `strict`."""
    found: dict[float, list[CycleFinished]] = {}
    for cycle in arm.cycles if arm.info.commit != "strict" else ():
        gate = gate_at(arm, cycle.cycle)
        if gate is not None:
            found.setdefault(gate, []).append(cycle)
    return found


def samples_of(cycles: Iterable[CycleFinished]) -> list[Sample]:
    """(confidence, accepted) of every draft that was reached; a NaN says nothing."""
    found = []
    for cycle in cycles:
        reached = min(cycle.proposed, cycle.accepted + 1)
        for i, confidence in enumerate(cycle.confidences[:reached]):
            if not math.isnan(confidence):
                found.append((confidence, i < cycle.accepted))
    return found


def calibration(arms: Sequence[ArmRecord]) -> Calibration | None:
    """The calibration over arms that share a drafter; None while nothing was reached."""
    by_gate: dict[float, list[Sample]] = {}
    runs: dict[float, int] = {}
    for arm in arms:
        for gate, cycles in gated_cycles(arm).items():
            samples = samples_of(cycles)
            if samples:
                by_gate.setdefault(gate, []).extend(samples)
                runs[gate] = runs.get(gate, 0) + 1
    if not by_gate:
        return None
    gate = min(by_gate)
    return _binned(by_gate[gate], gate, runs[gate])


def _binned(samples: Sequence[Sample], gate: float, runs: int) -> Calibration:
    width = next((w for w in WIDTHS if round((1 - gate) / w, 6) <= MOST_BINS), WIDTHS[-1])
    last = round(1 / width) - 1
    sorted_in: dict[int, list[Sample]] = {}
    for confidence, accepted in samples:
        # A confidence on an edge belongs to the bin above it, whatever the division rounds to.
        at = min(last, max(0, int(confidence / width + 1e-9)))
        sorted_in.setdefault(at, []).append((confidence, accepted))
    bins = []
    for at in sorted(sorted_in):
        inside = sorted_in[at]
        said = sum(confidence for confidence, _ in inside) / len(inside)
        kept = sum(label for _, label in inside)
        bins.append(Bin(at * width, (at + 1) * width, said, kept, len(inside)))
    n = len(samples)
    ece = sum(abs(each.rate - each.said) * each.reached for each in bins) / n
    said = sum(confidence for confidence, _ in samples) / n
    rate = sum(label for _, label in samples) / n
    return Calibration(tuple(bins), ece, n, said, rate, gate, width, runs)
