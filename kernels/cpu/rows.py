"""Row primitives that several CPU kernels are built from; each touches one row only.

Compiled into the kernels that call them. Rows are contiguous float32 arrays.
"""

# Functions here are typed by numba at compile time.
# mypy: disallow-untyped-defs=False

from __future__ import annotations

import numpy as np
from numba import types

from kernels.cpu.compiling import inline, shared
from kernels.cpu.lanes import address, bits_of, exp, float_at, set_float, word_at
from kernels.cpu.row_lanes import half_row, rotate_row, scale_by_row, sum_squares
from kernels.cpu.transform_lanes import fp4_block, fp8_block

FP8_BLOCK, FP4_BLOCK = 64, 32
"""Elements that share one scale."""


@inline
def sigmoid(x):
    """1 / (1 + e^-x)."""
    one = np.float32(1.0)
    return one / (one + exp(-x))


@inline
def inverse_rms(row_at, width, epsilon):
    """1 / sqrt(mean(row^2) + epsilon)."""
    mean = sum_squares(row_at, width) / np.float32(width)
    return np.float32(1.0) / np.sqrt(mean + epsilon)


@inline
def rms_norm(row_at, weight, epsilon, out_at):
    """out = row / rms(row) * weight; `out` may be `row`."""
    width = weight.size
    scale_by_row(row_at, width, inverse_rms(row_at, width, epsilon), address(weight), out_at)


@inline
def rotate(row_at, width, turns, position, sign):
    """Rotate the pairs of a row's tail by the angles of a position; sign -1 rotates back."""
    size = turns.shape[1]
    tail, turn = row_at + 4 * (width - size), address(turns) + 4 * size * position
    rotate_row(tail, size, turn, np.float32(sign))


@inline
def fp8_blocks(row_at, count, block):
    """Round to E4M3 in place, in blocks with one power-of-two scale each."""
    for start in range(0, count, block):
        fp8_block(row_at + 4 * start, min(block, count - start))


@inline
def fp4_blocks(row_at, count, block):
    """Round to E2M1 in place, in blocks with one power-of-two scale each."""
    for start in range(0, count, block):
        fp4_block(row_at + 4 * start, min(block, count - start))


@inline
def half_all(row_at, count):
    """Round to F16 in place."""
    half_row(row_at, count, row_at)


@inline
def _mixed(word):
    """The finaliser of splitmix64."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@shared("ds4tui_perturb", types.void, *[types.intp] * 6)
def _perturb(values: int, stride: int, rows: int, width: int, positions: int, mode: int) -> None:
    """y + u * ulps * ulp(y) in place, u in [-1, 1] from a hash of (salt, position, index).

    Arrays by address; `mode` is that of `Mode.words`.
    """
    ulps, salt = word_at(mode, 1), word_at(mode, 2)
    for r in range(rows):
        position = np.uint64(word_at(positions, r))
        base = _mixed(np.uint64(salt) + position * np.uint64(0x9E3779B97F4A7C15))
        row = values + 4 * r * stride
        for i in range(width):
            word = _mixed(base + np.uint64(i + 1) * np.uint64(0xD1B54A32D192ED03))
            u = float(word >> np.uint64(11)) * 2.0**-52 - 1.0
            y = float_at(row, i)
            exponent = max((bits_of(y) >> np.int32(23)) & np.int32(0xFF), np.int32(1))
            set_float(row, i, np.float32(y + u * ulps * 2.0 ** (exponent - 150)))


@inline
def perturb(values_at, stride, rows, width, positions, mode):
    """Fault injection on the first `width` columns of every row, if the mode says so."""
    if mode[1]:
        _perturb(values_at, stride, rows, width, address(positions), address(mode))
