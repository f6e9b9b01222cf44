"""Matrices packed for the CPU, and the one compiled product that all ops call.

A matrix W (outputs, inputs) is cut into panels of 64 outputs (a last one of float type is 32 wide
when that is enough); inside a panel, inputs run slowly and outputs fast. Q8_0 stays int8 with a
float32 scale for each block of 32 inputs: the block's sum is scaled and added to the output's.

Q8_FIXED is a second layout of Q8_0, for work whose rounding is free (drafts): rows are rounded to
16-bit fixed point per block, a tenth of F16's error, and bytes are multiplied four at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types

from kernels.cpu.compiling import inline, shared
from kernels.cpu.lanes import address, keep, word_at
from kernels.cpu.panels import (
    BLOCK,
    FLOAT,
    HALF,
    HAS_DOT_BYTES,
    MOST_ROWS,
    NARROW,
    Q8,
    Q8_FIXED,
    UNROLL,
    WIDE,
    fixed_panel,
    fixed_row,
    panel,
    spare_panel,
)
from kernels.cpu.row_lanes import add_row, copy_row, half_row
from kernels.mode import BATCH_ORDER, ROUND_ROWS

KIND, INPUTS, OUTPUTS, DATA, SCALES, CORRECTIONS = range(6)
"""What the words of a packed matrix mean: element type, sizes, addresses."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A matrix (or `count` of one shape) in panels.

    Args:
        words: (count, 8) int64, what the compiled code reads, in the order of KIND and so on.
        memory: what lies behind the addresses in it.
    """

    words: np.ndarray
    memory: tuple[np.ndarray, ...]
    inputs: int
    outputs: int


def aligned(shape: tuple[int, ...], kind: Any) -> np.ndarray:
    """An uninitialised array that starts on a cache line."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    space = np.empty(size + 64, np.uint8)
    start = -space.ctypes.data % 64
    return space[start : start + size].view(kind).reshape(shape)


def _panels(rows: np.ndarray, narrow: bool) -> np.ndarray:
    """(outputs, inputs) -> one flat array of panels; missing outputs are zero."""
    outputs, inputs = rows.shape
    whole, rest = divmod(outputs, WIDE)
    last = 0 if rest == 0 else NARROW if narrow and rest <= NARROW else WIDE
    packed = aligned(((whole * WIDE + last) * inputs,), rows.dtype)
    split = whole * WIDE * inputs
    if whole:
        wide = rows[: whole * WIDE].reshape(whole, WIDE, inputs)
        packed[:split].reshape(whole, inputs, WIDE)[:] = wide.transpose(0, 2, 1)
    if last:
        tail = packed[split:].reshape(inputs, last)
        tail[:, :rest] = rows[whole * WIDE :].T
        tail[:, rest:] = 0
    return packed


