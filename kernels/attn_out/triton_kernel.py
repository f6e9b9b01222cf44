"""`kernels.attn_out` on CUDA: two packed products."""

from __future__ import annotations

from typing import Any

from kernels.cuda.products import perturb, product
from kernels.cuda.workspace import scratch
from kernels.mode import Mode


def attn_out(o: Any, weights: Any, y: Any, positions: Any, mode: Mode) -> None:
    """As `kernels.attn_out.attn_out`; `a` stacks the groups' matrices."""
    low = scratch(o.device, "attention low rank", o.shape[0], weights.b.inputs)
    product(o, weights.a, low, mode)
    product(low, weights.b, y, mode)
    perturb(y, positions, mode)
