"""Triton kernel of `kernels.router`: one program a row scores, chooses and weighs."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda.products import perturb, product
from kernels.cuda.workspace import scratch
from kernels.mode import Mode

WEIGHT_FLOOR = tl.constexpr(6.1035e-5)
"""Smallest sum of chosen scores that weights are divided by; ds4's value (2^-14)."""


@triton.jit
def _route_kernel(
    logits, bias, table, ids, forced, scaling, experts, weights, gaps, count,
    BIASED: tl.constexpr, HASHED: tl.constexpr, K: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    e = tl.arange(0, WIDE)
    inside = e < count
    z = tl.load(logits + row * count + e, mask=inside, other=0.0).to(tl.float64)
    softplus = tl.where(z > 20.0, z, tl.log(1.0 + tl.exp(tl.minimum(z, 20.0))))
    score = tl.sqrt(softplus).to(tl.float32)
    biased = score
    if BIASED:
        biased = score + tl.load(bias + e, mask=inside, other=0.0)
    times = tl.zeros([WIDE], tl.int32)
    gap = float("inf")
    pinned = tl.load(forced + row * K) >= 0
    if pinned:
        for j in tl.static_range(K):
            times += (e == tl.load(forced + row * K + j)).to(tl.int32)
    else:
        if HASHED:
            token = tl.load(ids + row)
            for j in tl.static_range(K):
                times += (e == tl.load(table + token * K + j)).to(tl.int32)
        else:
            left = tl.where(inside, biased, float("-inf"))
            worst = float("inf")
            for _ in tl.static_range(K):
                worst = tl.max(left, 0)
                best = tl.min(tl.where(left == worst, e, WIDE), 0)
                times += (e == best).to(tl.int32)
                left = tl.where(e == best, float("-inf"), left)
            gap = worst - tl.max(left, 0)
    tl.store(gaps + row, gap)
    # Slots in order of expert; an expert named twice takes two.
    first = tl.cumsum(times, 0) - times
    total = tl.maximum(tl.sum(times.to(tl.float32) * score, 0), WEIGHT_FLOOR)
    weight = scaling * score / total
    for j in tl.static_range(K):
        place = row * K + first + j
        tl.store(experts + place, e, mask=times > j)
        tl.store(weights + place, weight, mask=times > j)


def route(
    x: Any, ids: Any, weights: Any, forced: Any, scaling: float, experts: Any, expert_weights: Any,
    gaps: Any, positions: Any, mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.router.route`."""
    rows, count = x.shape[0], weights.gate.outputs
    logits = scratch(x.device, "router", rows, count)
    product(x, weights.gate, logits, mode)
    perturb(logits, positions, mode)
    _route_kernel[(rows,)](
        logits, weights.bias, weights.table, ids, forced, scaling, experts, expert_weights, gaps,
        count, BIASED=weights.bias.numel() > 0, HASHED=weights.table.numel() > 0,
        K=experts.shape[1], WIDE=triton.next_power_of_2(count), num_warps=1,
    )  # fmt: skip
