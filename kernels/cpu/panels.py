"""The innermost loops of the products: a panel of weights against a few rows of activations.

Written for every element type, panel width and number of rows as LLVM IR. A vector lane is an
output; the sums of a row's outputs run over the inputs in an order that no other row changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from kernels.cpu.emit import F32, I8, I32, I64, Emitter, Value
from kernels.cpu.lanes import numba_intrinsic

Q8, HALF, FLOAT, Q8_FIXED = 0, 1, 2, 3
"""Element types of a packed matrix; Q8_FIXED multiplies rows in 16-bit fixed point."""

ELEMENT_BYTES = (1, 2, 4, 1)

BLOCK = 32
"""Inputs that share one scale in Q8_0."""

WIDE, NARROW = 64, 32
"""Outputs of a panel, and of the last panel when no more than NARROW are left."""

UNROLL = 4
"""Inputs of one turn of the innermost loop."""

MOST_ROWS = 6
"""Rows that one pass over a panel serves: 6 x 4 sums fit the 32 vector registers of AVX-512."""

PASSES = (1, 2, 3, 4, MOST_ROWS)
"""Numbers of rows that code is written for; five rows take the one for six."""

PREFETCH_BYTES = 4096
"""How far ahead weights are prefetched: the hardware's own stops at the end of a page."""

_DOT_BYTES = "llvm.x86.avx512.vpdpbusd.512"

HAS_DOT_BYTES = (
    not config.CPU_NAME
    and not config.CPU_FEATURES
    and bool(llvm.get_host_cpu_features().get("avx512vnni"))
)
"""Whether the machine adds products of bytes by fours (AVX-512 VNNI)."""

LARGEST_FIXED = 32767.0
"""The largest activation of a block becomes this in 16-bit fixed point."""


@intrinsic
def panel(
    typing_context: Any, kind: Any, rows: Any, wide: Any, data_at: Any, scales_at: Any,
    x_at: Any, x_stride: Any, out_at: Any, out_stride: Any, inputs: Any,
) -> Any:  # fmt: skip
    """out[r, o] = sum over i < inputs of x[r, i] * W[o, i], for one panel and 1..MOST_ROWS rows.

    Inputs run in order; for all types but Q8_FIXED.
    """

    def emit(
        b: Any, kind: Value, rows: Value, wide: Value, data: Value, scales: Value,
        x: Value, x_stride: Value, out: Value, out_stride: Value, inputs: Value,
    ) -> None:  # fmt: skip
        done = b.append_basic_block("done")
        key = b.add(b.mul(b.add(b.mul(kind, I64(2)), wide), I64(MOST_ROWS + 1)), rows)
        at = [_row_of(b, r, rows) for r in range(MOST_ROWS)]
        switch = b.switch(key, done)
        for element in (Q8, HALF, FLOAT):
            for is_wide in (1,) if element == Q8 else (0, 1):
                for size in PASSES:
                    block = b.append_basic_block(f"panel{element}{is_wide}{size}")
                    for count in _counts(size):
                        case = (element * 2 + is_wide) * (MOST_ROWS + 1) + count
                        switch.add_case(I64(case), block)
                    b.position_at_end(block)
                    xs = [b.add(x, b.mul(b.mul(r, x_stride), I64(4))) for r in at[:size]]
                    outs = [b.add(out, b.mul(b.mul(r, out_stride), I64(4))) for r in at[:size]]
                    vectors = (WIDE if is_wide else NARROW) // 16
                    code = _Panel(Emitter(b, 16), element, vectors, data, scales, xs, outs, inputs)
                    code.emit()
                    b.branch(done)
        b.position_at_end(done)

    return numba_intrinsic(types.void, 10, emit)


def _counts(size: int) -> tuple[int, ...]:
    """The numbers of rows that the code for `size` rows serves."""
    return (MOST_ROWS - 1, MOST_ROWS) if size == MOST_ROWS else (size,)


