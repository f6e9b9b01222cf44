"""Triton kernels of `kernels.indexer`: queries, scores of the visible rows, and the top-k."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import numerics, perturb, product
from kernels.cuda.rows import (
    FP4_BLOCK,
    float_of_rank,
    float_ranks,
    fp4_tile,
    hadamard_tile,
    rotate_pairs,
)
from kernels.cuda.workspace import scratch
from kernels.mode import Mode

QUERY_HEADS, KEYS = 8, 64
FEW, MANY = 4096, 8192
"""Scores that one program holds at a time, by how many there are."""
NOTHING = tl.constexpr(-2147483648)
"""A rank below all floats."""


@triton.jit
def _query_kernel(
    q, positions, turns, size, heads, ROUNDED: tl.constexpr, HEADS: tl.constexpr,
    WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Queries of a few heads, in place: rotated, transformed, rounded."""
    row = tl.program_id(1)
    h = tl.program_id(0) * HEADS + tl.arange(0, HEADS)
    position = tl.load(positions + row)
    at = q + (row * heads + h)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = (h < heads)[:, None] & (tl.arange(0, WIDTH) >= 0)[None, :]
    x = tl.load(at, mask=inside, other=0.0)
    a, b = tl.split(tl.reshape(x, [HEADS, WIDTH // 2, 2]))
    pair = tl.arange(0, WIDTH // 2) - (WIDTH - size) // 2
    pair = tl.broadcast_to(pair[None, :], [HEADS, WIDTH // 2])
    a, b = rotate_pairs(a, b, turns + position * size, pair, size // 2, 1.0)
    x = hadamard_tile(tl.reshape(tl.join(a, b), [HEADS, WIDTH]), HEADS, WIDTH, STAGES)
    if ROUNDED:
        tile = fp4_tile(tl.reshape(x, [HEADS * WIDTH // FP4_BLOCK, FP4_BLOCK]))
        x = tl.reshape(tile, [HEADS, WIDTH])
    tl.debug_barrier()  # all threads have read what is overwritten
    tl.store(at, x, mask=inside)


@triton.jit
def _score_kernel(
    q, weights, index_rows, positions, scores, heads, capacity, ratio, scale,
    KEYS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    chunk, row = tl.program_id(0), tl.program_id(1)
    count = (tl.load(positions + row) + 1) // ratio
    if chunk * KEYS < count:
        j = chunk * KEYS + tl.arange(0, KEYS)
        d = tl.arange(0, WIDTH)
        real = j < count
        tile = tl.load(
            index_rows + j[:, None] * WIDTH + d[None, :],
            mask=real[:, None] & (d >= 0)[None, :], other=0.0,
        )  # fmt: skip
        if HALF:
            h = tl.arange(0, HEADS)
            query = tl.load(
                q + (row * heads + h)[:, None] * WIDTH + d[None, :],
                mask=(h < heads)[:, None] & (d >= 0)[None, :], other=0.0,
            )  # fmt: skip
            weight = tl.load(weights + row * heads + h, mask=h < heads, other=0.0) * scale
            found = tl.dot(query.to(tl.float16), tl.trans(tile.to(tl.float16)))
            total = tl.sum(tl.maximum(found, 0.0) * weight[:, None], 0)
        else:
            total = tl.zeros([KEYS], tl.float32)
            for head in range(heads):
                one = tl.load(q + (row * heads + head) * WIDTH + d)
                found1 = tl.maximum(tl.sum(tile * one[None, :], 1), 0.0)
                total += found1 * (tl.load(weights + row * heads + head) * scale)
        tl.store(scores + row * capacity + j, total, mask=real)


@triton.jit
def _ranks_at(scores, at, count):
    """Ranks of scores `at`; the lowest integer where there is none."""
    x = tl.load(scores + at, mask=at < count, other=float("-inf"))
    return tl.where(at < count, float_ranks(x), NOTHING)


@triton.jit
def _three(a0, a1, a2, b0, b1, b2):
    """Three sums at once, which wait for each other once."""
    return a0 + b0, a1 + b1, a2 + b2


@triton.jit
def _reaching(ranks, first, second, third):
    """How many ranks reach each of three."""
    one, two = (ranks >= first).to(tl.int32), (ranks >= second).to(tl.int32)
    return tl.reduce((one, two, (ranks >= third).to(tl.int32)), 0, _three)


@triton.jit
def _choose(
    scores, names, first, count, k, selected, kept, SIZE: tl.constexpr, NAMED: tl.constexpr,
    KEEP: tl.constexpr,
):  # fmt: skip
    """The k best of `count` scores, SIZE at a time, ascending by index.

    Args:
        names: NAMED: what is stored for each score instead of first + its index.
        kept: KEEP: the chosen scores are stored here too.
    Returns:
        The ranks of the k-th best score and of the one behind it.
    """
    i = tl.arange(0, SIZE)
    parts = (count + SIZE - 1) // SIZE
    own = _ranks_at(scores, i, count)
    # The rank of the k-th best, two bits at a time: `low` is reached by at least k scores.
    low = tl.full([], -2147483648, tl.int32)
    reached = count
    better = tl.full([], 0, tl.int32)
    step = tl.full([], 1 << 30, tl.int32)
    for _ in range(16):
        second = low + step + step
        one, two, three = _reaching(own, low + step, second, second + step)
        for part in range(1, parts):
            ranks = _ranks_at(scores, part * SIZE + i, count)
            more_one, more_two, more_three = _reaching(ranks, low + step, second, second + step)
            one, two, three = one + more_one, two + more_two, three + more_three
        if three >= k:
            low, reached = second + step, three
        elif two >= k:
            low, reached, better = second, two, three
        elif one >= k:
            low, reached, better = low + step, one, two
        else:
            better = one
        step = step >> 2
    # `better` scores rank above it; of those that share it the first ones are taken.
    ties = k - better
    before = tl.full([], 0, tl.int64)  # better ones, and equal ones in the upper half
    behind = tl.full([], NOTHING, tl.int32)
    for part in range(0, parts):
        at = part * SIZE + i
        ranks = own
        if part > 0:
            ranks = _ranks_at(scores, at, count)
        above, same = (ranks > low) & (at < count), (ranks == low) & (at < count)
        order = before + tl.cumsum(above.to(tl.int64) + (same.to(tl.int64) << 32), 0)
        equals = order >> 32
        taken = above | (same & (equals <= ties))
        place = (order & 0xFFFFFFFF) + tl.minimum(equals, ties) - 1
        name = first + at
        if NAMED:
            name = tl.load(names + at, mask=taken, other=0)
        tl.store(selected + place, name, mask=taken)
        if KEEP:
            tl.store(kept + place, float_of_rank(ranks), mask=taken)
        before += tl.sum(above.to(tl.int64) + (same.to(tl.int64) << 32), 0)
        behind = tl.maximum(behind, tl.max(tl.where(above | same, NOTHING, ranks), 0))
    return low, tl.where(reached > k, low, behind)


@triton.jit
def _part_kernel(
    scores, positions, names, kept, behinds, capacity, ratio, k, parts, room, SIZE: tl.constexpr,
):  # fmt: skip
    """The k best scores of one part of a row, where a row has more than one part."""
    part, row = tl.program_id(0), tl.program_id(1)
    count = ((tl.load(positions + row) + 1) // ratio).to(tl.int32)
    first = part * SIZE
    if (count > SIZE) & (first < count):
        own = tl.minimum(count - first, SIZE)
        place = row * room + part * k
        if own > k:
            _, behind = _choose(
                scores + row * capacity + first, names, first, own, k, names + place, kept + place,
                SIZE, False, True,
            )  # fmt: skip
            tl.store(behinds + row * parts + part, behind)
        else:
            i = tl.arange(0, SIZE)
            x = tl.load(scores + row * capacity + first + i, mask=i < own, other=0.0)
            tl.store(names + place + i, first + i, mask=i < own)
            tl.store(kept + place + i, x, mask=i < own)
            tl.store(behinds + row * parts + part, NOTHING)


@triton.jit
def _top_kernel(
    scores, positions, names, kept, behinds, selected, counts, gaps, capacity, ratio, k, parts,
    room, FEW: tl.constexpr, MANY: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The k best scores of one row, ascending by index; ties go to the lower index.

    Works on the scores that the row has, not on its capacity: on up to FEW at once, on what
    `_part_kernel` kept of more.
    """
    row = tl.program_id(0)
    count = ((tl.load(positions + row) + 1) // ratio).to(tl.int32)
    places = selected + row * k
    if count <= k:
        tl.store(counts + row, -1)
        tl.store(gaps + row, float("inf"))
    else:
        tl.store(counts + row, k)
        low = tl.full([], 0, tl.int32)
        behind = tl.full([], 0, tl.int32)
        if count <= FEW:
            low, behind = _choose(
                scores + row * capacity, names, 0, count, k, places, kept, FEW, False, False
            )
        else:
            part = tl.arange(0, PARTS)
            live = part * FEW < count
            left = tl.load(behinds + row * parts + part, mask=live, other=NOTHING)
            few = count // FEW * k + tl.minimum(count % FEW, k)
            if few <= FEW:
                low, behind = _choose(
                    kept + row * room, names + row * room, 0, few, k, places, kept, FEW, True, False
                )
            else:
                low, behind = _choose(
                    kept + row * room, names + row * room, 0, few, k, places, kept, MANY, True,
                    False,
                )  # fmt: skip
            behind = tl.maximum(behind, tl.max(left, 0))
        tl.store(gaps + row, float_of_rank(low) - float_of_rank(behind))


def select_rows(
    x: Any, qr: Any, positions: Any, weights: Any, turns: Any, heads: int, ratio: int, k: int,
    rounded: bool, index_rows: Any, selected: Any, counts: Any, gaps: Any, mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.indexer.select_rows`."""
    rows, (capacity, width) = x.shape[0], index_rows.shape
    q = scratch(x.device, "indexer queries", rows, heads * width)
    head_weights = scratch(x.device, "indexer weights", rows, heads)
    scores = scratch(x.device, "indexer scores", rows, capacity)
    with lanes.aside(qr, lanes.ROWS):
        product(qr, weights.q_b, q, mode)
        product(x, weights.proj, head_weights, mode)
        perturb(q, positions, mode)
        _query_kernel[(triton.cdiv(heads, QUERY_HEADS), rows)](
            q, positions, turns, turns.shape[1], heads, ROUNDED=rounded, HEADS=QUERY_HEADS,
            WIDTH=width, STAGES=width.bit_length() - 1, num_warps=2,
        )  # fmt: skip
        half = numerics(mode) != "vector"
        _score_kernel[(triton.cdiv(capacity, KEYS if half else 32), rows)](
            q, head_weights, index_rows, positions, scores, heads, capacity, ratio,
            1.0 / (width * heads) ** 0.5, KEYS=KEYS if half else 32,
            HEADS=max(16, triton.next_power_of_2(heads)), WIDTH=width, HALF=half, num_warps=4,
        )  # fmt: skip
        few = max(min(FEW, triton.next_power_of_2(capacity)), triton.next_power_of_2(k + 1))
        parts = triton.cdiv(capacity, few)
        names = scratch(x.device, "indexer names", rows, parts * k, dtype=torch.int32)
        kept = scratch(x.device, "indexer kept", rows, parts * k)
        behinds = scratch(x.device, "indexer behind", rows, parts, dtype=torch.int32)
        warps = 16 if few > 1024 else 4
        if parts > 1:
            _part_kernel[(parts, rows)](
                scores, positions, names, kept, behinds, capacity, ratio, k, parts, parts * k,
                SIZE=few, num_warps=warps,
            )  # fmt: skip
        _top_kernel[(rows,)](
            scores, positions, names, kept, behinds, selected, counts, gaps, capacity, ratio, k,
            parts, parts * k, FEW=few, MANY=MANY, PARTS=triton.next_power_of_2(parts),
            num_warps=warps,
        )  # fmt: skip
