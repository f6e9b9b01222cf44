"""Triton kernels of `kernels.attention`: keys in chunks of a fixed size, added up in order.

A program takes one chunk of a row's keys and a group of heads; a second kernel adds the chunks up.
Chunks are counted from a row's own first key, so that they do not depend on the batch.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda.products import numerics, perturb
from kernels.cuda.rows import rotate_row
from kernels.cuda.workspace import scratch
from kernels.mode import Mode

HEADS = 16
"""Heads of one program."""


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
    HEADS: tl.constexpr, WIDE: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    chunk, group, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    j = tl.arange(0, KEYS)
    d = tl.arange(0, WIDE)
    first = tl.load(spans + row * 3)
    end = tl.load(spans + row * 3 + 1)
    limit = tl.load(spans + row * 3 + 2)
    count = tl.load(counts + row)
    chosen = count >= 0
    limit = tl.where(chosen, count.to(tl.int64), limit)
    if chunk < RING_CHUNKS:
        position = first + chunk * KEYS + j
        real = position < end
        keys = ring + (position % slots)[:, None] * width + d[None, :]
    else:
        index = (chunk - RING_CHUNKS) * KEYS + j
        real = index < limit
        listed = index < tl.maximum(count, 0)
        picked = tl.load(selected + row * choices + index, mask=listed, other=0)
        index = tl.where(chosen, picked.to(tl.int64), index.to(tl.int64))
        keys = extra + index[:, None] * width + d[None, :]
    if tl.max(real.to(tl.int32), 0) > 0:
        inside = (d < width)[None, :]
        tile = tl.load(keys, mask=real[:, None] & inside, other=0.0)
        if HALF:
            h = group * HEADS + tl.arange(0, HEADS)
            at = q + (row * heads + h)[:, None] * width + d[None, :]
            query = tl.load(at, mask=(h < heads)[:, None] & inside, other=0.0).to(tl.float16)
            tile16 = tile.to(tl.float16)
            scores = tl.dot(query, tl.trans(tile16)) * scale
            scores = tl.where(real[None, :], scores, float("-inf"))
            top = tl.max(scores, 1)
            share = tl.exp(scores - top[:, None])
            place = (row * CHUNKS + chunk) * heads + h
            tl.store(tops + place, top, mask=h < heads)
            tl.store(totals + place, tl.sum(share, 1), mask=h < heads)
            out = tl.dot(share.to(tl.float16), tile16)
            at = sums + place[:, None] * width + d[None, :]
            tl.store(at, out, mask=(h < heads)[:, None] & inside)
        else:
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
):  # fmt: skip
    """One head of one row: its chunks in order, the sink, and the rotation back."""
    head, row = tl.program_id(0), tl.program_id(1)
    keys = tl.load(spans + row * 3 + 1) - tl.load(spans + row * 3)
    limit = tl.load(spans + row * 3 + 2)
    count = tl.load(counts + row)
    limit = tl.where(count >= 0, count.to(tl.int64), limit)
    ring_live = (keys + KEYS - 1) // KEYS
    extra_live = (limit + KEYS - 1) // KEYS
    i = tl.arange(0, WIDE)
    sink = tl.load(sinks + head)
    top = sink
    for c in range(RING_CHUNKS):
        if c < ring_live:
            top = tl.maximum(top, tl.load(tops + (row * CHUNKS + c) * heads + head))
    for c in range(extra_live.to(tl.int32)):
        top = tl.maximum(top, tl.load(tops + (row * CHUNKS + RING_CHUNKS + c) * heads + head))
    total = tl.exp(sink - top)
    result = tl.zeros([WIDE], tl.float32)
    for c in range(RING_CHUNKS):
        if c < ring_live:
            place = (row * CHUNKS + c) * heads + head
            factor = tl.exp(tl.load(tops + place) - top)
            total += factor * tl.load(totals + place)
            result += factor * tl.load(sums + place * width + i, mask=i < width, other=0.0)
    for c in range(extra_live.to(tl.int32)):
        place = (row * CHUNKS + RING_CHUNKS + c) * heads + head
        factor = tl.exp(tl.load(tops + place) - top)
        total += factor * tl.load(totals + place)
        result += factor * tl.load(sums + place * width + i, mask=i < width, other=0.0)
    position = tl.load(positions + row)
    result = rotate_row(result / total, width, turns + position * size, size, -1.0, WIDE)
    tl.store(out + (row * heads + head) * width + i, result, mask=i < width)


def attention(
    q: Any, ring: Any, extra: Any, spans: Any, selected: Any, counts: Any, sinks: Any,
    positions: Any, turns: Any, out: Any, reach: tuple[int, int], mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.attention.attention`."""
    rows, width = q.shape[0], ring.shape[1]
    heads, half = sinks.shape[0], numerics(mode) != "vector"
    keys = 64 if half and not mode.tiles and width < 512 else 32  # shared memory
    ring_chunks = triton.cdiv(reach[0], keys)
    chunks = ring_chunks + triton.cdiv(min(reach[1], extra.shape[0]), keys)
    device = q.device
    tops = scratch(device, "attention tops", rows, chunks, heads)
    totals = scratch(device, "attention totals", rows, chunks, heads)
    sums = scratch(device, "attention sums", rows, chunks, heads, width)
    wide = max(64, triton.next_power_of_2(width))
    _chunk_kernel[(chunks, triton.cdiv(heads, HEADS), rows)](
        q, ring, ring.shape[0], extra, spans, selected, selected.shape[1], counts, tops, totals,
        sums, heads, width, 1.0 / width**0.5, RING_CHUNKS=ring_chunks, CHUNKS=chunks, KEYS=keys,
        HEADS=HEADS, WIDE=wide, HALF=half, num_warps=8 if wide >= 512 else 4,
    )  # fmt: skip
    _combine_kernel[(heads, rows)](
        spans, counts, sinks, tops, totals, sums, positions, turns, turns.shape[1], out, heads,
        width, RING_CHUNKS=ring_chunks, CHUNKS=chunks, KEYS=keys, WIDE=wide, num_warps=4,
    )  # fmt: skip
    perturb(out, positions, mode)
