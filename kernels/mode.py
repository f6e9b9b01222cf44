"""How an op evaluates its rows: the decode path's way, or as the `batch` path does.

Knows no device beyond the words that the CPU kernels read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

BATCH_ORDER, ROUND_ROWS, FIXED_16, FIXED_8 = 1, 2, 4, 8
"""Bits of the first word of `Mode.words`: `batch`, `round_rows`, `fixed` of 16 and of 8 bits."""


@dataclass(frozen=True, slots=True)
class Mode:
    """Numerics of one op in one forward.

    Without `batch` every op is row-exact: row r of n rows is bit-identical to that row alone.

    Args:
        batch: another order of summation, as the `batch` path has.
        round_rows: activations rounded to F16 before each product.
        tiles: row-exact by tiles of F16 activations with F32 sums, where the device has matrix
            units; the CPU kernels do not read it.
        fixed: bits that activations keep in Q8_0 products on the CPU, as integers with one scale
            per block of 32; 0 = they stay floats. 16 gives the same bits on every machine; 8 is for
            work whose rounding is free, and done only where it is faster.
        ulps, salt: fault injection, y + u * ulps * ulp(y); 0 ulps = none.
    """

    batch: bool = False
    round_rows: bool = False
    ulps: int = 0
    salt: int = 0
    tiles: bool = False
    fixed: Literal[0, 8, 16] = 0
    words: np.ndarray = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        flags = BATCH_ORDER * self.batch | ROUND_ROWS * self.round_rows
        flags |= {0: 0, 8: FIXED_8, 16: FIXED_16}[self.fixed]
        salt = (self.salt + 2**63) % 2**64 - 2**63
        object.__setattr__(self, "words", np.array([flags, self.ulps, salt], np.int64))


EXACT = Mode()
"""The decode path's numerics in `split`."""

TILES = Mode(tiles=True, fixed=16)
"""Row-exact and fast with several rows: `invariant`."""

DRAFT = Mode(tiles=True, fixed=8)
"""What drafts are rounded to changes drafts, never what the target makes of them."""
