"""How an op evaluates its rows: the decode path's way, or as the `batch` path does.

Knows no device beyond the words that the CPU kernels read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

BATCH_ORDER, ROUND_ROWS = 1, 2
"""Bits of the first word of `Mode.words`: `batch`, `round_rows`."""


@dataclass(frozen=True, slots=True)
class Mode:
    """Numerics of one op in one forward.

    Without `batch` every op is row-exact: row r of n rows is bit-identical to that row alone.

    Args:
        batch: another order of summation, as the `batch` path has.
        round_rows: activations rounded to F16 before each product.
        ulps, salt: fault injection, y + u * ulps * ulp(y); 0 ulps = none.
    """

    batch: bool = False
    round_rows: bool = False
    ulps: int = 0
    salt: int = 0
    words: np.ndarray = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        flags = BATCH_ORDER * self.batch | ROUND_ROWS * self.round_rows
        salt = (self.salt + 2**63) % 2**64 - 2**63
        object.__setattr__(self, "words", np.array([flags, self.ulps, salt], np.int64))


EXACT = Mode()
"""The decode path's numerics."""
