"""The router: which experts a token uses, and with which weights.

Score = sqrt(softplus(logit)); the bias takes part in the choice only. Source: DeepSeek-V4's
reference `inference/model.py` (Gate); the floor under the sum of weights is ds4's.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from kernels.mode import Mode


class Router(NamedTuple):
    """Weights: gate (E, C) packed; bias (E,) float32; table (V, K) int32, empty unless hashed."""

    gate: Any
    bias: np.ndarray
    table: np.ndarray


@cache
def _cpu() -> Any:
    from kernels.cpu.workspace import workspace
    from kernels.router import cpu_kernel

    return cpu_kernel.router, workspace


@cache
def _cuda() -> Any:
    from kernels.router import triton_kernel

    return triton_kernel


def route(
    x: np.ndarray,
    ids: np.ndarray,
    weights: Router,
    forced: np.ndarray,
    scaling: float,
    experts: np.ndarray,
    expert_weights: np.ndarray,
    gaps: np.ndarray,
    positions: np.ndarray,
    mode: Mode,
) -> None:
    """Choose K experts per row.

    Args:
        x: (n, C) float32, normed inputs. ids: (n,) int64 token ids (the table's rows).
        forced: (n, K) int32, experts to use instead; -1 in a row's first place = choose.
        scaling: factor on the normalised weights.
        experts: (n, K) int32, written, ascending; ties of top-k go to the lower index.
        expert_weights: (n, K) float32, written.
        gaps: (n,) float32, written: K-th minus (K+1)-th biased score, inf where nothing is chosen.
    """
    if not isinstance(x, np.ndarray):
        _cuda().route(
            x, ids, weights, forced, scaling, experts, expert_weights, gaps, positions, mode
        )
        return
    kernel, workspace = _cpu()
    space = workspace(x.shape[0] * weights.gate.outputs)
    kernel(
        x, weights.gate.words, weights.bias, weights.table, ids, forced, scaling, experts,
        expert_weights, gaps, positions, space, mode.words,
    )  # fmt: skip
