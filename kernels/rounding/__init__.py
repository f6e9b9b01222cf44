"""The roundings of stored rows as ops of their own; the ops that store rows have them inside.

FP8 and FP4 are simulated: values stay float32. All work in place on (n, D) float32 rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def _cpu() -> Any:
    from kernels.rounding import cpu_kernel

    return cpu_kernel


def fp8_blocks(rows: np.ndarray, block: int = 64) -> None:
    """E4M3 with one power-of-two scale per block of a row; a shorter last block is a block."""
    _cpu().apply(rows, _cpu().FP8, block)


def fp4_blocks(rows: np.ndarray, block: int = 32) -> None:
    """E2M1 with one power-of-two scale per block of a row; a shorter last block is a block."""
    _cpu().apply(rows, _cpu().FP4, block)


def half(rows: np.ndarray) -> None:
    """The nearest float16 values."""
    _cpu().apply(rows, _cpu().HALF, 0)


def hadamard(rows: np.ndarray) -> None:
    """Orthonormal Walsh-Hadamard transform of every row; D is a power of two."""
    if rows.shape[1] & (rows.shape[1] - 1):
        raise ValueError(f"hadamard needs rows of 2^k elements, found {rows.shape[1]}")
    _cpu().apply(rows, _cpu().HADAMARD, 0)
