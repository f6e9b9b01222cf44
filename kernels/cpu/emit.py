"""Writes vector arithmetic as LLVM IR, for the intrinsics of `kernels.cpu.lanes`.

Knows no op. Every value is a float or a vector of floats; addresses are 64-bit integers. Vectors
compile to whatever the machine has (AVX-512, AVX2, NEON): the order of every sum is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

F32 = ir.FloatType()
F16 = ir.HalfType()
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)

Value = Any
"""An LLVM value; llvmlite has no annotations of use here."""

EXP_LOW, EXP_HIGH = -87.33654, 88.37626
"""Arguments of `exp` are clamped to this range: the results stay normal floats."""


class Emitter:
    """A builder for one intrinsic.

    Args:
        builder: llvmlite IR builder, positioned.
        lanes: floats in a vector; 1 = plain floats.
    """

    def __init__(self, builder: Any, lanes: int) -> None:
        self.b = builder
        self.lanes = lanes

    def kind(self, element: Any) -> Any:
        """The vector type of `element`."""
        return element if self.lanes == 1 else ir.VectorType(element, self.lanes)

    def const(self, value: float) -> Value:
        """A float in every lane."""
        if self.lanes == 1:
            return ir.Constant(F32, value)
        return ir.Constant(self.kind(F32), [ir.Constant(F32, value)] * self.lanes)

    def const_int(self, value: int) -> Value:
        """A 32-bit integer in every lane."""
        if self.lanes == 1:
            return ir.Constant(I32, value)
        return ir.Constant(self.kind(I32), [ir.Constant(I32, value)] * self.lanes)

    def splat(self, value: Value) -> Value:
        """One float copied into every lane."""
        if self.lanes == 1:
            return value
        undefined = ir.Constant(self.kind(F32), ir.Undefined)
        one = self.b.insert_element(undefined, value, I32(0))
        order = ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes)
        return self.b.shuffle_vector(one, undefined, order)

    def shuffle(self, value: Value, order: Sequence[int]) -> Value:
        """Lane i of the result is lane order[i]."""
        undefined = ir.Constant(value.type, ir.Undefined)
        mask = ir.Constant(ir.VectorType(I32, len(order)), list(order))
        return self.b.shuffle_vector(value, undefined, mask)

    def _pointer(self, address: Value, element: Any) -> Value:
        return self.b.inttoptr(address, element.as_pointer())

    def at(self, address: Value, index: Value, size: int) -> Value:
        """Address of element `index` of an array of `size`-byte elements."""
        return self.b.add(address, self.b.mul(index, I64(size)))

    def load(self, address: Value, align: int = 4) -> Value:
        """A vector of consecutive floats."""
        value = self.b.load(self._pointer(address, self.kind(F32)))
        value.align = align
        return value

    def load_one(self, address: Value) -> Value:
        """One float."""
        value = self.b.load(self._pointer(address, F32))
        value.align = 4
        return value

    def load_int(self, address: Value) -> Value:
        """One 64-bit integer."""
        return self.b.load(self._pointer(address, I64))

    def load_words(self, address: Value) -> Value:
        """A vector of 32-bit words; the address is a multiple of its size."""
        words = self.b.load(self._pointer(address, self.kind(I32)))
        words.align = 4 * self.lanes
        return words

    def byte(self, words: Value, j: int) -> Value:
        """Byte j of every 32-bit word, -128..127, times 2^24, as a float."""
        b = self.b
        if j < 3:
            words = b.shl(words, self.const_int(24 - 8 * j))
        if j > 0:
            words = b.and_(words, self.const_int(-(1 << 24)))
        return b.sitofp(words, self.kind(F32))

    def look_up(self, table: Sequence[Value], words: Value, shift: int) -> Value:
        """Words of a table's entries; for 16 lanes and a machine that `HAS_TABLES`.

        Args:
            table: 16 constants of 8 or 16 bits.
            words: 32-bit words; bits shift..shift + 3 of each of their 8 or 16 bits say which.
        """
        b, module, element = self.b, self.b.module, table[0].type
        kind = ir.VectorType(element, 512 // element.width)
        entries = ir.Constant(kind, [*table] * (kind.count // len(table)))
        if shift:
            halves = ir.VectorType(I16, 32)
            words = b.lshr(b.bitcast(words, halves), ir.Constant(halves, [I16(shift)] * 32))
        name = f"llvm.x86.avx512.permvar.{'qi' if element == I8 else 'hi'}.512"
        function = module.globals.get(name) or ir.Function(
            module, ir.FunctionType(kind, [kind, kind]), name
        )
        # Only the lowest bits of a place count: the table is there in every 16 of them.
        return b.bitcast(b.call(function, [entries, b.bitcast(words, kind)]), self.kind(I32))

    def load_half(self, address: Value, align: int) -> Value:
        """A vector of consecutive float16, as floats."""
        value = self.b.load(self._pointer(address, self.kind(F16)))
        value.align = align
        return self.b.fpext(value, self.kind(F32))

    def prefetch(self, address: Value) -> None:
        """Ask for a cache line; any address is allowed."""
        pointer = self._pointer(address, I8)
        module, name = self.b.module, "llvm.prefetch.p0"
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
        function = module.globals.get(name) or ir.Function(module, kind, name)
        read, keep, data = I32(0), I32(3), I32(1)
        self.b.call(function, [pointer, read, keep, data])

    def store(self, value: Value, address: Value) -> None:
        """Write a float or a vector."""
        done = self.b.store(value, self._pointer(address, value.type))
        done.align = 4

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """x * y + z with one rounding."""
        name = "llvm.fma.f32" if self.lanes == 1 else f"llvm.fma.v{self.lanes}f32"
        kind = ir.FunctionType(self.kind(F32), [self.kind(F32)] * 3)
        module = self.b.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.b.call(function, [x, y, z])

    def larger(self, x: Value, y: Value) -> Value:
        """The larger of the two; y where x is NaN."""
        return self.b.select(self.b.fcmp_ordered(">", x, y), x, y)

    def sqrt(self, value: Value) -> Value:
        """Square root of one float."""
        name = "llvm.sqrt.f32"
        module = self.b.module
        function = module.globals.get(name) or ir.Function(
            module, ir.FunctionType(F32, [F32]), name
        )
        return self.b.call(function, [value])

    def total(self, value: Value, combine: Callable[[Value, Value], Value] | None = None) -> Value:
        """All lanes combined (added, unless told otherwise), by halves."""
        combine = combine or self.b.fadd
        lanes = self.lanes
        while lanes > 1:
            half = lanes // 2
            order = [(lane + half) % self.lanes for lane in range(self.lanes)]
            value = combine(value, self.shuffle(value, order))
            lanes = half
        return value if self.lanes == 1 else self.b.extract_element(value, I32(0))

    def exp(self, x: Value) -> Value:
        """e^x, within 2 ulps; clamped arguments, NaN stays NaN.

        Source: the reduction and polynomial of Cephes `expf` (Moshier).
        """
        b = self.b
        low, high = self.const(EXP_LOW), self.const(EXP_HIGH)
        x = b.select(b.fcmp_ordered("<", x, low), low, x)
        x = b.select(b.fcmp_ordered(">", x, high), high, x)
        # Adding 1.5 * 2^23 leaves round(x / ln 2) in the low bits of the sum.
        magic = self.const(12582912.0)
        shifted = self.fma(x, self.const(1.44269504088896341), magic)
        n = b.fsub(shifted, magic)
        r = self.fma(n, self.const(-0.693359375), x)
        r = self.fma(n, self.const(2.12194440e-4), r)
        y = self.const(1.9875691500e-4)
        for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1):
            y = self.fma(y, r, self.const(c))
        y = self.fma(y, r, self.const(5.0000001201e-1))
        y = self.fma(y, b.fmul(r, r), r)
        y = b.fadd(y, self.const(1.0))
        bits = b.shl(b.bitcast(shifted, self.kind(I32)), self.const_int(23))
        power = b.bitcast(b.add(bits, self.const_int(127 << 23)), self.kind(F32))
        return b.fmul(y, power)

    def loop(
        self,
        start: Value,
        stop: Value,
        carried: Sequence[Value],
        body: Callable[[Value, Sequence[Value]], Sequence[Value]],
        advance: Callable[[Value], Value] | None = None,
    ) -> list[Value]:
        """while i < stop: carried = body(i, carried), i = i + 1 or advance(i)."""
        b = self.b
        advance = advance or (lambda i: b.add(i, I64(1)))
        before = b.block
        head = b.append_basic_block("loop")
        turn = b.append_basic_block("turn")
        after = b.append_basic_block("after")
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        i.add_incoming(start, before)
        values = []
        for initial in carried:
            value = b.phi(initial.type)
            value.add_incoming(initial, before)
            values.append(value)
        b.cbranch(b.icmp_signed("<", i, stop), turn, after)
        b.position_at_end(turn)
        new = body(i, values)
        following = advance(i)
        i.add_incoming(following, b.block)
        for value, changed in zip(values, new, strict=True):
            value.add_incoming(changed, b.block)
        b.branch(head)
        b.position_at_end(after)
        return values
