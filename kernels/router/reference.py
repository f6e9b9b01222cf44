"""Readable reference of `kernels.router`."""

from __future__ import annotations

import torch
from torch import Tensor


def route(
    x: Tensor, gate: Tensor, bias: Tensor, k: int, scaling: float, chosen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(n, C) -> experts (n, k), ascending, and their weights; `chosen` (n, k) overrides top-k."""
    scores = torch.log1p(torch.exp((x @ gate.T).double())).sqrt().float()
    if chosen is None:
        order = torch.sort(scores + bias, dim=-1, descending=True, stable=True).indices
        chosen = order[:, :k]
    chosen = chosen.sort(-1).values
    weights = scores.gather(-1, chosen)
    total = weights.sum(-1, keepdim=True).clamp_min(6.1035e-5)
    return chosen, scaling * weights / total
