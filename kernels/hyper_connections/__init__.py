"""Hyper-connections: four residual streams, collapsed before a sub-layer and mixed after it.

Source: DeepSeek-V4 (mHC); formulas in `reference.py`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from kernels.mode import Mode


class HyperConnection(NamedTuple):
    """Weights of one mixer: `fn` packed (24 or 4 outputs, 4 C inputs), base, scale float32."""

    fn: Any
    base: np.ndarray
    scale: np.ndarray


@cache
def _cpu() -> Any:
    from kernels.cpu.workspace import workspace
    from kernels.hyper_connections import cpu_kernel

    return cpu_kernel, workspace


@cache
def _cuda() -> Any:
    from kernels.hyper_connections import triton_kernel

    return triton_kernel


def hc_pre(
    streams: np.ndarray,
    weights: HyperConnection,
    norm: np.ndarray,
    epsilon: float,
    hc_epsilon: float,
    rounds: int,
    x: np.ndarray,
    post: np.ndarray,
    comb: np.ndarray,
    positions: np.ndarray,
    mode: Mode,
) -> None:
    """Collapse the streams into a sub-layer's normed input.

    Args:
        streams: (n, 4 * C) float32.
        weights: mixer of 24 outputs.
        norm: (C,) weight of the sub-layer's own RMSNorm.
        rounds: Sinkhorn iterations, >= 1.
        x: (n, C), written.
        post, comb: (n, 4), (n, 16) [source, destination], written: what `hc_post` multiplies by. On
            CUDA the mixer's outputs that it makes this from.
        positions: (n,) int64.
    """
    if not isinstance(streams, np.ndarray):
        _cuda().hc_pre(
            streams, weights, norm, epsilon, hc_epsilon, rounds, x, post, comb, positions, mode
        )
        return
    cpu, workspace = _cpu()
    n, width = streams.shape
    space = workspace(n * (width + 32))
    cpu.hc_pre(
        streams, weights.fn.words, weights.base, weights.scale, norm, epsilon, hc_epsilon, rounds,
        x, post, comb, positions, space, mode.words,
    )  # fmt: skip


def hc_turn(
    y: np.ndarray,
    streams: np.ndarray,
    weights: HyperConnection,
    norm: np.ndarray,
    epsilon: float,
    hc_epsilon: float,
    rounds: int,
    x: np.ndarray,
    post: np.ndarray,
    comb: np.ndarray,
    positions: np.ndarray,
    mode: Mode,
) -> None:
    """`hc_post` of one sub-layer's output y, then `hc_pre` of the next sub-layer.

    Args:
        y: as `hc_post`'s.
        post, comb: of the sub-layer that gave y, then overwritten by the next one's.
    """
    if not isinstance(streams, np.ndarray):
        _cuda().hc_pre(
            streams, weights, norm, epsilon, hc_epsilon, rounds, x, post, comb, positions, mode, y
        )
        return
    hc_post(y, post, comb, hc_epsilon, rounds, streams)
    hc_pre(streams, weights, norm, epsilon, hc_epsilon, rounds, x, post, comb, positions, mode)


def hc_post(
    y: np.ndarray,
    post: np.ndarray,
    comb: np.ndarray,
    hc_epsilon: float,
    rounds: int,
    streams: np.ndarray,
) -> None:
    """streams[j] = post[j] * y + sum over i of comb[i, j] * streams[i], in place.

    Args:
        y: (n, C) float32; on CUDA also (n, S, C), pieces to be added in order.
        post, comb: as `hc_pre` left them. streams: (n, 4 * C), changed.
        hc_epsilon, rounds: those of `hc_pre`.
    """
    if not isinstance(streams, np.ndarray):
        _cuda().hc_post(y, post, comb, hc_epsilon, rounds, streams)
        return
    _cpu()[0].hc_post(y, post, comb, streams)


def hc_head(
    streams: np.ndarray,
    weights: HyperConnection,
    epsilon: float,
    hc_epsilon: float,
    x: np.ndarray,
    positions: np.ndarray,
    mode: Mode,
) -> None:
    """Collapse the streams (n, 4 * C) into the head's input x (n, C), before its norm."""
    if not isinstance(streams, np.ndarray):
        _cuda().hc_head(streams, weights, epsilon, hc_epsilon, x, positions, mode)
        return
    cpu, workspace = _cpu()
    n, width = streams.shape
    space = workspace(n * (width + 32))
    cpu.hc_head(
        streams, weights.fn.words, weights.base, weights.scale, epsilon, hc_epsilon, x, positions,
        space, mode.words,
    )  # fmt: skip


def stream_mean(streams: np.ndarray, out: np.ndarray, column: int) -> None:
    """out[:, column : column + C] = mean of the four streams (n, 4 * C)."""
    if not isinstance(streams, np.ndarray):
        _cuda().stream_mean(streams, out, column)
        return
    _cpu()[0].stream_mean(streams, out, column)
