"""Triton kernel of `kernels.router`: one program a row scores, chooses and weighs."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import product_pieces
from kernels.cuda.rows import float_of_rank, float_ranks
from kernels.mode import Mode
from kernels.packed.early import early, inputs_ready

WEIGHT_FLOOR = tl.constexpr(6.1035e-5)
"""Smallest sum of chosen scores that weights are divided by; ds4's value (2^-14)."""

LEAST = tl.constexpr(-2139095041)
"""The rank of minus infinity: what is chosen already."""


@triton.jit
def _softplus(z):
    """log(1 + e^z), to a few units in the last place."""
    small = tl.exp(-tl.abs(z))
    one = 1.0 + small
    off = one - 1.0  # what of `small` is left in it
    exact = tl.log(one) * (small / tl.where(off > 0, off, 1.0))
    return tl.maximum(z, 0.0) + tl.where(off > 0, exact, small)


@triton.jit
def _best(ranks, e, WIDE: tl.constexpr):
    """The highest of some ranks and the first index that has it; integers, which warps reduce."""
    highest = tl.max(ranks, 0)
    return highest, tl.min(tl.where(ranks == highest, e, WIDE), 0)


@triton.jit
def _route_kernel(
    logits, bias, table, ids, forced, scaling, experts, weights, gaps, count,
    PIECES: tl.constexpr, BIASED: tl.constexpr, HASHED: tl.constexpr, K: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """One row's choice; the kernel before wrote the logits, in pieces to be added in order."""
    row = tl.program_id(0)
    e = tl.arange(0, WIDE)
    inside = e < count
    pinned = tl.load(forced + row * K) >= 0
    if BIASED:
        extra = tl.load(bias + e, mask=inside, other=0.0)
    inputs_ready()
    z = tl.load(logits + row * PIECES * count + e, mask=inside, other=0.0)
    for piece in tl.static_range(1, PIECES):
        z += tl.load(logits + (row * PIECES + piece) * count + e, mask=inside, other=0.0)
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
            left = tl.where(inside, float_ranks(biased), LEAST)
            best, index = _best(left, e, WIDE)
            for _ in tl.static_range(K):
                worst = best
                times += (e == index).to(tl.int32)
                left = tl.where(e == index, LEAST, left)
                best, index = _best(left, e, WIDE)
            gap = float_of_rank(worst) - float_of_rank(best)
    tl.store(gaps + row, gap)
    # Slots in order of expert; an expert named twice takes two.
    first = tl.cumsum(times, 0) - times
    total = tl.maximum(tl.sum(times.to(tl.float32) * score, 0), WEIGHT_FLOOR)
    weight = scaling * score / total
    place = row * K + first
    tl.store(experts + place, e, mask=times > 0)
    tl.store(weights + place, weight, mask=times > 0)
    if HASHED or pinned:
        for j in tl.static_range(1, K):
            tl.store(experts + place + j, e, mask=times > j)
            tl.store(weights + place + j, weight, mask=times > j)


def route(
    x: Any, ids: Any, weights: Any, forced: Any, scaling: float, experts: Any, expert_weights: Any,
    gaps: Any, positions: Any, mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.router.route`."""
    rows, count = x.shape[0], weights.gate.outputs
    lanes.ready(x)
    logits = product_pieces(x, weights.gate, "router", positions, mode)
    _route_kernel[(rows,)](
        logits, weights.bias, weights.table, ids, forced, scaling, experts, expert_weights, gaps,
        count, PIECES=logits.shape[1], BIASED=weights.bias.numel() > 0,
        HASHED=weights.table.numel() > 0, K=experts.shape[1],
        WIDE=triton.next_power_of_2(count), num_warps=1, **early(x.device),
    )  # fmt: skip
