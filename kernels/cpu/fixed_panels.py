"""Products of Q8 and FP4 panels with rows in fixed point: sums over a block are exact integers.

A row is cut into blocks of 32 inputs; in each the largest magnitude becomes LARGEST of the number
of bytes that an input keeps, 1 or 2. A block of a row is a record: [scale, start of the sums, two
words unused, inputs]. The sums of a row's outputs run over the blocks in order.

Machines that add products of integers in fours or twos (AVX-512 VNNI) do so. Others hold two planes
of floats, the integers' high and low bytes, whose sums over a block are exact too, so that both
give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.emit import F32, I8, I16, I32, I64, Emitter, Value
from kernels.cpu.lanes import numba_intrinsic
from kernels.cpu.machine import HAS_DOT_BYTES, HAS_TABLES
from kernels.cpu.panels import (
    BLOCK,
    ELEMENT_BITS,
    FP4,
    FP4_VALUES,
    PREFETCH_BYTES,
    Q8,
    UNROLL,
    WIDE,
    block_scales,
    code_place,
)

LARGEST = {1: 127.0, 2: 127.0 * 256 + 127}
"""What a block's largest magnitude becomes, by bytes: two signed bytes reach this far."""

HEAD_BYTES = 16
"""Size of a record before its inputs."""

WEIGHT_BIAS = 128
"""Added to weights for 8-bit inputs, so that they have no sign; sums start with its undoing."""

SMALLEST = 1e-30
"""A block's largest magnitude counts as this at least."""

MOST_FIXED_ROWS = (0, 6, 6 if HAS_DOT_BYTES else 3)
"""Rows that one pass over a panel serves, by bytes of an input: their sums fit the registers."""

STEP = 2 * UNROLL
"""Inputs of one turn of the innermost loop: a line of FP4's weights. Longer turns gain nothing."""

_DOT = {1: "llvm.x86.avx512.vpdpbusd.512", 2: "llvm.x86.avx512.vpdpwssd.512"}
_TILES = WIDE // 16
_KEYS = 8


def record_bytes(size: int) -> int:
    """Bytes of a block of a row whose inputs keep `size` bytes."""
    return HEAD_BYTES + BLOCK * size * (1 if HAS_DOT_BYTES else 4)


@intrinsic
def fixed_row(typing_context: Any, size: Any, x_at: Any, inputs: Any, out_at: Any) -> Any:
    """Write a row's records, `size` bytes an input.

    A NaN or an infinity makes its block's scale one.
    """

    def emit(b: Any, size: Value, x: Value, inputs: Value, out: Value) -> None:
        e = Emitter(b, 16)
        with b.if_else(b.icmp_signed("==", size, I64(1))) as (one, two):
            for count, branch in ((1, one), (2, two)):
                with branch:

                    def block(i: Value, _carried: Any, count: int = count) -> list[Value]:
                        record = e.at(out, i, record_bytes(count))
                        _write_record(e, count, e.at(x, i, 4 * BLOCK), record)
                        return []

                    e.loop(I64(0), b.sdiv(inputs, I64(BLOCK)), [], block)

    return numba_intrinsic(types.void, 4, emit)


def _write_record(e: Emitter, size: int, x: Value, record: Value) -> None:
    """One block."""
    b, one = e.b, Emitter(e.b, 1)

    def larger(p: Value, q: Value) -> Value:
        return b.select(b.icmp_signed(">", p, q), p, q)

    parts = [e.load(x), e.load(b.add(x, I64(64)))]
    magnitude = e.const_int((1 << 31) - 1)
    sizes = [b.and_(b.bitcast(part, e.kind(I32)), magnitude) for part in parts]
    # As integers magnitudes are ordered as floats, and those that are not finite come last.
    word = e.total(larger(sizes[0], sizes[1]), larger)
    largest = b.bitcast(larger(word, b.bitcast(one.const(SMALLEST), I32)), F32)
    factor = e.splat(b.fdiv(one.const(LARGEST[size]), largest))
    # Adding 1.5 * 2^23 leaves the rounded integers in the low bits.
    shifted = [b.fadd(b.fmul(part, factor), e.const(12582912.0)) for part in parts]
    values = [b.bitcast(value, e.kind(I32)) for value in shifted]
    one.store(b.fmul(largest, one.const(1.0 / LARGEST[size])), record)
    inputs = b.add(record, I64(HEAD_BYTES))
    if not HAS_DOT_BYTES:
        _write_planes(e, size, values, inputs)
        return
    for half, value in enumerate(values):
        integers = b.trunc(value, e.kind(I8 if size == 1 else I16))
        if size == 2:  # the order in which `_weight_words` splits four weights
            integers = e.shuffle(integers, [i & ~3 | (0, 2, 1, 3)[i & 3] for i in range(16)])
        place = b.inttoptr(b.add(inputs, I64(16 * size * half)), integers.type.as_pointer())
        b.store(integers, place).align = 1
    if size == 1:
        total = b.add(*[_signed_byte(e, value) for value in values])
        one.store(b.mul(e.total(total, b.add), I32(-WEIGHT_BIAS)), b.add(record, I64(4)))


