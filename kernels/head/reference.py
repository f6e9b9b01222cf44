"""Readable reference of `kernels.head`."""

from __future__ import annotations

from torch import Tensor

from kernels.qkv.reference import rms_norm


def logits(x: Tensor, norm: Tensor, output: Tensor, eps: float) -> Tensor:
    """(n, C) collapsed streams -> (n, V)."""
    return rms_norm(x, norm, eps) @ output.T
