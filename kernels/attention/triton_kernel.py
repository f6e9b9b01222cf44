"""Triton kernels of `kernels.attention`: keys in chunks of a fixed size, added up in order.

A program takes one chunk of a row's keys and a group of heads; a second kernel adds the chunks up.
Chunks are counted from a row's own first key, so that they do not depend on the batch. Where rows
are rounded to F16 for products, so are the chunks' sums on their way to that kernel, divided by the
number of keys, a power of two: they are in range where the keys are.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import numerics, perturb
from kernels.cuda.rows import inverse_rms, rotate_row, row_turns
from kernels.cuda.workspace import scratch
from kernels.mode import Mode
from kernels.packed.early import early, inputs_ready

HEADS, KEYS = 16, 16
"""Heads and keys of one program."""
PIECE = 64
"""Columns of a row that a warp multiplies by itself."""
CHOSEN_REGISTERS = 168
"""Of a thread that may read selected rows: three programs fit on a multiprocessor, not two."""


@triton.jit(do_not_specialize=["rows"])
def _spans_kernel(positions, window, ratio, spans, rows, SIZE: tl.constexpr):
    r = tl.arange(0, SIZE)
    real = r < rows
    position = tl.load(positions + r, mask=real, other=0)
    count = tl.where(ratio > 0, (position + 1) // tl.maximum(ratio, 1), 0)
    tl.store(spans + 3 * r, tl.maximum(position - window + 1, 0), mask=real)
    tl.store(spans + 3 * r + 1, position + 1, mask=real)
    tl.store(spans + 3 * r + 2, count, mask=real)


def key_spans(positions: Any, window: int, ratio: int, spans: Any) -> None:
    """As `kernels.attention.key_spans`, for at most 32 rows."""
    _spans_kernel[(1,)](positions, window, ratio, spans, positions.shape[0], SIZE=32, num_warps=1)


@triton.jit
def _finished(x, c, s, width, epsilon):
    """Queries (P, H, W), H heads in P pieces of the width: normed, then turned pair by pair.

    Args:
        c, s: (P, 1, W / 2), cosine and sine of every pair.
    """
    squares = tl.sum(tl.sum(x * x, 2), 0)
    x *= inverse_rms(squares, width, epsilon)[None, :, None]
    a, b = tl.split(tl.reshape(x, [x.shape[0], x.shape[1], x.shape[2] // 2, 2]))
    return tl.reshape(tl.join(a * c - b * s, a * s + b * c), x.shape)


@triton.jit
def _listed(index, spans, selected, choices, counts, row):
    """Which rows of `extra` a row's keys of some indices are, and whether it has so many."""
    count = tl.load(counts + row)
    picked = tl.load(selected + row * choices + index, mask=index < choices, other=0)
    limit = tl.where(count >= 0, count.to(tl.int64), tl.load(spans + row * 3 + 2))
    return tl.where(count >= 0, picked, index), index < limit


