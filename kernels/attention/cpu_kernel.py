"""CPU kernels of `kernels.attention`: each row over its exact own keys, in order of position."""

from __future__ import annotations

import numpy as np

from kernels.cpu.compiling import kernel
from kernels.cpu.key_lanes import QUAD, lay_heads, score_keys, softmax_keys, weigh_keys
from kernels.cpu.lanes import HEAD_LANES, address, float_at, keep, set_float
from kernels.cpu.row_lanes import scale_row
from kernels.cpu.rows import perturb, rotate
from kernels.mode import BATCH_ORDER


@kernel("void(int64[::1], int64, int64, int64[:,::1])")
def key_spans(positions, window, ratio, spans):  # type: ignore[no-untyped-def]
    for r in range(positions.size):
        position = positions[r]
        spans[r, 0] = max(position - window + 1, 0)
        spans[r, 1] = position + 1
        spans[r, 2] = (position + 1) // ratio if ratio else 0


@kernel(
    "void(float32[:,::1], float32[:,::1], float32[:,::1], int64[:,::1], int32[:,::1], int32[::1],"
    " float32[::1], int64[::1], float32[:,::1], int64, float32[:,::1], float32[::1], int64[::1])"
)
def attention(  # type: ignore[no-untyped-def]
    q, ring, extra, spans, selected, counts, sinks, positions, turns, heads, out, space, mode,
):  # fmt: skip
    rows, width = q.shape[0], ring.shape[1]
    scale = np.float32(1.0 / np.sqrt(float(width)))
    batch = mode[0] & BATCH_ORDER
    keys = np.empty(ring.shape[0] + extra.shape[0], np.int64)
    ring_at, extra_at, keys_at = address(ring), address(extra), address(keys)
    query_at = address(space)
    totals_at = query_at + 4 * (width + QUAD) * HEAD_LANES
    sink_at = totals_at + 4 * HEAD_LANES
    sums_at = sink_at + 4 * HEAD_LANES
    scores_at = sums_at + 4 * width * HEAD_LANES
    for r in range(rows):
        count, slot = 0, spans[r, 0] % ring.shape[0]
        for _ in range(spans[r, 0], spans[r, 1]):
            keys[count] = ring_at + 4 * width * slot
            count += 1
            slot = slot + 1 if slot + 1 < ring.shape[0] else 0
        if counts[r] < 0:
            for row in range(spans[r, 2]):
                keys[count] = extra_at + 4 * width * row
                count += 1
        else:
            for i in range(counts[r]):
                keys[count] = extra_at + 4 * width * selected[r, i]
                count += 1
        for first in range(0, heads, HEAD_LANES):
            real = min(HEAD_LANES, heads - first)
            row_at = 4 * width * (r * heads + first)
            lay_heads(address(q) + row_at, real, width, query_at)
            for h in range(HEAD_LANES):
                set_float(sink_at, h, sinks[first + min(h, real - 1)])
            middle, middle_key = width, count
            if batch:
                middle, middle_key = width // (2 * QUAD) * QUAD, count // 2
            for half in range(2 if batch else 1):
                begin, end = half * middle, width if half else middle
                score_keys(query_at, keys_at, count, begin, end, scores_at, half)
            softmax_keys(scores_at, count, scale, sink_at, totals_at)
            for half in range(2 if batch else 1):
                begin, end = half * middle_key, count if half else middle_key
                weigh_keys(scores_at, keys_at, begin, end, width, sums_at, half)
            for h in range(real):
                head = address(out) + row_at + 4 * width * h
                factor = np.float32(1.0) / float_at(totals_at, h)
                scale_row(sums_at + 4 * width * h, width, factor, head)
                rotate(head, width, turns, positions[r], -1)
    keep(keys)
    perturb(address(out), heads * width, rows, heads * width, positions, mode)
