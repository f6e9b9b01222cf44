"""A scripted measurement of costs, with round numbers."""

from __future__ import annotations

from engine.events import CostKind, CostMeasured, Event, MeasuringFinished

MS = 1_000_000
STEPS: tuple[tuple[CostKind, int, float], ...] = (
    ("decode", 1, 2.49),
    ("verify", 1, 2.50),
    *(("verify", rows, 2.1 + 0.5 * rows) for rows in range(2, 7)),
    ("draft", 0, 0.55),
    ("draft", 5, 0.85),
    ("carry", 1, 0.07),
    ("commit", 5, 0.05),
    ("reproject", 5, 0.21),
)


def measured(
    kind: CostKind, rows: int, ms: float, position: int, numerics: str = "split", commit: str = ""
) -> CostMeasured:
    """One cost; its quartiles are .03 ms away."""
    ns, off = round(ms * MS), 30_000
    rest = (kind, rows, ns, ns - off, ns + off, 31, position, ns - 2 * off, numerics, commit)
    return CostMeasured("", -1, 0, *rest)


def measurement(numerics: str, commit: str, position: int = 218) -> list[Event]:
    """All costs, and that they are over."""
    costs = [measured(*step, position, numerics, commit) for step in STEPS]
    return [*costs, MeasuringFinished("", -1, 0)]
