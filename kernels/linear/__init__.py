"""A matrix product with packed weights, and the packing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from kernels.mode import Mode


@cache
def _cpu() -> Any:
    from kernels.linear import cpu_kernel

    return cpu_kernel


@cache
def _cuda() -> Any:
    from kernels.linear import triton_kernel

    return triton_kernel


def pack(matrices: Sequence[np.ndarray | tuple[np.ndarray, np.ndarray]]) -> Any:
    """Lay out matrices of one shape for the CPU kernels.

    Args:
        matrices: each float16 or float32 (O, I); or a pair: int8 for Q8_0, or codes of 4 bits as
            uint8 for MXFP4 (O, I), and float16 scales (O, I / 32).
    Raises:
        ValueError: for another type, differing shapes, or I not a multiple of 32 in a pair.
    """
    from kernels.cpu import matrix

    shapes = set()
    for item in matrices:
        values = item[0] if isinstance(item, tuple) else item
        shapes.add(values.shape)
        expected = ("int8", "uint8") if isinstance(item, tuple) else ("float16", "float32")
        if values.dtype.name not in expected:
            raise ValueError(f"pack takes {' or '.join(expected)}, found {values.dtype}")
        if isinstance(item, tuple) and item[1].shape != (values.shape[0], values.shape[1] // 32):
            raise ValueError(f"scales of shape {item[1].shape} for a matrix {values.shape}")
        if isinstance(item, tuple) and item[1].dtype != np.float16:
            raise ValueError(f"pack takes float16 scales, found {item[1].dtype}")
        if isinstance(item, tuple) and values.shape[1] % 32:
            raise ValueError(f"scales need inputs in blocks of 32, found {values.shape[1]}")
        if values.dtype == np.uint8 and values.max(initial=0) > 15:
            raise ValueError(f"pack takes codes of 4 bits, found {values.max()}")
    if len(shapes) != 1:
        raise ValueError(f"pack takes matrices of one shape, found {sorted(shapes)}")
    return matrix.pack(matrices)


def keeps_codes() -> bool:
    """Whether `pack` keeps codes of 4 bits here; elsewhere it makes int8 of them."""
    from kernels.cpu.machine import HAS_TABLES

    return HAS_TABLES


def linear(x: np.ndarray, weight: Any, y: np.ndarray, mode: Mode) -> None:
    """y = x @ W^T.

    Args:
        x: (n, I) float32. weight: packed (O, I). y: (n, O) float32, written.
    """
    _cpu().linear(x, weight.words, y, mode.words)


def linear_norm(
    x: np.ndarray, weight: Any, norm: np.ndarray, epsilon: float, y: np.ndarray, mode: Mode
) -> None:
    """y = RMSNorm(x @ W^T) * norm.

    Args:
        x: (n, I) float32. weight: packed (O, I). norm: (O,). y: (n, O) float32, written.
    """
    if not isinstance(x, np.ndarray):
        _cuda().linear_norm(x, weight, norm, epsilon, y, mode)
        return
    _cpu().linear_norm(x, weight.words, norm, epsilon, y, mode.words)