def _signed_byte(e: Emitter, value: Value) -> Value:
    """The lowest byte of every lane, as a signed integer."""
    return e.b.ashr(e.b.shl(value, e.const_int(24)), e.const_int(24))


def _write_planes(e: Emitter, size: int, values: list[Value], inputs: Value) -> None:
    """A block's integers as floats: the high bytes, rounded, then the signed low bytes."""
    b = e.b
    for plane in range(size):
        for half, value in enumerate(values):
            last = plane + 1 == size
            rest = value if last else b.ashr(b.add(value, e.const_int(128)), e.const_int(8))
            place = b.add(inputs, I64(4 * BLOCK * plane + 64 * half))
            e.store(b.sitofp(_signed_byte(e, rest), e.kind(F32)), place)


@intrinsic
def fixed_panel(
    typing_context: Any, kind: Any, size: Any, rows: Any, data_at: Any, scales_at: Any,
    records_at: Any, out_at: Any, out_stride: Any, inputs: Any,
) -> Any:  # fmt: skip
    """As `panel` for Q8 and FP4 and 1..MOST_FIXED_ROWS rows that `fixed_row` wrote."""

    def emit(
        b: Any, kind: Value, size: Value, rows: Value, data: Value, scales: Value,
        records: Value, out: Value, out_stride: Value, inputs: Value,
    ) -> None:  # fmt: skip
        done = b.append_basic_block("done")
        key = b.add(b.mul(b.add(b.mul(kind, I64(_KEYS)), size), I64(_KEYS)), rows)
        switch = b.switch(key, done)
        for element in (Q8, FP4) if HAS_TABLES else (Q8,):
            for count in (1, 2) if HAS_DOT_BYTES else (2,):
                for several in range(1, MOST_FIXED_ROWS[count] + 1):
                    block = b.append_basic_block(f"fixed{element}{count}{several}")
                    case = (element * _KEYS + count) * _KEYS + several
                    switch.add_case(I64(case), block)
                    b.position_at_end(block)
                    _emit_panel(
                        Emitter(b, 16), element, count, several, data, scales, records, out,
                        out_stride, inputs,
                    )  # fmt: skip
                    b.branch(done)
        b.position_at_end(done)

    return numba_intrinsic(types.void, 9, emit)


def _emit_panel(
    e: Emitter, element: int, size: int, several: int, data: Value, scales: Value, records: Value,
    out: Value, out_stride: Value, inputs: Value,
) -> None:  # fmt: skip
    """The body for one type of weights, size of inputs and number of rows."""
    b = e.b
    blocks = b.sdiv(inputs, I64(BLOCK))
    stride = b.mul(blocks, I64(record_bytes(size)))
    rows = [b.add(records, b.mul(stride, I64(r))) for r in range(several)]
    block_bytes = BLOCK * WIDE * ELEMENT_BITS[element] // 8

    def block(i: Value, totals: Any) -> list[Value]:
        place = b.add(data, b.mul(i, I64(block_bytes)))
        at = [e.at(row, i, record_bytes(size)) for row in rows]
        if HAS_DOT_BYTES:
            sums = _sums_of_integers(e, element, size, place, at)
        else:
            sums = _sums_of_floats(e, size, place, at)
        d = block_scales(e, scales, i, _TILES)
        new = []
        for r, record in enumerate(at):
            scale = e.splat(e.load_one(record))
            for t in range(_TILES):
                j = r * _TILES + t
                new.append(e.fma(sums[j], b.fmul(d[t], scale), totals[j]))
        return new

    totals = e.loop(I64(0), blocks, [e.const(0.0)] * (several * _TILES), block)
    for r in range(several):
        row = b.add(out, b.mul(b.mul(out_stride, I64(r)), I64(4)))
        for t in range(_TILES):
            e.store(totals[r * _TILES + t], b.add(row, I64(64 * t)))


