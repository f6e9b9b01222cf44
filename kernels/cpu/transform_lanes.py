"""Vector code of whole-row transforms: Sinkhorn, Walsh-Hadamard, and the roundings to FP8 and FP4.

As in `row_lanes`, every result depends on its own row only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.emit import F32, I32, I64, Emitter, Value
from kernels.cpu.lanes import numba_intrinsic
from kernels.cpu.row_lanes import LANES, over

SINKHORN_ROWS = 4
"""Matrices normalised at once, to hide the latency of divisions."""


@intrinsic
def sinkhorn(typing_context: Any, matrices_at: Any, count: Any, rounds: Any, epsilon: Any) -> Any:
    """Softmax over the columns of 4 x 4 matrices, then `rounds` Sinkhorn rounds, in place.

    Rows are source streams. After the softmax: + epsilon, columns divided by their sum + epsilon;
    then rounds - 1 times rows, then columns. Source: mHC, as in DeepSeek-V4's reference.
    """

    def emit(b: Any, matrices: Value, count: Value, rounds: Value, epsilon: Value) -> None:
        e = Emitter(b, 16)
        offset = e.splat(epsilon)
        last = b.sub(count, I64(1))

        def across(value: Value, step: int, combine: Callable[[Value, Value], Value]) -> Value:
            """Combine the four lanes that differ in bits `step` and 2 * step."""
            for distance in (step, 2 * step):
                value = combine(value, e.shuffle(value, [i ^ distance for i in range(16)]))
            return value

        def normalised(value: Value, step: int) -> Value:
            return b.fdiv(value, b.fadd(across(value, step, b.fadd), offset))

        def turn(_i: Value, carried: Any) -> list[Value]:
            by_rows = [normalised(c, 1) for c in carried]
            return [normalised(c, 4) for c in by_rows]

        def group(i: Value, _carried: Any) -> list[Value]:
            places = []
            for j in range(SINKHORN_ROWS):
                index = b.add(b.mul(i, I64(SINKHORN_ROWS)), I64(j))
                inside = b.select(b.icmp_signed("<", index, last), index, last)
                places.append(e.at(matrices, inside, 64))
            started = []
            for place in places:
                c = e.load(place)
                c = e.exp(b.fsub(c, across(c, 1, e.larger)))
                c = b.fadd(b.fdiv(c, across(c, 1, b.fadd)), offset)
                started.append(normalised(c, 4))
            for place, c in zip(places, e.loop(I64(1), rounds, started, turn), strict=True):
                e.store(c, place)
            return []

        groups = b.sdiv(b.add(count, I64(SINKHORN_ROWS - 1)), I64(SINKHORN_ROWS))
        e.loop(I64(0), groups, [], group)

    return numba_intrinsic(types.void, 4, emit, floats=(3,))


@intrinsic
def hadamard_row(typing_context: Any, x_at: Any, count: Any) -> Any:
    """Walsh-Hadamard transform in place, natural order, times 1 / sqrt(count); count = 2^k."""

    def emit(b: Any, x: Value, count: Value) -> None:
        one, e = Emitter(b, 1), Emitter(b, LANES)

        def butterflies(lanes: Emitter, step: Value) -> None:
            """Between elements that lie `step` apart, `step` >= the lanes."""

            def pair(i: Value, _carried: Any) -> list[Value]:
                element = b.mul(i, I64(lanes.lanes))
                low = b.sub(b.mul(element, I64(2)), b.and_(element, b.sub(step, I64(1))))
                here, there = lanes.at(x, low, 4), lanes.at(x, b.add(low, step), 4)
                p, q = lanes.load(here), lanes.load(there)
                lanes.store(b.fadd(p, q), here)
                lanes.store(b.fsub(p, q), there)
                return []

            lanes.loop(I64(0), b.sdiv(count, I64(2 * lanes.lanes)), [], pair)

        def within_vectors(i: Value, _carried: Any) -> list[Value]:
            place = e.at(x, i, 4 * LANES)
            value = e.load(place)
            for step in (1, 2, 4, 8):
                signs = [ir.Constant(F32, -1.0 if i & step else 1.0) for i in range(LANES)]
                signed = b.fmul(value, ir.Constant(e.kind(F32), signs))
                value = b.fadd(e.shuffle(value, [i ^ step for i in range(LANES)]), signed)
            e.store(value, place)
            return []

        def stages(lanes: Emitter, first: int) -> None:
            def stage(step: Value, _carried: Any) -> list[Value]:
                butterflies(lanes, step)
                return []

            lanes.loop(I64(first), count, [], stage, lambda step: b.mul(step, I64(2)))

        with b.if_else(b.icmp_signed(">=", count, I64(LANES))) as (large, small):
            with large:
                e.loop(I64(0), b.sdiv(count, I64(LANES)), [], within_vectors)
                stages(e, LANES)
            with small:
                stages(one, 1)
        factor = b.fdiv(ir.Constant(F32, 1.0), one.sqrt(b.sitofp(count, F32)))

        def scale(lanes: Emitter, i: Value) -> None:
            place = lanes.at(x, i, 4)
            lanes.store(b.fmul(lanes.load(place), lanes.splat(factor)), place)

        over(b, count, scale)

    return numba_intrinsic(types.void, 2, emit)


def _rounded(e: Emitter, x: Value, largest: float, bits: int, normal: float, magic: float) -> Value:
    """The nearest value of a small float format, ties to even; saturates.

    Args:
        largest: largest value of the format. bits: mantissa bits of float32 that it lacks.
        normal: its smallest normal number.
        magic: 1.5 * 2^23 times its smallest step: adding it to a float32 rounds to that step.
    """
    b = e.b
    sign_bit = e.const_int(-(1 << 31))
    word = b.bitcast(x, e.kind(I32))
    sign = b.and_(word, sign_bit)
    size = b.bitcast(b.xor(word, sign), e.kind(F32))
    top = e.const(largest)
    size = b.select(b.fcmp_ordered(">", size, top), top, size)
    word = b.bitcast(size, e.kind(I32))
    even = b.and_(b.lshr(word, e.const_int(bits)), e.const_int(1))
    up = b.add(b.add(word, e.const_int((1 << (bits - 1)) - 1)), even)
    near = b.bitcast(b.and_(up, e.const_int(-(1 << bits))), e.kind(F32))
    below = b.fsub(b.fadd(size, e.const(magic)), e.const(magic))
    value = b.select(b.fcmp_ordered(">=", size, e.const(normal)), near, below)
    return b.bitcast(b.or_(b.bitcast(value, e.kind(I32)), sign), e.kind(F32))


def _round_block(
    b: Any, x: Value, count: Value, floor: float, largest: float, bits: int, normal: float,
    magic: float,
) -> None:  # fmt: skip
    """x = rounded(x / scale) * scale, scale = 2^ceil(log2(max(amax, floor) / largest))."""
    e, one = Emitter(b, LANES), Emitter(b, 1)

    def size(lanes: Emitter, place: Value) -> Value:
        word = b.bitcast(lanes.load(place), lanes.kind(I32))
        return b.bitcast(b.and_(word, lanes.const_int((1 << 31) - 1)), lanes.kind(F32))

    def vectors(i: Value, carried: Any) -> list[Value]:
        return [e.larger(size(e, e.at(x, i, 4 * LANES)), carried[0])]

    def single(i: Value, carried: Any) -> list[Value]:
        return [one.larger(size(one, one.at(x, i, 4)), carried[0])]

    blocks = b.sdiv(count, I64(LANES))
    found = e.loop(I64(0), blocks, [e.const(floor)], vectors)[0]
    found = e.total(found, e.larger)
    found = one.loop(b.mul(blocks, I64(LANES)), count, [found], single)[0]
    word = b.bitcast(b.fdiv(found, one.const(largest)), I32)
    power = b.and_(word, I32(0x7F800000))
    rest = b.icmp_unsigned("!=", b.and_(word, I32(0x007FFFFF)), I32(0))
    power = b.add(power, b.select(rest, I32(1 << 23), I32(0)))
    scale = b.bitcast(power, F32)
    inverse = b.bitcast(b.sub(I32(254 << 23), power), F32)

    def body(lanes: Emitter, i: Value) -> None:
        place = lanes.at(x, i, 4)
        value = b.fmul(lanes.load(place), lanes.splat(inverse))
        value = _rounded(lanes, value, largest, bits, normal, magic)
        lanes.store(b.fmul(value, lanes.splat(scale)), place)

    over(b, count, body)


@intrinsic
def fp8_block(typing_context: Any, x_at: Any, count: Any) -> Any:
    """Round to E4M3 in place with one power-of-two scale, 2^ceil(log2(max(amax, 1e-4) / 448))."""

    def emit(b: Any, x: Value, count: Value) -> None:
        _round_block(b, x, count, 1e-4, 448.0, 20, 2.0**-6, 1.5 * 2.0**14)

    return numba_intrinsic(types.void, 2, emit)


@intrinsic
def fp4_block(typing_context: Any, x_at: Any, count: Any) -> Any:
    """Round to E2M1 in place with one power-of-two scale, 2^ceil(log2(amax / 6)).

    The largest magnitude counts as 6 * 2^-126 at least.
    """

    def emit(b: Any, x: Value, count: Value) -> None:
        _round_block(b, x, count, 6 * 2.0**-126, 6.0, 22, 1.0, 1.5 * 2.0**22)

    return numba_intrinsic(types.void, 2, emit)
