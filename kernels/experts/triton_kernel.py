"""`kernels.experts` on CUDA: routed and shared experts by the packed products."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import numerics, perturb, row_parts
from kernels.cuda.workspace import scratch, split_space
from kernels.mode import Mode
from kernels.packed import experts as packed_experts


@triton.jit
def _add_kernel(y, other, size, COLUMNS: tl.constexpr):
    i = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(y + i, mask=i < size) + tl.load(other + i, mask=i < size)
    tl.store(y + i, x, mask=i < size)


def _run(
    x: Any, chosen: Any, weights: Any, routed: Any, shared: Any, clamp: float, y: Any, mode: Mode
) -> None:
    up, down = (None, None) if shared is None else (shared.gate_up, shared.down)
    space, name = split_space(x.device, "experts"), numerics(mode)
    parts = row_parts(x.shape[0], mode)
    for part in parts:
        # Several parts use the workspace one after the other.
        aside = lanes.aside(x, lanes.SHARED) if len(parts) == 1 else nullcontext()
        packed_experts(
            x[part], chosen[part], weights[part], routed.gate_up, routed.down, up, down, clamp,
            y[part], space, name, aside=aside, join=lanes.join,
        )  # fmt: skip


def mix_all(
    x: Any, chosen: Any, weights: Any, routed: Any, shared: Any, one: Any, full: Any, clamp: float,
    y: Any, positions: Any, mode: Mode, shared_mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.experts.mix_all`."""
    if mode == shared_mode and not mode.ulps:
        _run(x, chosen, weights, routed, shared, clamp, y, mode)
        return
    _run(x, chosen, weights, routed, None, clamp, y, mode)
    perturb(y, positions, mode)
    other = scratch(x.device, "shared expert", *y.shape)
    _run(x, one, full, shared, None, clamp, other, shared_mode)
    perturb(other, positions, shared_mode)
    _add_kernel[(triton.cdiv(y.numel(), 1024),)](y, other, y.numel(), COLUMNS=1024)
