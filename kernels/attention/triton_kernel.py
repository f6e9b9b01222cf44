"""Triton kernels of `kernels.attention`: keys in chunks of a fixed size, added up in order.

A program takes one chunk of a row's keys and a group of heads; a second kernel adds the chunks up.
Chunks are counted from a row's own first key, so that they do not depend on the batch.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import numerics, perturb
from kernels.cuda.rows import rotate_row, row_turns
from kernels.cuda.workspace import scratch
from kernels.mode import Mode
from kernels.packed.early import early, inputs_ready

HEADS = 16
"""Heads of one program."""
PIECE = 64
"""Columns of a row that a warp multiplies by itself."""


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
def _chunk_kernel(
    q, ring, slots, extra, spans, selected, choices, counts, tops, totals, sums, heads, width,
    scale, RING_CHUNKS: tl.constexpr, CHUNKS: tl.constexpr, KEYS: tl.constexpr,
    HEADS: tl.constexpr, PIECES: tl.constexpr, WIDE: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Scores, shares and weighted sum of one chunk of keys, for a group of heads.

    HALF: on tensor cores, in PIECES of the width that a warp each takes.
    """
    inputs_ready()
    chunk, group, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    j = tl.arange(0, KEYS)
    first = tl.load(spans + row * 3)
    end = tl.load(spans + row * 3 + 1)
    limit = tl.load(spans + row * 3 + 2)
    count = tl.load(counts + row)
    chosen = count >= 0
    limit = tl.where(chosen, count.to(tl.int64), limit)
    if chunk < RING_CHUNKS:
        position = first + chunk * KEYS + j
        real = position < end
        line = position.to(tl.int32) % slots
        keys = ring
    else:
        index = (chunk - RING_CHUNKS) * KEYS + j
        real = index < limit
        listed = index < tl.maximum(count, 0)
        picked = tl.load(selected + row * choices + index, mask=listed, other=0)
        line = tl.where(chosen, picked, index)
        keys = extra
    if tl.max(real.to(tl.int32), 0) > 0:
        if HALF:
            piece: tl.constexpr = WIDE // PIECES
            p, i = tl.arange(0, PIECES), tl.arange(0, piece)
            d = (p * piece)[:, None, None] + i[None, None, :]
            h = group * HEADS + tl.arange(0, HEADS)
            at = q + (row * heads + h)[None, :, None] * width + d
            query = tl.load(at, mask=(h < heads)[None, :, None] & (d < width), other=0.0)
            at = keys + line.to(tl.int64)[None, :, None] * width + d
            tile = tl.load(at, mask=real[None, :, None] & (d < width), other=0.0).to(tl.float16)
            scores = tl.dot(query.to(tl.float16), tl.permute(tile, (0, 2, 1)))
            scores = tl.sum(scores, 0) * scale
            scores = tl.where(real[None, :], scores, float("-inf"))
            top = tl.max(scores, 1)
            share = tl.exp(scores - top[:, None])
            place = (row * CHUNKS + chunk) * heads + h
            tl.store(tops + place, top, mask=h < heads)
            tl.store(totals + place, tl.sum(share, 1), mask=h < heads)
            shares = tl.broadcast_to(share.to(tl.float16)[None, :, :], (PIECES, HEADS, KEYS))
            out = tl.dot(shares, tile)
            at = sums + place[None, :, None] * width + d
            tl.store(at, out, mask=(h < heads)[None, :, None] & (d < width))
        else:
            d = tl.arange(0, WIDE)
            at = keys + line.to(tl.int64)[:, None] * width + d[None, :]
            tile = tl.load(at, mask=real[:, None] & (d < width)[None, :], other=0.0)
            for i in range(0, HEADS):
                h = group * HEADS + i
                if h < heads:
                    query = tl.load(q + (row * heads + h) * width + d, mask=d < width, other=0.0)
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
    PADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One head of one row: its chunks, BLOCK at a time in order, the sink, the rotation back."""
    head, row = tl.program_id(0), tl.program_id(1)
    position = tl.load(positions + row)
    keys = tl.load(spans + row * 3 + 1) - tl.load(spans + row * 3)
    limit = tl.load(spans + row * 3 + 2)
    sink = tl.load(sinks + head)
    i = tl.arange(0, WIDE)
    c, s = row_turns(turns + position * size, width, size, -1.0, WIDE)
    inputs_ready()
    count = tl.load(counts + row)
    limit = tl.where(count >= 0, count.to(tl.int64), limit)
    ring_live = (keys + KEYS - 1) // KEYS
    live = RING_CHUNKS + (limit + KEYS - 1) // KEYS
    every = tl.arange(0, PADDED)
    counted = (every < ring_live) | ((every >= RING_CHUNKS) & (every < live))
    all_places = (row * CHUNKS + every) * heads + head
    highest = tl.load(tops + all_places, mask=counted, other=float("-inf"))
    amounts = tl.load(totals + all_places, mask=counted, other=0.0)
    top = tl.maximum(tl.max(highest, 0), sink)
    total = tl.sum(tl.exp(highest - top) * amounts, 0) + tl.exp(sink - top)
    result = tl.zeros([WIDE], tl.float32)
    for start in range(0, live.to(tl.int32), BLOCK):
        chunk = start + tl.arange(0, BLOCK)
        real = (chunk < ring_live) | ((chunk >= RING_CHUNKS) & (chunk < live))
        place = (row * CHUNKS + chunk) * heads + head
        at = sums + place[:, None] * width + i[None, :]
        tile = tl.load(at, mask=real[:, None] & (i < width)[None, :], other=0.0)
        factor = tl.exp(tl.load(tops + place, mask=real, other=float("-inf")) - top)
        result += tl.sum(tile * factor[:, None], 0)
    result = rotate_row(result / total, c, s, WIDE)
    tl.store(out + (row * heads + head) * width + i, result, mask=i < width)


def attention(
    q: Any, ring: Any, extra: Any, spans: Any, selected: Any, counts: Any, sinks: Any,
    positions: Any, turns: Any, out: Any, reach: tuple[int, int], mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.attention.attention`."""
    rows, width = q.shape[0], ring.shape[1]
    heads, device = sinks.shape[0], q.device
    keys = 64 if numerics(mode) == "batch" and width < 512 else 32
    ring_chunks = triton.cdiv(reach[0], keys)
    chunks = ring_chunks + triton.cdiv(min(reach[1], extra.shape[0]), keys)
    lanes.join()
    tops = scratch(device, "attention tops", rows, chunks, heads)
    totals = scratch(device, "attention totals", rows, chunks, heads)
    sums = scratch(device, "attention sums", rows, chunks, heads, width)
    wide = max(64, triton.next_power_of_2(width))
    _chunk_kernel[(chunks, triton.cdiv(heads, HEADS), rows)](
        q, ring, ring.shape[0], extra, spans, selected, selected.shape[1], counts, tops, totals,
        sums, heads, width, 1.0 / width**0.5, RING_CHUNKS=ring_chunks, CHUNKS=chunks, KEYS=keys,
        HEADS=HEADS, PIECES=wide // PIECE, WIDE=wide, HALF=numerics(mode) != "vector",
        num_warps=4, **early(device),
    )  # fmt: skip
    _combine_kernel[(heads, rows)](
        spans, counts, sinks, tops, totals, sums, positions, turns, turns.shape[1], out, heads,
        width, RING_CHUNKS=ring_chunks, CHUNKS=chunks, KEYS=keys, WIDE=wide,
        PADDED=triton.next_power_of_2(chunks), BLOCK=min(16, triton.next_power_of_2(chunks)),
        num_warps=4, **early(device),
    )  # fmt: skip
    perturb(out, positions, mode)
