"""Triton kernels of `kernels.indexer`: queries, scores of the visible rows, and the top-k."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda.products import numerics, perturb, product
from kernels.cuda.rows import FP4_BLOCK, fp4_tile, hadamard_tile, rotate_pairs
from kernels.cuda.workspace import scratch
from kernels.mode import Mode

QUERY_HEADS, KEYS = 8, 64
MOST_SORTED = 16384
"""Scores that one program holds at a time."""


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
def _ranks(x):
    """int32 in the order of floats."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _top_kernel(
    scores, positions, selected, counts, gaps, capacity, ratio, k,
    PARTS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """The k best scores of one row, ascending by index; ties go to the lower index."""
    row = tl.program_id(0)
    count = (tl.load(positions + row) + 1) // ratio
    if count <= k:
        tl.store(counts + row, -1)
        tl.store(gaps + row, float("inf"))
    else:
        low = tl.full([], -2147483648, tl.int64)
        high = tl.full([], 2147483647, tl.int64)
        i = tl.arange(0, SIZE)
        own = tl.load(scores + row * capacity + i, mask=i < count, other=float("-inf"))
        ranks = _ranks(own)
        for _ in range(32):
            middle = (low + high + 1) >> 1
            above = tl.sum(((ranks >= middle) & (i < count)).to(tl.int32), 0)
            for part in range(1, PARTS):
                at = part * SIZE + i
                more = tl.load(scores + row * capacity + at, mask=at < count, other=float("-inf"))
                above += tl.sum(((_ranks(more) >= middle) & (at < count)).to(tl.int32), 0)
            enough = (above >= k) & (low < high)
            fewer = (above < k) & (low < high)
            low = tl.where(enough, middle, low)
            high = tl.where(fewer, middle - 1, high)
        # `low` is the rank of the k-th best; of those that share it the first ones are taken.
        better = tl.full([], 0, tl.int32)
        for part in range(0, PARTS):
            at = part * SIZE + i
            more = tl.load(scores + row * capacity + at, mask=at < count, other=float("-inf"))
            better += tl.sum(((_ranks(more) > low) & (at < count)).to(tl.int32), 0)
        ties = k - better
        filled = tl.full([], 0, tl.int32)
        tied = tl.full([], 0, tl.int32)
        worst = float("inf")
        other = float("-inf")
        for part in range(0, PARTS):
            at = part * SIZE + i
            real = at < count
            more = tl.load(scores + row * capacity + at, mask=real, other=float("-inf"))
            rank = _ranks(more)
            same = (rank == low) & real
            order = tied + tl.cumsum(same.to(tl.int32), 0)
            taken = ((rank > low) & real) | (same & (order <= ties))
            place = filled + tl.cumsum(taken.to(tl.int32), 0) - 1
            tl.store(selected + row * k + place, at, mask=taken)
            worst = tl.minimum(worst, tl.min(tl.where(taken, more, float("inf")), 0))
            other = tl.maximum(other, tl.max(tl.where(real & ~taken, more, float("-inf")), 0))
            filled += tl.sum(taken.to(tl.int32), 0)
            tied += tl.sum(same.to(tl.int32), 0)
        tl.store(counts + row, k)
        tl.store(gaps + row, worst - other)


def select_rows(
    x: Any, qr: Any, positions: Any, weights: Any, turns: Any, heads: int, ratio: int, k: int,
    rounded: bool, index_rows: Any, selected: Any, counts: Any, gaps: Any, mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.indexer.select_rows`."""
    rows, (capacity, width) = x.shape[0], index_rows.shape
    q = scratch(x.device, "indexer queries", rows, heads * width)
    head_weights = scratch(x.device, "indexer weights", rows, heads)
    scores = scratch(x.device, "indexer scores", rows, capacity)
    product(qr, weights.q_b, q, mode)
    product(x, weights.proj, head_weights, mode)
    perturb(q, positions, mode)
    _query_kernel[(triton.cdiv(heads, QUERY_HEADS), rows)](
        q, positions, turns, turns.shape[1], heads, ROUNDED=rounded, HEADS=QUERY_HEADS, WIDTH=width,
        STAGES=width.bit_length() - 1, num_warps=2,
    )  # fmt: skip
    half = numerics(mode) != "vector"
    _score_kernel[(triton.cdiv(capacity, KEYS if half else 32), rows)](
        q, head_weights, index_rows, positions, scores, heads, capacity, ratio,
        1.0 / (width * heads) ** 0.5, KEYS=KEYS if half else 32,
        HEADS=max(16, triton.next_power_of_2(heads)), WIDTH=width, HALF=half, num_warps=4,
    )  # fmt: skip
    size = min(triton.next_power_of_2(capacity), MOST_SORTED)
    _top_kernel[(rows,)](
        scores, positions, selected, counts, gaps, capacity, ratio, k,
        PARTS=triton.cdiv(capacity, size), SIZE=size, num_warps=16 if size > 4096 else 4,
    )  # fmt: skip
