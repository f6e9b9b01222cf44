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
    row_turns,
)
from kernels.cuda.workspace import counters, scratch
from kernels.mode import Mode
from kernels.packed.early import INTERPRETED, early, inputs_ready, next_may_begin

QUERY_HEADS, KEYS = 8, 64
"""Heads of a program that finishes queries; compressed rows of one that scores them."""
PART, WARPS = 4096, 16
"""Scores that a program chooses from at once, at least: a thread has eight; its warps."""
ROW = 128
"""Neighbouring scores that one warp has: counts of them fit in a field of 10 bits."""
NOTHING, HIGHEST = tl.constexpr(-2147483648), tl.constexpr(2147483647)
"""Ranks below and above those of all numbers."""


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
    c, s = row_turns(turns + position * size, WIDTH, size, 1.0, WIDTH)
    c, s = c[None, :], s[None, :]
    inputs_ready()
    raw += row * row_stride
    x = tl.load(raw + at, mask=inside, other=0.0)
    for p in tl.static_range(1, PIECES):
        x += tl.load(raw + p * piece + at, mask=inside, other=0.0)
    a, b = tl.split(tl.reshape(x, [HEADS, WIDTH // 2, 2]))
    x = tl.reshape(tl.join(a * c - b * s, a * s + b * c), [HEADS, WIDTH])
    x = hadamard_tile(x, HEADS, WIDTH, STAGES)
    if ROUNDED:
        tile = fp4_tile(tl.reshape(x, [HEADS * WIDTH // FP4_BLOCK, FP4_BLOCK]))
        x = tl.reshape(tile, [HEADS, WIDTH])
    tl.store(q + row * heads * WIDTH + at, x.to(q.dtype.element_ty), mask=inside)


@triton.jit
def _score_kernel(
    q, weights, index_rows, positions, scores, heads, stride, ratio, scale,
    KEYS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Scores of a few compressed rows; programs without rows end at once."""
    next_may_begin()
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
def _reaching(ranks, first, second, third, SIZE: tl.constexpr, ROW: tl.constexpr):
    """How many ranks reach each of three, ascending: in a warp's row as fields of one word."""
    words = tl.where(ranks >= second, 1 + (1 << 10), tl.where(ranks >= first, 1, 0))
    words = tl.where(ranks >= third, 1 + (1 << 10) + (1 << 20), words)
    rows = tl.sum(tl.reshape(words, [SIZE // ROW, ROW]), 1)
    return tl.reduce((rows & 1023, (rows >> 10) & 1023, rows >> 20), 0, _three)


@triton.jit
def _order(x, SIZE: tl.constexpr, ROW: tl.constexpr):
    """Sums up to every element: those of a warp's row, and of the rows before."""
    rows = tl.reshape(x, [SIZE // ROW, ROW])
    totals = tl.sum(rows, 1)
    before = tl.cumsum(totals, 0) - totals
    return tl.reshape(tl.cumsum(rows, 1) + before[:, None], [SIZE])


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
def _put(base, place, value, wanted):
    """Store 32 bits where wanted: by the threads that hold them, where a plain store moves them."""
    if INTERPRETED:
        tl.store(base + place, value, mask=wanted)
    else:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; .reg .b64 a; setp.ne.b32 p, $4, 0; mad.wide.s32 a, $2, 4, $1;"
            " @p st.global.b32 [a], $3; mov.b32 $0, 0; }",
            "=r,l,r,r,r", [base.to(tl.int64), place, value, wanted.to(tl.int32)], tl.int32, False,
            1,
        )  # fmt: skip


@triton.jit
def _choose(
    scores, names, count, named, first, k, selected, kept, keep, SIZE: tl.constexpr,
    ROW: tl.constexpr,
):  # fmt: skip
    """The k best of up to SIZE scores, or all of fewer, ascending by index.

    Args:
        scores: a whole tile is read. names: if `named`, the scores' indices, ascending; else they
            count from `first`.
        selected: k indices, written. kept: if `keep`, their scores, written.
    Returns:
        The ranks of the worst score that is chosen and of the best one that is not.
    """
    i = tl.arange(0, SIZE)
    real = i < count
    x = tl.load(scores + i)
    ranks = tl.where(real, float_ranks(tl.where(x == 0.0, 0.0, x)), NOTHING)
    low, high = tl.reduce((tl.where(real, ranks, HIGHEST), ranks), 0, _extremes)
    # `reached` >= k scores have rank `low` or more, `better` < k of them more than `high`.
    reached = count
    better = tl.full([], 0, tl.int32)
    turn = tl.full([], 0, tl.int32)
    while (reached > k) & (low < high):
        at_one, at_two, at_three = _between(low, high, turn == 0)
        one, two, three = _reaching(ranks, at_one, at_two, at_three, SIZE, ROW)
        if three >= k:
            low, reached = at_three, three
        elif two >= k:
            low, high, reached, better = at_two, at_three - 1, two, three
        elif one >= k:
            low, high, reached, better = at_one, at_two - 1, one, two
        else:
            high, better = at_one - 1, one
        turn = 1 - turn
    # Where too many share the rank `low`, the first ones of them are chosen.
    ties = tl.where(reached > k, k - better, k)
    order = _order((ranks > low).to(tl.int32) + tl.where(ranks == low, 65536, 0), SIZE, ROW)
    tied = (order >> 16) & 0xFFFF  # a part of 32,768 may be all ties
    taken = (ranks > low) | ((ranks == low) & (tied <= ties))
    place = (order & 0xFFFF) + tl.minimum(tied, ties) - 1
    if named:
        _put(selected, place, tl.load(names + i), taken)
    else:
        _put(selected, place, i + first, taken)
    if keep:
        _put(kept, place, float_of_rank(ranks), taken)
    return tl.reduce(
        (tl.where(taken, ranks, HIGHEST), tl.where(taken, NOTHING, ranks)), 0, _extremes
    )


@triton.jit
def _top_kernel(
    scores, positions, names, kept, behinds, done, selected, counts, gaps, stride, ratio, k, parts,
    PART: tl.constexpr, ROW: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The k best scores of one part of one row, ascending by index; ties go to the lower index.

    Works on the scores that the row has, not on its capacity. Where they fill several parts, the
    program that ends last chooses from what all parts kept.

    Args:
        scores: (rows, stride), whole parts.
        names, kept: (rows, PART) indices and scores that parts kept, k each.
        behinds: (rows, parts) ranks of the best scores that they did not keep.
        done: (rows,) programs of a row that have ended, left at zero.
    """
    part, row = tl.program_id(0), tl.program_id(1)
    count = ((tl.load(positions + row) + 1) // ratio).to(tl.int32)
    first = part * PART
    own = tl.minimum(count - first, PART)
    scores += row * stride
    names += row * PART
    kept += row * PART
    inputs_ready()
    if count <= k:
        if part == 0:
            tl.store(counts + row, -1)
            tl.store(gaps + row, float("inf"))
    elif own > 0:
        live = (count + PART - 1) // PART
        left, named = own, tl.full([], 0, tl.int32)
        some, places = scores + first, names + part * k
        if live == 1:
            places = selected + row * k
        while left > 0:  # one body for both rounds: registers are short
            keep = (live > 1) & (named == 0)
            worst, behind = _choose(
                some, names, left, named == 1, first, k, places, kept + part * k, keep, PART, ROW
            )
            left = 0
            if keep:
                tl.store(behinds + row * parts + part, behind)
                tl.debug_barrier()
                if tl.atomic_add(done + row, 1, sem="acq_rel") == live - 1:
                    tl.store(done + row, 0)
                    left = count // PART * k + tl.minimum(count % PART, k)
                    some, places, named = kept, selected + row * k, 1
            else:
                if named == 1:
                    every = tl.arange(0, PARTS)
                    more = tl.load(behinds + row * parts + every, mask=every < live, other=NOTHING)
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
    kept = scratch(device, "indexer kept", rows, size)
    behinds = scratch(device, "indexer behind", rows, parts, dtype=torch.int32)
    _top_kernel[(parts, rows)](
        scores, positions, names, kept, behinds, counters(device, "indexer parts", rows), selected,
        counts, gaps, scores.shape[1], ratio, k, parts, PART=size, ROW=min(size, ROW),
        PARTS=triton.next_power_of_2(parts), num_warps=WARPS,
        **early(device),
    )  # fmt: skip


def select_rows(
    x: Any, qr: Any, positions: Any, weights: Any, turns: Any, heads: int, ratio: int, k: int,
    rounded: bool, index_rows: Any, selected: Any, counts: Any, gaps: Any, mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.indexer.select_rows`.

    Kernels are in place before the one before has ended, but for the scores, which need what two
    lanes have made: no kernel's own wait need cover those, the end of their edges does. The choice,
    a few programs, lets the next kernel begin beside it as soon as the scores are there.
    """
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
    raw = product_pieces(qr, weights.q_b, "indexer products", positions, mode, soon=True)
    _query_kernel[(triton.cdiv(heads, QUERY_HEADS), rows)](
        raw, raw.stride(0), raw.stride(1), q, positions, turns, turns.shape[1], heads,
        PIECES=raw.shape[1], ROUNDED=rounded, HEADS=QUERY_HEADS, WIDTH=width,
        STAGES=width.bit_length() - 1, num_warps=4, **early(x.device),
    )  # fmt: skip
    lanes.wait(head_weights)
    lanes.wait(index_rows)
    _score_kernel[(triton.cdiv(capacity, KEYS), rows)](
        q, head_weights, index_rows, positions, scores, heads, scores.shape[1], ratio,
        1.0 / (width * heads) ** 0.5, KEYS=KEYS, HEADS=max(16, triton.next_power_of_2(heads)),
        WIDTH=width, HALF=half, num_warps=4,
    )  # fmt: skip
    choose_rows(scores, positions, ratio, k, size, selected, counts, gaps)
