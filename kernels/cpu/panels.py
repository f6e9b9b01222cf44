"""The innermost loops of the products: a panel of weights against a few rows of activations.

Written for every element type, panel width and number of rows as LLVM IR. A vector lane is an
output; the sums of a row's outputs run over the inputs in an order that no other row changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from kernels.cpu.emit import F32, I16, I64, Emitter, Value
from kernels.cpu.lanes import numba_intrinsic, on_stack
from kernels.cpu.machine import HAS_TABLES

Q8, HALF, FLOAT, FP4 = range(4)
"""Element types of a packed matrix."""

ELEMENT_BITS = (8, 16, 32, 4)

FP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""The integers that FP4's codes stand for: MXFP4's values, doubled."""

BLOCK = 32
"""Inputs that share one scale in Q8 and FP4."""

WIDE, NARROW = 64, 32
"""Outputs of a panel, and of the last panel when no more than NARROW are left."""

UNROLL = 4
"""Inputs of one turn of the innermost loop, and in a word of Q8: bytes that lie side by side."""

MOST_ROWS, MOST_ROWS_Q8 = 6, 3
"""Rows that one pass over a panel serves: 6 x 4 sums fit the 32 vector registers of AVX-512.

With scales a block's sums come beside the totals, so that fewer fit.
"""

STACK_BYTES = 1 << 16
"""Copies of a product's rows lie on the stack when they are no larger than this."""

PREFETCH_BYTES = 8192
"""How far ahead weights are prefetched: the hardware's own stops at the end of a page."""


@intrinsic
def panel(
    typing_context: Any, kind: Any, rows: Any, wide: Any, data_at: Any, scales_at: Any,
    x_at: Any, x_stride: Any, out_at: Any, out_stride: Any, inputs: Any,
) -> Any:  # fmt: skip
    """out[r, o] = sum over i < inputs of x[r, i] * W[o, i], for one panel and 1..MOST_ROWS rows.

    Q8 and FP4 take 1..MOST_ROWS_Q8 rows. Inputs run in order.
    """

    def emit(
        b: Any, kind: Value, rows: Value, wide: Value, data: Value, scales: Value,
        x: Value, x_stride: Value, out: Value, out_stride: Value, inputs: Value,
    ) -> None:  # fmt: skip
        done = b.append_basic_block("done")
        key = b.add(b.mul(b.add(b.mul(kind, I64(2)), wide), I64(MOST_ROWS + 1)), rows)
        switch = b.switch(key, done)
        for element in (Q8, HALF, FLOAT, FP4) if HAS_TABLES else (Q8, HALF, FLOAT):
            scaled = ELEMENT_BITS[element] <= 8
            for is_wide in (1,) if scaled else (0, 1):
                for size in range(1, (MOST_ROWS_Q8 if scaled else MOST_ROWS) + 1):
                    block = b.append_basic_block(f"panel{element}{is_wide}{size}")
                    case = (element * 2 + is_wide) * (MOST_ROWS + 1) + size
                    switch.add_case(I64(case), block)
                    b.position_at_end(block)
                    xs = [b.add(x, b.mul(x_stride, I64(4 * r))) for r in range(size)]
                    outs = [b.add(out, b.mul(out_stride, I64(4 * r))) for r in range(size)]
                    vectors = (WIDE if is_wide else NARROW) // 16
                    code = _Panel(Emitter(b, 16), element, vectors, data, scales, xs, outs, inputs)
                    code.emit()
                    b.branch(done)
        b.position_at_end(done)

    return numba_intrinsic(types.void, 10, emit)


