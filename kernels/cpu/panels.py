"""The innermost loops of the products: a panel of weights against a few rows of activations.

Written for every element type, panel width and number of rows as LLVM IR. A vector lane is an
output; the sums of a row's outputs run over the inputs in an order that no other row changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba import types
from numba.extending import intrinsic

from kernels.cpu.emit import I64, Emitter, Value
from kernels.cpu.lanes import numba_intrinsic, on_stack

Q8, HALF, FLOAT = 0, 1, 2
"""Element types of a packed matrix."""

ELEMENT_BYTES = (1, 2, 4)

BLOCK = 32
"""Inputs that share one scale in Q8_0."""

WIDE, NARROW = 64, 32
"""Outputs of a panel, and of the last panel when no more than NARROW are left."""

UNROLL = 4
"""Inputs of one turn of the innermost loop."""

MOST_ROWS, MOST_ROWS_Q8 = 6, 3
"""Rows that one pass over a panel serves: 6 x 4 sums fit the 32 vector registers of AVX-512.

With Q8_0 a block's sums come beside the totals, so that fewer fit.
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

    Q8_0 takes 1..MOST_ROWS_Q8 rows. Inputs run in order.
    """

    def emit(
        b: Any, kind: Value, rows: Value, wide: Value, data: Value, scales: Value,
        x: Value, x_stride: Value, out: Value, out_stride: Value, inputs: Value,
    ) -> None:  # fmt: skip
        done = b.append_basic_block("done")
        key = b.add(b.mul(b.add(b.mul(kind, I64(2)), wide), I64(MOST_ROWS + 1)), rows)
        switch = b.switch(key, done)
        for element in (Q8, HALF, FLOAT):
            for is_wide in (1,) if element == Q8 else (0, 1):
                for size in range(1, (MOST_ROWS_Q8 if element == Q8 else MOST_ROWS) + 1):
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
        if self.element == Q8:
            blocks = b.sdiv(self.inputs, I64(BLOCK))
            sums = e.loop(I64(0), blocks, zeros, self._scaled_block)
        else:
            turns = b.sdiv(self.inputs, I64(UNROLL))
            sums = e.loop(I64(0), turns, zeros, lambda i, s: self._turn(b.mul(i, I64(UNROLL)), s))
            rest = b.mul(turns, I64(UNROLL))
            sums = e.loop(rest, self.inputs, sums, self._add)
        if self.element == Q8:
            sums = [b.fmul(value, e.const(2.0**-24)) for value in sums]
        for r, row in enumerate(self.outs):
            for t in range(self.vectors):
                e.store(sums[r * self.vectors + t], b.add(row, I64(64 * t)))

    def _scaled_block(self, i: Value, totals: Any) -> list[Value]:
        """Sum a block of int8 weights, scale the sum, add it."""
        e, b = self.e, self.e.b
        first = b.mul(i, I64(BLOCK))

        def turn(j: Value, sums: Any) -> list[Value]:
            return self._turn(b.add(first, b.mul(j, I64(UNROLL))), sums)

        sums = e.loop(I64(0), I64(BLOCK // UNROLL), [e.const(0.0)] * len(totals), turn)
        d = block_scales(e, self.scales, i, self.vectors)
        return [e.fma(s, d[j % self.vectors], totals[j]) for j, s in enumerate(sums)]

    def _turn(self, first: Value, sums: Any) -> list[Value]:
        """Add the products of UNROLL inputs."""
        if self.element == Q8:
            return self._add_bytes(first, sums)
        values = list(sums)
        for u in range(UNROLL):
            values = self._add(self.e.b.add(first, I64(u)), values)
        return values

    def _add_bytes(self, first: Value, sums: Any) -> list[Value]:
        """Add the products of UNROLL inputs, whose bytes lie side by side."""
        e, values = self.e, list(sums)
        place = self._line(first, self.vectors * 16)
        weights = [e.load_bytes(e.b.add(place, I64(64 * t))) for t in range(self.vectors)]
        for u in range(UNROLL):
            for r, row in enumerate(self.xs):
                x = e.splat(e.load_one(e.at(row, e.b.add(first, I64(u)), 4)))
                for t in range(self.vectors):
                    j = r * self.vectors + t
                    values[j] = e.fma(weights[t][u], x, values[j])
        return values

    def _add(self, i: Value, sums: Any) -> list[Value]:
        """Add the products of input i."""
        e, new = self.e, []
        size = 16 * ELEMENT_BYTES[self.element]
        place = self._line(i, self.vectors * size)
        load = e.load_half if self.element == HALF else e.load
        weights = [load(e.b.add(place, I64(size * t)), size) for t in range(self.vectors)]
        for r, row in enumerate(self.xs):
            value = e.splat(e.load_one(e.at(row, i, 4)))
            for t, w in enumerate(weights):
                new.append(e.fma(w, value, sums[r * self.vectors + t]))
        return new

    def _line(self, i: Value, size: int) -> Value:
        """Address of the panel's weights from input i on; what follows later is prefetched."""
        e, b = self.e, self.e.b
        place = b.add(self.data, b.mul(i, I64(size)))
        taken = size * (UNROLL if self.element == Q8 else 1)
        for line in range(0, taken, 64):
            e.prefetch(b.add(place, I64(PREFETCH_BYTES + line)))
        return place


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
