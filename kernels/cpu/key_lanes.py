"""Vector code of attention: one row's query heads against a list of keys.

Keys are the addresses of rows of floats, so that a ring and a second array are read alike. Scores
lie as (keys, HEAD_LANES): a lane is a head, sums over a key's elements and over keys run in order.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

from kernels.cpu.emit import F32, I32, I64, Emitter, Value
from kernels.cpu.lanes import HEAD_LANES, KEY_BLOCK, numba_intrinsic


@intrinsic
def lay_heads(typing_context: Any, heads_at: Any, count: Any, width: Any, out_at: Any) -> Any:
    """out[d, h] = head_h[d] for HEAD_LANES heads of `width` floats; beyond `count` the last one."""

    def emit(b: Any, heads: Value, count: Value, width: Value, out: Value) -> None:
        one = Emitter(b, 1)
        end = b.sub(count, I64(1))
        rows = []
        for h in range(HEAD_LANES):
            index = b.select(b.icmp_signed("<", I64(h), end), I64(h), end)
            rows.append(one.at(heads, b.mul(index, width), 4))

        def element(d: Value, _carried: Any) -> list[Value]:
            place = one.at(out, d, 4 * HEAD_LANES)
            for h, row in enumerate(rows):
                one.store(one.load(one.at(row, d, 4)), b.add(place, I64(4 * h)))
            return []

        one.loop(I64(0), width, [], element)

    return numba_intrinsic(types.void, 4, emit)


@intrinsic
def score_keys(
    typing_context: Any,
    query_at: Any,
    keys_at: Any,
    count: Any,
    first: Any,
    last: Any,
    scores_at: Any,
    add: Any,
) -> Any:
    """scores[j, h] = sum over first <= d < last of query[d, h] * key_j[d] (added if `add`).

    `count` keys (>= 1); the buffer of scores has room for the next multiple of KEY_BLOCK.
    """

    def emit(
        b: Any, query: Value, keys: Value, count: Value, first: Value, last: Value, scores: Value,
        add: Value,
    ) -> None:  # fmt: skip
        e = Emitter(b, HEAD_LANES)
        end = b.sub(count, I64(1))
        adding = b.icmp_signed("!=", add, I64(0))

        def block(i: Value, _carried: Any) -> list[Value]:
            start = b.mul(i, I64(KEY_BLOCK))
            rows = []
            for j in range(KEY_BLOCK):
                index = b.add(start, I64(j))
                inside = b.select(b.icmp_signed("<", index, end), index, end)
                rows.append(e.load_int(e.at(keys, inside, 8)))

            def element(d: Value, sums: Any) -> list[Value]:
                q = e.load(e.at(query, d, 4 * HEAD_LANES))
                return [
                    e.fma(e.splat(e.load_one(e.at(row, d, 4))), q, s)
                    for row, s in zip(rows, sums, strict=True)
                ]

            sums = e.loop(first, last, [e.const(0.0)] * KEY_BLOCK, element)
            for j, value in enumerate(sums):
                place = e.at(scores, b.add(start, I64(j)), 4 * HEAD_LANES)
                before = b.select(adding, e.load(place), e.const(0.0))
                e.store(b.fadd(value, before), place)
            return []

        blocks = b.sdiv(b.add(count, I64(KEY_BLOCK - 1)), I64(KEY_BLOCK))
        e.loop(I64(0), blocks, [], block)

    return numba_intrinsic(types.void, 7, emit)


@intrinsic
def softmax_keys(
    typing_context: Any, scores_at: Any, count: Any, scale: Any, sinks_at: Any, total_at: Any
) -> Any:
    """scores[j, h] = e^(scale * scores[j, h] - M_h); total[h] = their sum + e^(sink_h - M_h).

    M_h is the largest of the scaled scores and the sink.
    """

    def emit(b: Any, scores: Value, count: Value, scale: Value, sinks: Value, total: Value) -> None:
        e = Emitter(b, HEAD_LANES)
        scales = e.splat(scale)
        sink = e.load(sinks)

        def scaled(j: Value, carried: Any) -> list[Value]:
            place = e.at(scores, j, 4 * HEAD_LANES)
            z = b.fmul(e.load(place), scales)
            e.store(z, place)
            return [e.larger(z, carried[0])]

        largest = e.loop(I64(0), count, [sink], scaled)[0]

        def weight(j: Value, carried: Any) -> list[Value]:
            place = e.at(scores, j, 4 * HEAD_LANES)
            w = e.exp(b.fsub(e.load(place), largest))
            e.store(w, place)
            return [b.fadd(carried[0], w)]

        sums = e.loop(I64(0), count, [e.const(0.0)], weight)[0]
        e.store(b.fadd(sums, e.exp(b.fsub(sink, largest))), total)

    return numba_intrinsic(types.void, 5, emit, floats=(2,))


@intrinsic
def weigh_keys(
    typing_context: Any,
    weights_at: Any,
    keys_at: Any,
    first: Any,
    last: Any,
    width: Any,
    out_at: Any,
    add: Any,
) -> Any:
    """out[h, d] = sum over keys first <= j < last of weights[j, h] * key_j[d] (added if `add`).

    `width` floats a key; `out` is (HEAD_LANES, width).
    """

    def emit(
        b: Any, weights: Value, keys: Value, first: Value, last: Value, width: Value, out: Value,
        add: Value,
    ) -> None:  # fmt: skip
        adding = b.icmp_signed("!=", add, I64(0))

        def columns(e: Emitter, start: Value, vectors: int) -> None:
            """Sums of `vectors` vectors of elements from `start` on, of every head."""

            def key(j: Value, sums: Any) -> list[Value]:
                row = e.at(e.load_int(e.at(keys, j, 8)), start, 4)
                values = [e.load(b.add(row, I64(4 * e.lanes * t))) for t in range(vectors)]
                place = e.at(weights, j, 4 * HEAD_LANES)
                new = []
                for h in range(HEAD_LANES):
                    w = e.splat(e.load_one(b.add(place, I64(4 * h))))
                    new += [e.fma(w, values[t], sums[vectors * h + t]) for t in range(vectors)]
                return new

            sums = e.loop(first, last, [e.const(0.0)] * (vectors * HEAD_LANES), key)
            for h in range(HEAD_LANES):
                for t in range(vectors):
                    column = b.add(start, I64(e.lanes * t))
                    place = e.at(out, b.add(b.mul(width, I64(h)), column), 4)
                    before = b.select(adding, e.load(place), e.const(0.0))
                    e.store(b.fadd(sums[vectors * h + t], before), place)

        def wide(i: Value, _carried: Any) -> list[Value]:
            columns(whole, b.mul(i, I64(32)), 2)
            return []

        def single(i: Value, _carried: Any) -> list[Value]:
            columns(one, i, 1)
            return []

        whole, one = Emitter(b, 16), Emitter(b, 1)
        blocks = b.sdiv(width, I64(32))
        whole.loop(I64(0), blocks, [], wide)
        one.loop(b.mul(blocks, I64(32)), width, [], single)

    return numba_intrinsic(types.void, 7, emit)


@intrinsic
def relu_weighted(
    typing_context: Any, scores_at: Any, count: Any, head_weights_at: Any, out_at: Any, add: Any
) -> Any:
    """out[j] = sum over h of head_weights[h] * max(scores[j, h], 0), by halves (added if `add`)."""

    def emit(
        b: Any, scores: Value, count: Value, head_weights: Value, out: Value, add: Value
    ) -> None:
        e = Emitter(b, HEAD_LANES)
        w = e.load(head_weights)
        adding = b.icmp_signed("!=", add, I64(0))
        zero = Emitter(b, 1).const(0.0)

        def key(j: Value, _carried: Any) -> list[Value]:
            z = e.load(e.at(scores, j, 4 * HEAD_LANES))
            # A NaN stays NaN: it is not below 0.
            z = b.select(b.fcmp_ordered("<", z, e.const(0.0)), e.const(0.0), z)
            place = e.at(out, j, 4)
            before = b.select(adding, e.load_one(place), zero)
            e.store(b.fadd(before, e.total(b.fmul(z, w))), place)
            return []

        e.loop(I64(0), count, [], key)

    return numba_intrinsic(types.void, 5, emit)


@intrinsic
def count_at_least(typing_context: Any, x_at: Any, count: Any, threshold: Any) -> Any:
    """How many of `count` floats have a rank of at least `threshold` (see `rank_of`)."""

    def emit(b: Any, x: Value, count: Value, threshold: Value) -> Value:
        e, one = Emitter(b, 16), Emitter(b, 1)
        limit = b.trunc(threshold, I32)

        def at_least(lanes: Emitter, place: Value) -> Value:
            rank = _rank(lanes, lanes.load(place))
            wanted = b.bitcast(lanes.splat(b.bitcast(limit, F32)), lanes.kind(I32))
            return b.zext(b.icmp_signed(">=", rank, wanted), lanes.kind(I32))

        def vectors(i: Value, carried: Any) -> list[Value]:
            return [b.add(carried[0], at_least(e, e.at(x, i, 64)))]

        def single(i: Value, carried: Any) -> list[Value]:
            return [b.add(carried[0], at_least(one, one.at(x, i, 4)))]

        blocks = b.sdiv(count, I64(16))
        found = e.loop(I64(0), blocks, [e.const_int(0)], vectors)[0]
        total = e.total(found, b.add)
        total = one.loop(b.mul(blocks, I64(16)), count, [total], single)[0]
        return b.sext(total, I64)

    return numba_intrinsic(types.intp, 3, emit)


@intrinsic
def rank_of(typing_context: Any, x_at: Any) -> Any:
    """A 32-bit integer, as intp, that orders floats as their values do (no -0.0)."""

    def emit(b: Any, x: Value) -> Value:
        one = Emitter(b, 1)
        return b.sext(_rank(one, one.load(x)), I64)

    return numba_intrinsic(types.intp, 1, emit)


def _rank(e: Emitter, x: Value) -> Value:
    """Negative floats have their magnitude bits inverted, so that integers order them."""
    bits = e.b.bitcast(x, e.kind(I32))
    sign = e.b.ashr(bits, e.const_int(31))
    return e.b.xor(bits, e.b.and_(sign, e.const_int((1 << 31) - 1)))
