"""Readable reference of `kernels.attn_out`."""

from __future__ import annotations

import torch
from torch import Tensor


def project(o: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """(n, H * D) heads, a (G, O, H * D / G), b (C, G * O) -> (n, C)."""
    grouped = o.unflatten(-1, (a.shape[0], -1))
    return torch.einsum("ngi,goi->ngo", grouped, a).flatten(1) @ b.T
