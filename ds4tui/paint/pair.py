"""Depths and times of two arms side by side: left, right, difference. Knows no widgets."""

from __future__ import annotations

from ds4tui.figures import Depths, per_token
from ds4tui.paint.numbers import mean, ms
from ds4tui.spans import Row
from engine.stats import ArmTally

LABEL = 7
"""Least cells of the names and the space before them."""
Names = tuple[str, str]


def depth_rows(
    left: Depths | None, right: Depths | None, names: Names, width: int, height: int
) -> list[Row]:
    """Cycles by depth of both, a column a depth."""
    label = max(LABEL, *(min(len(name) + 1, width // 2) for name in names))
    if left is None and right is None:
        return [[(" neither arm has cycles", "dim")]]
    most = max(len(side.counts) for side in (left, right) if side is not None)
    step = max(4, min(6, (width - label) // max(1, most)))
    shown = min(most, (width - label) // step)
    counts = [_counts(side, shown) for side in (left, right)]
    header = "".join(f"{depth + 1:>{step}}" for depth in range(shown))
    rows: list[Row] = [[(f" {'depth':<{label - 1}}{header}", "dim")]]
    sides = zip(names, counts, ("plain", "dspark"), strict=True)
    for name, found, role in sides:
        cells = "".join(f"{count:>{step}}" for count in found)
        rows.append([(f" {name[: label - 1]:<{label - 1}}", ""), (cells, role)])
    difference = [b - a for a, b in zip(*counts, strict=True)]
    cells = "".join(f"{value:>+{step}}" if value else f"{0:>{step}}" for value in difference)
    rows.append([(f" {'diff':<{label - 1}}{cells}", "")])
    means = [side.mean if side is not None else None for side in (left, right)]
    change = "" if None in means else f", {means[1] - means[0]:+.2f}"  # type: ignore[operator]
    rows.append([(f" mean {mean(means[0])} and {mean(means[1])}{change}"[:width], "strong")])
    return rows[:height]


def _counts(side: Depths | None, most: int) -> list[int]:
    counts = list(side.counts[:most]) if side is not None else []
    return counts + [0] * (most - len(counts))


def ledger_rows(
    left: ArmTally, right: ArmTally, names: Names, width: int, height: int
) -> list[Row]:
    """Engine ms per token of both by kind; the total first, so that it is never cut."""
    both = [_per_token(tally) for tally in (left, right)]
    cells = max(5, min(12, (width - 7) // 3))
    heads = "".join(f"{name[: cells - 1]:>{cells}}" for name in (*names, "diff"))
    rows: list[Row] = [[(f" {'':<6}{heads}"[:width], "dim")]]
    for kind in both[0]:
        a, b = (side[kind] for side in both)
        change = f"{'-' if b < a else '+'}{ms(abs(b - a))}"
        text = f" {kind:<6}{ms(a):>{cells}}{ms(b):>{cells}}{change:>{cells}}"
        rows.append([(text[:width], "strong" if kind == "total" else "")])
    return rows[:height]


def _per_token(tally: ArmTally) -> dict[str, float]:
    spent = per_token(tally.time, len(tally.ids) - 1)
    return {"total": sum(spent.values()), **spent}
