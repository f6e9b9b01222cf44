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
from kernels.packed import experts_pieces


@triton.jit
def _sum_kernel(pieces, y, y_row, width, PIECES: tl.constexpr, COLUMNS: tl.constexpr):
    """y = a row's pieces, added in order."""
    row = tl.program_id(1)
    i = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], tl.float32)
    for piece in tl.static_range(PIECES):
        total += tl.load(pieces + (row * PIECES + piece) * width + i, mask=i < width, other=0.0)
    tl.store(y + row * y_row + i, total, mask=i < width)


def _run(
    x: Any, chosen: Any, weights: Any, routed: Any, shared: Any, clamp: float, mode: Mode
) -> Any:
    up, down = (None, None) if shared is None else (shared.gate_up, shared.down)
    space, name = split_space(x.device, "experts"), numerics(mode)
    pieces = experts_pieces(chosen.shape[1], shared is not None, name)
    y = scratch(x.device, "experts output", x.shape[0], pieces, x.shape[1])
    parts = row_parts(x.shape[0], mode)
    for part in parts:
        # Several parts use the workspace one after the other.
        aside = lanes.aside(x, lanes.SHARED) if len(parts) == 1 else nullcontext()
        packed_experts(
            x[part], chosen[part], weights[part], routed.gate_up, routed.down, up, down, clamp,
            y[part], space, name, aside=aside, join=lanes.join,
        )  # fmt: skip
    return y


def mix_all(
    x: Any, chosen: Any, weights: Any, routed: Any, shared: Any, one: Any, full: Any, clamp: float,
    positions: Any, mode: Mode, shared_mode: Mode,
) -> Any:  # fmt: skip
    """As `kernels.experts.mix_all`."""
    if mode == shared_mode and not mode.ulps:
        return _run(x, chosen, weights, routed, shared, clamp, mode)
    rows, width = x.shape
    both = scratch(x.device, "routed and shared", rows, 2, width)
    of_routed, of_shared = (chosen, weights, routed, mode), (one, full, shared, shared_mode)
    for y, (some, factors, own, numbers) in zip(
        both.unbind(1), (of_routed, of_shared), strict=True
    ):
        found = _run(x, some, factors, own, None, clamp, numbers)
        _sum_kernel[(triton.cdiv(width, 1024), rows)](
            found, y, y.stride(0), width, PIECES=found.shape[1], COLUMNS=1024
        )
        perturb(y, positions, numbers)
    return both
