"""Readable reference of `kernels.top`."""

from __future__ import annotations

import torch
from torch import Tensor


def best_of(
    logits: Tensor, excluded: Tensor, k: int, tokens: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(n, V) logits, (n, X) excluded ids (-1 = none) -> ids and values (n, k), ties by id.

    A NaN counts as infinity. With (V,) tokens these stand in place of the ids.
    """
    left = logits.nan_to_num(float("inf"), posinf=float("inf"), neginf=float("-inf"))
    for row, ids in zip(left, excluded, strict=True):
        row[ids[ids >= 0]] = float("-inf")
    order = torch.sort(left, dim=1, descending=True, stable=True)
    ids = order.indices[:, :k]
    return ids if tokens is None else tokens[ids], order.values[:, :k]
