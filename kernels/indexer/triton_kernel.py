"""Triton kernels of `kernels.indexer`: queries, scores of the visible rows, and the top-k.

The choice works on the ranks of scores, integers in the order of floats: a search between the
lowest and the highest one for a rank that k scores reach, then one pass in order of index. Many
scores are chosen from in parts, and then from what the parts kept, in the part that ends last.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import numerics, product, product_pieces
from kernels.cuda.rows import (
    FP4_BLOCK,
    float_of_rank,
    float_ranks,
    fp4_tile,
    hadamard_tile,
    rotate_pairs,
)
from kernels.cuda.workspace import scratch, split_space
from kernels.mode import Mode
from kernels.packed.early import early, inputs_ready

QUERY_HEADS, KEYS = 8, 64
"""Heads of a program that finishes queries; compressed rows of one that scores them."""
PART, WARP_SCORES, REGISTERS = 4096, 512, 72
"""Scores that a program chooses from at once, at least; those of one of its warps; registers of a
thread, so few that the program finds room beside three of the query's own product, whose programs
stay on all multiprocessors until it ends."""
NOTHING = tl.constexpr(-2147483648)
"""A rank below all floats."""


@triton.jit
def _query_kernel(
    raw, row_stride, piece, q, positions, turns, size, heads, PIECES: tl.constexpr,
    ROUNDED: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Queries of a few heads from the pieces of their sums: rotated, transformed, rounded."""
    row = tl.program_id(1)
    h = tl.program_id(0) * HEADS + tl.arange(0, HEADS)
    position = tl.load(positions + row)
    at = h[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = (h < heads)[:, None] & (tl.arange(0, WIDTH) >= 0)[None, :]
    inputs_ready()
    raw += row * row_stride
    x = tl.load(raw + at, mask=inside, other=0.0)
    for p in tl.static_range(1, PIECES):
        x += tl.load(raw + p * piece + at, mask=inside, other=0.0)
    a, b = tl.split(tl.reshape(x, [HEADS, WIDTH // 2, 2]))
    pair = tl.arange(0, WIDTH // 2) - (WIDTH - size) // 2
    pair = tl.broadcast_to(pair[None, :], [HEADS, WIDTH // 2])
    a, b = rotate_pairs(a, b, turns + position * size, pair, size // 2, 1.0)
    x = hadamard_tile(tl.reshape(tl.join(a, b), [HEADS, WIDTH]), HEADS, WIDTH, STAGES)
    if ROUNDED:
        tile = fp4_tile(tl.reshape(x, [HEADS * WIDTH // FP4_BLOCK, FP4_BLOCK]))
        x = tl.reshape(tile, [HEADS, WIDTH])
    tl.store(q + row * heads * WIDTH + at, x.to(q.dtype.element_ty), mask=inside)


@triton.jit
def _score_kernel(
    q, weights, index_rows, positions, scores, heads, stride, ratio, scale,
    KEYS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Scores of a few compressed rows, which are older than the queries and loaded first.

    Programs without rows end at once: those with some, of which there is one at least, wait.
    """
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
        inputs_ready()
        if HALF:
            h = tl.arange(0, HEADS)
            query = tl.load(
                q + (row * heads + h)[:, None] * WIDTH + d[None, :],
                mask=(h < heads)[:, None] & (d >= 0)[None, :], other=0.0,
            )  # fmt: skip
            weight = tl.load(weights + row * heads + h, mask=h < heads, other=0.0) * scale
            found = tl.dot(query, tl.trans(tile.to(tl.float16)))
            total = tl.sum(tl.maximum(found, 0.0) * weight[:, None], 0)
        else:
            total = tl.zeros([KEYS], tl.float32)
            for head in range(heads):
                one = tl.load(q + (row * heads + head) * WIDTH + d)
                found1 = tl.maximum(tl.sum(tile * one[None, :], 1), 0.0)
                total += found1 * (tl.load(weights + row * heads + head) * scale)
        tl.store(scores + row * stride + j, total, mask=real)


@triton.jit
def _extremes(a0, a1, b0, b1):
    """A minimum and a maximum at once, which wait for each other once."""
    return tl.minimum(a0, b0), tl.maximum(a1, b1)


@triton.jit
def _three(a0, a1, a2, b0, b1, b2):
    """Three sums at once."""
    return a0 + b0, a1 + b1, a2 + b2


@triton.jit
def _reaching(ranks, first, second, third):
    """How many ranks reach each of three."""
    one, two = (ranks >= first).to(tl.int32), (ranks >= second).to(tl.int32)
    return tl.reduce((one, two, (ranks >= third).to(tl.int32)), 0, _three)


@triton.jit
def _between(low, high, by_value):
    """Three ranks above `low` and not above `high`, ascending: quarters of the values or the ranks.

    By ranks where an end is no finite number.
    """
    quarter = (high >> 2) - (low >> 2)
    first, second, third = low + quarter, low + ((high >> 1) - (low >> 1)), high - quarter
    least, most = float_of_rank(low), float_of_rank(high)
    step = most * 0.25 - least * 0.25
    if by_value & (tl.abs(step) < float("inf")):
        first, second = float_ranks(least + step), float_ranks(least + 2.0 * step)
        third = float_ranks(most - step)
    first = tl.minimum(tl.maximum(first, low + 1), high)
    second = tl.minimum(tl.maximum(second, first), high)
    return first, second, tl.minimum(tl.maximum(third, second), high)


@triton.jit
def _choose(scores, names, count, named, first, k, selected, SIZE: tl.constexpr):
    """The k best of up to SIZE scores, or all of fewer, ascending by index.

    Args:
        names: if `named`, indices of the scores to choose from, ascending.
        selected: k indices, written; plus `first` where they are not `named`.
    Returns:
        The ranks of the worst score that is chosen and of the best one that is not.
    """
    i = tl.arange(0, SIZE)
    name = i
    if named:  # by programs of the same launch
        name = tl.where(i < count, tl.load(names + i, cache_modifier=".cg"), 0)
    # Whole tiles are loaded, so that a thread has neighbours.
    x = tl.load(scores + name)
    ranks = tl.where(i < count, float_ranks(tl.where(x == 0.0, 0.0, x)), NOTHING)
    low, high = tl.reduce((tl.where(i < count, ranks, 2147483647), ranks), 0, _extremes)
    # `reached` >= k scores have rank `low` or more, `better` < k of them more than `high`.
    reached = count
    better = tl.full([], 0, tl.int32)
    turn = tl.full([], 0, tl.int32)
    while (reached > k) & (low < high):
        at_one, at_two, at_three = _between(low, high, turn == 0)
        one, two, three = _reaching(ranks, at_one, at_two, at_three)
        if three >= k:
            low, reached = at_three, three
        elif two >= k:
            low, high, reached, better = at_two, at_three - 1, two, three
        elif one >= k:
            low, high, reached, better = at_one, at_two - 1, one, two
        else:
            high, better = at_one - 1, one
        turn = 1 - turn
    # Too many share the rank `low`: the first ones of them are chosen, those before `cut`.
    cut = count
    if reached > k:
        before = tl.full([], 0, tl.int32)
        while cut - before > 1:
            middle = (before + cut) // 2
            if tl.sum(((ranks == low) & (i < middle)).to(tl.int32), 0) >= k - better:
                cut = middle
            else:
                before = middle
    taken = (ranks > low) | ((ranks == low) & (i < cut))
    order = tl.cumsum(taken.to(tl.int32), 0)
    tl.store(selected + order - 1, tl.where(named, name, i + first), mask=taken)
    return tl.reduce(
        (tl.where(taken, ranks, 2147483647), tl.where(taken, NOTHING, ranks)), 0, _extremes
    )


@triton.jit
def _top_kernel(
    scores, positions, names, behinds, done, selected, counts, gaps, stride, ratio, k, parts,
    SIZE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The k best scores of one part of one row, ascending by index; ties go to the lower index.

    Works on the scores that the row has, not on its capacity. Where they fill several parts, the
    program that ends last chooses from what all parts kept.

    Args:
        scores: (rows, stride), whole parts. names: (rows, SIZE) indices that parts kept, k each.
        behinds: (rows, parts) ranks of the best scores that they did not keep.
        done: (rows,) programs of a row that have ended, left at zero.
    """
    part, row = tl.program_id(0), tl.program_id(1)
    count = ((tl.load(positions + row) + 1) // ratio).to(tl.int32)
    first = part * SIZE
    own = tl.minimum(count - first, SIZE)
    scores += row * stride
    names += row * SIZE
    if count <= k:
        if part == 0:
            tl.store(counts + row, -1)
            tl.store(gaps + row, float("inf"))
    elif own > 0:
        live = (count + SIZE - 1) // SIZE
        left, named = own, tl.full([], 0, tl.int32)
        some, places = scores + first, names + part * k
        if live == 1:
            places = selected + row * k
        while left > 0:  # one body for both rounds, since its instructions have to be fetched
            worst, behind = _choose(some, names, left, named == 1, first, k, places, SIZE)
            left = 0
            if (live > 1) & (named == 0):
                tl.store(behinds + row * parts + part, behind)
                tl.debug_barrier()
                if tl.atomic_add(done + row, 1, sem="acq_rel") == live - 1:
                    tl.store(done + row, 0)
                    left = count // SIZE * k + tl.minimum(count % SIZE, k)
                    some, places, named = scores, selected + row * k, 1
            else:
                if named == 1:
                    every = tl.arange(0, PARTS)
                    more = tl.load(
                        behinds + row * parts + every, mask=every < live, other=NOTHING,
                        cache_modifier=".cg",
                    )  # fmt: skip
                    behind = tl.maximum(behind, tl.max(more, 0))
                tl.store(counts + row, k)
                tl.store(gaps + row, float_of_rank(worst) - float_of_rank(behind))


def part_size(capacity: int, k: int) -> int:
    """Scores of one part: so many that what all parts keep is no more than another one.

    A constant of the state's capacity.
    """
    size = max(16, triton.next_power_of_2(k + 1), min(PART, triton.next_power_of_2(capacity)))
    while triton.cdiv(capacity, size) * k > size:
        size *= 2
    return size


def choose_rows(
    scores: Any, positions: Any, ratio: int, k: int, size: int, selected: Any, counts: Any,
    gaps: Any,
) -> None:  # fmt: skip
    """The k best scores of every row.

    Args:
        scores: (n, whole parts of `size`), of which a row at position p has (p + 1) // ratio.
        selected, counts, gaps: as those of `select_rows`.
    """
    rows, device = scores.shape[0], scores.device
    parts = scores.shape[1] // size
    names = scratch(device, "indexer names", rows, size, dtype=torch.int32)
    behinds = scratch(device, "indexer behind", rows, parts, dtype=torch.int32)
    _top_kernel[(parts, rows)](
        scores, positions, names, behinds, split_space(device, lanes.current()).counters, selected,
        counts, gaps, scores.shape[1], ratio, k, parts, SIZE=size,
        PARTS=triton.next_power_of_2(parts), num_warps=min(16, max(4, size // WARP_SCORES)),
        maxnreg=REGISTERS,
    )  # fmt: skip


def select_rows(
    x: Any, qr: Any, positions: Any, weights: Any, turns: Any, heads: int, ratio: int, k: int,
    rounded: bool, index_rows: Any, selected: Any, counts: Any, gaps: Any, mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.indexer.select_rows`."""
    rows, (capacity, width) = x.shape[0], index_rows.shape
    half = numerics(mode) != "vector"
    kind = torch.float16 if half else torch.float32
    q = scratch(x.device, "indexer queries", rows, heads * width, dtype=kind)
    head_weights = scratch(x.device, "indexer weights", rows, heads)
    size = part_size(capacity, k)
    scores = scratch(x.device, "indexer scores", rows, triton.cdiv(capacity, size) * size)
    with lanes.aside(x, lanes.CHOICE):
        product(x, weights.proj, head_weights, mode)
        lanes.ready(head_weights)
    raw = product_pieces(qr, weights.q_b, "indexer products", positions, mode)
    lanes.wait(head_weights)
    lanes.wait(index_rows)
    _query_kernel[(triton.cdiv(heads, QUERY_HEADS), rows)](
        raw, raw.stride(0), raw.stride(1), q, positions, turns, turns.shape[1], heads,
        PIECES=raw.shape[1], ROUNDED=rounded, HEADS=QUERY_HEADS, WIDTH=width,
        STAGES=width.bit_length() - 1, num_warps=4, **early(x.device),
    )  # fmt: skip
    _score_kernel[(triton.cdiv(capacity, KEYS), rows)](
        q, head_weights, index_rows, positions, scores, heads, scores.shape[1], ratio,
        1.0 / (width * heads) ** 0.5, KEYS=KEYS, HEADS=max(16, triton.next_power_of_2(heads)),
        WIDTH=width, HALF=half, num_warps=4, **early(x.device),
    )  # fmt: skip
    lanes.ready(scores)
    with lanes.aside(scores, lanes.CHOICE):
        choose_rows(scores, positions, ratio, k, size, selected, counts, gaps)