def _sums_of_integers(
    e: Emitter, element: int, size: int, place: Value, at: list[Value]
) -> list[Value]:
    """A block's sums, by rows and tiles, as floats."""
    b, words = e.b, e.kind(I32)
    name, module = _DOT[size], b.module
    kind = ir.FunctionType(words, [words] * 3)
    dot = module.globals.get(name) or ir.Function(module, kind, name)

    def lane(address: Value) -> Value:
        """A word of inputs in every lane."""
        value = b.load(b.inttoptr(address, I32.as_pointer()))
        value.align = 4
        return b.bitcast(e.splat(b.bitcast(value, F32)), words)

    # A single row's 16-bit sums are kept in two parts: more additions are under way at once.
    parts = 2 if size == 2 and len(at) == 1 else 1
    count = len(at) * _TILES

    def turn(i: Value, carried: Any) -> list[Value]:
        sums = list(carried)
        lines = b.add(place, b.mul(i, I64(STEP * WIDE * ELEMENT_BITS[element] // 8)))
        inputs = b.add(b.mul(i, I64(STEP * size)), I64(HEAD_BYTES))
        for word, weights in enumerate(_weights(e, element, size, lines)):
            for r, record in enumerate(at):
                x = lane(b.add(b.add(record, inputs), I64(UNROLL * word)))
                for t in range(_TILES):
                    j = word % parts * count + r * _TILES + t
                    sums[j] = b.call(dot, [sums[j], weights[t], x])
        return sums

    sums = [e.const_int(0)] * (parts * count)
    if size == 1:
        sums = [lane(b.add(record, I64(4))) for record in at for _ in range(_TILES)]
    sums = e.loop(I64(0), I64(BLOCK // STEP), sums, turn)
    if parts == 2:
        sums = [b.add(*pair) for pair in zip(sums[:count], sums[count:], strict=True)]
    return [b.sitofp(value, e.kind(F32)) for value in sums]


def _weights(e: Emitter, element: int, size: int, place: Value) -> Iterator[list[Value]]:
    """Weights of STEP inputs by tiles, as `_four` gives them, for one word of inputs each."""
    count = 32 // ELEMENT_BITS[element]
    for line in range(STEP // count):
        raw = []
        for t in range(_TILES):
            address = e.b.add(place, I64(64 * (_TILES * line + t)))
            e.prefetch(e.b.add(address, I64(PREFETCH_BYTES)))
            raw.append(e.load_words(address))
        for group in range(count // UNROLL):
            for half in range(size):
                yield [_four(e, element, size, words, group, half) for words in raw]


def _four(e: Emitter, element: int, size: int, words: Value, group: int, half: int) -> Value:
    """Weights of UNROLL inputs of every lane as the dot products take them.

    Those of 8 bits have no sign: WEIGHT_BIAS is added. Those of 16 come in two halves: the first
    and third input, then the others.
    """
    if element == FP4:
        table = [I16(v) if size == 2 else I8(v % 256 - WEIGHT_BIAS) for v in FP4_VALUES]
        return e.look_up(table, words, code_place(UNROLL * group + half))
    if size == 1:
        return e.b.xor(words, e.const_int(-0x7F7F7F80))  # the sign bits' change is the bias
    return _weight_words(e, words, half)


def _weight_words(e: Emitter, four: Value, half: int) -> Value:
    """Two of four bytes of every lane as 16-bit integers: the first and third, or the others."""
    b = e.b
    kind = ir.VectorType(I16, 2 * e.lanes)
    eight = ir.Constant(kind, [I16(8)] * (2 * e.lanes))
    value = b.bitcast(four, kind)
    value = b.ashr(value if half else b.shl(value, eight), eight)
    return b.bitcast(value, e.kind(I32))


def _sums_of_floats(e: Emitter, size: int, place: Value, at: list[Value]) -> list[Value]:
    """The same from planes of floats: both planes' sums fit a float's 24 bits."""
    b = e.b
    count = len(at) * _TILES

    def group(g: Value, sums: Any) -> list[Value]:
        line = b.add(place, b.mul(g, I64(64 * _TILES)))
        values = list(sums)
        for t in range(_TILES):
            words = e.load_words(b.add(line, I64(64 * t)))
            for u in range(UNROLL):
                w = e.byte(words, u)
                first = b.add(b.mul(g, I64(4 * UNROLL)), I64(HEAD_BYTES + 4 * u))
                for r, record in enumerate(at):
                    for plane in range(size):
                        x = e.load_one(b.add(b.add(record, first), I64(4 * BLOCK * plane)))
                        j = plane * count + r * _TILES + t
                        values[j] = e.fma(w, e.splat(x), values[j])
        return values

    zeros = [e.const(0.0)] * (size * count)
    sums = e.loop(I64(0), I64(BLOCK // UNROLL), zeros, group)
    high, low = sums[:count], sums[count:]
    wholes = [e.fma(h, e.const(256.0), rest) for h, rest in zip(high, low, strict=True)]
    return [b.fmul(value, e.const(2.0**-24)) for value in wholes]
