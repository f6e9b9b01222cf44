"""CPU kernels of `kernels.attention`: each row over its exact own keys, in order of position.

Threads share the rows.
"""

from __future__ import annotations

import numpy as np
from numba import types

from kernels.cpu.compiling import inline, kernel, shared
from kernels.cpu.key_lanes import QUAD, lay_heads, score_keys, softmax_keys, weigh_keys
from kernels.cpu.lanes import (
    HEAD_LANES,
    KEY_BLOCK,
    address,
    float_at,
    int_at,
    keep,
    set_float,
    set_word,
    word_at,
    words_at,
)
from kernels.cpu.row_lanes import rotate_row, scale_row
from kernels.cpu.rows import perturb
from kernels.cpu.threads import address_of, parallel, set_words, spare_words, threads
from kernels.mode import BATCH_ORDER


@kernel("void(int64[::1], int64, int64, int64[:,::1])")
def key_spans(positions, window, ratio, spans):  # type: ignore[no-untyped-def]
    for r in range(positions.size):
        position = positions[r]
        spans[r, 0] = max(position - window + 1, 0)
        spans[r, 1] = position + 1
        spans[r, 2] = (position + 1) // ratio if ratio else 0


@inline
def scratch_floats(width, most):  # type: ignore[no-untyped-def]
    """Floats of a thread's workspace: of eight heads the query, padded to whole quads, sums, sinks,
    totals, and scores of `most` keys, padded to whole blocks."""
    return HEAD_LANES * (2 * width + QUAD + 2 + most + KEY_BLOCK)


@shared("ds4tui_attend", types.void, *[types.intp] * 3)
def _attend(arguments: int, row: int, who: int) -> None:
    """One row: its keys, then scores, weights and sums of eight heads at a time."""
    (q, ring, slots, extra, extra_rows, spans, selected, selectable, counts, sinks, heads, width,
     positions, turns, turned, out, batch, keys, space) = words_at(arguments, 19)  # fmt: skip
    first, end, seen = words_at(spans + 24 * row, 3)
    chosen = int_at(counts, row)
    most = slots + extra_rows
    keys_at = keys + 8 * most * who
    query_at = space + 4 * scratch_floats(width, most) * who
    count, slot = 0, first % slots
    for _ in range(first, end):
        set_word(keys_at, count, ring + 4 * width * slot)
        count += 1
        slot = slot + 1 if slot + 1 < slots else 0
    for i in range(seen if chosen < 0 else chosen):
        index = i if chosen < 0 else int_at(selected, row * selectable + i)
        set_word(keys_at, count, extra + 4 * width * index)
        count += 1
    totals_at = query_at + 4 * (width + QUAD) * HEAD_LANES
    sink_at = totals_at + 4 * HEAD_LANES
    sums_at = sink_at + 4 * HEAD_LANES
    scores_at = sums_at + 4 * width * HEAD_LANES
    scale = np.float32(1.0 / np.sqrt(float(width)))
    for head in range(0, heads, HEAD_LANES):
        real = min(HEAD_LANES, heads - head)
        row_at = 4 * width * (row * heads + head)
        lay_heads(q + row_at, real, width, query_at)
        for h in range(HEAD_LANES):
            set_float(sink_at, h, float_at(sinks, head + min(h, real - 1)))
        middle, middle_key = width, count
        if batch:
            middle, middle_key = width // (2 * QUAD) * QUAD, count // 2
        for half in range(2 if batch else 1):
            begin, stop = half * middle, width if half else middle
            score_keys(query_at, keys_at, count, begin, stop, scores_at, half)
        softmax_keys(scores_at, count, scale, sink_at, totals_at)
        for half in range(2 if batch else 1):
            begin, stop = half * middle_key, count if half else middle_key
            weigh_keys(scores_at, keys_at, begin, stop, width, sums_at, half)
        for h in range(real):
            target = out + row_at + 4 * width * h
            factor = np.float32(1.0) / float_at(totals_at, h)
            scale_row(sums_at + 4 * width * h, width, factor, target)
            tail, turn = target + 4 * (width - turned), turns + 4 * turned * word_at(positions, row)
            rotate_row(tail, turned, turn, np.float32(-1))


_attend_at = address_of("ds4tui_attend")


@kernel(
    "void(float32[:,::1], float32[:,::1], float32[:,::1], int64[:,::1], int32[:,::1], int32[::1],"
    " float32[::1], int64[::1], float32[:,::1], int64, float32[:,::1], int64[::1])"
)
def attention(  # type: ignore[no-untyped-def]
    q, ring, extra, spans, selected, counts, sinks, positions, turns, heads, out, mode
):
    rows, width = q.shape[0], ring.shape[1]
    most = ring.shape[0] + extra.shape[0]
    keys = np.empty(threads() * most, np.int64)
    space = np.empty(threads() * scratch_floats(width, most), np.float32)
    arguments = spare_words()
    set_words(
        arguments,
        (address(q), address(ring), ring.shape[0], address(extra), extra.shape[0], address(spans),
         address(selected), selected.shape[1], address(counts), address(sinks), heads, width,
         address(positions), address(turns), turns.shape[1], address(out), mode[0] & BATCH_ORDER,
         address(keys), address(space)),
    )  # fmt: skip
    parallel(_attend_at(), arguments, rows)
    keep(keys)
    keep(space)
    perturb(address(out), heads * width, rows, heads * width, positions, mode)
