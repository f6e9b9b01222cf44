"""Vector code over the elements of one row: norms, rotation, activation, pooling, streams.

Each works on vectors of 16 elements and then on single ones, with the same operations; every sum
has one order, fixed by the row's length. So a row's result does not depend on what shares a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.emit import F16, F32, I32, I64, Emitter, Value
from kernels.cpu.lanes import numba_intrinsic

LANES = 16


def over(b: Any, count: Value, body: Callable[[Emitter, Value], None]) -> None:
    """body(emitter, index) for all elements: by vectors of LANES, then one by one."""
    whole, one = Emitter(b, LANES), Emitter(b, 1)

    def vectors(i: Value, _carried: Any) -> list[Value]:
        body(whole, b.mul(i, I64(LANES)))
        return []

    def single(i: Value, _carried: Any) -> list[Value]:
        body(one, i)
        return []

    blocks = b.sdiv(count, I64(LANES))
    whole.loop(I64(0), blocks, [], vectors)
    one.loop(b.mul(blocks, I64(LANES)), count, [], single)


@intrinsic
def sum_squares(typing_context: Any, x_at: Any, count: Any) -> Any:
    """Sum of the squares of `count` floats: 64 partial sums, added by halves, then the tail."""

    def emit(b: Any, x: Value, count: Value) -> Value:
        e, one = Emitter(b, LANES), Emitter(b, 1)

        def block(i: Value, sums: Any) -> list[Value]:
            start = e.at(x, i, 4 * 4 * LANES)
            values = [e.load(b.add(start, I64(4 * LANES * j))) for j in range(4)]
            return [e.fma(v, v, s) for v, s in zip(values, sums, strict=True)]

        def tail(i: Value, sums: Any) -> list[Value]:
            value = one.load(one.at(x, i, 4))
            return [one.fma(value, value, sums[0])]

        blocks = b.sdiv(count, I64(4 * LANES))
        s = e.loop(I64(0), blocks, [e.const(0.0)] * 4, block)
        total = e.total(b.fadd(b.fadd(s[0], s[1]), b.fadd(s[2], s[3])))
        return one.loop(b.mul(blocks, I64(4 * LANES)), count, [total], tail)[0]

    return numba_intrinsic(types.float32, 2, emit)


@intrinsic
def dot(typing_context: Any, x_at: Any, y_at: Any, count: Any) -> Any:
    """Sum of x[i] * y[i] over `count` floats: 16 partial sums, added by halves, then the tail."""

    def emit(b: Any, x: Value, y: Value, count: Value) -> Value:
        e, one = Emitter(b, LANES), Emitter(b, 1)

        def add(lanes: Emitter, i: Value, sums: Any) -> list[Value]:
            return [
                lanes.fma(lanes.load(lanes.at(x, i, 4)), lanes.load(lanes.at(y, i, 4)), sums[0])
            ]

        blocks = b.sdiv(count, I64(LANES))
        sums = e.loop(I64(0), blocks, [e.const(0.0)], lambda i, s: add(e, b.mul(i, I64(LANES)), s))
        start = b.mul(blocks, I64(LANES))
        return one.loop(start, count, [e.total(sums[0])], lambda i, s: add(one, i, s))[0]

    return numba_intrinsic(types.float32, 3, emit)


@intrinsic
def add_and_find(typing_context: Any, x_at: Any, count: Any, out_at: Any) -> Any:
    """out[i] += x[i]; returns the index of the largest of `count` (>= 1) sums.

    The first one on ties; -1 when a sum is NaN.
    """

    def emit(b: Any, x: Value, count: Value, out: Value) -> Value:
        e, one = Emitter(b, LANES), Emitter(b, 1)

        def step(lanes: Emitter, i: Value, index: Value, carried: Any) -> list[Value]:
            largest, place, bad = carried
            target = lanes.at(out, i, 4)
            total = b.fadd(lanes.load(target), lanes.load(lanes.at(x, i, 4)))
            lanes.store(total, target)
            better = b.fcmp_ordered(">", total, largest)
            nan = b.zext(b.fcmp_unordered("uno", total, total), lanes.kind(I32))
            return [
                b.select(better, total, largest),
                b.select(better, index, place),
                b.or_(bad, nan),
            ]

        def vectors(i: Value, carried: Any) -> list[Value]:
            index, *rest = carried
            found = step(e, b.mul(i, I64(LANES)), index, rest)
            return [b.add(index, e.const_int(LANES)), *found]

        blocks = b.sdiv(count, I64(LANES))
        lanes = ir.Constant(e.kind(I32), [I32(i) for i in range(LANES)])
        start = [lanes, e.const(float("-inf")), lanes, e.const_int(0)]
        _, largest, place, bad = e.loop(I64(0), blocks, start, vectors)
        best = e.total(largest, e.larger)
        # Of the lanes that hold the best, the lowest index.
        last = e.const_int((1 << 31) - 1)
        place = b.select(b.fcmp_ordered("==", largest, e.splat(best)), place, last)
        lowest = e.total(place, lambda p, q: b.select(b.icmp_signed("<", p, q), p, q))

        def single(i: Value, carried: Any) -> list[Value]:
            return step(one, i, b.trunc(i, I32), carried)

        first = b.mul(blocks, I64(LANES))
        carried = [best, lowest, e.total(bad, b.or_)]
        best, lowest, bad = one.loop(first, count, carried, single)
        # With nothing above -inf no index was taken: the first one.
        found = b.select(b.fcmp_ordered("==", best, one.const(float("-inf"))), I32(0), lowest)
        return b.sext(b.select(b.icmp_signed("!=", bad, I32(0)), I32(-1), found), I64)

    return numba_intrinsic(types.intp, 3, emit)


@intrinsic
def scale_row(typing_context: Any, x_at: Any, count: Any, factor: Any, out_at: Any) -> Any:
    """out[i] = x[i] * factor."""

    def emit(b: Any, x: Value, count: Value, factor: Value, out: Value) -> None:
        def body(e: Emitter, i: Value) -> None:
            value = e.load(e.at(x, i, 4))
            e.store(b.fmul(value, e.splat(factor)), e.at(out, i, 4))

        over(b, count, body)

    return numba_intrinsic(types.void, 4, emit, floats=(2,))


@intrinsic
def scale_by_row(
    typing_context: Any, x_at: Any, count: Any, factor: Any, weight_at: Any, out_at: Any
) -> Any:
    """out[i] = x[i] * factor * weight[i]."""

    def emit(b: Any, x: Value, count: Value, factor: Value, weight: Value, out: Value) -> None:
        def body(e: Emitter, i: Value) -> None:
            value = b.fmul(e.load(e.at(x, i, 4)), e.splat(factor))
            e.store(b.fmul(value, e.load(e.at(weight, i, 4))), e.at(out, i, 4))

        over(b, count, body)

    return numba_intrinsic(types.void, 5, emit, floats=(2,))


@intrinsic
def fill_row(typing_context: Any, out_at: Any, count: Any, value: Any) -> Any:
    """out[i] = value."""

    def emit(b: Any, out: Value, count: Value, value: Value) -> None:
        over(b, count, lambda e, i: e.store(e.splat(value), e.at(out, i, 4)))

    return numba_intrinsic(types.void, 3, emit, floats=(2,))


@intrinsic
def copy_row(typing_context: Any, x_at: Any, count: Any, out_at: Any) -> Any:
    """out[i] = x[i]."""

    def emit(b: Any, x: Value, count: Value, out: Value) -> None:
        over(b, count, lambda e, i: e.store(e.load(e.at(x, i, 4)), e.at(out, i, 4)))

    return numba_intrinsic(types.void, 3, emit)


@intrinsic
def add_row(typing_context: Any, x_at: Any, count: Any, out_at: Any) -> Any:
    """out[i] += x[i]."""

    def emit(b: Any, x: Value, count: Value, out: Value) -> None:
        def body(e: Emitter, i: Value) -> None:
            place = e.at(out, i, 4)
            e.store(b.fadd(e.load(place), e.load(e.at(x, i, 4))), place)

        over(b, count, body)

    return numba_intrinsic(types.void, 3, emit)


@intrinsic
def half_row(typing_context: Any, x_at: Any, count: Any, out_at: Any) -> Any:
    """out[i] = the float16 nearest to x[i]."""

    def emit(b: Any, x: Value, count: Value, out: Value) -> None:
        def body(e: Emitter, i: Value) -> None:
            half = b.fptrunc(e.load(e.at(x, i, 4)), e.kind(F16))
            e.store(b.fpext(half, e.kind(F32)), e.at(out, i, 4))

        over(b, count, body)

    return numba_intrinsic(types.void, 3, emit)


@intrinsic
def rotate_row(typing_context: Any, x_at: Any, count: Any, turn_at: Any, sign: Any) -> Any:
    """Rotate adjacent pairs in place by the angles of `turn` (cos, sin, cos, sin, ...).

    (a, b) -> (a c - b s, a s + b c), with s times `sign`: 1, or -1 to rotate back.
    """

    def emit(b: Any, x: Value, count: Value, turn: Value, sign: Value) -> None:
        def pairs(e: Emitter, start: Value) -> None:
            place = e.at(x, start, 4)
            value, angle = e.load(place), e.load(e.at(turn, start, 4))
            lanes = range(e.lanes)
            cos = e.shuffle(angle, [i - i % 2 for i in lanes])
            sin = b.fmul(e.shuffle(angle, [i - i % 2 + 1 for i in lanes]), e.splat(sign))
            signs = [ir.Constant(F32, 1.0 if i % 2 else -1.0) for i in lanes]
            sin = b.fmul(sin, ir.Constant(e.kind(F32), signs))
            other = e.shuffle(value, [i ^ 1 for i in lanes])
            e.store(b.fadd(b.fmul(value, cos), b.fmul(other, sin)), place)

        def turns(e: Emitter, first: Value, last: Value) -> None:
            def step(i: Value, _carried: Any) -> list[Value]:
                pairs(e, b.mul(i, I64(e.lanes)))
                return []

            e.loop(first, last, [], step)

        blocks = b.sdiv(count, I64(LANES))
        turns(Emitter(b, LANES), I64(0), blocks)
        turns(Emitter(b, 2), b.mul(blocks, I64(LANES // 2)), b.sdiv(count, I64(2)))

    return numba_intrinsic(types.void, 4, emit, floats=(3,))


@intrinsic
def gate_row(
    typing_context: Any, gate_at: Any, up_at: Any, count: Any, clamp: Any, factor: Any, out_at: Any
) -> Any:
    """out = silu(min(gate, clamp)) * clip(up, -clamp, clamp) * factor."""

    def emit(
        b: Any, gate: Value, up: Value, count: Value, clamp: Value, factor: Value, out: Value
    ) -> None:
        def body(e: Emitter, i: Value) -> None:
            high = e.splat(clamp)
            low = b.fsub(e.const(-0.0), high)
            g, u = e.load(e.at(gate, i, 4)), e.load(e.at(up, i, 4))
            g = b.select(b.fcmp_ordered(">", g, high), high, g)
            u = b.select(b.fcmp_ordered(">", u, high), high, u)
            u = b.select(b.fcmp_ordered("<", u, low), low, u)
            one = e.const(1.0)
            sigmoid = b.fdiv(one, b.fadd(one, e.exp(b.fsub(e.const(-0.0), g))))
            value = b.fmul(b.fmul(b.fmul(g, sigmoid), u), e.splat(factor))
            e.store(value, e.at(out, i, 4))

        over(b, count, body)

    return numba_intrinsic(types.void, 6, emit, floats=(3, 4))


@intrinsic
def pool_rows(
    typing_context: Any, scores_at: Any, values_at: Any, count: Any, width: Any, out_at: Any
) -> Any:
    """out[d] = sum over rows j of softmax_j(score_j[d]) * value_j[d], rows in order.

    `scores_at` and `values_at` are lists of the addresses of `count` rows.
    """

    def emit(b: Any, scores: Value, values: Value, count: Value, width: Value, out: Value) -> None:
        def body(e: Emitter, d: Value) -> None:
            def element(rows: Value, j: Value) -> Value:
                return e.load(e.at(e.load_int(e.at(rows, j, 8)), d, 4))

            def largest(j: Value, carried: Any) -> list[Value]:
                return [e.larger(element(scores, j), carried[0])]

            def add(j: Value, carried: Any) -> list[Value]:
                w = e.exp(b.fsub(element(scores, j), top))
                return [b.fadd(carried[0], w), e.fma(w, element(values, j), carried[1])]

            top = e.loop(I64(0), count, [e.const(float("-inf"))], largest)[0]
            total, pooled = e.loop(I64(0), count, [e.const(0.0)] * 2, add)
            e.store(b.fdiv(pooled, total), e.at(out, d, 4))

        over(b, width, body)

    return numba_intrinsic(types.void, 5, emit)


@intrinsic
def collapse_row(
    typing_context: Any, streams_at: Any, weights_at: Any, count: Any, out_at: Any
) -> Any:
    """out[i] = sum over the four streams of weight * stream[i], in order."""

    def emit(b: Any, streams: Value, weights: Value, count: Value, out: Value) -> None:
        def body(e: Emitter, i: Value) -> None:
            total = e.const(0.0)
            for j in range(4):
                stream = e.at(streams, b.add(b.mul(count, I64(j)), i), 4)
                weight = e.splat(e.load_one(b.add(weights, I64(4 * j))))
                total = e.fma(weight, e.load(stream), total)
            e.store(total, e.at(out, i, 4))

        over(b, count, body)

    return numba_intrinsic(types.void, 4, emit)


@intrinsic
def mix_row(
    typing_context: Any, y_at: Any, post_at: Any, comb_at: Any, count: Any, streams_at: Any
) -> Any:
    """stream_j[i] = post_j * y[i] + sum over k of comb[k, j] * stream_k[i], in place."""

    def emit(b: Any, y: Value, post: Value, comb: Value, count: Value, streams: Value) -> None:
        def body(e: Emitter, i: Value) -> None:
            places = [e.at(streams, b.add(b.mul(count, I64(j)), i), 4) for j in range(4)]
            old = [e.load(place) for place in places]
            value = e.load(e.at(y, i, 4))
            for j, place in enumerate(places):
                total = b.fmul(e.splat(e.load_one(b.add(post, I64(4 * j)))), value)
                for k in range(4):
                    weight = e.splat(e.load_one(b.add(comb, I64(16 * k + 4 * j))))
                    total = e.fma(weight, old[k], total)
                e.store(total, place)

        over(b, count, body)

    return numba_intrinsic(types.void, 5, emit)
