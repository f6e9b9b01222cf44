"""Scratch tensors of the Triton kernels: made once per name and shape, never freed.

A captured CUDA graph holds addresses, so what a kernel writes between two launches must stay where
it is. A name is used on one lane at a time, so calls that use it never overlap.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def scratch(device: Any, name: str, *shape: int, dtype: Any = None) -> Any:
    """A float32 tensor (or of `dtype`) of this shape, its contents left by the last user."""
    import torch

    return torch.empty(shape, dtype=dtype or torch.float32, device=device)


@cache
def split_space(device: Any, lane: int | str) -> Any:
    """Partial sums of the packed products on a device: those of one lane, or of the experts."""
    from kernels.packed import Workspace

    return Workspace(device)


@cache
def zero(device: Any) -> Any:
    """A (1,) int64 zero."""
    import torch

    return torch.zeros(1, dtype=torch.int64, device=device)
