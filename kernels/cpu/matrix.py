"""Matrices packed for the CPU, and the one compiled product that all ops call.

A matrix W (outputs, inputs) is cut into panels of 64 outputs (a last one of float type is 32 wide
when that is enough); inside a panel, inputs run slowly and outputs fast. Q8_0 stays int8, four
inputs of an output side by side, with a float16 scale for each block of 32 inputs: the block's sum
is scaled and added to the output's. MXFP4 is the same with codes of 4 bits for 16 integers, where
the machine can look them up: a byte holds the code of an input and, in its high half, that of the
fourth after it. Elsewhere it becomes int8 here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types

from kernels.cpu.compiling import inline, shared
from kernels.cpu.fixed_panels import (
    MOST_FIXED_ROWS,
    fixed_panel,
    fixed_row,
    record_bytes,
)
from kernels.cpu.lanes import address, keep, word_at, words_at
from kernels.cpu.machine import HAS_DOT_BYTES, HAS_TABLES
from kernels.cpu.panels import (
    BLOCK,
    ELEMENT_BITS,
    FLOAT,
    FP4,
    FP4_VALUES,
    HALF,
    MOST_ROWS,
    MOST_ROWS_Q8,
    NARROW,
    Q8,
    STACK_BYTES,
    UNROLL,
    WIDE,
    panel,
    spare_bytes,
    spare_panel,
)
from kernels.cpu.row_lanes import add_row, copy_row, half_row
from kernels.cpu.threads import address_of, parallel, set_words, spare_words, threads
from kernels.mode import BATCH_ORDER, FIXED_8, FIXED_16, ROUND_ROWS

KIND, INPUTS, OUTPUTS, DATA, SCALES = range(5)
"""What the words of a packed matrix mean: element type, sizes, addresses."""

PREPARED_FLOATS = 3
"""A prepared input is no larger than so many floats."""

SHARED_WORK = 400_000
"""Weights times rows + 1 of the smallest product that threads share. For less than about two
microseconds of work it costs more than it gains to have two processors exchange the rows."""

RECORD_1, RECORD_2 = record_bytes(1), record_bytes(2)


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


def _bytes(panels: np.ndarray, inputs: int) -> np.ndarray:
    """Panels of bytes with four inputs of an output side by side."""
    lines = panels.reshape(-1, inputs // UNROLL, UNROLL, WIDE)
    packed = aligned((panels.size,), panels.dtype)
    packed[:] = lines.transpose(0, 1, 3, 2).reshape(-1)
    return packed


def _codes(panels: np.ndarray) -> np.ndarray:
    """Such bytes below 16 in half the space: those of the next four inputs become high halves."""
    pairs = panels.reshape(-1, 2, UNROLL * WIDE)
    packed = aligned((panels.size // 2,), np.uint8)
    packed[:] = (pairs[:, 0] | pairs[:, 1] << 4).reshape(-1)
    return packed


def pack(matrices: Sequence[np.ndarray | tuple[np.ndarray, np.ndarray]]) -> Packed:
    """Pack matrices of one shape.

    Args:
        matrices: each float16 or float32 (outputs, inputs); or a pair of int8 for Q8_0, or of
            uint8 codes, the places in FP4_VALUES, for MXFP4 (outputs, inputs) and of float16
            scales (outputs, inputs / 32).
    """
    memory: list[np.ndarray] = []
    words = np.zeros((len(matrices), 8), np.int64)
    for index, matrix in enumerate(matrices):
        values, scale = matrix if isinstance(matrix, tuple) else (matrix, None)
        if values.dtype == np.uint8 and not HAS_TABLES:
            values = np.array(FP4_VALUES, np.int8)[values]
        kind = {"int8": Q8, "float16": HALF, "float32": FLOAT, "uint8": FP4}[values.dtype.name]
        parts = [_panels(values, narrow=scale is None)]
        if scale is not None:
            lines = _bytes(parts[0], values.shape[1])
            parts = [_codes(lines) if kind == FP4 else lines, _panels(scale, narrow=False)]
        addresses = [part.ctypes.data for part in parts] + [0] * (2 - len(parts))
        words[index, :5] = kind, *values.shape[::-1], *addresses
        memory += parts
    return Packed(words, tuple(memory), int(words[0, INPUTS]), int(words[0, OUTPUTS]))


@inline
def _fixed(words, flags):  # type: ignore[no-untyped-def]
    """Bytes that an input keeps in fixed point; 0 = it stays a float."""
    if ELEMENT_BITS[word_at(words, KIND)] > 8:
        return 0
    return 2 if flags & FIXED_16 else 1 if flags & FIXED_8 and HAS_DOT_BYTES else 0


@inline
def prepared_bytes(words, flags):  # type: ignore[no-untyped-def]
    """Bytes of a row as `prepare` writes it."""
    fixed, inputs = _fixed(words, flags), word_at(words, INPUTS)
    if fixed:
        return inputs // BLOCK * (RECORD_2 if fixed == 2 else RECORD_1)
    return 4 * inputs


@shared("ds4tui_prepare", types.void, *[types.intp] * 6)
def prepare(words: int, rows: int, x: int, x_stride: int, flags: int, out: int) -> None:
    """Rows as `multiply_columns` takes them: in fixed point, rounded to F16, or copied."""
    fixed, inputs, step = _fixed(words, flags), word_at(words, INPUTS), prepared_bytes(words, flags)
    for r in range(rows):
        source, copy = x + 4 * r * x_stride, out + r * step
        if fixed:
            fixed_row(fixed, source, inputs, copy)
        elif flags & ROUND_ROWS:
            half_row(source, inputs, copy)
        else:
            copy_row(source, inputs, copy)


@shared("ds4tui_multiply_columns", types.void, *[types.intp] * 9)
def multiply_columns(
    words: int, rows: int, x: int, step: int, out: int, out_stride: int, flags: int, first: int,
    last: int,
) -> None:  # fmt: skip
    """Outputs first..last - 1 of `product`; `first` is a multiple of WIDE.

    Args:
        x: rows as `prepare` writes them, `step` bytes apart.
    """
    kind, inputs = word_at(words, KIND), word_at(words, INPUTS)
    data, scales = word_at(words, DATA), word_at(words, SCALES)
    outputs, fixed = word_at(words, OUTPUTS), _fixed(words, flags)
    bits, blocks = ELEMENT_BITS[kind], inputs // BLOCK
    most = MOST_FIXED_ROWS[fixed] if fixed else MOST_ROWS_Q8 if bits <= 8 else MOST_ROWS
    spare = spare_panel()
    halves = flags & BATCH_ORDER and not fixed and blocks > 1
    middle = blocks // 2 * BLOCK if halves else inputs
    column = first
    while column < last:
        wide = 1 if bits <= 8 or outputs - column > NARROW else 0
        width = WIDE if wide else NARROW
        real = min(width, outputs - column)
        w, s = data + column * inputs * bits // 8, scales + column * blocks * 2
        row = 0
        while row < rows:
            count = min(most, rows - row)
            place, start = out + 4 * (row * out_stride + column), x + row * step
            for part in range(2 if halves else 1):
                direct = real == width and part == 0
                target, target_step = (place, out_stride) if direct else (spare, width)
                if fixed:
                    fixed_panel(kind, fixed, count, w, s, start, target, target_step, inputs)
                else:
                    begin = part * middle
                    wp, sp = w + begin * width * bits // 8, s + begin // BLOCK * width * 2
                    length = middle if part == 0 else inputs - middle
                    panel(
                        kind, count, wide, wp, sp, start + 4 * begin, step // 4, target,
                        target_step, length,
                    )  # fmt: skip
                for r in range(count):
                    if part == 1:
                        add_row(spare + 4 * r * width, real, place + 4 * r * out_stride)
                    elif not direct:
                        copy_row(spare + 4 * r * width, real, place + 4 * r * out_stride)
            row += count
        column += width


@inline
def columns_of_piece(words, rows):  # type: ignore[no-untyped-def]
    """Outputs of one piece of a product: whole panels, as many pieces as threads; or all outputs
    where the product is too small to be shared."""
    outputs, pieces = word_at(words, OUTPUTS), threads()
    if pieces == 1 or (rows + 1) * outputs * word_at(words, INPUTS) < SHARED_WORK:
        return outputs
    return -(-outputs // (pieces * WIDE)) * WIDE


@shared("ds4tui_product_piece", types.void, *[types.intp] * 3)
def _product_piece(arguments: int, piece: int, _who: int) -> None:
    words, rows, x, step, out, out_stride, flags, columns = words_at(arguments, 8)
    first = piece * columns
    last = min(first + columns, word_at(words, OUTPUTS))
    multiply_columns(words, rows, x, step, out, out_stride, flags, first, last)


_product_piece_at = address_of("ds4tui_product_piece")


@shared("ds4tui_product", types.void, *[types.intp] * 7)
def product(
    words: int, rows: int, x: int, x_stride: int, out: int, out_stride: int, flags: int
) -> None:
    """out[r, o] = sum over i of x[r, i] * W[o, i]; arrays by address, strides in floats.

    Args:
        words: address of one row of `Packed.words`.
        flags: of `Mode`. 0 = every sum over inputs in order; BATCH_ORDER = two halves of the
            inputs summed apart, then added; ROUND_ROWS = x rounded to F16 first. With scales
            FIXED_16 takes the place of both, and so does FIXED_8 where the machine gains by it.
    """
    step, source = 4 * x_stride, x
    prepared = _fixed(words, flags) or flags & ROUND_ROWS
    needed = rows * prepared_bytes(words, flags) if prepared else 0
    heap = np.empty(needed if needed > STACK_BYTES else 0, np.uint8)
    if prepared:
        step, source = prepared_bytes(words, flags), spare_bytes()
        if needed > STACK_BYTES:
            source = address(heap)
        prepare(words, rows, x, x_stride, flags, source)
    outputs = word_at(words, OUTPUTS)
    columns = columns_of_piece(words, rows)
    arguments = spare_words()
    set_words(arguments, (words, rows, source, step, out, out_stride, flags, columns))
    parallel(_product_piece_at(), arguments, -(-outputs // columns))
    keep(heap)


@inline
def multiply(words, x, out, rows, flags):  # type: ignore[no-untyped-def]
    """`product` of whole arrays: x (>= rows, inputs) and out (>= rows, width) of float32."""
    product(address(words), rows, address(x), x.shape[1], address(out), out.shape[1], flags)