@triton.jit
def _chunk_kernel(
    q, ring, slots, extra, spans, selected, choices, counts, positions, turns, size, tops, totals,
    sums, heads, width, scale, epsilon, ratio, CHOSEN: tl.constexpr, RING_CHUNKS: tl.constexpr,
    CHUNKS: tl.constexpr, KEYS: tl.constexpr, HEADS: tl.constexpr, PIECE: tl.constexpr,
    WIDE: tl.constexpr, FULL: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Scores, shares and weighted sum of one chunk of keys, for a group of heads.

    The kernels before, in the line and on lanes, wrote the queries and what else is of this step.
    Ring rows, and rows of `extra` that earlier steps wrote, are loaded before they have ended.

    HALF: on tensor cores. FULL: heads and width fill their tiles. CHOSEN: rows may be selected.
    """
    chunk, group, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    j = tl.arange(0, KEYS)
    position = tl.load(positions + row)
    turns += position * size
    listed = (chunk >= RING_CHUNKS) & CHOSEN
    index = (chunk - RING_CHUNKS) * KEYS + j
    if chunk < RING_CHUNKS:
        first = tl.load(spans + row * 3)
        place = first + chunk * KEYS + j
        real = place < tl.load(spans + row * 3 + 1)
        line = place.to(tl.int32) % slots
        keys = ring
    else:
        limit = tl.load(spans + row * 3 + 2)
        real = index < limit
        line = index
        keys = extra
        if not CHOSEN:  # noqa: SIM102 - decided when it is compiled
            if (chunk - RING_CHUNKS + 1) * KEYS > tl.load(positions) // ratio:
                inputs_ready()  # these tokens may complete a row of the chunk
    if tl.max(real.to(tl.int32), 0) > 0:
        if HALF:
            # The width in pieces that a warp each multiplies.
            p, i = tl.arange(0, WIDE // PIECE), tl.arange(0, PIECE)
            d = (p * PIECE)[:, None, None] + i[None, None, :]
            column = FULL | (d < width)
            at = keys + line.to(tl.int64)[None, :, None] * width + d
            tile = tl.load(at, mask=real[None, :, None] & column & (not listed), other=0.0)
            half = tl.arange(0, PIECE // 2)
            pair = (p * (PIECE // 2))[:, None, None] + half[None, None, :] - (width - size) // 2
            turning = (pair >= 0) & (pair < size // 2)
            c = tl.load(turns + 2 * pair, mask=turning, other=1.0)
            s = tl.load(turns + 2 * pair + 1, mask=turning, other=0.0)
            inputs_ready()
            h = group * HEADS + tl.arange(0, HEADS)
            own = FULL | (h < heads)
            at = q + (row * heads + h)[None, :, None] * width + d
            query = tl.load(at, mask=own[None, :, None] & column, other=0.0)
            if listed:
                line, real = _listed(index, spans, selected, choices, counts, row)
                tile = tl.load(
                    keys + line.to(tl.int64)[None, :, None] * width + d,
                    mask=real[None, :, None] & column, other=0.0,
                )  # fmt: skip
            query = _finished(query, c, s, width, epsilon).to(tl.float16)
            tile = tile.to(tl.float16)
            scores = tl.sum(tl.dot(query, tl.permute(tile, (0, 2, 1))), 0) * scale
            scores = tl.where(real[None, :], scores, float("-inf"))
            top = tl.max(scores, 1)
            share = tl.exp(scores - top[:, None])
            place = (row * CHUNKS + chunk) * heads + h
            tl.store(tops + place, top, mask=own)
            tl.store(totals + place, tl.sum(share, 1), mask=own)
            shares = tl.broadcast_to(share.to(tl.float16)[None, :, :], (WIDE // PIECE, HEADS, KEYS))
            out = tl.dot(shares, tile)
            at = sums + place[None, :, None] * width + d
            out = (out * (1.0 / KEYS)).to(tl.float16)
            tl.store(at, out, mask=own[None, :, None] & column)
        else:
            d = tl.arange(0, WIDE)
            if listed:
                inputs_ready()
                line, real = _listed(index, spans, selected, choices, counts, row)
            at = keys + line.to(tl.int64)[:, None] * width + d[None, :]
            tile = tl.load(at, mask=real[:, None] & (d < width)[None, :], other=0.0)
            c, s = row_turns(turns, width, size, 1.0, WIDE)
            inputs_ready()
            for i in range(0, HEADS):
                h = group * HEADS + i
                if h < heads:
                    query = tl.load(q + (row * heads + h) * width + d, mask=d < width, other=0.0)
                    query *= inverse_rms(tl.sum(query * query, 0), width, epsilon)
                    query = rotate_row(query, c, s, WIDE)
                    scores = tl.sum(tile * query[None, :], 1) * scale
                    scores = tl.where(real, scores, float("-inf"))
                    top = tl.max(scores, 0)
                    share = tl.exp(scores - top)
                    place = (row * CHUNKS + chunk) * heads + h
                    tl.store(tops + place, top)
                    tl.store(totals + place, tl.sum(share, 0))
                    out = tl.sum(tile * share[:, None], 0)
                    tl.store(sums + place * width + d, out, mask=d < width)


@triton.jit
def _combine_kernel(
    spans, counts, sinks, tops, totals, sums, positions, turns, size, out, heads, width,
    RING_CHUNKS: tl.constexpr, CHUNKS: tl.constexpr, KEYS: tl.constexpr, WIDE: tl.constexpr,
    PADDED: tl.constexpr, BLOCK: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """One head of one row: its chunks, BLOCK at a time in order, the sink, the rotation back.

    The kernel before wrote the chunks; how many there are was known before it began.
    """
    head, row = tl.program_id(0), tl.program_id(1)
    position = tl.load(positions + row)
    keys = tl.load(spans + row * 3 + 1) - tl.load(spans + row * 3)
    limit = tl.load(spans + row * 3 + 2)
    count = tl.load(counts + row)
    sink = tl.load(sinks + head)
    # Four columns a thread, of F16 sums too: each has all chunks of its columns.
    i = tl.max_contiguous(tl.arange(0, WIDE), 4)
    c, s = row_turns(turns + position * size, width, size, -1.0, WIDE)
    limit = tl.where(count >= 0, count.to(tl.int64), limit)
    ring_live = ((keys + KEYS - 1) // KEYS).to(tl.int32)
    live = (RING_CHUNKS + (limit + KEYS - 1) // KEYS).to(tl.int32)
    every = tl.arange(0, PADDED)
    counted = (every < ring_live) | ((every >= RING_CHUNKS) & (every < live))
    all_places = (row * CHUNKS + every) * heads + head
    chunk = tl.arange(0, BLOCK)
    place = (row * CHUNKS + chunk) * heads + head
    at = sums + place[:, None] * width + i[None, :]
    own_at = tops + place
    inputs_ready()
    highest = tl.load(tops + all_places, mask=counted, other=float("-inf"))
    amounts = tl.load(totals + all_places, mask=counted, other=0.0)
    real = (chunk < ring_live) | ((chunk >= RING_CHUNKS) & (chunk < live))
    tile = tl.load(at, mask=real[:, None] & (i < width)[None, :], other=0.0).to(tl.float32)
    own = tl.load(own_at, mask=real, other=float("-inf"))
    top = tl.maximum(tl.max(highest, 0), sink)
    total = tl.sum(tl.exp(highest - top) * amounts, 0) + tl.exp(sink - top)
    result = tl.sum(tile * (tl.exp(own - top) * SCALE)[:, None], 0)
    for _ in range(BLOCK, live, BLOCK):
        at += BLOCK * heads * width
        own_at += BLOCK * heads
        chunk += BLOCK
        real = (chunk < ring_live) | ((chunk >= RING_CHUNKS) & (chunk < live))
        tile = tl.load(at, mask=real[:, None] & (i < width)[None, :], other=0.0).to(tl.float32)
        own = tl.load(own_at, mask=real, other=float("-inf"))
        result += tl.sum(tile * (tl.exp(own - top) * SCALE)[:, None], 0)
    result = rotate_row(result / total, c, s, WIDE)
    tl.store(out + (row * heads + head) * width + i, result, mask=i < width)


def attention(
    q: Any, ring: Any, extra: Any, spans: Any, selected: Any, counts: Any, sinks: Any,
    positions: Any, turns: Any, epsilon: float, out: Any, reach: tuple[int, int], ratio: int,
    mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.attention.attention`.

    Ring rows, and rows of `extra` that earlier tokens completed, are read before the kernels have
    ended that were launched last, in the line and on lanes.
    """
    rows, width = q.shape[0], ring.shape[1]
    heads, device = sinks.shape[0], q.device
    keys = 64 if numerics(mode) == "batch" and width < 512 else KEYS
    ring_chunks = triton.cdiv(reach[0], keys)
    chunks = ring_chunks + triton.cdiv(min(reach[1], extra.shape[0]), keys)
    lanes.join()
    tops = scratch(device, "attention tops", rows, chunks, heads)
    totals = scratch(device, "attention totals", rows, chunks, heads)
    half = numerics(mode) != "vector"
    kind = torch.float16 if half else torch.float32
    sums = scratch(device, "attention sums", rows, chunks, heads, width, dtype=kind)
    wide = max(64, triton.next_power_of_2(width))
    _chunk_kernel[(chunks, triton.cdiv(heads, HEADS), rows)](
        q, ring, ring.shape[0], extra, spans, selected, selected.shape[1], counts, positions, turns,
        turns.shape[1], tops, totals, sums, heads, width, 1.0 / width**0.5, epsilon, ratio,
        CHOSEN=ratio == 0, RING_CHUNKS=ring_chunks, CHUNKS=chunks, KEYS=keys, HEADS=HEADS,
        PIECE=PIECE, WIDE=wide, FULL=wide == width and heads % HEADS == 0,
        HALF=half, num_warps=4, maxnreg=None if ratio else CHOSEN_REGISTERS, **early(device),
    )  # fmt: skip
    _combine_kernel[(heads, rows)](
        spans, counts, sinks, tops, totals, sums, positions, turns, turns.shape[1], out, heads,
        width, RING_CHUNKS=ring_chunks, CHUNKS=chunks, KEYS=keys, WIDE=wide,
        PADDED=triton.next_power_of_2(chunks), BLOCK=min(16, triton.next_power_of_2(chunks)),
        SCALE=keys if half else 1, num_warps=4, **early(device),
    )  # fmt: skip
    perturb(out, positions, mode)
