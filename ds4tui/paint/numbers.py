"""How numbers are written in cells. Knows no layout."""

from __future__ import annotations

import math
from collections.abc import Sequence


def fraction(value: float | None, digits: int = 3) -> str:
    """A number from 0 to 1 without its leading zero: `.848`, `1.00`; `n/a` for None."""
    if value is None:
        return "n/a"
    text = f"{value:.{digits}f}"
    return text[1:] if text.startswith("0.") else text[: digits + 2]


def counted(count: int, what: str) -> str:
    """`1 id`, `20 ids`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def ms(value: float) -> str:
    """Milliseconds per token in at most four cells: `2.49`, `.31`, `31.2`, `312`."""
    if value >= 9.995:
        return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
    text = f"{value:.2f}"
    return text[1:] if text.startswith("0.") else text


def rate(value: float | None) -> str:
    """Tokens per second: `402`, `8.3`; `-` for None."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def signed(value: int) -> str:
    """A term of a sum: `+204`, `-7`, `0`."""
    return f"{value:+d}" if value else "0"


def apportioned(terms: Sequence[float], total: float) -> list[int]:
    """Whole numbers near the terms whose sum is the rounded total.

    Those are rounded up whose fractions are largest.
    """
    whole = [math.floor(term) for term in terms]
    missing = round(total) - sum(whole)
    order = sorted(range(len(terms)), key=lambda n: whole[n] - terms[n])
    for n in order[: max(0, missing)]:
        whole[n] += 1
    return whole


def logits(value: float) -> str:
    """A gap between logits: `0.012`, `1.90`, `2e-05`; only 0 is shown as 0."""
    if value == 0:
        return "0"
    if abs(value) < 0.0005:
        return f"{value:.0e}"
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"


def ulps(value: float) -> str:
    """A gap in ulps: `1.5`, `243`, `0.002`; only 0 is shown as 0."""
    if 0 < value < 0.05:
        return f"{value:.1g}"
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def mean(value: float | None) -> str:
    """A mean with two digits, or `n/a`."""
    return "n/a" if value is None else f"{value:.2f}"


def bar(value: float, full: float, cells: int, whole: str = "━", half: str = "╸") -> str:
    """A horizontal bar with half cells: at least a half for anything above zero."""
    if value <= 0 or full <= 0 or cells <= 0:
        return ""
    halves = max(1, round(2 * cells * min(1.0, value / full)))
    return whole * (halves // 2) + half * (halves % 2)