def _row_of(b: Any, r: int, rows: Value) -> Value:
    """min(r, rows - 1): rows beyond the last repeat it, the same sums to the same place."""
    last = b.sub(rows, I64(1))
    return b.select(b.icmp_signed("<", I64(r), last), I64(r), last)


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
        d = _scales(e, self.scales, i, self.vectors)
        return [e.fma(s, d[j % self.vectors], totals[j]) for j, s in enumerate(sums)]

    def _turn(self, first: Value, sums: Any) -> list[Value]:
        """Add the products of UNROLL inputs."""
        values = list(sums)
        for u in range(UNROLL):
            values = self._add(self.e.b.add(first, I64(u)), values)
        return values

    def _add(self, i: Value, sums: Any) -> list[Value]:
        """Add the products of input i."""
        e, new = self.e, []
        weights = self._weights(i)
        for r, row in enumerate(self.xs):
            value = e.splat(e.load_one(e.at(row, i, 4)))
            for t, w in enumerate(weights):
                new.append(e.fma(w, value, sums[r * self.vectors + t]))
        return new

    def _weights(self, i: Value) -> list[Value]:
        """The panel's weights of input i, as floats; int8 ones times 2^24."""
        e, b = self.e, self.e.b
        size = 16 * ELEMENT_BYTES[self.element]
        place = b.add(self.data, b.mul(i, I64(self.vectors * size)))
        for line in range(0, self.vectors * size, 64):
            e.prefetch(b.add(place, I64(PREFETCH_BYTES + line)))
        if self.element == Q8:
            return e.load_bytes(place)
        load = e.load_half if self.element == HALF else e.load
        return [load(b.add(place, I64(size * t)), size) for t in range(self.vectors)]


def _scales(e: Emitter, scales: Value, block: Value, vectors: int) -> list[Value]:
    """Scales of one block of inputs, one per output."""
    place = e.at(scales, e.b.mul(block, I64(16 * vectors)), 4)
    return [e.load(e.b.add(place, I64(64 * t)), 64) for t in range(vectors)]


@intrinsic
def fixed_row(
    typing_context: Any, x_at: Any, inputs: Any, high_at: Any, low_at: Any, scales_at: Any
) -> Any:
    """Blocks of 32 floats as 16-bit fixed point: high bytes + 128, low bytes, one scale a block.

    The scale is that of the integers times 2^24, as scales of weights are divided by it.
    """

    def emit(b: Any, x: Value, inputs: Value, high: Value, low: Value, scales: Value) -> None:
        e, one = Emitter(b, 16), Emitter(b, 1)

        def block(i: Value, _carried: Any) -> list[Value]:
            place = e.at(x, i, 4 * BLOCK)
            parts = [e.load(place), e.load(b.add(place, I64(64)))]
            sizes = [
                b.bitcast(b.and_(b.bitcast(p, e.kind(I32)), e.const_int((1 << 31) - 1)), p.type)
                for p in parts
            ]
            largest = e.total(e.larger(sizes[0], sizes[1]), e.larger)
            largest = one.larger(largest, one.const(1e-30))
            factor = e.splat(b.fdiv(one.const(LARGEST_FIXED), largest))
            for j, part in enumerate(parts):
                # Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
                shifted = b.fadd(b.fmul(part, factor), e.const(12582912.0))
                bits = b.bitcast(shifted, e.kind(I32))
                top = b.xor(b.lshr(bits, e.const_int(8)), e.const_int(0x80))
                offset = b.add(b.mul(i, I64(BLOCK)), I64(16 * j))
                for value, target in ((top, high), (bits, low)):
                    pointer = b.inttoptr(b.add(target, offset), e.kind(I8).as_pointer())
                    b.store(b.trunc(value, e.kind(I8)), pointer).align = 1
            scale = b.fmul(largest, one.const(2.0**24 / LARGEST_FIXED))
            one.store(scale, e.at(scales, i, 4))
            return []

        e.loop(I64(0), b.sdiv(inputs, I64(BLOCK)), [], block)

    return numba_intrinsic(types.void, 5, emit)