def _interleaved(panels: np.ndarray) -> np.ndarray:
    """int8 panels with outputs o, o + 16, o + 32 and o + 48 of an input side by side, in place."""
    lines = panels.reshape(-1, WIDE // 16, 16)
    panels[:] = lines.transpose(0, 2, 1).reshape(-1)
    return panels


def _grouped(panels: np.ndarray, inputs: int) -> np.ndarray:
    """int8 panels with four inputs of an output side by side, in place."""
    lines = panels.reshape(-1, inputs // UNROLL, UNROLL, WIDE)
    panels[:] = lines.transpose(0, 1, 3, 2).reshape(-1)
    return panels


def _corrections(panels: np.ndarray, inputs: int) -> np.ndarray:
    """-128 times the sum of every block's weights: takes back the bias of biased activations."""
    blocks = panels.reshape(-1, inputs // BLOCK, BLOCK, WIDE).sum(2, dtype=np.int32)
    found = aligned(blocks.shape, np.int32)
    np.multiply(blocks, -128, out=found)
    return found


def pack(
    matrices: Sequence[np.ndarray | tuple[np.ndarray, np.ndarray]], fixed_point: bool
) -> Packed:
    """Pack matrices of one shape.

    Args:
        matrices: each float16 or float32 (outputs, inputs), or for Q8_0 a pair: int8 (outputs,
            inputs) and float32 scales (outputs, inputs / 32).
        fixed_point: lay out Q8_0 as Q8_FIXED, where the machine can.
    """
    memory: list[np.ndarray] = []
    words = np.zeros((len(matrices), 8), np.int64)
    for index, matrix in enumerate(matrices):
        values, scale = matrix if isinstance(matrix, tuple) else (matrix, None)
        kind = {"int8": Q8, "float16": HALF, "float32": FLOAT}[values.dtype.name]
        panels = _panels(values, narrow=scale is None)
        parts = [panels]
        if scale is not None:
            # The kernels read a weight as its byte times 2^24.
            parts.append(_panels(scale.astype(np.float32) * np.float32(2.0**-24), narrow=False))
            if fixed_point and HAS_DOT_BYTES:
                kind = Q8_FIXED
                parts.append(_corrections(panels, values.shape[1]))
                _grouped(panels, values.shape[1])
            else:
                _interleaved(panels)
        addresses = [part.ctypes.data for part in parts] + [0] * (3 - len(parts))
        words[index, :6] = kind, *values.shape[::-1], *addresses
        memory += parts
    return Packed(words, tuple(memory), int(words[0, INPUTS]), int(words[0, OUTPUTS]))


def fixed_point_copy(packed: Packed) -> Packed:
    """The same Q8_0 matrices as Q8_FIXED; `packed` itself where that is no other layout."""
    if not HAS_DOT_BYTES or packed.words[0, KIND] != Q8:
        return packed
    matrices = []
    for data, scales in zip(packed.memory[::2], packed.memory[1::2], strict=True):
        lines = data.reshape(-1, 16, WIDE // 16).transpose(0, 2, 1)
        values = lines.reshape(-1, packed.inputs, WIDE).transpose(0, 2, 1)
        factors = scales.reshape(-1, packed.inputs // BLOCK, WIDE).transpose(0, 2, 1)
        rows = slice(0, packed.outputs)
        matrices.append(
            (
                np.ascontiguousarray(values.reshape(-1, packed.inputs)[rows]),
                factors.reshape(-1, packed.inputs // BLOCK)[rows] * np.float32(2.0**24),
            )
        )
    return pack(matrices, fixed_point=True)


@shared("ds4tui_product", types.void, *[types.intp] * 7)
def product(
    words: int, rows: int, x: int, x_stride: int, out: int, out_stride: int, flags: int
) -> None:
    """out[r, o] = sum over i of x[r, i] * W[o, i]; arrays by address, strides in floats.

    Args:
        words: address of one row of `Packed.words`.
        flags: of `Mode`. 0 = every sum over inputs in order; BATCH_ORDER = two halves of the
            inputs summed apart, then added; ROUND_ROWS = x rounded to F16 first.
    """
    kind, inputs, outputs = word_at(words, KIND), word_at(words, INPUTS), word_at(words, OUTPUTS)
    data, scales = word_at(words, DATA), word_at(words, SCALES)
    size = 4 if kind == FLOAT else 2 if kind == HALF else 1
    fixed = HAS_DOT_BYTES and kind == Q8_FIXED
    blocks = inputs // BLOCK
    rounded = np.empty(rows * inputs if flags & ROUND_ROWS else 0, np.float32)
    packed = np.empty(rows * (2 * inputs + 4 * blocks) if fixed else 0, np.uint8)
    if flags & ROUND_ROWS:
        for r in range(rows):
            half_row(x + 4 * r * x_stride, inputs, address(rounded) + 4 * r * inputs)
        x, x_stride = address(rounded), inputs
    row_scales = address(packed)
    high = row_scales + 4 * rows * blocks
    low = high + rows * inputs
    if fixed:
        for r in range(rows):
            offset, start = r * inputs, x + 4 * r * x_stride
            fixed_row(start, inputs, high + offset, low + offset, row_scales + 4 * r * blocks)
    spare = spare_panel()
    halves = flags & BATCH_ORDER and not fixed and blocks > 1
    middle = blocks // 2 * BLOCK if halves else inputs
    column = 0
    while column < outputs:
        wide = 1 if size == 1 or outputs - column > NARROW else 0
        width = WIDE if wide else NARROW
        real = min(width, outputs - column)
        w, s = data + column * inputs * size, scales + column * blocks * 4
        row = 0
        while row < rows:
            count = min(MOST_ROWS, rows - row)
            place, start = out + 4 * (row * out_stride + column), x + 4 * row * x_stride
            for part in range(2 if halves else 1):
                direct = real == width and part == 0
                target, stride = (place, out_stride) if direct else (spare, width)
                if fixed:
                    c = word_at(words, CORRECTIONS) + column * blocks * 4
                    bytes_at, d = row * inputs, row_scales + 4 * row * blocks
                    h, low_at = high + bytes_at, low + bytes_at
                    fixed_panel(count, w, s, c, h, low_at, d, target, stride, inputs)
                else:
                    first = part * middle
                    wp, sp = w + first * width * size, s + first // BLOCK * width * 4
                    length = middle if part == 0 else inputs - middle
                    xp = start + 4 * first
                    panel(kind, count, wide, wp, sp, xp, x_stride, target, stride, length)
                for r in range(count):
                    if part == 1:
                        add_row(spare + 4 * r * width, real, place + 4 * r * out_stride)
                    elif not direct:
                        copy_row(spare + 4 * r * width, real, place + 4 * r * out_stride)
            row += count
        column += width
    keep(rounded)
    keep(packed)


@inline
def multiply(words, x, out, rows, flags):  # type: ignore[no-untyped-def]
    """`product` of whole arrays: x (>= rows, inputs) and out (>= rows, width) of float32."""
    product(address(words), rows, address(x), x.shape[1], address(out), out.shape[1], flags)
