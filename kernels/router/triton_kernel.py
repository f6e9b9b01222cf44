"""Triton kernel of `kernels.router`: one program a row scores, chooses and weighs."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import perturb, product
from kernels.cuda.rows import float_of_rank, float_ranks
from kernels.cuda.workspace import scratch
from kernels.mode import Mode
from kernels.packed.early import early, inputs_ready

WEIGHT_FLOOR = tl.constexpr(6.1035e-5)
"""Smallest sum of chosen scores that weights are divided by; ds4's value (2^-14)."""


@triton.jit
def _softplus(z):
    """log(1 + e^z), to a few units in the last place."""
    small = tl.exp(-tl.abs(z))
    one = 1.0 + small
    off = one - 1.0  # what of `small` is left in it
    exact = tl.log(one) * (small / tl.where(off > 0, off, 1.0))
    return tl.maximum(z, 0.0) + tl.where(off > 0, exact, small)


@triton.jit
def _keys(x, e, WIDE: tl.constexpr):
    """int64 in the order of floats x, equal ones in descending order of e below WIDE."""
    return (float_ranks(x).to(tl.int64) << 32) + (WIDE - 1 - e)


@triton.jit
def _value(key):
    """The float of one of `_keys`."""
    return float_of_rank((key >> 32).to(tl.int32))


@triton.jit
def _route_kernel(
    logits, bias, table, ids, forced, scaling, experts, weights, gaps, count,
    BIASED: tl.constexpr, HASHED: tl.constexpr, K: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    inputs_ready()
    row = tl.program_id(0)
    e = tl.arange(0, WIDE)
    inside = e < count
    z = tl.load(logits + row * count + e, mask=inside, other=0.0)
    pinned = tl.load(forced + row * K) >= 0
    if BIASED:
        extra = tl.load(bias + e, mask=inside, other=0.0)
    score = tl.sqrt(_softplus(z))
    biased = score
    if BIASED:
        biased = score + extra
    times = tl.zeros([WIDE], tl.int32)
    gap = float("inf")
    if pinned:
        for j in tl.static_range(K):
            times += (e == tl.load(forced + row * K + j)).to(tl.int32)
    else:
        if HASHED:
            token = tl.load(ids + row)
            for j in tl.static_range(K):
                times += (e == tl.load(table + token * K + j)).to(tl.int32)
        else:
            nothing = _keys(tl.full([WIDE], float("-inf"), tl.float32), e, WIDE)
            left = tl.where(inside, _keys(biased, e, WIDE), nothing)
            best = tl.max(left, 0)
            for _ in tl.static_range(K):
                worst = best
                times += (left == best).to(tl.int32)
                left = tl.where(left == best, nothing, left)
                best = tl.max(left, 0)
            gap = _value(worst) - _value(best)
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
    lanes.ready(x)
    product(x, weights.gate, logits, mode)
    perturb(logits, positions, mode)
    _route_kernel[(rows,)](
        logits, weights.bias, weights.table, ids, forced, scaling, experts, expert_weights, gaps,
        count, BIASED=weights.bias.numel() > 0, HASHED=weights.table.numel() > 0,
        K=experts.shape[1], WIDE=triton.next_power_of_2(count), num_warps=1,
        **early(x.device),
    )  # fmt: skip
