"""Readable reference of `kernels.indexer`, for one row."""

from __future__ import annotations

import torch
from torch import Tensor


def index_scores(q: Tensor, head_weights: Tensor, index_rows: Tensor) -> Tensor:
    """Queries (H, D), head weights (H,), visible rows (K, D) -> scores (K,)."""
    heads, width = q.shape
    scores = torch.relu(q @ index_rows.T)
    return (head_weights[:, None] * scores).sum(0) / (heads * width) ** 0.5


def select(scores: Tensor, k: int) -> Tensor:
    """Indices of the k best scores, ascending; ties go to the lower index."""
    order = torch.sort(scores, descending=True, stable=True).indices
    return order[:k].sort().values
