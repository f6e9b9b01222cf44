"""Products of Q8_0 panels with rows in fixed point: sums over a block are exact integers.

A row is cut into blocks of 32 inputs; in each the largest magnitude becomes LARGEST of the number
of planes: two planes hold a 16-bit integer's high and low byte, one holds an 8-bit integer. A block
of a row is a record: [scale, start of each plane's sum, 0, planes]. The sums of a row's outputs
run over the blocks in order.

Machines that add products of bytes by fours (AVX-512 VNNI) do so. Others hold planes as floats,
whose sums over a block are exact too, so that both give the same bits.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic

from kernels.cpu.emit import F32, I8, I32, I64, Emitter, Value
from kernels.cpu.lanes import numba_intrinsic
from kernels.cpu.panels import (
    BLOCK,
    UNROLL,
    WIDE,
    block_scales,
)

HAS_DOT_BYTES = (
    not config.CPU_NAME
    and not config.CPU_FEATURES
    and bool(llvm.get_host_cpu_features().get("avx512vnni"))
)
"""Whether the machine adds products of bytes by fours."""

LARGEST = {1: 127.0, 2: 127.0 * 256 + 127}
"""What a block's largest magnitude becomes, by planes: the signed bytes of two reach this far."""

HEAD_BYTES = 16
PLANE_BYTES = BLOCK if HAS_DOT_BYTES else 4 * BLOCK
"""Sizes in a record."""

WEIGHT_BIAS = 128
"""Added to the weights' bytes, so that they have no sign; a plane's sum starts with its undoing."""

SMALLEST = 1e-30
"""A block's largest magnitude counts as this at least."""

MOST_FIXED_ROWS = (0, 6, 3)
"""Rows that one pass over a panel serves, by planes: their sums fit the vector registers."""

_DOT_BYTES = "llvm.x86.avx512.vpdpbusd.512"
_TILES = WIDE // 16
_KEYS = 8


def record_bytes(planes: int) -> int:
    """Bytes of a block of a row."""
    return HEAD_BYTES + planes * PLANE_BYTES


@intrinsic
def fixed_row(typing_context: Any, planes: Any, x_at: Any, inputs: Any, out_at: Any) -> Any:
    """Write a row's records.

    A NaN or an infinity makes its block's scale one.
    """

    def emit(b: Any, planes: Value, x: Value, inputs: Value, out: Value) -> None:
        e = Emitter(b, 16)
        with b.if_else(b.icmp_signed("==", planes, I64(1))) as (single, double):
            for count, branch in ((1, single), (2, double)):
                with branch:

                    def block(i: Value, _carried: Any, count: int = count) -> list[Value]:
                        record = e.at(out, i, record_bytes(count))
                        _write_record(e, count, e.at(x, i, 4 * BLOCK), record)
                        return []

                    e.loop(I64(0), b.sdiv(inputs, I64(BLOCK)), [], block)

    return numba_intrinsic(types.void, 4, emit)


def _write_record(e: Emitter, planes: int, x: Value, record: Value) -> None:
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
    factor = e.splat(b.fdiv(one.const(LARGEST[planes]), largest))
    starts: list[Value] = []
    for plane in range(planes):
        total = e.const_int(0)
        for half, part in enumerate(parts):
            # Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
            shifted = b.fadd(b.fmul(part, factor), e.const(12582912.0))
            bits = b.bitcast(shifted, e.kind(I32))
            if plane + 1 < planes:
                bits = b.ashr(b.add(bits, e.const_int(128)), e.const_int(8))
            values = b.ashr(b.shl(bits, e.const_int(24)), e.const_int(24))
            total = b.add(total, values)
            _write_values(e, values, half, b.add(record, I64(HEAD_BYTES + plane * PLANE_BYTES)))
        starts.append(b.mul(e.total(total, b.add), I32(-WEIGHT_BIAS)))
    one.store(b.fmul(largest, one.const(1.0 / LARGEST[planes])), record)
    for plane, start in enumerate(starts):
        one.store(start, b.add(record, I64(4 + 4 * plane)))


def _write_values(e: Emitter, values: Value, half: int, plane: Value) -> None:
    """Half a block of a plane."""
    b = e.b
    if HAS_DOT_BYTES:
        pointer = b.inttoptr(b.add(plane, I64(16 * half)), e.kind(I8).as_pointer())
        b.store(b.trunc(values, e.kind(I8)), pointer).align = 1
    else:
        e.store(b.sitofp(values, e.kind(F32)), b.add(plane, I64(64 * half)))


@intrinsic
def fixed_panel(
    typing_context: Any, planes: Any, rows: Any, data_at: Any, scales_at: Any, records_at: Any,
    out_at: Any, out_stride: Any, inputs: Any,
) -> Any:  # fmt: skip
    """As `panel` for int8 weights and 1..MOST_FIXED_ROWS rows that `fixed_row` wrote."""

    def emit(
        b: Any, planes: Value, rows: Value, data: Value, scales: Value, records: Value,
        out: Value, out_stride: Value, inputs: Value,
    ) -> None:  # fmt: skip
        done = b.append_basic_block("done")
        switch = b.switch(b.add(b.mul(planes, I64(_KEYS)), rows), done)
        for count in (1, 2) if HAS_DOT_BYTES else (2,):
            for size in range(1, MOST_FIXED_ROWS[count] + 1):
                block = b.append_basic_block(f"fixed{count}{size}")
                switch.add_case(I64(count * _KEYS + size), block)
                b.position_at_end(block)
                _emit_panel(
                    Emitter(b, 16), count, size, data, scales, records, out, out_stride, inputs
                )
                b.branch(done)
        b.position_at_end(done)

    return numba_intrinsic(types.void, 8, emit)


