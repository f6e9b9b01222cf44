"""The output head: norm, product with the vocabulary, and a check for non-finite logits."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from kernels.mode import Mode


@cache
def _cpu() -> Any:
    from kernels.cpu.workspace import workspace
    from kernels.head import cpu_kernel

    return cpu_kernel, workspace


@cache
def _cuda() -> Any:
    from kernels.head import triton_kernel

    return triton_kernel


def head(
    x: np.ndarray,
    norm: np.ndarray,
    output: Any,
    epsilon: float,
    logits: np.ndarray,
    positions: np.ndarray,
    mode: Mode,
) -> Any:
    """logits = output @ (x / rms(x) * norm).

    Args:
        x: (n, C) float32. norm: (C,). output: packed (V, C). logits: (n, V), written.
    Returns:
        The first row with a NaN or an infinity, or -1; on CUDA (n, P) int32, not 0 where part of a
        row has one.
    """
    if not isinstance(x, np.ndarray):
        return _cuda().head(x, norm, output, epsilon, logits, positions, mode)
    cpu, workspace = _cpu()
    row: int = cpu.head(
        x, norm, output.words, epsilon, logits, positions, workspace(x.size), mode.words
    )
    return row
