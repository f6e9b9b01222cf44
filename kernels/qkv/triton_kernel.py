"""Triton kernels of `kernels.qkv`: joined products, and what is done to their rows.

Queries are normed and rotated where they are read: by the attention kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import perturb, product, product_pieces
from kernels.cuda.rows import FP8_BLOCK, fp8_tile, inverse_rms, rotate_row, row_turns, to_half
from kernels.cuda.workspace import scratch, zero
from kernels.mode import TILES, Mode
from kernels.packed.early import early, inputs_ready

NONE, FP8, FP8_HALF = 0, 1, 2
"""Rounding of a stored row."""
KINDS = {"none": NONE, "fp8": FP8, "fp8+f16": FP8_HALF}


@triton.jit
def _added(row, piece, i, inside, PIECES: tl.constexpr):
    """A projected row from its pieces, `piece` apart, in order."""
    total = tl.load(row + i, mask=inside, other=0.0)
    for p in tl.static_range(1, PIECES):
        total += tl.load(row + p * piece + i, mask=inside, other=0.0)
    return total


@triton.jit
def _store_row(
    raw, piece, norm, turns, size, store, width, epsilon, PIECES: tl.constexpr,
    ROUNDING: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The kv projection normed, rotated and rounded."""
    i = tl.arange(0, WIDE)
    inside = i < width
    weight = tl.load(norm + i, mask=inside, other=0.0)
    c, s = row_turns(turns, width, size, 1.0, WIDE)
    inputs_ready()
    row = _added(raw, piece, i, inside, PIECES)
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
    joined, stride, piece, rank, q_norm, kv_norm, positions, turns, size, qr, ring, slots, origin,
    width, epsilon, QUERY: tl.constexpr, PIECES: tl.constexpr, ROUNDING: tl.constexpr,
    RANK: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Program (0, row): the key-value row into the ring; (1, row): the normed query activation."""
    part, row = tl.program_id(0), tl.program_id(1)
    if part == 0:
        position = tl.load(positions + row)
        slot = (position - tl.load(origin)) % slots
        raw = joined + row * stride + QUERY * rank
        _store_row(
            raw, piece, kv_norm, turns + position * size, size, ring + slot * width, width,
            epsilon, PIECES, ROUNDING, WIDE,
        )  # fmt: skip
    else:
        i = tl.arange(0, RANK)
        inside = i < rank
        weight = tl.load(q_norm + i, mask=inside, other=0.0)
        inputs_ready()
        x = _added(joined + row * stride, piece, i, inside, PIECES)
        x = x * inverse_rms(tl.sum(x * x, 0), rank, epsilon) * weight
        tl.store(qr + row * rank + i, x, mask=inside)


def _wide(width: int) -> int:
    return max(64, triton.next_power_of_2(width))


def _finish(
    joined: Any, query: bool, positions: Any, weights: Any, turns: Any, epsilon: float,
    rounding: str, qr: Any, ring: Any, origin: Any,
) -> None:  # fmt: skip
    rank, width = weights.q_norm.shape[0], weights.kv_norm.shape[0]
    _finish_kernel[(1 + query, joined.shape[0])](
        joined, joined.stride(0), joined.stride(1), rank, weights.q_norm, weights.kv_norm,
        positions, turns, turns.shape[1], qr, ring, ring.shape[0], origin, width, epsilon,
        QUERY=query, PIECES=joined.shape[1], ROUNDING=KINDS[rounding],
        RANK=triton.next_power_of_2(rank), WIDE=_wide(width), num_warps=4, **early(joined.device),
    )  # fmt: skip


def qkv(
    x: Any, positions: Any, weights: Any, turns: Any, epsilon: float, heads: int, rounding: str,
    qr: Any, q: Any, ring: Any, origin: Any, mode: Mode, beside: Callable[[], None],
) -> None:  # fmt: skip
    """As `kernels.qkv.qkv`; `origin` is a (1,) int64 tensor, read on the device."""
    rows, rank, width = x.shape[0], weights.q_norm.shape[0], weights.kv_norm.shape[0]
    lanes.ready(x)
    if weights.kv is None:
        joined = product_pieces(x, weights.q_a, "qkv joined", positions, mode, perturbed=rank)
    else:
        joined = scratch(x.device, "qkv joined", rows, 1, rank + width)
        product(x, weights.q_a, joined[:, 0, :rank], mode)
        product(x, weights.kv, joined[:, 0, rank:], mode)
        perturb(joined[:, 0, rank:], positions, mode)
    _finish(joined, True, positions, weights, turns, epsilon, rounding, qr, ring, origin)
    beside()
    with lanes.aside(qr, lanes.QUERIES):  # where `beside` has more to do with qr
        product(qr, weights.q_b, q, mode, soon=True)
        perturb(q, positions, mode)


def kv_rows(
    x: Any, positions: Any, weights: Any, turns: Any, epsilon: float, rounding: str, ring: Any
) -> None:
    """As `kernels.qkv.kv_rows`, for weights whose kv matrix is joined to q_a or its own."""
    if weights.kv is None:
        joined = product_pieces(x, weights.q_a, "kv joined", positions, TILES)
        joined = joined[:, :, weights.q_norm.shape[0] :]
    else:
        joined = product_pieces(x, weights.kv, "kv joined", positions, TILES)
    origin = zero(x.device)
    _finish(joined, False, positions, weights, turns, epsilon, rounding, x, ring, origin)
