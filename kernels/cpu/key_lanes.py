"""Vector code of attention: one row's query heads against a list of keys.

Keys are the addresses of rows of floats, so that a ring and a second array are read alike. Scores
lie as (keys, HEAD_LANES): a lane is a head. A sum over a key's elements is four side by side, that
of a softmax's weights two; weighted keys are added in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.emit import F32, I32, I64, Emitter, Value
from kernels.cpu.lanes import HEAD_LANES, KEY_BLOCK, numba_intrinsic

QUAD = 4
"""Neighbouring elements of a head that lie side by side in the layout of `lay_heads`."""

_QUAD_BYTES = 4 * QUAD * HEAD_LANES
_HALF = HEAD_LANES // 2
"""Heads whose quads one vector of 16 holds."""


@intrinsic
def lay_heads(typing_context: Any, heads_at: Any, count: Any, width: Any, out_at: Any) -> Any:
    """out[d / QUAD, h, d % QUAD] = head_h[d] for HEAD_LANES heads of `width` floats.

    Beyond `width` zeros, to a whole number of quads; beyond `count` the last head.
    """

    def emit(b: Any, heads: Value, count: Value, width: Value, out: Value) -> None:
        quad = Emitter(b, QUAD)
        end = b.sub(count, I64(1))
        rows = []
        for h in range(HEAD_LANES):
            index = b.select(b.icmp_signed("<", I64(h), end), I64(h), end)
            rows.append(quad.at(heads, b.mul(index, width), 4))

        def lay(i: Value, values: list[Value]) -> list[Value]:
            place = quad.at(out, i, _QUAD_BYTES)
            for h, value in enumerate(values):
                quad.store(value, b.add(place, I64(4 * QUAD * h)))
            return []

        def whole(i: Value, _carried: Any) -> list[Value]:
            return lay(i, [quad.load(quad.at(row, i, 4 * QUAD)) for row in rows])

        def rest(i: Value, _carried: Any) -> list[Value]:
            return lay(i, [_last_quad(quad, row, i, width) for row in rows])

        quads = b.sdiv(width, I64(QUAD))
        quad.loop(I64(0), quads, [], whole)
        quad.loop(quads, b.sdiv(b.add(width, I64(QUAD - 1)), I64(QUAD)), [], rest)

    return numba_intrinsic(types.void, 4, emit)


def _last_quad(quad: Emitter, row: Value, index: Value, width: Value) -> Value:
    """Quad `index` of a row of `width` floats, zero beyond the row's end."""
    b = quad.b
    value = quad.const(0.0)
    for i in range(QUAD):
        d = b.add(b.mul(index, I64(QUAD)), I64(i))
        inside = b.icmp_signed("<", d, width)
        one = quad.load_one(quad.at(row, b.select(inside, d, I64(0)), 4))
        value = b.insert_element(value, b.select(inside, one, F32(0.0)), I32(i))
    return value


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

    The query lies as `lay_heads` writes it. A sum is four, over d = 0, 1, 2 and 3 modulo QUAD, each
    in order, then added as (0 + 1) + (2 + 3). `first` is a multiple of QUAD, `last` one or the end.
    `count` keys (>= 1); the buffer of scores has room for the next multiple of KEY_BLOCK.
    """

    def emit(
        b: Any, query: Value, keys: Value, count: Value, first: Value, last: Value, scores: Value,
        add: Value,
    ) -> None:  # fmt: skip
        e, quad, wide = Emitter(b, HEAD_LANES), Emitter(b, QUAD), Emitter(b, QUAD * _HALF)
        end = b.sub(count, I64(1))
        adding = b.icmp_signed("!=", add, I64(0))

        def products(i: Value, quads: list[Value], sums: Any) -> list[Value]:
            place = wide.at(query, i, _QUAD_BYTES)
            halves = [wide.load(b.add(place, I64(64 * half))) for half in range(2)]
            new = []
            for j, value in enumerate(quads):
                key = quad.shuffle(value, list(range(QUAD)) * _HALF)
                new += [wide.fma(key, q, sums[2 * j + half]) for half, q in enumerate(halves)]
            return new

        def pick(x: Value, y: Value, order: list[int]) -> Value:
            """Lanes of two vectors, those of y from 16 on."""
            return b.shuffle_vector(x, y, ir.Constant(wide.kind(I32), order))

        def halved(x: Value, y: Value) -> Value:
            """Neighbouring lanes added: in every quad two sums of x, then two of y."""
            even = [16 * (i % 4 // 2) + i // 4 * 4 + i % 2 * 2 for i in range(16)]
            return b.fadd(pick(x, y, even), pick(x, y, [lane + 1 for lane in even]))

        def finish(sums: Any) -> list[Value]:
            """Scores of every two keys, by heads."""
            found = []
            for j in range(0, 2 * KEY_BLOCK, 8):
                # Of four keys the sums of four heads each: heads in quads, keys in a quad.
                low, high = (
                    halved(halved(sums[h], sums[h + 2]), halved(sums[h + 4], sums[h + 6]))
                    for h in (j, j + 1)
                )
                for k in (0, 2):
                    order = [16 * (i % 8 // 4) + i % 4 * 4 + i // 8 + k for i in range(16)]
                    found.append(pick(low, high, order))
            return found

        def block(i: Value, _carried: Any) -> list[Value]:
            start = b.mul(i, I64(KEY_BLOCK))
            rows = []
            for j in range(KEY_BLOCK):
                index = b.add(start, I64(j))
                inside = b.select(b.icmp_signed("<", index, end), index, end)
                rows.append(e.load_int(e.at(keys, inside, 8)))

            def whole(i: Value, sums: Any) -> list[Value]:
                return products(i, [quad.load(quad.at(row, i, 4 * QUAD)) for row in rows], sums)

            def rest(i: Value, sums: Any) -> list[Value]:
                return products(i, [_last_quad(quad, row, i, last) for row in rows], sums)

            zeros = [wide.const(0.0)] * (2 * KEY_BLOCK)
            quads = b.sdiv(last, I64(QUAD))
            sums = e.loop(b.sdiv(first, I64(QUAD)), quads, zeros, whole)
            sums = e.loop(quads, b.sdiv(b.add(last, I64(QUAD - 1)), I64(QUAD)), sums, rest)
            place = e.at(scores, start, 4 * HEAD_LANES)
            for j, value in enumerate(finish(sums)):
                two = b.add(place, I64(2 * 4 * HEAD_LANES * j))
                before = b.select(adding, wide.load(two), wide.const(0.0))
                wide.store(b.fadd(value, before), two)
            return []

        blocks = b.sdiv(b.add(count, I64(KEY_BLOCK - 1)), I64(KEY_BLOCK))
        e.loop(I64(0), blocks, [], block)

    return numba_intrinsic(types.void, 7, emit)


@intrinsic
def softmax_keys(
    typing_context: Any, scores_at: Any, count: Any, scale: Any, sinks_at: Any, total_at: Any
) -> Any:
    """scores[j, h] = e^(scale * scores[j, h] - M_h); total[h] = their sum + e^(sink_h - M_h).

    M_h is the largest of the scaled scores and the sink. The sums over even and odd keys run in
    order side by side, then they are added; a last key without a neighbour follows.
    """

    def emit(b: Any, scores: Value, count: Value, scale: Value, sinks: Value, total: Value) -> None:
        one, two = Emitter(b, HEAD_LANES), Emitter(b, 2 * HEAD_LANES)
        pairs = b.sdiv(count, I64(2))
        single = b.mul(pairs, I64(2))
        sink = one.load(sinks)

        def over_keys(
            start: Value,
            combine: Callable[[Emitter, Value, Value], Value],
            step: Callable[[Emitter, Value], Value],
        ) -> Value:
            """start combined with the values that `step` gives for and writes over all scores."""

            def turn(e: Emitter, i: Value, carried: Any) -> list[Value]:
                place = e.at(scores, i, 4 * e.lanes)
                value = step(e, e.load(place))
                e.store(value, place)
                return [combine(e, value, carried[0])]

            both = two.shuffle(start, [*range(HEAD_LANES)] * 2)
            both = two.loop(I64(0), pairs, [both], lambda i, c: turn(two, i, c))[0]
            halves = [two.shuffle(both, range(h, h + HEAD_LANES)) for h in (0, HEAD_LANES)]
            found = combine(one, *halves)
            return one.loop(single, count, [found], lambda i, c: turn(one, i, c))[0]

        def weight(e: Emitter, z: Value) -> Value:
            top = two.shuffle(largest, [*range(HEAD_LANES)] * 2) if e is two else largest
            return e.exp(b.fsub(z, top))

        largest = over_keys(
            sink, lambda e, x, y: e.larger(x, y), lambda e, x: b.fmul(x, e.splat(scale))
        )
        sums = over_keys(one.const(0.0), lambda e, x, y: b.fadd(y, x), weight)
        one.store(b.fadd(sums, one.exp(b.fsub(sink, largest))), total)

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
