"""Readable reference of `kernels.markov`."""

from __future__ import annotations

import torch
from torch import Tensor


def markov_scores(table: Tensor, previous: int, output: Tensor, logits: Tensor) -> Tensor:
    """logits (V,) + output (V, r) @ table[previous] (r,)."""
    return logits + output @ table[previous]


def confidence(hidden: Tensor, table: Tensor, previous: int, weights: Tensor, bias: float) -> float:
    """sigmoid(weights (D + r,) . [hidden (D,) ; table[previous]] + bias)."""
    return float(torch.sigmoid(weights @ torch.cat([hidden, table[previous]]) + bias))
