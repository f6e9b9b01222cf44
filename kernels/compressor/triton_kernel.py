"""Triton kernels of `kernels.compressor`: both compressors of a layer in one product and kernel.

The kernel's programs store the rows' projections, or pool a window that a row completes: a pooling
program takes rows of this batch from the product itself and older ones from the rings, so that it
need not wait for the stores.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import perturb, product
from kernels.cuda.rows import (
    FP4_BLOCK,
    FP8_BLOCK,
    fp4_tile,
    fp8_tile,
    hadamard_tile,
    inverse_rms,
    rotate_row,
    row_turns,
)
from kernels.cuda.workspace import scratch
from kernels.mode import Mode
from kernels.packed.early import all_written, early, next_may_begin

PLAIN, ROUNDED = 0, 1
STORE_COLUMNS = 512


@triton.jit
def _store(joined, ape, kv, score, slot, position, ratio, wide, block, COLUMNS: tl.constexpr):
    i = block * COLUMNS + tl.arange(0, COLUMNS)
    inside = i < wide
    tl.store(kv + slot * wide + i, tl.load(joined + i, mask=inside, other=0.0), mask=inside)
    new = tl.load(joined + wide + i, mask=inside, other=0.0)
    new += tl.load(ape + (position % ratio) * wide + i, mask=inside, other=0.0)
    tl.store(score + slot * wide + i, new, mask=inside)


@triton.jit
def _pooled(
    joined, stride, first, ape, kv, score, slots, last, ratio, width,
    OVERLAPS: tl.constexpr, BLOCK: tl.constexpr, COUNT: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Softmax-weighted sum, per column, over the window that ends at position `last`.

    Args:
        joined: this batch's projections of position `first` on: kv, then score without `ape`.
    """
    wide = width * 2 if OVERLAPS else width
    begin = last - ratio + 1
    i = tl.arange(0, WIDE)
    top = tl.full([WIDE], float("-inf"), tl.float32)
    total = tl.zeros([WIDE], tl.float32)
    result = tl.zeros([WIDE], tl.float32)
    for start in range(0, COUNT, BLOCK):
        j = start + tl.arange(0, BLOCK)
        if OVERLAPS:
            position = begin - ratio + j
            column = tl.where(position >= begin, width, 0)
        else:
            position = begin + j
            column = j * 0
        real = (position >= 0)[:, None] & (i < width)[None, :]
        new = (position >= first)[:, None]
        offset = column[:, None] + i[None, :]
        slot = (tl.maximum(position, 0) % slots)[:, None] * wide
        fresh = joined + (position - first)[:, None] * stride + offset
        value = tl.load(kv + slot + offset, mask=real & ~new, other=0.0)
        value += tl.load(fresh, mask=real & new, other=0.0)
        weight = tl.load(score + slot + offset, mask=real & ~new, other=0.0)
        added = tl.load(fresh + wide, mask=real & new, other=0.0)
        phase = (tl.maximum(position, 0) % ratio)[:, None] * wide
        added += tl.load(ape + phase + offset, mask=real & new, other=0.0)
        weight = tl.where(real, weight + added, float("-inf"))
        high = tl.maximum(top, tl.max(weight, 0))
        high = tl.where(i < width, high, 0.0)
        old = tl.exp(top - high)
        share = tl.exp(weight - high[None, :])
        total = total * old + tl.sum(share, 0)
        result = result * old + tl.sum(share * value, 0)
        top = high
    return tl.where(i < width, result / total, 0.0)


