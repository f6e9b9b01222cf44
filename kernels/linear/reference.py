"""Readable reference of `kernels.linear`."""

from __future__ import annotations

from torch import Tensor


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """(n, I) @ (O, I)^T -> (n, O)."""
    return x @ weight.T
