"""Triton kernels of `kernels.indexer`: queries, scores of the visible rows, and the top-k.

The choice counts. A program scores a group of rows and finds the score that so many of the group
reach that, over all groups, k + 1 rows do: the least of these is a bound that the k best reach, and
the next one. What reaches it is listed, in any order, and each one's place among the k best is the
number of listed ones that are better: so `selected` begins with the best. Scores are compared as
ranks, integers in the order of floats.
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
from kernels.cuda.workspace import scratch
from kernels.mode import Mode
from kernels.packed.early import all_written, early, inputs_ready, next_may_begin

QUERY_HEADS, KEYS = 8, 64
"""Heads of a program that finishes queries; compressed rows of one that scores them, a group."""
LISTED, PLACED, OTHERS = 256, 4, 1024
"""Scores of a program that lists; listed ones that a program places at once, and against how many
at once."""
PROGRAMS = 256
"""Programs that place the listed ones of a row, which are some hundred to some thousand."""
LOWEST, HIGHEST = tl.constexpr(-2147483648), tl.constexpr(2147483647)
"""Ranks below and above those of all numbers."""
NOTHING = tl.constexpr(-9223372036854775808)
"""Below all that is listed."""


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
    q, weights, index_rows, positions, ranks, bounds, listed, gaps, heads, stride, groups, ratio,
    scale, k, KEYS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Ranks of a group's scores, and its bound; programs without rows end at once.

    The groups share a row's compressed rows evenly, neighbours in different ones. The kernel before
    finished the queries; all else was there before it let this one begin, and is loaded before it
    has ended. Nothing is listed yet.
    """
    next_may_begin()
    row, group = tl.program_id(0), tl.program_id(1)
    count = ((tl.load(positions + row) + 1) // ratio).to(tl.int32)
    live = (count + KEYS - 1) // KEYS
    if group == 0:
        tl.store(listed + row, 0)
        tl.store(gaps + row, 0.0)
    if group < tl.maximum(live, 1):
        j = group + live * tl.arange(0, KEYS)
        d = tl.arange(0, WIDTH)
        real = j < count
        tile = tl.load(
            index_rows + j.to(tl.int64)[:, None] * WIDTH + d[None, :],
            mask=real[:, None] & (d >= 0)[None, :], other=0.0,
        )  # fmt: skip
        if HALF:
            h = tl.arange(0, HEADS)
            weight = tl.load(weights + row * heads + h, mask=h < heads, other=0.0) * scale
            all_written()
            query = tl.load(
                q + (row * heads + h)[:, None] * WIDTH + d[None, :],
                mask=(h < heads)[:, None] & (d >= 0)[None, :], other=0.0,
            )  # fmt: skip
            found = tl.dot(query, tl.trans(tile.to(tl.float16)))
            total = tl.sum(tl.maximum(found, 0.0) * weight[:, None], 0)
        else:
            all_written()
            total = tl.zeros([KEYS], tl.float32)
            for head in range(heads):
                one = tl.load(q + (row * heads + head) * WIDTH + d)
                found1 = tl.maximum(tl.sum(tile * one[None, :], 1), 0.0)
                total += found1 * (tl.load(weights + row * heads + head) * scale)
        rank = tl.where(real, float_ranks(tl.where(total == 0.0, 0.0, total)), LOWEST)
        tl.store(ranks + row * stride + j, rank, mask=real)
        # So many of each group are k + 1 or more; where a group has fewer, everything is listed.
        share = (k + live) // live
        reached = tl.sum((rank[None, :] >= rank[:, None]).to(tl.int32), 1)
        bound = tl.max(tl.where(reached >= share, rank, LOWEST), 0)
        tl.store(bounds + row * groups + group, bound)


@triton.jit
def _list_kernel(
    ranks, bounds, positions, keys, listed, stride, key_stride, groups, ratio, k,
    LISTED: tl.constexpr, KEYS: tl.constexpr, FOLDS: tl.constexpr, ENOUGH: tl.constexpr,
):  # fmt: skip
    """List what reaches the bound: rank and index as one number, greater where better.

    Where more than ENOUGH groups are live, several of them are taken as one.
    """
    next_may_begin()
    part, row = tl.program_id(0), tl.program_id(1)
    count = ((tl.load(positions + row) + 1) // ratio).to(tl.int32)
    if part * LISTED < tl.maximum(count, 1):
        i = part * LISTED + tl.arange(0, LISTED)
        first = tl.arange(0, ENOUGH)
        group = tl.arange(0, FOLDS)[:, None] * ENOUGH + first[None, :]
        live = (count + KEYS - 1) // KEYS
        all_written()
        rank = tl.load(ranks + row * stride + i, mask=i < count, other=LOWEST)
        own = tl.load(bounds + row * groups + group, mask=group < live, other=LOWEST)
        bound = tl.min(tl.where(first < live, tl.max(own, 0), HIGHEST), 0)
        reaches = ((i < count) & (rank >= bound)).to(tl.int32)
        total = tl.sum(reaches, 0)
        if (total > 0) & (count > k):
            begin = tl.atomic_add(listed + row, total, sem="relaxed")
            key = (rank.to(tl.int64) << 32) | (HIGHEST - i)
            at = keys + row * key_stride + begin + tl.cumsum(reaches, 0) - 1
            tl.store(at, key, mask=reaches > 0)


@triton.jit
def _better(others, own):
    """How many of the others are better than each."""
    return tl.sum((others[None, :] > own[:, None]).to(tl.int32), 1)


@triton.jit
def _place_kernel(
    keys, listed, positions, selected, counts, gaps, stride, ratio, k, PLACED: tl.constexpr,
    OTHERS: tl.constexpr,
):  # fmt: skip
    """Places of some listed rows: how many are better. The k best are selected.

    The k-th and the one after it add their scores to the gap, which was zero: in either order that
    is their difference, but for differences below the least normal number, which are zero.
    """
    next_may_begin()
    part, row = tl.program_id(0), tl.program_id(1)
    step = tl.num_programs(0) * PLACED
    count = ((tl.load(positions + row) + 1) // ratio).to(tl.int32)
    keys += row * stride
    all_written()
    if part == 0:
        tl.store(counts + row, tl.where(count > k, k, -1))
        if count <= k:
            tl.store(gaps + row, float("inf"))
    if count > k:
        i, j = part * PLACED + tl.arange(0, PLACED), tl.arange(0, OTHERS)
        total = tl.load(listed + row)
        own, others = tl.load(keys + i), tl.load(keys + j)  # before it is known how many there are
        for _ in range(part * PLACED, total, step):
            own = tl.where(i < total, own, NOTHING)
            place = _better(tl.where(j < total, others, NOTHING), own)
            for begin in range(OTHERS, total, OTHERS):
                more = tl.load(keys + begin + j, mask=begin + j < total, other=NOTHING)
                place += _better(more, own)
            place = tl.where(i < total, place, k + 1)
            index = HIGHEST - (own & 0xFFFFFFFF).to(tl.int32)
            tl.store(selected + row * k + place, index, mask=place < k)
            score = float_of_rank((own >> 32).to(tl.int32))
            edge = (place == k - 1) | (place == k)
            signed = tl.where(place == k, -score, score)
            tl.atomic_add(gaps + row + 0 * place, signed, mask=edge, sem="relaxed")
            i += step
            own = tl.load(keys + i, mask=i < total, other=NOTHING)


def choose_rows(
    ranks: Any, bounds: Any, listed: Any, positions: Any, ratio: int, k: int, selected: Any,
    counts: Any, gaps: Any,
) -> None:  # fmt: skip
    """The k best of every row's scores.

    Args:
        ranks: (n, capacity) int32, of which a row at position p has (p + 1) // ratio.
        bounds: (n, groups of KEYS) int32; k + 1 ranks or more reach the least one of those groups
            that are as many as a row's ranks fill.
        listed: (n,) int32 zeros, overwritten. gaps: (n,) zeros, written.
        selected, counts, gaps: as those of `select_rows`.
    """
    rows, capacity = ranks.shape
    width = triton.cdiv(capacity, OTHERS) * OTHERS
    keys = scratch(ranks.device, "indexer keys", rows, width, dtype=torch.int64)
    groups = bounds.shape[1]
    enough = triton.next_power_of_2(min(k + 1, groups))
    _list_kernel[(triton.cdiv(capacity, LISTED), rows)](
        ranks, bounds, positions, keys, listed, capacity, width, groups, ratio, k,
        LISTED=LISTED, KEYS=KEYS, FOLDS=triton.next_power_of_2(triton.cdiv(groups, enough)),
        ENOUGH=enough, num_warps=2, **early(ranks.device),
    )  # fmt: skip
    _place_kernel[(min(PROGRAMS, triton.cdiv(capacity, PLACED)), rows)](
        keys, listed, positions, selected, counts, gaps, width, ratio, k, PLACED=PLACED,
        OTHERS=OTHERS, num_warps=4, **early(ranks.device),
    )  # fmt: skip


def select_rows(
    x: Any, qr: Any, positions: Any, weights: Any, turns: Any, heads: int, ratio: int, k: int,
    rounded: bool, index_rows: Any, selected: Any, counts: Any, gaps: Any, mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.indexer.select_rows`.

    All after the product runs on a lane, beside what the line does with qr next. Kernels are in
    place before the one before has ended. The queries wait for what other lanes have made too, and
    let the scores begin then.
    """
    rows, (capacity, width) = x.shape[0], index_rows.shape
    half = numerics(mode) != "vector"
    kind = torch.float16 if half else torch.float32
    q = scratch(x.device, "indexer queries", rows, heads * width, dtype=kind)
    head_weights = scratch(x.device, "indexer weights", rows, heads)
    groups = triton.cdiv(capacity, KEYS)
    ranks = scratch(x.device, "indexer ranks", rows, capacity, dtype=torch.int32)
    bounds = scratch(x.device, "indexer bounds", rows, groups, dtype=torch.int32)
    listed = scratch(x.device, "indexer listed", rows, dtype=torch.int32)
    with lanes.aside(x, lanes.CHOICE):
        product(x, weights.proj, head_weights, mode)
    raw = product_pieces(qr, weights.q_b, "indexer products", positions, mode, soon=True)
    lanes.ready(raw)
    with lanes.aside(raw, lanes.CHOICE):
        lanes.wait(index_rows)
        _query_kernel[(triton.cdiv(heads, QUERY_HEADS), rows)](
            raw, raw.stride(0), raw.stride(1), q, positions, turns, turns.shape[1], heads,
            PIECES=raw.shape[1], ROUNDED=rounded, HEADS=QUERY_HEADS, WIDTH=width,
            STAGES=width.bit_length() - 1, num_warps=4, **early(x.device),
        )  # fmt: skip
        _score_kernel[(rows, groups)](
            q, head_weights, index_rows, positions, ranks, bounds, listed, gaps, heads, capacity,
            groups, ratio, 1.0 / (width * heads) ** 0.5, k, KEYS=KEYS,
            HEADS=max(16, triton.next_power_of_2(heads)), WIDTH=width, HALF=half, num_warps=4,
            **early(x.device),
        )  # fmt: skip
        choose_rows(ranks, bounds, listed, positions, ratio, k, selected, counts, gaps)