@dataclass(frozen=True, slots=True)
class _Panel:
    """Writes the code for one element type, panel width and number of rows.

    Args:
        vectors: 16 outputs each.
        xs, outs: addresses of every row's inputs and outputs.
    """

    e: Emitter
    element: int
    vectors: int
    data: Value
    scales: Value
    xs: list[Value]
    outs: list[Value]
    inputs: Value

    def emit(self) -> None:
        e, b = self.e, self.e.b
        zeros = [e.const(0.0)] * (len(self.xs) * self.vectors)
        scaled = ELEMENT_BITS[self.element] <= 8
        if scaled:
            blocks = b.sdiv(self.inputs, I64(BLOCK))
            sums = e.loop(I64(0), blocks, zeros, self._scaled_block)
        else:
            turns = b.sdiv(self.inputs, I64(UNROLL))
            sums = e.loop(I64(0), turns, zeros, self._turn)
            rest = b.mul(turns, I64(UNROLL))
            sums = e.loop(rest, self.inputs, sums, self._add)
        if scaled:
            sums = [b.fmul(value, e.const(2.0**-24)) for value in sums]
        for r, row in enumerate(self.outs):
            for t in range(self.vectors):
                e.store(sums[r * self.vectors + t], b.add(row, I64(64 * t)))

    def _scaled_block(self, i: Value, totals: Any) -> list[Value]:
        """Sum a block of integer weights, scale the sum, add it."""
        e, b = self.e, self.e.b
        first, count = b.mul(i, I64(BLOCK)), 32 // ELEMENT_BITS[self.element]

        def turn(j: Value, sums: Any) -> list[Value]:
            return self._add_words(b.add(first, b.mul(j, I64(count))), count, sums)

        sums = e.loop(I64(0), I64(BLOCK // count), [e.const(0.0)] * len(totals), turn)
        d = block_scales(e, self.scales, i, self.vectors)
        return [e.fma(s, d[j % self.vectors], totals[j]) for j, s in enumerate(sums)]

    def _turn(self, i: Value, sums: Any) -> list[Value]:
        """Add the products of UNROLL inputs."""
        b, values = self.e.b, list(sums)
        first = b.mul(i, I64(UNROLL))
        for u in range(UNROLL):
            values = self._add(b.add(first, I64(u)), values)
        return values

    def _add_words(self, first: Value, count: int, sums: Any) -> list[Value]:
        """Add the products of `count` inputs, whose weights lie side by side in a word."""
        e, values = self.e, list(sums)
        place = self._line(first, self.vectors * 64 // count, count)
        words = [e.load_words(e.b.add(place, I64(64 * t))) for t in range(self.vectors)]
        for u in range(count):
            weights = [self._weight(word, u) for word in words]
            for r, row in enumerate(self.xs):
                x = e.splat(e.load_one(e.at(row, e.b.add(first, I64(u)), 4)))
                for t in range(self.vectors):
                    j = r * self.vectors + t
                    values[j] = e.fma(weights[t], x, values[j])
        return values

    def _weight(self, words: Value, u: int) -> Value:
        """Weight u of every word, times 2^24, as a float."""
        if self.element == Q8:
            return self.e.byte(words, u)
        # One look-up serves inputs u and u | 2, the halves of a word: 16 bits say all of a float.
        e, b = self.e, self.e.b
        table = [I16(int(np.float32(v * 2.0**24).view(np.int32)) >> 16) for v in FP4_VALUES]
        pair = e.look_up(table, words, code_place(u & ~2))
        upper = b.and_(pair, e.const_int(-1 << 16)) if u & 2 else b.shl(pair, e.const_int(16))
        return b.bitcast(upper, e.kind(F32))

    def _add(self, i: Value, sums: Any) -> list[Value]:
        """Add the products of input i."""
        e, new = self.e, []
        size = 2 * ELEMENT_BITS[self.element]
        place = self._line(i, self.vectors * size, 1)
        load = e.load_half if self.element == HALF else e.load
        weights = [load(e.b.add(place, I64(size * t)), size) for t in range(self.vectors)]
        for r, row in enumerate(self.xs):
            value = e.splat(e.load_one(e.at(row, i, 4)))
            for t, w in enumerate(weights):
                new.append(e.fma(w, value, sums[r * self.vectors + t]))
        return new

    def _line(self, i: Value, size: int, count: int) -> Value:
        """Address of the panel's weights of inputs i..i + count - 1, `size` bytes for each.

        As many that follow later are prefetched.
        """
        e, b = self.e, self.e.b
        place = b.add(self.data, b.mul(i, I64(size)))
        for line in range(0, size * count, 64):
            e.prefetch(b.add(place, I64(PREFETCH_BYTES + line)))
        return place


def code_place(u: int) -> int:
    """Where in a word of FP4 the code of input u begins: byte u of UNROLL, then the high halves."""
    return 8 * (u % UNROLL) + 4 * (u // UNROLL)


def block_scales(e: Emitter, scales: Value, block: Value, vectors: int) -> list[Value]:
    """Scales of one block of inputs, one per output."""
    place = e.at(scales, e.b.mul(block, I64(16 * vectors)), 2)
    return [e.load_half(e.b.add(place, I64(32 * t)), 32) for t in range(vectors)]


@intrinsic
def spare_panel(typing_context: Any) -> Any:
    """Address of MOST_ROWS x WIDE floats on the stack."""
    return on_stack(4 * MOST_ROWS * WIDE)


@intrinsic
def spare_bytes(typing_context: Any) -> Any:
    """Address of STACK_BYTES on the stack."""
    return on_stack(STACK_BYTES)
