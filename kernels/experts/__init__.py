"""Experts of a mixture: clamped SwiGLU networks, weighted and added up.

The routed experts and the shared one are the same op; a row's sum runs by ascending expert. Source:
DeepSeek-V4's reference `inference/model.py` (Expert, MoE).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from kernels.mode import Mode


class Experts(NamedTuple):
    """Weights, packed, one matrix per expert: gate over up (2 F, C); down (C, F)."""

    gate_up: Any
    down: Any


@cache
def _cpu() -> Any:
    from kernels.cpu.matrix import PREPARED_FLOATS
    from kernels.cpu.workspace import workspace
    from kernels.experts import cpu_kernel

    return cpu_kernel.experts, workspace, PREPARED_FLOATS


@cache
def _cuda() -> Any:
    from kernels.experts import triton_kernel

    return triton_kernel


def mix_all(
    x: np.ndarray,
    chosen: np.ndarray,
    weights: np.ndarray,
    routed: Experts,
    shared: Experts,
    one: np.ndarray,
    full: np.ndarray,
    clamp: float,
    y: np.ndarray,
    positions: np.ndarray,
    mode: Mode,
    shared_mode: Mode,
) -> Any:
    """The routed experts' sum, then the shared expert added, each in its own numerics.

    Args:
        chosen, weights: (n, K) of the routed experts.
        one, full: (n, 1) zeros (int32) and ones (float32): the shared expert's choice.
        y: (n, C), room for the result.
    Returns:
        y, written; on CUDA instead (n, S, C), pieces of the result that are to be added in order.
    """
    if not isinstance(x, np.ndarray):
        return _cuda().mix_all(
            x, chosen, weights, routed, shared, one, full, clamp, positions, mode, shared_mode
        )
    mix_experts(x, chosen, weights, routed, clamp, y, False, positions, mode)
    mix_experts(x, one, full, shared, clamp, y, True, positions, shared_mode)
    return y


def mix_experts(
    x: np.ndarray,
    chosen: np.ndarray,
    weights: np.ndarray,
    experts: Experts,
    clamp: float,
    y: np.ndarray,
    add: bool,
    positions: np.ndarray,
    mode: Mode,
) -> None:
    """y = sum over j of weights[r, j] * expert_chosen[r, j](x[r]), or added to y if `add`.

    Args:
        x: (n, C) float32, normed inputs.
        chosen: (n, K) int32. weights: (n, K) float32; multiplied in before the down projection.
        clamp: limit of gate (above) and up (both sides); inf = none.
        y: (n, C), written.
    """
    kernel, workspace, prepared = _cpu()
    n, width = x.shape
    hidden, one = experts.down.inputs, prepared + 1
    space = workspace(n * one * width + chosen.size * (one * (width + hidden) + hidden))
    kernel(
        x, chosen, weights, experts.gate_up.words, experts.down.words, clamp, y, add, positions,
        space, mode.words,
    )  # fmt: skip
