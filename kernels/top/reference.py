"""Readable reference of `kernels.top`."""

from __future__ import annotations

import torch
from torch import Tensor


def best_of(logits: Tensor, excluded: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """(n, V) logits, (n, X) excluded ids (-1 = none) -> ids and values (n, k), ties by id."""
    left = logits.clone()
    for row, ids in zip(left, excluded, strict=True):
        row[ids[ids >= 0]] = float("-inf")
    order = torch.sort(left, dim=1, descending=True, stable=True)
    return order.indices[:, :k], order.values[:, :k]
