"""Triton kernels of `kernels.hyper_connections`.

One kernel mixes a sub-layer's output into the streams and leaves, per chunk of columns, partial
sums of the next mixer's products and of the streams' inner products; a second one adds those up in
order and collapses the streams. The inner products give the norm of the collapsed row before it is
formed, so that every chunk of columns is finished by a program of its own.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda.products import perturb
from kernels.cuda.rows import inverse_rms, sigmoid, to_half
from kernels.cuda.workspace import scratch
from kernels.mode import Mode
from kernels.packed.early import early, inputs_ready

CHUNK, COLUMNS = 128, 128
"""Columns of one program of the first and of the second kernel."""
PARTS = 64
"""Floats a chunk leaves: 32 mixes, then inner products of streams (i, j) at 32 + 4 i + j."""


@triton.jit
def _added(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9):
    """Ten sums at once, which wait for each other once."""
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5, a6 + b6, a7 + b7, a8 + b8, a9 + b9


@triton.jit
def _mix_kernel(
    streams, y, post, comb, fn, parts, width, mixes, chunks,
    TURN: tl.constexpr, ROUND: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Streams of one row and chunk: mixed with y if TURN, then their partial sums.

    If TURN, the kernel before wrote y; streams, post and comb are older and can be read before it
    has ended.
    """
    chunk, row = tl.program_id(0), tl.program_id(1)
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = column < width
    # Loads stay in this order: the weights wait for memory beside the streams.
    mix = tl.arange(0, 32)
    weight = fn + mix[:, None] * (4 * width) + column[None, :]
    real = (mix < mixes)[:, None] & inside[None, :]
    w0 = tl.load(weight, mask=real, other=0.0)
    w1 = tl.load(weight + width, mask=real, other=0.0)
    w2 = tl.load(weight + 2 * width, mask=real, other=0.0)
    w3 = tl.load(weight + 3 * width, mask=real, other=0.0)
    if not TURN:
        inputs_ready()
    at = streams + row * 4 * width + column
    h0 = tl.load(at, mask=inside, other=0.0)
    h1 = tl.load(at + width, mask=inside, other=0.0)
    h2 = tl.load(at + 2 * width, mask=inside, other=0.0)
    h3 = tl.load(at + 3 * width, mask=inside, other=0.0)
    if TURN:
        p, c = post + row * 4, comb + row * 16
        p0, p1, p2, p3 = tl.load(p), tl.load(p + 1), tl.load(p + 2), tl.load(p + 3)
        m0 = tl.load(c) * h0 + tl.load(c + 4) * h1 + tl.load(c + 8) * h2 + tl.load(c + 12) * h3
        m1 = tl.load(c + 1) * h0 + tl.load(c + 5) * h1 + tl.load(c + 9) * h2 + tl.load(c + 13) * h3
        m2 = tl.load(c + 2) * h0 + tl.load(c + 6) * h1 + tl.load(c + 10) * h2
        m2 += tl.load(c + 14) * h3
        m3 = tl.load(c + 3) * h0 + tl.load(c + 7) * h1 + tl.load(c + 11) * h2
        m3 += tl.load(c + 15) * h3
        inputs_ready()
        out = tl.load(y + row * width + column, mask=inside, other=0.0)
        # Several threads hold the same column: all must have read it before one overwrites it.
        tl.debug_barrier()
        h0, h1, h2, h3 = p0 * out + m0, p1 * out + m1, p2 * out + m2, p3 * out + m3
        tl.store(at, h0, mask=inside)
        tl.store(at + width, h1, mask=inside)
        tl.store(at + 2 * width, h2, mask=inside)
        tl.store(at + 3 * width, h3, mask=inside)
    left = parts + (row * chunks + chunk) * 64
    g00, g01, g02, g03, g11, g12, g13, g22, g23, g33 = tl.reduce(
        (h0 * h0, h0 * h1, h0 * h2, h0 * h3, h1 * h1, h1 * h2, h1 * h3, h2 * h2, h2 * h3, h3 * h3),
        0, _added,
    )  # fmt: skip
    tl.store(left + 32, g00)
    tl.store(left + 33, g01)
    tl.store(left + 34, g02)
    tl.store(left + 35, g03)
    tl.store(left + 37, g11)
    tl.store(left + 38, g12)
    tl.store(left + 39, g13)
    tl.store(left + 42, g22)
    tl.store(left + 43, g23)
    tl.store(left + 47, g33)
    if ROUND:
        h0, h1, h2, h3 = to_half(h0), to_half(h1), to_half(h2), to_half(h3)
    products = w0.to(tl.float32) * h0[None, :] + w1.to(tl.float32) * h1[None, :]
    products += w2.to(tl.float32) * h2[None, :] + w3.to(tl.float32) * h3[None, :]
    tl.store(left + mix, tl.sum(products, 1))


