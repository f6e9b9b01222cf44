"""CPU kernel of `kernels.indexer`: scores of each row's own visible rows, then its top-k."""

from __future__ import annotations

import numpy as np

from kernels.cpu.compiling import inline, kernel
from kernels.cpu.key_lanes import (
    count_at_least,
    lay_heads,
    rank_of,
    relu_weighted,
    score_keys,
)
from kernels.cpu.lanes import HEAD_LANES, address, float_at, keep, set_float
from kernels.cpu.matrix import product
from kernels.cpu.rows import FP4_BLOCK, fp4_blocks, perturb, rotate
from kernels.cpu.transform_lanes import hadamard_row
from kernels.mode import BATCH_ORDER


@inline
def top_k(scores_at, count, k, chosen):  # type: ignore[no-untyped-def]
    """chosen[:k] = the k best of `count` floats (k < count), ascending by index.

    Ties go to the lower index. Returns how far the k-th best is from the next one.
    """
    low, high = -(1 << 31), (1 << 31) - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if count_at_least(scores_at, count, middle) >= k:
            low = middle
        else:
            high = middle - 1
    # `low` is the rank of the k-th best; of those that share it the first ones are taken.
    ties = k - count_at_least(scores_at, count, low + 1)
    filled, worst, other = 0, -1, -1
    for i in range(count):
        rank = rank_of(scores_at + 4 * i)
        if rank > low or (rank == low and ties > 0):
            ties -= rank == low
            worst = i if rank == low else worst
            chosen[filled] = i
            filled += 1
        elif other < 0 or rank > rank_of(scores_at + 4 * other):
            other = i
    return float_at(scores_at, worst) - float_at(scores_at, other)


@kernel(
    "void(float32[:,::1], float32[:,::1], int64[::1], int64[:,::1], int64[:,::1], float32[:,::1],"
    " int64, int64, int64, int64, float32[:,::1], int32[:,::1], int32[::1], float32[::1],"
    " float32[::1], int64[::1])"
)
def indexer(  # type: ignore[no-untyped-def]
    x, qr, positions, q_words, head_words, turns, heads, ratio, k, rounded, index_rows, selected,
    counts, gaps, space, mode,
):  # fmt: skip
    rows, width = x.shape[0], index_rows.shape[1]
    flags, batch = mode[0], mode[0] & BATCH_ORDER
    keys = np.empty(index_rows.shape[0], np.int64)
    q_at = address(space)
    weights_at = q_at + 4 * rows * heads * width
    query_at = weights_at + 4 * rows * heads
    lane_at = query_at + 4 * width * HEAD_LANES
    final_at = lane_at + 4 * HEAD_LANES
    scores_at = final_at + 4 * index_rows.shape[0]
    product(address(q_words), rows, address(qr), qr.shape[1], q_at, heads * width, flags)
    product(address(head_words), rows, address(x), x.shape[1], weights_at, heads, flags)
    perturb(q_at, heads * width, rows, heads * width, positions, mode)
    scale = np.float32(1.0 / np.sqrt(float(width * heads)))
    keys_at = address(keys)
    for r in range(rows):
        count = (positions[r] + 1) // ratio
        counts[r] = -1
        gaps[r] = np.float32(np.inf)
        if count <= k:
            continue
        row_at = q_at + 4 * width * r * heads
        for h in range(heads):
            head = row_at + 4 * width * h
            rotate(head, width, turns, positions[r], 1)
            hadamard_row(head, width)
            if rounded:
                fp4_blocks(head, width, FP4_BLOCK)
        for i in range(count):
            keys[i] = address(index_rows) + 4 * width * i
        for first in range(0, heads, HEAD_LANES):
            lay_heads(row_at + 4 * width * first, heads - first, width, query_at)
            for h in range(HEAD_LANES):
                real = first + h < heads
                weight = float_at(weights_at, r * heads + first + h) if real else np.float32(0.0)
                set_float(lane_at, h, weight * scale)
            middle = width // 2 if batch else width
            for half in range(2 if batch else 1):
                begin, end = half * middle, width if half else middle
                score_keys(query_at, keys_at, count, begin, end, scores_at, half)
            relu_weighted(scores_at, count, lane_at, final_at, first)
        counts[r] = k
        gaps[r] = top_k(final_at, count, k, selected[r])
    keep(keys)
