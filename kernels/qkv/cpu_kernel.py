"""CPU kernels of `kernels.qkv`: products by `kernels.cpu.matrix`, the rest row by row."""

from __future__ import annotations

from kernels.cpu.compiling import inline, kernel
from kernels.cpu.lanes import address
from kernels.cpu.matrix import multiply, product
from kernels.cpu.row_lanes import scale_row
from kernels.cpu.rows import (
    FP8_BLOCK,
    fp8_blocks,
    half_all,
    inverse_rms,
    perturb,
    rms_norm,
    rotate,
)

NONE, FP8, FP8_HALF = 0, 1, 2
"""Rounding of a stored row."""


@inline
def finish_row(row, norm, epsilon, turns, position, rounding, store):  # type: ignore[no-untyped-def]
    """store = the kv projection normed, rotated and rounded; both by address."""
    width = norm.size
    rms_norm(row, norm, epsilon, store)
    rotate(store, width, turns, position, 1)
    if rounding != NONE:
        fp8_blocks(store, width - turns.shape[1], FP8_BLOCK)
    if rounding == FP8_HALF:
        half_all(store, width)


@kernel(
    "void(float32[:,::1], int64[::1], int64[:,::1], float32[::1], int64[:,::1], int64[:,::1],"
    " float32[::1], float32[:,::1], float32, int64, int64, float32[:,::1], float32[:,::1],"
    " float32[:,::1], int64, float32[::1], int64[::1])"
)
def qkv(  # type: ignore[no-untyped-def]
    x, positions, q_a, q_norm, q_b, kv, kv_norm, turns, epsilon, heads, rounding, qr, q, ring,
    origin, space, mode,
):  # fmt: skip
    rows, rank, width = x.shape[0], q_norm.size, kv_norm.size
    flags = mode[0]
    multiply(q_a, x, qr, rows, flags)
    for r in range(rows):
        row = address(qr) + 4 * r * rank
        rms_norm(row, q_norm, epsilon, row)
    multiply(q_b, qr, q, rows, flags)
    perturb(address(q), q.shape[1], rows, q.shape[1], positions, mode)
    for r in range(rows):
        for h in range(heads):
            head = address(q) + 4 * width * (r * heads + h)
            scale_row(head, width, inverse_rms(head, width, epsilon), head)
            rotate(head, width, turns, positions[r], 1)
    projected = address(space)
    product(address(kv), rows, address(x), x.shape[1], projected, width, flags)
    perturb(projected, width, rows, width, positions, mode)
    for r in range(rows):
        row = projected + 4 * width * r
        store = address(ring) + 4 * width * ((positions[r] - origin) % ring.shape[0])
        finish_row(row, kv_norm, epsilon, turns, positions[r], rounding, store)


@kernel(
    "void(float32[:,::1], int64[::1], int64[:,::1], float32[::1], float32[:,::1], float32, int64,"
    " float32[:,::1], float32[::1], int64[::1])"
)
def kv_rows(  # type: ignore[no-untyped-def]
    x, positions, kv, kv_norm, turns, epsilon, rounding, ring, space, mode
):
    rows, width = x.shape[0], kv_norm.size
    projected = address(space)
    product(address(kv), rows, address(x), x.shape[1], projected, width, mode[0])
    for r in range(rows):
        row = projected + 4 * width * r
        store = address(ring) + 4 * width * (positions[r] % ring.shape[0])
        finish_row(row, kv_norm, epsilon, turns, positions[r], rounding, store)
