"""The compressor: every `ratio` tokens become one key-value row.

Each token leaves its projections in two rings (the frontier); the token that completes a window
pools them. With ratio 4 the windows overlap: rows hold two halves, and the window before enters by
its first half. Source: DeepSeek-V4's reference `inference/model.py` (Compressor).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from kernels.mode import Mode

Finish = Literal["plain", "fp8", "hadamard", "hadamard+fp4"]
"""What is done to a row before it is stored; FP8 leaves the rotated part as it is."""


class Compressor(NamedTuple):
    """Weights: kv, gate (c * D, C) packed; ape (ratio, c * D), norm (D,) float32; c is 1 or 2."""

    kv: Any
    gate: Any
    ape: np.ndarray
    norm: np.ndarray


@cache
def _cpu() -> Any:
    from kernels.compressor import cpu_kernel as cpu
    from kernels.cpu.workspace import workspace

    kinds = {
        "plain": cpu.PLAIN,
        "fp8": cpu.FP8,
        "hadamard": cpu.HADAMARD,
        "hadamard+fp4": cpu.HADAMARD_FP4,
    }
    return cpu, workspace, kinds


@cache
def _cuda() -> Any:
    from kernels.compressor import triton_kernel

    return triton_kernel


def compress_layer(
    x: np.ndarray,
    positions: np.ndarray,
    own: Compressor,
    index: Compressor | None,
    turns: np.ndarray,
    epsilon: float,
    ratio: int,
    rounded: bool,
    state: Any,
    mode: Mode,
) -> None:
    """`compress` by a layer's own compressor and, where there is one, by its indexer's.

    Args:
        rounded: round the layer's rows to FP8 and the indexer's, after their rotation, to FP4.
        state: holds `frontier_kv`, `frontier_score` and `comp`, and the indexer's
            `index_frontier_kv`, `index_frontier_score` and `index`.
    """
    if not isinstance(x, np.ndarray):
        _cuda().compress_layer(
            x, positions, own, index, turns, epsilon, ratio, rounded, state, mode
        )
        return
    finish: Finish = "fp8" if rounded else "plain"
    compress(
        x, positions, own, turns, epsilon, ratio, finish, state.frontier_kv, state.frontier_score,
        state.comp, mode,
    )  # fmt: skip
    if index is not None:
        finish = "hadamard+fp4" if rounded else "hadamard"
        compress(
            x, positions, index, turns, epsilon, ratio, finish, state.index_frontier_kv,
            state.index_frontier_score, state.index, mode,
        )  # fmt: skip


def compress(
    x: np.ndarray,
    positions: np.ndarray,
    weights: Compressor,
    turns: np.ndarray,
    epsilon: float,
    ratio: int,
    finish: Finish,
    frontier_kv: np.ndarray,
    frontier_score: np.ndarray,
    compressed: np.ndarray,
    mode: Mode,
) -> None:
    """Store the rows' projections and write the compressed rows that they complete.

    Args:
        x: (n, C) float32, normed sub-layer inputs.
        positions: (n,) int64, consecutive.
        turns: (positions, R) float32, cos and sin interleaved.
        frontier_kv, frontier_score: (S, c * D) rings, slot = position % S, S >= c * ratio + n - 1.
        compressed: (rows, D); row position // ratio is written by a window's last token.
    """
    cpu, workspace, kinds = _cpu()
    space = workspace(2 * x.shape[0] * frontier_kv.shape[1])
    cpu.compressor(
        x, positions, weights.kv.words, weights.gate.words, weights.ape, weights.norm, turns,
        epsilon, ratio, kinds[finish], frontier_kv, frontier_score, compressed, space, mode.words,
    )  # fmt: skip
