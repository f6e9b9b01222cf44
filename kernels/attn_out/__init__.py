"""Output of attention: a low-rank projection per group of heads, then one back to the width."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from kernels.mode import Mode


class AttnOut(NamedTuple):
    """Weights, packed: a = G matrices (O, H * D / G); b (C, G * O)."""

    a: Any
    b: Any


@cache
def _cpu() -> Any:
    from kernels.attn_out import cpu_kernel
    from kernels.cpu.workspace import workspace

    return cpu_kernel.attn_out, workspace


@cache
def _cuda() -> Any:
    from kernels.attn_out import triton_kernel

    return triton_kernel


def attn_out(
    o: np.ndarray, weights: AttnOut, y: np.ndarray, positions: np.ndarray, mode: Mode
) -> Any:
    """b @ concat over groups g of a_g @ o_g.

    Args:
        o: (n, H * D) float32. y: (n, C), room for the result. positions: (n,) int64.
    Returns:
        y, written; on CUDA instead (n, S, C), pieces of the result that are to be added in order.
    """
    if not isinstance(o, np.ndarray):
        return _cuda().attn_out(o, weights, positions, mode)
    kernel, workspace = _cpu()
    space = workspace(o.shape[0] * weights.b.inputs)
    kernel(o, weights.a.words, weights.b.words, y, positions, space, mode.words)
    return y