@triton.jit
def _emit(
    row, norm, turns, size, place, width, epsilon, finish,
    HADAMARD: tl.constexpr, STAGES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Norm, rotate, finish and store a pooled row."""
    i = tl.arange(0, WIDE)
    inside = i < width
    weight = tl.load(norm + i, mask=inside, other=0.0)
    c, s = row_turns(turns, width, size, 1.0, WIDE)
    row = row * inverse_rms(tl.sum(row * row, 0), width, epsilon)
    row = rotate_row(row * weight, c, s, WIDE)
    if HADAMARD:
        row = tl.reshape(hadamard_tile(tl.reshape(row, [1, WIDE]), 1, WIDE, STAGES), [WIDE])
        if finish != 0:
            row = tl.reshape(fp4_tile(tl.reshape(row, [WIDE // FP4_BLOCK, FP4_BLOCK])), [WIDE])
    else:
        if finish != 0:
            flat = tl.reshape(i < width - size, [WIDE // FP8_BLOCK, FP8_BLOCK])
            tile = fp8_tile(tl.reshape(row, [WIDE // FP8_BLOCK, FP8_BLOCK]), flat)
            row = tl.reshape(tile, [WIDE])
    tl.store(place + i, row, mask=inside)


@triton.jit
def _compress_kernel(
    joined, stride, positions, turns, size, ratio, epsilon, finish,
    ape, norm, kv, score, compressed, slots, width, blocks,
    index_ape, index_norm, index_kv, index_score, index_rows, index_width,
    OVERLAPS: tl.constexpr, INDEX: tl.constexpr, BLOCK: tl.constexpr, COUNT: tl.constexpr,
    WIDE: tl.constexpr, INDEX_WIDE: tl.constexpr, STAGES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Programs of a row: pool, [pool of the indexer], stores, [stores of the indexer].

    In place when the product has ended. The kernel after, in the line, waits before it reads what
    these rows complete.
    """
    next_may_begin()
    all_written()
    part, row = tl.program_id(0), tl.program_id(1)
    position = tl.load(positions + row)
    first = tl.load(positions)
    coff: tl.constexpr = 2 if OVERLAPS else 1
    own = joined + row * stride
    wide, index_wide = coff * width, coff * index_width
    index_joined = joined + 2 * wide
    completes = (position + 1) % ratio == 0
    turn = turns + (position + 1 - ratio) * size
    slot = position % slots
    if part == 0:
        if completes:
            pooled = _pooled(
                joined, stride, first, ape, kv, score, slots, position, ratio, width,
                OVERLAPS, BLOCK, COUNT, WIDE,
            )  # fmt: skip
            place = compressed + (position // ratio) * width
            _emit(pooled, norm, turn, size, place, width, epsilon, finish, False, 0, WIDE)
    elif part <= blocks:
        _store(own, ape, kv, score, slot, position, ratio, wide, part - 1, COLUMNS)
    elif INDEX:
        if part == blocks + 1:
            if completes:
                pooled = _pooled(
                    index_joined, stride, first, index_ape, index_kv, index_score, slots, position,
                    ratio, index_width, OVERLAPS, BLOCK, COUNT, INDEX_WIDE,
                )  # fmt: skip
                place = index_rows + (position // ratio) * index_width
                _emit(
                    pooled, index_norm, turn, size, place, index_width, epsilon, finish, True,
                    STAGES, INDEX_WIDE,
                )  # fmt: skip
        else:
            block = part - blocks - 2
            _store(
                own + 2 * wide, index_ape, index_kv, index_score, slot, position, ratio,
                index_wide, block, COLUMNS,
            )  # fmt: skip


def compress_layer(
    x: Any, positions: Any, own: Any, index: Any, turns: Any, epsilon: float, ratio: int,
    rounded: bool, state: Any, mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.compressor.compress_layer`; `own.kv` joins all matrices of both compressors."""
    rows, overlaps = x.shape[0], ratio == 4
    width = own.norm.shape[0]
    index_width = index.norm.shape[0] if index is not None else 0
    coff = 2 if overlaps else 1
    wide, index_wide = coff * width, coff * index_width
    joined = scratch(x.device, "compressor", rows, 2 * (wide + index_wide))
    blocks, index_blocks = (triton.cdiv(w, STORE_COLUMNS) for w in (wide, index_wide))
    other = index if index is not None else own
    count = coff * ratio
    with lanes.aside(x, lanes.ROWS):
        product(x, own.kv, joined, mode)
        if mode.ulps:
            for start, size in ((0, wide), (2 * wide, index_wide)):
                for part in (start, start + size):
                    if size:
                        perturb(joined[:, part : part + size], positions, mode)
        _compress_kernel[(1 + blocks + (1 + index_blocks if index_width else 0), rows)](
            joined, joined.stride(0), positions, turns, turns.shape[1], ratio, epsilon,
            ROUNDED if rounded else PLAIN,
            own.ape, own.norm, state.frontier_kv, state.frontier_score, state.comp,
            state.frontier_kv.shape[0], width, blocks,
            other.ape, other.norm, state.index_frontier_kv, state.index_frontier_score, state.index,
            index_width,
            OVERLAPS=overlaps, INDEX=bool(index_width), BLOCK=min(16, count), COUNT=count,
            WIDE=max(64, triton.next_power_of_2(width)),
            INDEX_WIDE=max(32, triton.next_power_of_2(max(index_width, 1))),
            STAGES=max(index_width, 1).bit_length() - 1, COLUMNS=STORE_COLUMNS, num_warps=8,
            **early(x.device),
        )  # fmt: skip
        if index_width:
            lanes.ready(state.index)
