"""Readable reference of `kernels.experts`."""

from __future__ import annotations

import torch
from torch import Tensor


def expert(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, clamp: float) -> Tensor:
    """One expert: (n, C) -> (n, C); clamped before the activation."""
    g = (x @ gate.T).clamp(max=clamp)
    u = (x @ up.T).clamp(-clamp, clamp)
    return (torch.nn.functional.silu(g) * u) @ down.T


def mix(
    x: Tensor, chosen: Tensor, weights: Tensor, gates: Tensor, ups: Tensor, downs: Tensor,
    clamp: float,
) -> Tensor:  # fmt: skip
    """Weighted sum of every row's chosen experts (n, K), by ascending expert."""
    y = torch.zeros_like(x)
    for r in range(x.shape[0]):
        for e, w in sorted(zip(chosen[r].tolist(), weights[r], strict=True), key=lambda p: p[0]):
            y[r] += w * expert(x[r], gates[e], ups[e], downs[e], clamp)
    return y
