"""Attention of many query heads over one shared key-value row per position.

Keys of a row: a run of positions in a ring, then rows of a second array, all of them or a selected
few. Source: DeepSeek-V4's reference `inference/model.py`; sinks enter the denominator only.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from kernels.mode import Mode


@cache
def _cpu() -> Any:
    from kernels.attention import cpu_kernel

    return cpu_kernel


@cache
def _cuda() -> Any:
    from kernels.attention import triton_kernel

    return triton_kernel


def key_spans(positions: np.ndarray, window: int, ratio: int, spans: np.ndarray) -> None:
    """Visible keys of target rows: [first ring position, end, rows of the second array].

    Args:
        positions: (n,) int64.
        window: ring rows visible to a row, itself included.
        ratio: tokens per compressed row; 0 = there are none.
        spans: (n, 3) int64, written.
    """
    if not isinstance(positions, np.ndarray):
        _cuda().key_spans(positions, window, ratio, spans)
        return
    _cpu().key_spans(positions, window, ratio, spans)


def attention(
    q: np.ndarray,
    ring: np.ndarray,
    extra: np.ndarray,
    spans: np.ndarray,
    selected: np.ndarray,
    counts: np.ndarray,
    sinks: np.ndarray,
    positions: np.ndarray,
    turns: np.ndarray,
    epsilon: float,
    out: np.ndarray,
    mode: Mode,
    reach: tuple[int, int] = (0, 0),
    ratio: int = 0,
) -> None:
    """Attend and rotate the result back.

    Args:
        q: (n, H * D) float32, queries as `kernels.qkv.qkv` left them.
        ring: (S, D) float32, position p in row p % S.
        extra: (rows, D) float32, the second array of keys.
        spans: (n, 3) int64, as `key_spans` writes them; at least one key a row.
        selected, counts: (n, k) int32 rows of `extra` to use, in order, and (n,) int32 how many;
            count -1 = the first spans[r, 2] rows.
        sinks: (H,) float32.
        positions: (n,) int64. turns: (positions, R) float32, cos and sin interleaved.
        epsilon: of the queries' norm.
        out: (n, H * D), written.
        reach: most ring rows and most rows of `extra` that a row can see; read on CUDA only, where
            it sizes the launch.
        ratio: tokens per row of `extra` where none are selected, else 0: rows that tokens before
            positions[0] completed are read on CUDA while the kernel that writes q still runs.
    """
    if not isinstance(q, np.ndarray):
        _cuda().attention(
            q, ring, extra, spans, selected, counts, sinks, positions, turns, epsilon, out, reach,
            ratio, mode,
        )  # fmt: skip
        return
    _cpu().attention(
        q, ring, extra, spans, selected, counts, sinks, positions, turns, sinks.size, out,
        mode.words,
    )  # fmt: skip