@triton.jit
def _pick(values, lane, index: tl.constexpr):
    """Element `index` of a vector."""
    return tl.sum(tl.where(lane == index, values, 0.0), 0)


@triton.jit
def _softmax4(a, b, c, d, epsilon):
    top = tl.maximum(tl.maximum(a, b), tl.maximum(c, d))
    a, b, c, d = tl.exp(a - top), tl.exp(b - top), tl.exp(c - top), tl.exp(d - top)
    share = 1.0 / ((a + b) + (c + d))
    return a * share + epsilon, b * share + epsilon, c * share + epsilon, d * share + epsilon


@triton.jit
def _normed4(a, b, c, d, epsilon):
    root = tl.rsqrt((a + b) + (c + d) + epsilon)  # sooner there than a quotient
    share = root * root
    return a * share, b * share, c * share, d * share


@triton.jit
def _collapse_kernel(
    streams, parts, base, scale, norm, x, post, comb, width, chunks, epsilon, hc_epsilon, rounds,
    CHUNKS: tl.constexpr, COLUMNS: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """One row and chunk of columns of the collapsed streams; the last chunk mixes post and comb.

    HEAD: the mixer has 4 outputs, and `x` takes the collapsed row before its norm.
    """
    chunk, row = tl.program_id(0), tl.program_id(1)
    column = chunk * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    weight = tl.load(norm + column, mask=inside, other=0.0)
    s0 = tl.load(scale)
    inputs_ready()
    h = streams + row * 4 * width + column
    h0 = tl.load(h, mask=inside, other=0.0)
    h1 = tl.load(h + width, mask=inside, other=0.0)
    h2 = tl.load(h + 2 * width, mask=inside, other=0.0)
    h3 = tl.load(h + 3 * width, mask=inside, other=0.0)
    lane, part = tl.arange(0, 64), tl.arange(0, CHUNKS)
    at = parts + (row * chunks + part[:, None]) * 64 + lane[None, :]
    sums = tl.sum(tl.load(at, mask=(part < chunks)[:, None], other=0.0), 0)
    g00, g11 = _pick(sums, lane, 32), _pick(sums, lane, 37)
    g22, g33 = _pick(sums, lane, 42), _pick(sums, lane, 47)
    inverse = inverse_rms((g00 + g11) + (g22 + g33), 4 * width, epsilon)
    if chunk * COLUMNS < width:
        p0 = sigmoid(_pick(sums, lane, 0) * inverse * s0 + tl.load(base)) + hc_epsilon
        p1 = sigmoid(_pick(sums, lane, 1) * inverse * s0 + tl.load(base + 1)) + hc_epsilon
        p2 = sigmoid(_pick(sums, lane, 2) * inverse * s0 + tl.load(base + 2)) + hc_epsilon
        p3 = sigmoid(_pick(sums, lane, 3) * inverse * s0 + tl.load(base + 3)) + hc_epsilon
        cross = p0 * p1 * _pick(sums, lane, 33) + p0 * p2 * _pick(sums, lane, 34)
        cross += p0 * p3 * _pick(sums, lane, 35) + p1 * p2 * _pick(sums, lane, 38)
        cross += p1 * p3 * _pick(sums, lane, 39) + p2 * p3 * _pick(sums, lane, 43)
        squares = (p0 * p0 * g00 + p1 * p1 * g11) + (p2 * p2 * g22 + p3 * p3 * g33) + 2.0 * cross
        row_x = p0 * h0 + p1 * h1 + p2 * h2 + p3 * h3
        factor = inverse_rms(tl.maximum(squares, 0.0), width, epsilon)
        if not HEAD:
            row_x = row_x * factor * weight
        tl.store(x + row * width + column, row_x, mask=inside)
    elif not HEAD:
        s1, s2 = tl.load(scale + 1), tl.load(scale + 2)
        for j in tl.static_range(4):
            mix = _pick(sums, lane, 4 + j) * inverse * s1 + tl.load(base + 4 + j)
            tl.store(post + row * 4 + j, 2.0 * sigmoid(mix))
        mixed = sums * inverse * s2 + tl.load(base + lane, mask=lane < 24, other=0.0)
        a0, a1, a2, a3 = _softmax4(
            _pick(mixed, lane, 8), _pick(mixed, lane, 9), _pick(mixed, lane, 10),
            _pick(mixed, lane, 11), hc_epsilon,
        )  # fmt: skip
        b0, b1, b2, b3 = _softmax4(
            _pick(mixed, lane, 12), _pick(mixed, lane, 13), _pick(mixed, lane, 14),
            _pick(mixed, lane, 15), hc_epsilon,
        )  # fmt: skip
        c0, c1, c2, c3 = _softmax4(
            _pick(mixed, lane, 16), _pick(mixed, lane, 17), _pick(mixed, lane, 18),
            _pick(mixed, lane, 19), hc_epsilon,
        )  # fmt: skip
        d0, d1, d2, d3 = _softmax4(
            _pick(mixed, lane, 20), _pick(mixed, lane, 21), _pick(mixed, lane, 22),
            _pick(mixed, lane, 23), hc_epsilon,
        )  # fmt: skip
        a0, b0, c0, d0 = _normed4(a0, b0, c0, d0, hc_epsilon)
        a1, b1, c1, d1 = _normed4(a1, b1, c1, d1, hc_epsilon)
        a2, b2, c2, d2 = _normed4(a2, b2, c2, d2, hc_epsilon)
        a3, b3, c3, d3 = _normed4(a3, b3, c3, d3, hc_epsilon)
        for _ in range(rounds - 1):
            a0, a1, a2, a3 = _normed4(a0, a1, a2, a3, hc_epsilon)
            b0, b1, b2, b3 = _normed4(b0, b1, b2, b3, hc_epsilon)
            c0, c1, c2, c3 = _normed4(c0, c1, c2, c3, hc_epsilon)
            d0, d1, d2, d3 = _normed4(d0, d1, d2, d3, hc_epsilon)
            a0, b0, c0, d0 = _normed4(a0, b0, c0, d0, hc_epsilon)
            a1, b1, c1, d1 = _normed4(a1, b1, c1, d1, hc_epsilon)
            a2, b2, c2, d2 = _normed4(a2, b2, c2, d2, hc_epsilon)
            a3, b3, c3, d3 = _normed4(a3, b3, c3, d3, hc_epsilon)
        out = comb + row * 16
        tl.store(out, a0)
        tl.store(out + 1, a1)
        tl.store(out + 2, a2)
        tl.store(out + 3, a3)
        tl.store(out + 4, b0)
        tl.store(out + 5, b1)
        tl.store(out + 6, b2)
        tl.store(out + 7, b3)
        tl.store(out + 8, c0)
        tl.store(out + 9, c1)
        tl.store(out + 10, c2)
        tl.store(out + 11, c3)
        tl.store(out + 12, d0)
        tl.store(out + 13, d1)
        tl.store(out + 14, d2)
        tl.store(out + 15, d3)


def _mix(streams: Any, weights: Any, mode: Mode, y: Any, post: Any, comb: Any, turn: bool) -> Any:
    """The first kernel; returns its partial sums (n, chunks, PARTS)."""
    rows, width = streams.shape[0], streams.shape[1] // 4
    chunks = triton.cdiv(width, CHUNK)
    parts = scratch(streams.device, "hc parts", rows, chunks, PARTS)
    fn = weights.fn
    _mix_kernel[(chunks, rows)](
        streams, y, post, comb, fn.planes[0], parts, width, fn.outputs, chunks,
        TURN=turn, ROUND=mode.batch and mode.round_rows, CHUNK=CHUNK, num_warps=8,
        **early(streams.device),
    )  # fmt: skip
    return parts


def hc_pre(
    streams: Any, weights: Any, norm: Any, epsilon: float, hc_epsilon: float, rounds: int, x: Any,
    post: Any, comb: Any, positions: Any, mode: Mode, y: Any = None,
) -> None:  # fmt: skip
    """As `kernels.hyper_connections.hc_pre`; with `y` the streams first take it up.

    The kernel before must be the one that wrote y: post and comb are read before it has ended.
    """
    parts = _mix(streams, weights, mode, y if y is not None else x, post, comb, y is not None)
    rows, width = x.shape
    chunks = parts.shape[1]
    _collapse_kernel[(triton.cdiv(width, COLUMNS) + 1, rows)](
        streams, parts, weights.base, weights.scale, norm, x, post, comb, width, chunks, epsilon,
        hc_epsilon, rounds, CHUNKS=triton.next_power_of_2(chunks), COLUMNS=COLUMNS,
        HEAD=False, num_warps=1, **early(x.device),
    )  # fmt: skip
    perturb(x, positions, mode)


@triton.jit
def _post_kernel(y, post, comb, streams, width, CHUNK: tl.constexpr):
    chunk, row = tl.program_id(0), tl.program_id(1)
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = column < width
    at = streams + row * 4 * width + column
    h0 = tl.load(at, mask=inside, other=0.0)
    h1 = tl.load(at + width, mask=inside, other=0.0)
    h2 = tl.load(at + 2 * width, mask=inside, other=0.0)
    h3 = tl.load(at + 3 * width, mask=inside, other=0.0)
    out = tl.load(y + row * width + column, mask=inside, other=0.0)
    for j in tl.static_range(4):
        c = comb + row * 16 + j
        mixed = tl.load(c) * h0 + tl.load(c + 4) * h1 + tl.load(c + 8) * h2 + tl.load(c + 12) * h3
        tl.store(at + j * width, tl.load(post + row * 4 + j) * out + mixed, mask=inside)


def hc_post(y: Any, post: Any, comb: Any, streams: Any) -> None:
    """As `kernels.hyper_connections.hc_post`."""
    rows, width = y.shape
    _post_kernel[(triton.cdiv(width, 128), rows)](y, post, comb, streams, width, CHUNK=128)


def hc_head(
    streams: Any, weights: Any, epsilon: float, hc_epsilon: float, x: Any, positions: Any,
    mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.hyper_connections.hc_head`."""
    parts = _mix(streams, weights, mode, x, x, x, False)
    rows, width = x.shape
    chunks = parts.shape[1]
    _collapse_kernel[(triton.cdiv(width, COLUMNS), rows)](
        streams, parts, weights.base, weights.scale, x, x, x, x, width, chunks, epsilon,
        hc_epsilon, 1, CHUNKS=triton.next_power_of_2(chunks), COLUMNS=COLUMNS,
        HEAD=True, num_warps=1, **early(x.device),
    )  # fmt: skip
    perturb(x, positions, mode)


@triton.jit
def _mean_kernel(streams, out, stride, column, width, CHUNK: tl.constexpr):
    row = tl.program_id(1)
    i = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = i < width
    at = streams + row * 4 * width + i
    total = tl.load(at, mask=inside, other=0.0) + tl.load(at + width, mask=inside, other=0.0)
    total += tl.load(at + 2 * width, mask=inside, other=0.0)
    total += tl.load(at + 3 * width, mask=inside, other=0.0)
    tl.store(out + row * stride + column + i, total * 0.25, mask=inside)


def stream_mean(streams: Any, out: Any, column: int) -> None:
    """As `kernels.hyper_connections.stream_mean`."""
    rows, width = streams.shape[0], streams.shape[1] // 4
    _mean_kernel[(triton.cdiv(width, 256), rows)](
        streams, out, out.stride(0), column, width, CHUNK=256,
    )  # fmt: skip
