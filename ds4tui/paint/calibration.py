"""The confidence head's reliability as rows of text. Knows no widgets."""

from __future__ import annotations

import math

from ds4tui.calibration import Bin, Calibration
from ds4tui.economics import Z95
from ds4tui.marks import Marks
from ds4tui.paint.numbers import fraction
from ds4tui.spans import Row, crop

HEAD_CELLS = 25


def title(found: Calibration | None) -> tuple[str, str]:
    """Left and right part of the title."""
    if found is None:
        return "confidence head", ""
    cut = f"cut at {fraction(found.gate, 2)}  " if found.gate else "gate open  "
    return "confidence head", f"{cut}ECE {fraction(found.ece)}  n {found.n}"


def rows(
    found: Calibration | None, sweep_key: str, width: int, height: int, marks: Marks
) -> list[Row]:
    """A row for each bin: what the head said and what the target did, on one line.

    Args:
        sweep_key: key of the screen that runs without a gate.
    """
    if found is None:
        return [[(" no draft with a confidence was judged yet", "dim")]]
    cells = max(5, width - HEAD_CELLS - 2)
    lowest = min(min(each.low, each.rate) for each in found.bins)
    low = math.floor(lowest * 10 + 1e-9) / 10
    low = min(low, 0.9)
    out: list[Row] = [[(f" {'said':<9}{'reached':>8}{'acc.':>6} ", "dim"), _scale(low, cells)]]
    below = _below(found, sweep_key)
    room = max(1, height - 1 - len(below))
    for each in found.bins[-room:]:
        name = f"{fraction(each.low, 2)}-{fraction(each.high, 2)}"
        out.append(
            [
                (f" {name:<9}{each.reached:>8}{fraction(each.rate, 2):>6} ", ""),
                (_line(each, low, cells, marks), "dspark"),
            ]
        )
    return [*out, *(crop([(f" {text}", role)], width, marks.ellipsis) for text, role in below)]


def _scale(low: float, cells: int) -> tuple[str, str]:
    middle = fraction((1 + low) / 2, 2)
    line = list(" " * cells)
    for text, at in ((fraction(low, 1), 0), (middle, cells // 2 - 1), ("1.0", cells - 3)):
        for n, char in enumerate(text, at):
            if 0 <= n < cells:
                line[n] = char
    return "".join(line), "dim"


def _at(value: float, low: float, cells: int) -> int:
    return max(0, min(cells - 1, round((value - low) / (1 - low) * (cells - 1))))


def _line(each: Bin, low: float, cells: int, marks: Marks) -> str:
    line = list(marks.horizontal * cells)
    line[_at(each.said, low, cells)] = marks.vertical
    line[_at(each.rate, low, cells)] = marks.fast
    return "".join(line)


def _below(found: Calibration, sweep_key: str) -> list[tuple[str, str]]:
    lines = [("▪ accepted  │ said   reached: all before it accepted", "dim")]
    if found.gate:
        lines.append((f"cut at the gate: {sweep_key} Sweep runs 0.00, the whole range", "dim"))
    return [*lines, (judgement(found), "")]


def is_by_chance(each: Bin) -> bool:
    """The rate is within what so many drafts would scatter, if the head were right (95 %)."""
    said = min(1.0, max(0.0, each.said))
    return abs(each.rate - said) <= Z95 * math.sqrt(said * (1 - said) / each.reached)


def judgement(found: Calibration) -> str:
    """The bin in which the head is most wrong, weighed by drafts; or that it is right."""
    wrong = [each for each in found.bins if not is_by_chance(each)]
    if not wrong:
        return "no bin is off by more than chance (95 %)"
    worst = max(wrong, key=lambda each: abs(each.rate - each.said) * each.reached)
    said, rate = fraction(worst.said, 2), fraction(worst.rate, 2)
    word = "too sure" if worst.said > worst.rate else "too shy"
    return f"says {said}, the target accepts {rate} of {worst.reached}: {word}"
