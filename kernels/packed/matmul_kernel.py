"""Triton kernels of `kernels.packed.matmul` and `kernels.packed.gather`."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.packed.decode import high_half, low_half
from kernels.packed.early import inputs_ready
from kernels.packed.means import GROUP
from kernels.packed.product import PANEL, in_order, product


@triton.jit(do_not_specialize=["n"])
def matmul_kernel(
    x_ptr, m_ptr, y_ptr, add_ptr, part_ptr, counter_ptr, p0, p1, p2, p3,
    n, N, K, width, x_row, y_row, y_piece, add_row, size0, size1, size2, size3,
    KIND: tl.constexpr, BN: tl.constexpr, R: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
    WHOLE: tl.constexpr, STAGES: tl.constexpr, EVEN: tl.constexpr, ADD: tl.constexpr,
    BACKWARDS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Program (tile of rows, share of the inputs, matrix of the stack).

    WHOLE: shares are added up here; else each is left in a piece of y.
    """
    inputs_ready()
    tile, share, matrix = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows = tile * BN + tl.arange(0, BN)
    inside = rows if EVEN else tl.minimum(rows, N - 1)
    r = tl.arange(0, R)
    at = (r * x_row + matrix * K)[None, :]
    live = (r < n)[None, :]
    blocks = K // BK
    first = blocks * share // SPLIT
    last = blocks * (share + 1) // SPLIT
    p0 += matrix.to(tl.int64) * size0
    m_at = (r * (tl.num_programs(2) * K // GROUP) + matrix * (K // GROUP))[None, :]
    acc = product(
        x_ptr, at, m_ptr, m_at, live, p0, p1 + matrix.to(tl.int64) * size1,
        p2 + matrix.to(tl.int64) * size2, p3 + matrix.to(tl.int64) * size3, inside, N, width, first,
        last, KIND, BN, R, BK, STAGES, BACKWARDS, FAST,
    )  # fmt: skip
    wanted = (rows < N)[:, None] & live
    number = matrix * tl.num_programs(0) + tile
    done = True
    if WHOLE:
        acc, done = in_order(
            acc, live, part_ptr + number * (SPLIT * BN * R), counter_ptr + number, share, SPLIT, BN,
            R,
        )  # fmt: skip
    if done:
        out = share * y_piece + matrix * N + rows[:, None]
        if ADD:
            acc += tl.load(add_ptr + (r * add_row)[None, :] + out, mask=wanted, other=0.0)
        y = y_ptr + (r * y_row)[None, :] + out
        tl.store(y, acc.to(y_ptr.dtype.element_ty), mask=wanted)


@triton.jit
def gather_kernel(
    ids_ptr, y_ptr, p0, p1, N, K, y_row, KIND: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Program (row of y, WIDTH inputs): one matrix's row, as float32."""
    r = tl.program_id(0)
    row = tl.load(ids_ptr + r).to(tl.int64)
    k = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = k < K
    if KIND == "Q8_0":
        at = row // PANEL * (PANEL * K) + k // 32 * (PANEL * 32) + row % PANEL * 32 + k % 32
    else:
        at = row * K + k
    value = tl.load(p0 + at, mask=inside, other=0).to(tl.float32)
    if KIND == "Q8_0":
        word = tl.load(p1 + (k // 64) * N + row, mask=inside, other=0)
        value = (value - 128.0) * tl.where(k % 64 < 32, low_half(word), high_half(word))
    tl.store(y_ptr + r * y_row + k, value, mask=inside)
