"""The indexer of a ratio-4 layer: which compressed rows a query attends to.

Selection is by each row's own count of visible rows, never by the batch's. Source: DeepSeek-V4's
reference `inference/model.py` (Indexer); Hadamard rotation and FP4 as ds4 applies them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from kernels.mode import Mode


class Indexer(NamedTuple):
    """Weights: q_b (IH * ID, Q) and the head weights' projection (IH, C), packed."""

    q_b: Any
    proj: Any


@cache
def _cpu() -> Any:
    from kernels.cpu.workspace import workspace
    from kernels.indexer import cpu_kernel

    return cpu_kernel, workspace


@cache
def _cuda() -> Any:
    from kernels.indexer import triton_kernel

    return triton_kernel


def select_rows(
    x: np.ndarray,
    qr: np.ndarray,
    positions: np.ndarray,
    weights: Indexer,
    turns: np.ndarray,
    heads: int,
    ratio: int,
    k: int,
    rounded: bool,
    index_rows: np.ndarray,
    selected: np.ndarray,
    counts: np.ndarray,
    gaps: np.ndarray,
    mode: Mode,
) -> None:
    """Choose the top-k compressed rows of every row that sees more than k of them.

    Args:
        x: (n, C) normed sub-layer inputs. qr: (n, Q) normed low-rank activation.
        positions: (n,) int64; a row at p sees (p + 1) // ratio rows.
        turns: (positions, R) float32, cos and sin interleaved.
        rounded: round the queries to FP4.
        index_rows: (rows, ID) float32, as the indexer's compressor stores them.
        selected: (n, k) int32, written: ascending, on CUDA the best first; ties go to the lower
            index.
        counts: (n,) int32, written: k, or -1 for a row that attends to all it sees.
        gaps: (n,) float32, written: k-th minus (k+1)-th score, inf where there is no choice.
    """
    if not isinstance(x, np.ndarray):
        _cuda().select_rows(
            x, qr, positions, weights, turns, heads, ratio, k, rounded, index_rows, selected,
            counts, gaps, mode,
        )  # fmt: skip
        return
    cpu, workspace = _cpu()
    space = workspace(len(x) * heads * (index_rows.shape[1] + 1))
    cpu.indexer(
        x, qr, positions, weights.q_b.words, weights.proj.words, turns, heads, ratio, k, rounded,
        index_rows, selected, counts, gaps, space, mode.words,
    )  # fmt: skip
