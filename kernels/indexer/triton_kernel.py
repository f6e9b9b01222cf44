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
LISTED, OTHERS = 256, 1024
"""Scores of a program that lists; listed ones that others are compared with at once."""
PROGRAMS, OF_SEVERAL = 768, 256
"""Programs that place the listed ones, some hundred to some thousand, of a row alone, and of each
of several rows."""
LOWEST, HIGHEST = tl.constexpr(-2147483648), tl.constexpr(2147483647)
"""Ranks below and above those of all numbers."""
NOTHING = tl.constexpr(-9223372036854775808)
"""Below all that is listed."""


@triton.jit
def _query_kernel(
    raw, row_stride, piece, q, positions, turns, size, heads, PIECES: tl.constexpr,
    ROUNDED: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Queries of a few heads from the pieces of their sums: rotated, transformed, rounded.

    The scores may begin at once: all that they read early is older than this kernel's launch.
    """
    next_may_begin()
    row = tl.program_id(1)
    h = tl.program_id(0) * HEADS + tl.arange(0, HEADS)
    position = tl.load(positions + row)
    at = h[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    inside = (h < heads)[:, None] & (tl.arange(0, WIDTH) >= 0)[None, :]
    c, s = row_turns(turns + position * size, WIDTH, size, 1.0, WIDTH)
    c, s = c[None, :], s[None, :]
    all_written()
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

    The groups share a row's compressed rows evenly, neighbours in different ones. Rows that earlier
    steps completed are loaded before the queries are there. Nothing is listed yet.
    """
    next_may_begin()
    row, group = tl.program_id(0), tl.program_id(1)
    count = ((tl.load(positions + row) + 1) // ratio).to(tl.int32)
    live = (count + KEYS - 1) // KEYS
    if group == 0:
        # Who used these last had ended before the queries' kernel could begin.
        tl.store(listed + row, 0)
        tl.store(gaps + row, 0.0)
    if group < tl.maximum(live, 1):
        j = group + live * tl.arange(0, KEYS)
        d = tl.arange(0, WIDTH)
        real = j < count
        at = index_rows + j.to(tl.int64)[:, None] * WIDTH + d[None, :]
        inside = real[:, None] & (d >= 0)[None, :]
        new = tl.max((real & (j >= tl.load(positions) // ratio)).to(tl.int32), 0) > 0
        tile = tl.load(at, mask=inside & (not new), other=0.0).to(q.dtype.element_ty)
        all_written()
        if new:
            tile = tl.load(at, mask=inside, other=0.0).to(q.dtype.element_ty)
        if HALF:
            h = tl.arange(0, HEADS)
            weight = tl.load(weights + row * heads + h, mask=h < heads, other=0.0) * scale
            query = tl.load(
                q + (row * heads + h)[:, None] * WIDTH + d[None, :],
                mask=(h < heads)[:, None] & (d >= 0)[None, :], other=0.0,
            )  # fmt: skip
            found = tl.dot(tile, tl.trans(query))
            total = tl.sum(tl.maximum(found, 0.0) * weight[None, :], 1)
        else:
            total = tl.zeros([KEYS], tl.float32)
            for head in range(heads):
                one = tl.load(q + (row * heads + head) * WIDTH + d)
                found1 = tl.maximum(tl.sum(tile * one[None, :], 1), 0.0)
                total += found1 * (tl.load(weights + row * heads + head) * scale)
        rank = tl.where(real, float_ranks(tl.where(total == 0.0, 0.0, total)), LOWEST)
        tl.store(ranks + row * stride + j, rank, mask=real)
        # So many of each group are k + 1 or more; where a group has fewer, everything is listed.
        share = (k + live) // tl.maximum(live, 1)
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
def _four(at):
    """Four neighbours in memory."""
    return tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)


@triton.jit
def _better(others, own0, own1, own2, own3):
    """Which of the others are better than each of four: (others, 2, 2)."""
    even = tl.join((others > own0).to(tl.int32), (others > own2).to(tl.int32))
    odd = tl.join((others > own1).to(tl.int32), (others > own3).to(tl.int32))
    return tl.join(even, odd)


@triton.jit
def _select(key, place, listed, selected, gap, k):
    """Put one listed row where it belongs; the k-th and the one after it leave their gap."""
    if listed & (place <= k):
        if place < k:
            index = (key ^ HIGHEST) & HIGHEST  # HIGHEST less the low bits
            tl.store(selected + place, index.to(tl.int32))
        if place >= k - 1:
            score = float_of_rank((key >> 32).to(tl.int32))
            tl.atomic_add(gap, tl.where(place == k, -score, score), sem="relaxed")


@triton.jit
def _place_kernel(
    keys, listed, positions, selected, counts, gaps, stride, ratio, k, OTHERS: tl.constexpr,
):  # fmt: skip
    """Places of listed rows, four at once: how many are better. The k best are selected.

    The k-th and the one after it add their scores to the gap, which was zero: in either order that
    is their difference, but for differences below the least normal number, which are zero.

    The kernel after may begin when the list is there: attention's programs, in place sooner beside
    the query's product, would crowd together where that leaves room.
    """
    part, row = tl.program_id(0), tl.program_id(1)
    count = ((tl.load(positions + row) + 1) // ratio).to(tl.int32)
    keys += row * stride
    selected += row * k
    gaps += row
    inputs_ready()
    if part == 0:
        tl.store(counts + row, tl.where(count > k, k, -1))
        if count <= k:
            tl.store(gaps, float("inf"))
    if count > k:
        i, j = 4 * part, tl.arange(0, OTHERS)
        total = tl.load(listed + row)
        # Before it is known how many there are.
        own0, own1, own2, own3 = _four(keys + i)
        first, second = tl.load(keys + j), tl.load(keys + OTHERS + j)
        first = tl.where(j < total, first, NOTHING)
        second = tl.where(OTHERS + j < total, second, NOTHING)
        while i < total:
            better = _better(first, own0, own1, own2, own3)
            if total > OTHERS:
                better += _better(second, own0, own1, own2, own3)
            for begin in range(2 * OTHERS, total, OTHERS):
                more = tl.load(keys + begin + j, mask=begin + j < total, other=NOTHING)
                better += _better(more, own0, own1, own2, own3)
            even, odd = tl.split(tl.sum(better, 0))
            place0, place2 = tl.split(even)
            place1, place3 = tl.split(odd)
            _select(own0, place0, i < total, selected, gaps, k)
            _select(own1, place1, i + 1 < total, selected, gaps, k)
            _select(own2, place2, i + 2 < total, selected, gaps, k)
            _select(own3, place3, i + 3 < total, selected, gaps, k)
            i += 4 * tl.num_programs(0)
            if i < total:
                own0, own1, own2, own3 = _four(keys + i)


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
    # Two tiles of others are read, whatever has been listed.
    width = (triton.cdiv(capacity, OTHERS) + 1) * OTHERS
    keys = scratch(ranks.device, "indexer keys", rows, width, dtype=torch.int64)
    groups = bounds.shape[1]
    enough = triton.next_power_of_2(min(k + 1, groups))
    _list_kernel[(triton.cdiv(capacity, LISTED), rows)](
        ranks, bounds, positions, keys, listed, capacity, width, groups, ratio, k,
        LISTED=LISTED, KEYS=KEYS, FOLDS=triton.next_power_of_2(triton.cdiv(groups, enough)),
        ENOUGH=enough, num_warps=2, **early(ranks.device),
    )  # fmt: skip
    programs = PROGRAMS if rows == 1 else OF_SEVERAL
    _place_kernel[(min(programs, triton.cdiv(capacity, 4)), rows)](
        keys, listed, positions, selected, counts, gaps, width, ratio, k, OTHERS=OTHERS,
        num_warps=4, **early(ranks.device),
    )  # fmt: skip


def select_rows(
    x: Any, qr: Any, positions: Any, weights: Any, turns: Any, heads: int, ratio: int, k: int,
    rounded: bool, index_rows: Any, selected: Any, counts: Any, gaps: Any, mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.indexer.select_rows`.

    What the line does with qr next may go on a lane, beside all of this, from here on. Kernels are
    in place before the one before has ended.
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
        lanes.ready(head_weights)
    lanes.ready(qr)
    raw = product_pieces(qr, weights.q_b, "indexer products", positions, mode, soon=True)
    lanes.wait(head_weights)
    _query_kernel[(triton.cdiv(heads, QUERY_HEADS), rows)](
        raw, raw.stride(0), raw.stride(1), q, positions, turns, turns.shape[1], heads,
        PIECES=raw.shape[1], ROUNDED=rounded, HEADS=QUERY_HEADS, WIDTH=width,
        STAGES=width.bit_length() - 1, num_warps=4, **early(x.device),
    )  # fmt: skip
    lanes.wait(index_rows)
    _score_kernel[(rows, groups)](
        q, head_weights, index_rows, positions, ranks, bounds, listed, gaps, heads, capacity,
        groups, ratio, 1.0 / (width * heads) ** 0.5, k, KEYS=KEYS,
        HEADS=max(16, triton.next_power_of_2(heads)), WIDTH=width, HALF=half, num_warps=4,
        **early(x.device),
    )  # fmt: skip
    choose_rows(ranks, bounds, listed, positions, ratio, k, selected, counts, gaps)
