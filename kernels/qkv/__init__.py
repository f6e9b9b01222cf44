"""Queries and the shared key-value row of an attention layer, rotated and stored.

Source: DeepSeek-V4's reference `inference/model.py`; roundings as ds4 stores rows: FP8 on the part
that is not rotated, then the whole row to F16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from kernels.mode import EXACT, Mode

Rounding = Literal["none", "fp8", "fp8+f16"]
"""What is done to a row before it is stored; FP8 leaves the rotated part as it is."""


class Qkv(NamedTuple):
    """Weights: q_a (Q, C), q_b (H * D, Q), kv (D, C) packed; norms (Q,) and (D,) float32."""

    q_a: Any
    q_norm: np.ndarray
    q_b: Any
    kv: Any
    kv_norm: np.ndarray


@cache
def _cpu() -> Any:
    from kernels.cpu.workspace import workspace
    from kernels.qkv import cpu_kernel

    kinds = {"none": cpu_kernel.NONE, "fp8": cpu_kernel.FP8, "fp8+f16": cpu_kernel.FP8_HALF}
    return cpu_kernel, workspace, kinds


@cache
def _cuda() -> Any:
    from kernels.qkv import triton_kernel

    return triton_kernel


def qkv(
    x: np.ndarray,
    positions: np.ndarray,
    weights: Qkv,
    turns: np.ndarray,
    epsilon: float,
    heads: int,
    rounding: Rounding,
    qr: np.ndarray,
    q: np.ndarray,
    ring: np.ndarray,
    origin: Any,
    mode: Mode,
    beside: Callable[[], None] = lambda: None,
) -> None:
    """Project rows to queries and to the key-value row, and store the latter.

    Args:
        x: (n, C) float32, normed sub-layer inputs.
        positions: (n,) int64.
        turns: (positions, R) float32: cos and sin of every pair, interleaved.
        rounding: of the stored row.
        qr: (n, Q), written: the normed low-rank activation.
        q: (n, H * D), written: queries, normed per head and rotated; on CUDA as they are projected,
            since `kernels.attention.attention` norms and rotates them there.
        ring: (S, D); row (position - origin) % S is written. origin: an int; a (1,) int64 tensor
            on CUDA.
        beside: called when qr is there: on CUDA before the product that makes q of it, so that what
            takes longer than that begins first.
    """
    if not isinstance(x, np.ndarray):
        _cuda().qkv(
            x, positions, weights, turns, epsilon, heads, rounding, qr, q, ring, origin, mode,
            beside,
        )  # fmt: skip
        return
    cpu, workspace, kinds = _cpu()
    cpu.qkv(
        x, positions, weights.q_a.words, weights.q_norm, weights.q_b.words, weights.kv.words,
        weights.kv_norm, turns, epsilon, heads, kinds[rounding], qr, q, ring, origin,
        workspace(x.shape[0] * weights.kv_norm.size), mode.words,
    )  # fmt: skip
    beside()


def kv_rows(
    x: np.ndarray,
    positions: np.ndarray,
    weights: Qkv,
    turns: np.ndarray,
    epsilon: float,
    rounding: Rounding,
    ring: np.ndarray,
    mode: Mode = EXACT,
) -> None:
    """Only the key-value rows, at positions % S: the drafter's context enters through them."""
    if not isinstance(x, np.ndarray):
        _cuda().kv_rows(x, positions, weights, turns, epsilon, rounding, ring)
        return
    cpu, workspace, kinds = _cpu()
    cpu.kv_rows(
        x, positions, weights.kv.words, weights.kv_norm, turns, epsilon, kinds[rounding], ring,
        workspace(x.shape[0] * weights.kv_norm.size), mode.words,
    )  # fmt: skip
