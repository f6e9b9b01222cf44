"""What a divergence is, and what identical ids prove: margins in ulps, verdicts, kinds.

Pure functions over numbers. Knows no arms and no events.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["exact-tie", "near-tie", "large-margin"]
EXACT_POLICIES = ("replay", "strict")
"""Identical in any numerics, by construction: every committed row is decoded."""
IdenticalKind = Literal["state-equal", "cannot-show", "state-differs", "not-compared"]

_TYPES = {"F16": (10, -14), "BF16": (7, -126), "F32": (23, -126)}
"""Mantissa bits and smallest normal exponent."""

NO_NEAR_TIE_LOGITS = 1.0
"""Ids among which no top-2 gap was under this are said to be unable to show a divergence."""


def ulp(value: float, ulp_type: str) -> float:
    """Distance from `value` to the next number of a type, away from 0; infinite for infinities."""
    bits, least = _TYPES[ulp_type]
    if not math.isfinite(value):
        return math.inf
    exponent = math.frexp(value)[1] - 1 if value else least
    return math.ldexp(1.0, max(exponent, least) - bits)


NARROW_TYPES = ("Q8_0", "MXFP4")
"""Matrices that the CPU multiplies with activations of 16 bits in `invariant` too."""


def ulp_type(numerics: str, device: str, types: Iterable[str]) -> str:
    """The type to which activations are rounded: F16, or F32 in `invariant` on the CPU where all
    matrices are wide. Integers of 16 bits count as F16, which is the coarser of the two.

    Args:
        types: of the target's tensors.
    """
    is_wide = numerics == "invariant" and device == "cpu" and not {*NARROW_TYPES} & {*types}
    return "F32" if is_wide else "F16"


@dataclass(frozen=True, slots=True)
class Margin:
    """A gap between two logits; `ulps` in the type's ulp at the larger one's magnitude."""

    logits: float
    ulps: float
    ulp_type: str


def margin(left: float, right: float, of_type: str) -> Margin:
    """The gap between two logits of one row."""
    distance = abs(left - right) if left != right else 0.0
    if not math.isfinite(distance):
        return Margin(math.inf, math.inf, of_type)
    return Margin(distance, distance / ulp(max(abs(left), abs(right)), of_type), of_type)


def verdict(found: Margin, near_tie_ulps: float) -> Verdict:
    """What a margin says about a divergence; never whether it is a bug."""
    if found.logits == 0:
        return "exact-tie"
    return "near-tie" if found.ulps <= near_tie_ulps else "large-margin"


def identical_kind(state_equal: bool | None, smallest_gap: float | None) -> IdenticalKind:
    """What equal ids prove.

    Args:
        state_equal: the states were equal at every boundary compared, of which there may be fewer
            than cycles; None = not compared to the end.
        smallest_gap: smallest top-2 gap that plain decode met in these ids, in logits.
    """
    if state_equal:
        return "state-equal"
    if smallest_gap is None or smallest_gap >= NO_NEAR_TIE_LOGITS:
        return "cannot-show"
    return "not-compared" if state_equal is None else "state-differs"


def must_be_identical(numerics: str, commit: str, *, perturbed: bool) -> bool:
    """Whether an arm promises plain's ids and plain's state after every cycle.

    Fault injection voids what `invariant` promises, not what replaying does.
    """
    exact = commit in EXACT_POLICIES
    return exact or (numerics == "invariant" and not perturbed)


def length_pattern(first_index: Mapping[int, int | None]) -> str:
    """What first divergences over several block lengths look like.

    Args:
        first_index: block length -> index of the first divergence, None = identical.
    Returns:
        A sentence: a near-tie that rounding flips stays where it is for most block lengths; a state
        that is rolled back wrongly parts at an index that moves with them.
    """
    found = {length: index for length, index in first_index.items() if index is not None}
    if not found:
        return "identical at every block length"
    index, count = Counter(found.values()).most_common(1)[0]
    here = ", ".join(str(length) for length in sorted(found) if found[length] == index)
    if len(found) == 1:
        return f"only block length {here} parts: no pattern from one index"
    elsewhere = {length: at for length, at in sorted(found.items()) if at != index}
    if count * 2 > len(found):
        others = ", ".join(f"{length} at {at}" for length, at in elsewhere.items())
        rest = f" ({others})" if others else ""
        return f"block lengths {here} part at the same index {index}: numeric drift{rest}"
    moves = ", ".join(f"{length} at {at}" for length, at in sorted(found.items()))
    return f"the first divergence moves with the block length ({moves}): look for a rollback bug"
