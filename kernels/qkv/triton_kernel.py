"""Triton kernels of `kernels.qkv`: joined products, then a program per row and head."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import perturb, product
from kernels.cuda.rows import FP8_BLOCK, fp8_tile, inverse_rms, rotate_row, row_turns, to_half
from kernels.cuda.workspace import scratch, zero
from kernels.mode import TILES, Mode
from kernels.packed.early import early, inputs_ready

NONE, FP8, FP8_HALF = 0, 1, 2
"""Rounding of a stored row."""
KINDS = {"none": NONE, "fp8": FP8, "fp8+f16": FP8_HALF}


@triton.jit
def _store_row(
    raw, norm, turns, size, store, width, epsilon, ROUNDING: tl.constexpr, WIDE: tl.constexpr
):
    """The kv projection normed, rotated and rounded."""
    i = tl.arange(0, WIDE)
    inside = i < width
    weight = tl.load(norm + i, mask=inside, other=0.0)
    c, s = row_turns(turns, width, size, 1.0, WIDE)
    inputs_ready()
    row = tl.load(raw + i, mask=inside, other=0.0)
    row = row * inverse_rms(tl.sum(row * row, 0), width, epsilon)
    row = rotate_row(row * weight, c, s, WIDE)
    if ROUNDING != 0:
        flat = tl.reshape(i < width - size, [WIDE // FP8_BLOCK, FP8_BLOCK])
        tile = fp8_tile(tl.reshape(row, [WIDE // FP8_BLOCK, FP8_BLOCK]), flat)
        row = tl.reshape(tile, [WIDE])
    if ROUNDING == 2:
        row = to_half(row)
    tl.store(store + i, row, mask=inside)


@triton.jit
def _finish_kernel(
    joined, stride, rank, q_norm, kv_norm, positions, turns, size, qr, ring, slots, origin, width,
    epsilon, QUERY: tl.constexpr, ROUNDING: tl.constexpr, RANK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Program (0, row): the key-value row into the ring; (1, row): the normed query activation."""
    part, row = tl.program_id(0), tl.program_id(1)
    if part == 0:
        position = tl.load(positions + row)
        slot = (position - tl.load(origin)) % slots
        raw = joined + row * stride + QUERY * rank
        _store_row(
            raw, kv_norm, turns + position * size, size, ring + slot * width, width, epsilon,
            ROUNDING, WIDE,
        )  # fmt: skip
    else:
        i = tl.arange(0, RANK)
        inside = i < rank
        weight = tl.load(q_norm + i, mask=inside, other=0.0)
        inputs_ready()
        x = tl.load(joined + row * stride + i, mask=inside, other=0.0)
        x = x * inverse_rms(tl.sum(x * x, 0), rank, epsilon) * weight
        tl.store(qr + row * rank + i, x, mask=inside)


@triton.jit
def _head_kernel(
    q, positions, turns, size, heads, width, epsilon, WIDE: tl.constexpr,
):  # fmt: skip
    """One head's query, normed and rotated in place."""
    head, row = tl.program_id(0), tl.program_id(1)
    position = tl.load(positions + row)
    c, s = row_turns(turns + position * size, width, size, 1.0, WIDE)
    inputs_ready()
    i = tl.arange(0, WIDE)
    at = q + (row * heads + head) * width + i
    x = tl.load(at, mask=i < width, other=0.0)
    x = x * inverse_rms(tl.sum(x * x, 0), width, epsilon)
    tl.store(at, rotate_row(x, c, s, WIDE), mask=i < width)


def _wide(width: int) -> int:
    return max(64, triton.next_power_of_2(width))


def _finish(
    joined: Any, query: bool, positions: Any, weights: Any, turns: Any, epsilon: float,
    rounding: str, qr: Any, ring: Any, origin: Any,
) -> None:  # fmt: skip
    rank, width = weights.q_norm.shape[0], weights.kv_norm.shape[0]
    _finish_kernel[(1 + query, joined.shape[0])](
        joined, joined.stride(0), rank, weights.q_norm, weights.kv_norm, positions, turns,
        turns.shape[1], qr, ring, ring.shape[0], origin, width, epsilon, QUERY=query,
        ROUNDING=KINDS[rounding], RANK=triton.next_power_of_2(rank), WIDE=_wide(width),
        num_warps=4, **early(joined.device),
    )  # fmt: skip


def qkv(
    x: Any, positions: Any, weights: Any, turns: Any, epsilon: float, heads: int, rounding: str,
    qr: Any, q: Any, ring: Any, origin: Any, mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.qkv.qkv`; `origin` is a (1,) int64 tensor, read on the device."""
    rows, rank, width = x.shape[0], weights.q_norm.shape[0], weights.kv_norm.shape[0]
    joined = scratch(x.device, "qkv joined", rows, rank + width)
    lanes.ready(x)
    if weights.kv is None:
        product(x, weights.q_a, joined, mode)
    else:
        product(x, weights.q_a, joined[:, :rank], mode)
        product(x, weights.kv, joined[:, rank:], mode)
    perturb(joined[:, rank:], positions, mode)
    _finish(joined, True, positions, weights, turns, epsilon, rounding, qr, ring, origin)
    lanes.ready(qr)
    product(qr, weights.q_b, q, mode)
    perturb(q, positions, mode)
    _head_kernel[(heads, rows)](
        q, positions, turns, turns.shape[1], heads, width, epsilon, WIDE=_wide(width), num_warps=2,
        **early(q.device),
    )  # fmt: skip


def kv_rows(
    x: Any, positions: Any, weights: Any, turns: Any, epsilon: float, rounding: str, ring: Any
) -> None:
    """As `kernels.qkv.kv_rows`, for weights whose kv matrix is joined to q_a or its own."""
    rank, width = weights.q_norm.shape[0], weights.kv_norm.shape[0]
    joined = scratch(x.device, "kv joined", x.shape[0], rank + width)
    if weights.kv is None:
        product(x, weights.q_a, joined, TILES)
    else:
        product(x, weights.kv, joined[:, rank:], TILES)
    part, origin = joined[:, rank:], zero(x.device)
    _finish(part, False, positions, weights, turns, epsilon, rounding, x, ring, origin)
