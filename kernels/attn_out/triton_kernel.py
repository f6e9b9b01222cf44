"""`kernels.attn_out` on CUDA: two packed products."""

from __future__ import annotations

from typing import Any

from kernels.cuda.products import product, product_pieces
from kernels.cuda.workspace import scratch
from kernels.mode import Mode


def attn_out(o: Any, weights: Any, positions: Any, mode: Mode) -> Any:
    """As `kernels.attn_out.attn_out`; `a` stacks the groups' matrices."""
    low = scratch(o.device, "attention low rank", o.shape[0], weights.b.inputs)
    product(o, weights.a, low, mode)
    return product_pieces(low, weights.b, "attention output", positions, mode, soon=True)
