"""CPU kernel of `kernels.indexer`: scores of each row's own visible rows, then its top-k.

Threads share the rows.
"""

from __future__ import annotations

import numpy as np
from numba import types

from kernels.cpu.compiling import inline, kernel, shared
from kernels.cpu.key_lanes import (
    count_at_least,
    lay_heads,
    rank_of,
    relu_weighted,
    score_keys,
)
from kernels.cpu.lanes import (
    HEAD_LANES,
    KEY_BLOCK,
    address,
    float_at,
    keep,
    set_float,
    set_int,
    set_word,
    word_at,
    words_at,
)
from kernels.cpu.matrix import product
from kernels.cpu.row_lanes import rotate_row
from kernels.cpu.rows import FP4_BLOCK, fp4_blocks, perturb
from kernels.cpu.threads import address_of, parallel, set_words, spare_words, threads
from kernels.cpu.transform_lanes import hadamard_row
from kernels.mode import BATCH_ORDER


@inline
def top_k(scores_at, count, k, chosen_at):  # type: ignore[no-untyped-def]
    """chosen[:k] = the k best of `count` floats (k < count), ascending by index; int32.

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
            set_int(chosen_at, filled, i)
            filled += 1
        elif other < 0 or rank > rank_of(scores_at + 4 * other):
            other = i
    return float_at(scores_at, worst) - float_at(scores_at, other)


@inline
def scratch_floats(width, most):  # type: ignore[no-untyped-def]
    """Floats of a thread's workspace: of eight heads the query, weights, and scores of `most` rows,
    padded to whole blocks; the rows' sums over the heads."""
    return HEAD_LANES * (width + 1 + most + KEY_BLOCK) + most


@shared("ds4tui_select", types.void, *[types.intp] * 3)
def _select(arguments: int, row: int, who: int) -> None:
    """One row: its query's heads, scores of the rows that it sees, its choice."""
    (q, weights, index_rows, width, heads, turns, turned, positions, ratio, k, rounded, selected,
     counts, gaps, batch, keys, space, most) = words_at(arguments, 18)  # fmt: skip
    position = word_at(positions, row)
    count = (position + 1) // ratio
    if count <= k:
        set_int(counts, row, -1)
        set_float(gaps, row, np.float32(np.inf))
        return
    query = q + 4 * width * row * heads
    turn = turns + 4 * turned * position
    for h in range(heads):
        head = query + 4 * width * h
        rotate_row(head + 4 * (width - turned), turned, turn, np.float32(1))
        hadamard_row(head, width)
        if rounded:
            fp4_blocks(head, width, FP4_BLOCK)
    keys_at = keys + 8 * most * who
    for i in range(count):
        set_word(keys_at, i, index_rows + 4 * width * i)
    query_at = space + 4 * scratch_floats(width, most) * who
    lane_at = query_at + 4 * width * HEAD_LANES
    scores_at = lane_at + 4 * HEAD_LANES
    final_at = scores_at + 4 * (most + KEY_BLOCK) * HEAD_LANES
    scale = np.float32(1.0 / np.sqrt(float(width * heads)))
    middle = width // 2 if batch else width
    for first in range(0, heads, HEAD_LANES):
        lay_heads(query + 4 * width * first, heads - first, width, query_at)
        for h in range(HEAD_LANES):
            real = first + h < heads
            weight = float_at(weights, row * heads + first + h) if real else np.float32(0.0)
            set_float(lane_at, h, weight * scale)
        for half in range(2 if batch else 1):
            begin, end = half * middle, width if half else middle
            score_keys(query_at, keys_at, count, begin, end, scores_at, half)
        relu_weighted(scores_at, count, lane_at, final_at, first)
    set_int(counts, row, k)
    set_float(gaps, row, top_k(final_at, count, k, selected + 4 * k * row))


_select_at = address_of("ds4tui_select")


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
    flags, most = mode[0], index_rows.shape[0]
    keys = np.empty(threads() * most, np.int64)
    scratch = np.empty(threads() * scratch_floats(width, most), np.float32)
    q_at = address(space)
    weights_at = q_at + 4 * rows * heads * width
    product(address(q_words), rows, address(qr), qr.shape[1], q_at, heads * width, flags)
    product(address(head_words), rows, address(x), x.shape[1], weights_at, heads, flags)
    perturb(q_at, heads * width, rows, heads * width, positions, mode)
    arguments = spare_words()
    set_words(
        arguments,
        (q_at, weights_at, address(index_rows), width, heads, address(turns), turns.shape[1],
         address(positions), ratio, k, rounded, address(selected), address(counts), address(gaps),
         flags & BATCH_ORDER, address(keys), address(scratch), most),
    )  # fmt: skip
    parallel(_select_at(), arguments, rows)
    keep(keys)
    keep(scratch)