@intrinsic
def fixed_panel(
    typing_context: Any, rows: Any, data_at: Any, scales_at: Any, corrections_at: Any,
    high_at: Any, low_at: Any, row_scales_at: Any, out_at: Any, out_stride: Any, inputs: Any,
) -> Any:  # fmt: skip
    """As `panel` for int8 weights and rows that `fixed_row` wrote: sums of a block are exact."""

    def emit(
        b: Any, rows: Value, data: Value, scales: Value, corrections: Value, high: Value,
        low: Value, row_scales: Value, out: Value, out_stride: Value, inputs: Value,
    ) -> None:  # fmt: skip
        if not HAS_DOT_BYTES:
            return  # never called: see `HAS_DOT_BYTES`
        done = b.append_basic_block("done")
        at = [_row_of(b, r, rows) for r in range(MOST_ROWS)]
        switch = b.switch(rows, done)
        for size in PASSES:
            block = b.append_basic_block(f"fixed{size}")
            for count in _counts(size):
                switch.add_case(I64(count), block)
            b.position_at_end(block)
            _emit_fixed(
                Emitter(b, 16), at[:size], data, scales, corrections, high, low, row_scales, out,
                out_stride, inputs,
            )  # fmt: skip
            b.branch(done)
        b.position_at_end(done)

    return numba_intrinsic(types.void, 10, emit)


def _emit_fixed(
    e: Emitter, at: list[Value], data: Value, scales: Value, corrections: Value, high: Value,
    low: Value, row_scales: Value, out: Value, out_stride: Value, inputs: Value,
) -> None:  # fmt: skip
    """The body for one number of rows."""
    b, tiles = e.b, WIDE // 16
    words = e.kind(I32)
    module = b.module
    dot = module.globals.get(_DOT_BYTES) or ir.Function(
        module, ir.FunctionType(words, [words] * 3), _DOT_BYTES
    )
    blocks = b.sdiv(inputs, I64(BLOCK))

    def load(place: Value) -> Value:
        value = b.load(b.inttoptr(place, words.as_pointer()))
        value.align = 64
        return value

    def four(place: Value) -> Value:
        """Four bytes of a row in every lane."""
        value = b.load(b.inttoptr(place, I32.as_pointer()))
        value.align = 1
        return b.bitcast(e.splat(b.bitcast(value, F32)), words)

    def block(i: Value, totals: Any) -> list[Value]:
        place = b.add(data, b.mul(i, I64(BLOCK * WIDE)))
        first = b.add(corrections, b.mul(i, I64(4 * WIDE)))
        start = [load(b.add(first, I64(64 * t))) for t in range(tiles)]
        sums = [start[j % tiles] for j in range(len(totals))]
        for half in (high, low):
            for g in range(BLOCK // UNROLL):
                lines = [b.add(place, I64(64 * (tiles * g + t))) for t in range(tiles)]
                weights = [load(line) for line in lines]
                if half is high:
                    for line in lines:
                        e.prefetch(b.add(line, I64(PREFETCH_BYTES)))
                for r, row in enumerate(at):
                    offset = b.add(b.mul(row, inputs), b.add(b.mul(i, I64(BLOCK)), I64(UNROLL * g)))
                    x = four(b.add(half, offset))
                    for t in range(tiles):
                        sums[r * tiles + t] = b.call(dot, [sums[r * tiles + t], x, weights[t]])
            if half is high:
                sums = [b.shl(s, e.const_int(8)) for s in sums]
        d = _scales(e, scales, i, tiles)
        new = []
        for r, row in enumerate(at):
            scale = e.splat(e.load_one(e.at(row_scales, b.add(b.mul(row, blocks), i), 4)))
            for t in range(tiles):
                j = r * tiles + t
                value = b.sitofp(sums[j], e.kind(F32))
                new.append(e.fma(value, b.fmul(d[t], scale), totals[j]))
        return new

    sums = e.loop(I64(0), blocks, [e.const(0.0)] * (len(at) * tiles), block)
    for r, row in enumerate(at):
        for t in range(tiles):
            target = b.add(out, b.add(b.mul(b.mul(row, out_stride), I64(4)), I64(64 * t)))
            e.store(sums[r * tiles + t], target)


@intrinsic
def spare_panel(typing_context: Any) -> Any:
    """Address of MOST_ROWS x WIDE floats on the stack."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Value:
        space = cgutils.alloca_once(builder, ir.ArrayType(F32, MOST_ROWS * WIDE))
        space.align = 64
        return builder.ptrtoint(space, I64)

    return types.intp(), generate
