"""CPU kernel of `kernels.compressor`: projections of all rows, then one row after the other."""

from __future__ import annotations

import numpy as np

from kernels.cpu.compiling import inline, kernel
from kernels.cpu.lanes import address, keep
from kernels.cpu.matrix import product
from kernels.cpu.row_lanes import add_row, copy_row, pool_rows
from kernels.cpu.rows import (
    FP4_BLOCK,
    FP8_BLOCK,
    fp4_blocks,
    fp8_blocks,
    perturb,
    rms_norm,
    rotate,
)
from kernels.cpu.transform_lanes import hadamard_row

PLAIN, FP8, HADAMARD, HADAMARD_FP4 = 0, 1, 2, 3
"""What is done to a compressed row before it is stored."""


@inline
def _pool(last, ratio, kv, score, width, out_at):  # type: ignore[no-untyped-def]
    """out = softmax-weighted sum, per element, over the window that ends at position `last`.

    With rows of twice `width` the window before enters too, by the first half of its rows.
    """
    slots, overlaps = kv.shape[0], kv.shape[1] == 2 * width
    first = last - ratio + 1
    begin = max(first - ratio, 0) if overlaps else first
    count = last + 1 - begin
    scores, values = np.empty(count, np.int64), np.empty(count, np.int64)
    for j in range(count):
        position = begin + j
        column = width if overlaps and position >= first else 0
        offset = 4 * (position % slots * kv.shape[1] + column)
        scores[j] = address(score) + offset
        values[j] = address(kv) + offset
    pool_rows(address(scores), address(values), count, width, out_at)
    keep(scores)
    keep(values)


@inline
def _emit(last, ratio, kv, score, norm, turns, epsilon, finish, row):  # type: ignore[no-untyped-def]
    """Write the compressed row (by address) of the window that ends at position `last`."""
    width = norm.size
    _pool(last, ratio, kv, score, width, row)
    rms_norm(row, norm, epsilon, row)
    rotate(row, width, turns, last + 1 - ratio, 1)
    if finish == FP8:
        fp8_blocks(row, width - turns.shape[1], FP8_BLOCK)
    elif finish != PLAIN:
        hadamard_row(row, width)
        if finish == HADAMARD_FP4:
            fp4_blocks(row, width, FP4_BLOCK)


@kernel(
    "void(float32[:,::1], int64[::1], int64[:,::1], int64[:,::1], float32[:,::1], float32[::1],"
    " float32[:,::1], float32, int64, int64, float32[:,::1], float32[:,::1], float32[:,::1],"
    " float32[::1], int64[::1])"
)
def compressor(  # type: ignore[no-untyped-def]
    x, positions, kv_words, gate_words, ape, norm, turns, epsilon, ratio, finish, kv, score,
    compressed, space, mode,
):  # fmt: skip
    rows, wide = x.shape[0], kv.shape[1]
    new_kv = address(space)
    new_score = new_kv + 4 * rows * wide
    product(address(kv_words), rows, address(x), x.shape[1], new_kv, wide, mode[0])
    product(address(gate_words), rows, address(x), x.shape[1], new_score, wide, mode[0])
    perturb(new_kv, wide, rows, wide, positions, mode)
    perturb(new_score, wide, rows, wide, positions, mode)
    for r in range(rows):
        position = positions[r]
        slot = 4 * wide * (position % kv.shape[0])
        copy_row(new_kv + 4 * wide * r, wide, address(kv) + slot)
        copy_row(new_score + 4 * wide * r, wide, address(score) + slot)
        add_row(address(ape) + 4 * wide * (position % ratio), wide, address(score) + slot)
        if (position + 1) % ratio == 0:
            row = address(compressed) + 4 * norm.size * (position // ratio)
            _emit(position, ratio, kv, score, norm, turns, epsilon, finish, row)