def _emit_panel(
    e: Emitter, planes: int, size: int, data: Value, scales: Value, records: Value, out: Value,
    out_stride: Value, inputs: Value,
) -> None:  # fmt: skip
    """The body for one number of planes and rows."""
    b = e.b
    blocks = b.sdiv(inputs, I64(BLOCK))
    stride = b.mul(blocks, I64(record_bytes(planes)))
    rows = [b.add(records, b.mul(stride, I64(r))) for r in range(size)]
    block_sums = _sums_of_bytes if HAS_DOT_BYTES else _sums_of_floats

    def block(i: Value, totals: Any) -> list[Value]:
        place = b.add(data, b.mul(i, I64(BLOCK * WIDE)))
        at = [e.at(row, i, record_bytes(planes)) for row in rows]
        sums = block_sums(e, planes, place, at)
        d = block_scales(e, scales, i, _TILES)
        new = []
        for r, record in enumerate(at):
            scale = e.splat(e.load_one(record))
            for t in range(_TILES):
                j = r * _TILES + t
                new.append(e.fma(sums[j], b.fmul(d[t], scale), totals[j]))
        return new

    totals = e.loop(I64(0), blocks, [e.const(0.0)] * (size * _TILES), block)
    for r in range(size):
        row = b.add(out, b.mul(b.mul(out_stride, I64(r)), I64(4)))
        for t in range(_TILES):
            e.store(totals[r * _TILES + t], b.add(row, I64(64 * t)))


def _sums_of_bytes(e: Emitter, planes: int, place: Value, at: list[Value]) -> list[Value]:
    """A block's sums, by rows and tiles, as floats.

    Nothing is prefetched: lines are read so fast that requests for later ones would crowd them out.
    """
    b, words = e.b, e.kind(I32)
    module = b.module
    dot = module.globals.get(_DOT_BYTES) or ir.Function(
        module, ir.FunctionType(words, [words] * 3), _DOT_BYTES
    )

    def lane(address: Value) -> Value:
        """Four bytes in every lane."""
        value = b.load(b.inttoptr(address, I32.as_pointer()))
        value.align = 4
        return b.bitcast(e.splat(b.bitcast(value, F32)), words)

    def started(plane: int) -> list[Value]:
        starts = [lane(b.add(record, I64(4 + 4 * plane))) for record in at]
        return [start for start in starts for _ in range(_TILES)]

    def add(sums: list[Value], plane: int, group: int, weights: list[Value]) -> None:
        for r, record in enumerate(at):
            x = lane(b.add(record, I64(HEAD_BYTES + BLOCK * plane + UNROLL * group)))
            for t in range(_TILES):
                j = r * _TILES + t
                sums[j] = b.call(dot, [sums[j], weights[t], x])

    def load(group: int) -> list[Value]:
        lines = [b.add(place, I64(64 * (_TILES * group + t))) for t in range(_TILES)]
        weights, sign = [], -0x7F7F7F80  # the bytes' sign bits: adds WEIGHT_BIAS to each
        for line in lines:
            value = b.load(b.inttoptr(line, words.as_pointer()))
            value.align = 64
            weights.append(b.xor(value, e.const_int(sign)))
        return weights

    sums = [started(plane) for plane in range(planes)]
    for group in range(BLOCK // UNROLL):
        weights = load(group)
        for plane in range(planes):
            add(sums[plane], plane, group, weights)
    found = sums[0]
    if planes == 2:
        found = [b.add(b.shl(h, e.const_int(8)), low) for h, low in zip(*sums, strict=True)]
    return [b.sitofp(value, e.kind(F32)) for value in found]


def _sums_of_floats(e: Emitter, planes: int, place: Value, at: list[Value]) -> list[Value]:
    """The same from planes of floats: both planes' sums fit a float's 24 bits."""
    b = e.b
    count = len(at) * _TILES

    def group(g: Value, sums: Any) -> list[Value]:
        line = b.add(place, b.mul(g, I64(64 * _TILES)))
        values = list(sums)
        for t in range(_TILES):
            weights = e.load_bytes(b.add(line, I64(64 * t)))
            for u, w in enumerate(weights):
                first = b.add(b.mul(g, I64(4 * UNROLL)), I64(HEAD_BYTES + 4 * u))
                for r, record in enumerate(at):
                    for plane in range(planes):
                        x = e.load_one(b.add(b.add(record, first), I64(plane * PLANE_BYTES)))
                        j = plane * count + r * _TILES + t
                        values[j] = e.fma(w, e.splat(x), values[j])
        return values

    zeros = [e.const(0.0)] * (planes * count)
    sums = e.loop(I64(0), I64(BLOCK // UNROLL), zeros, group)
    high, low = sums[:count], sums[count:]
    wholes = [e.fma(h, e.const(256.0), rest) for h, rest in zip(high, low, strict=True)]
    return [b.fmul(value, e.const(2.0**-24)) for value in wholes]
