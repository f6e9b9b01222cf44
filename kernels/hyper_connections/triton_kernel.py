"""Triton kernels of `kernels.hyper_connections`.

One kernel mixes a sub-layer's output into the streams and leaves, per chunk of columns, partial
sums of the next mixer's products and of the streams' inner products; a second one adds those up in
order and collapses the streams. The inner products give the norm of the collapsed row before it is
formed, so that every chunk of columns is finished by a program of its own.

Between the two sub-layers' kernels `post` and `comb` hold the mixer's outputs as they are: the
first kernel finishes them (sigmoid, Sinkhorn) while it waits for the sub-layer's output.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda.products import perturb, pieces
from kernels.cuda.rows import inverse_rms, sigmoid, to_half
from kernels.cuda.workspace import scratch
from kernels.mode import Mode
from kernels.packed.early import early, inputs_ready

CHUNK, COLUMNS = 128, 128
"""Columns of one program of the first and of the second kernel."""
SUMS = 64
"""Sums of every chunk: 32 mixes, then inner products of streams (i, j) at 32 + 4 i + j."""


@triton.jit
def _added(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9):
    """Ten sums at once, which wait for each other once."""
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5, a6 + b6, a7 + b7, a8 + b8, a9 + b9


@triton.jit
def _four(a0, a1, a2, a3, b0, b1, b2, b3):
    """Four sums at once."""
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3


@triton.jit
def _softmax4(at, epsilon):
    """Softmax of four numbers in memory, plus epsilon."""
    a, b, c, d = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
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
def _mixed(comb, h0, h1, h2, h3, epsilon, rounds):
    """The four streams mixed by the doubly stochastic matrix that Sinkhorn makes of `comb`."""
    a0, a1, a2, a3 = _softmax4(comb, epsilon)
    b0, b1, b2, b3 = _softmax4(comb + 4, epsilon)
    c0, c1, c2, c3 = _softmax4(comb + 8, epsilon)
    d0, d1, d2, d3 = _softmax4(comb + 12, epsilon)
    a0, b0, c0, d0 = _normed4(a0, b0, c0, d0, epsilon)
    a1, b1, c1, d1 = _normed4(a1, b1, c1, d1, epsilon)
    a2, b2, c2, d2 = _normed4(a2, b2, c2, d2, epsilon)
    a3, b3, c3, d3 = _normed4(a3, b3, c3, d3, epsilon)
    for _ in range(rounds - 1):
        a0, a1, a2, a3 = _normed4(a0, a1, a2, a3, epsilon)
        b0, b1, b2, b3 = _normed4(b0, b1, b2, b3, epsilon)
        c0, c1, c2, c3 = _normed4(c0, c1, c2, c3, epsilon)
        d0, d1, d2, d3 = _normed4(d0, d1, d2, d3, epsilon)
        a0, b0, c0, d0 = _normed4(a0, b0, c0, d0, epsilon)
        a1, b1, c1, d1 = _normed4(a1, b1, c1, d1, epsilon)
        a2, b2, c2, d2 = _normed4(a2, b2, c2, d2, epsilon)
        a3, b3, c3, d3 = _normed4(a3, b3, c3, d3, epsilon)
    m0 = a0 * h0 + b0 * h1 + c0 * h2 + d0 * h3
    m1 = a1 * h0 + b1 * h1 + c1 * h2 + d1 * h3
    m2 = a2 * h0 + b2 * h1 + c2 * h2 + d2 * h3
    m3 = a3 * h0 + b3 * h1 + c3 * h2 + d3 * h3
    return m0, m1, m2, m3


@triton.jit
def _streams(at, width, inside):
    """The four streams at some columns."""
    h0 = tl.load(at, mask=inside, other=0.0)
    h1 = tl.load(at + width, mask=inside, other=0.0)
    h2 = tl.load(at + 2 * width, mask=inside, other=0.0)
    h3 = tl.load(at + 3 * width, mask=inside, other=0.0)
    return h0, h1, h2, h3


@triton.jit
def _turned(at, width, inside, y, stride, post, comb, epsilon, rounds, PARTS: tl.constexpr):
    """Streams at some columns with a sub-layer's output taken up, in place.

    The kernel before wrote the output; streams, post and comb are older and can be read before it
    has ended.

    Args:
        at: the first stream's columns. y: the output's, in PARTS pieces, `stride` apart, that are
            added in order.
    """
    h0, h1, h2, h3 = _streams(at, width, inside)
    p0, p1 = 2.0 * sigmoid(tl.load(post)), 2.0 * sigmoid(tl.load(post + 1))
    p2, p3 = 2.0 * sigmoid(tl.load(post + 2)), 2.0 * sigmoid(tl.load(post + 3))
    m0, m1, m2, m3 = _mixed(comb, h0, h1, h2, h3, epsilon, rounds)
    inputs_ready()
    out = tl.load(y, mask=inside, other=0.0)
    for part in tl.static_range(1, PARTS):
        out += tl.load(y + part * stride, mask=inside, other=0.0)
    # Several threads hold the same column: all must have read it before one overwrites it.
    tl.debug_barrier()
    h0, h1, h2, h3 = p0 * out + m0, p1 * out + m1, p2 * out + m2, p3 * out + m3
    tl.store(at, h0, mask=inside)
    tl.store(at + width, h1, mask=inside)
    tl.store(at + 2 * width, h2, mask=inside)
    tl.store(at + 3 * width, h3, mask=inside)
    return h0, h1, h2, h3


@triton.jit
def _mix_kernel(
    streams, y, y_row, y_part, post, comb, fn, sums, width, mixes, chunks, epsilon, rounds,
    TURN: tl.constexpr, PARTS: tl.constexpr, ROUND: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Streams of one row and chunk: mixed with y if TURN, then their partial sums."""
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
    at = streams + row * 4 * width + column
    if TURN:
        h0, h1, h2, h3 = _turned(
            at, width, inside, y + row * y_row + column, y_part, post + row * 4, comb + row * 16,
            epsilon, rounds, PARTS,
        )  # fmt: skip
    else:
        inputs_ready()
        h0, h1, h2, h3 = _streams(at, width, inside)
    left = sums + row * 64 * chunks + chunk
    g00, g01, g02, g03, g11, g12, g13, g22, g23, g33 = tl.reduce(
        (h0 * h0, h0 * h1, h0 * h2, h0 * h3, h1 * h1, h1 * h2, h1 * h3, h2 * h2, h2 * h3, h3 * h3),
        0, _added,
    )  # fmt: skip
    tl.store(left + 32 * chunks, g00)
    tl.store(left + 33 * chunks, g01)
    tl.store(left + 34 * chunks, g02)
    tl.store(left + 35 * chunks, g03)
    tl.store(left + 37 * chunks, g11)
    tl.store(left + 38 * chunks, g12)
    tl.store(left + 39 * chunks, g13)
    tl.store(left + 42 * chunks, g22)
    tl.store(left + 43 * chunks, g23)
    tl.store(left + 47 * chunks, g33)
    if ROUND:
        h0, h1, h2, h3 = to_half(h0), to_half(h1), to_half(h2), to_half(h3)
    products = w0.to(tl.float32) * h0[None, :] + w1.to(tl.float32) * h1[None, :]
    products += w2.to(tl.float32) * h2[None, :] + w3.to(tl.float32) * h3[None, :]
    tl.store(left + mix * chunks, tl.sum(products, 1))


@triton.jit
def _sum_of(sums, index, chunks, chunk, real):
    """One of the chunks' sums, chunk by chunk."""
    return tl.load(sums + index * chunks + chunk, mask=real, other=0.0)


@triton.jit
def _collapse_kernel(
    streams, sums, base, scale, norm, x, post, comb, width, chunks, epsilon, hc_epsilon,
    CHUNKS: tl.constexpr, COLUMNS: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """One row and chunk of columns of the collapsed streams; the last program adds post and comb.

    HEAD: the mixer has 4 outputs, and `x` takes the collapsed row before its norm.
    """
    program, row = tl.program_id(0), tl.program_id(1)
    column = program * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    weight = tl.load(norm + column, mask=inside, other=0.0)
    s0 = tl.load(scale)
    b0, b1, b2, b3 = tl.load(base), tl.load(base + 1), tl.load(base + 2), tl.load(base + 3)
    chunk = tl.arange(0, CHUNKS)
    real = chunk < chunks
    sums += row * 64 * chunks
    inputs_ready()
    h0, h1, h2, h3 = _streams(streams + row * 4 * width + column, width, inside)
    g00, g01, g02, g03, g11, g12, g13, g22, g23, g33 = tl.reduce(
        (
            _sum_of(sums, 32, chunks, chunk, real), _sum_of(sums, 33, chunks, chunk, real),
            _sum_of(sums, 34, chunks, chunk, real), _sum_of(sums, 35, chunks, chunk, real),
            _sum_of(sums, 37, chunks, chunk, real), _sum_of(sums, 38, chunks, chunk, real),
            _sum_of(sums, 39, chunks, chunk, real), _sum_of(sums, 42, chunks, chunk, real),
            _sum_of(sums, 43, chunks, chunk, real), _sum_of(sums, 47, chunks, chunk, real),
        ), 0, _added,
    )  # fmt: skip
    inverse = inverse_rms((g00 + g11) + (g22 + g33), 4 * width, epsilon)
    if program * COLUMNS < width:
        p0, p1, p2, p3 = tl.reduce(
            (
                _sum_of(sums, 0, chunks, chunk, real), _sum_of(sums, 1, chunks, chunk, real),
                _sum_of(sums, 2, chunks, chunk, real), _sum_of(sums, 3, chunks, chunk, real),
            ), 0, _four,
        )  # fmt: skip
        p0 = sigmoid(p0 * inverse * s0 + b0) + hc_epsilon
        p1 = sigmoid(p1 * inverse * s0 + b1) + hc_epsilon
        p2 = sigmoid(p2 * inverse * s0 + b2) + hc_epsilon
        p3 = sigmoid(p3 * inverse * s0 + b3) + hc_epsilon
        cross = p0 * p1 * g01 + p0 * p2 * g02 + p0 * p3 * g03
        cross += p1 * p2 * g12 + p1 * p3 * g13 + p2 * p3 * g23
        squares = (p0 * p0 * g00 + p1 * p1 * g11) + (p2 * p2 * g22 + p3 * p3 * g33) + 2.0 * cross
        row_x = p0 * h0 + p1 * h1 + p2 * h2 + p3 * h3
        factor = inverse_rms(tl.maximum(squares, 0.0), width, epsilon)
        if not HEAD:
            row_x = row_x * factor * weight
        tl.store(x + row * width + column, row_x, mask=inside)
    elif not HEAD:
        mix = tl.arange(0, 32)
        at = sums + mix[:, None] * chunks + chunk[None, :]
        total = tl.sum(tl.load(at, mask=real[None, :], other=0.0), 1)
        s1, s2 = tl.load(scale + 1), tl.load(scale + 2)
        total = total * inverse * tl.where(mix < 8, s1, s2)
        total += tl.load(base + mix, mask=mix < 24, other=0.0)
        tl.store(post + row * 4 + mix - 4, total, mask=(mix >= 4) & (mix < 8))
        tl.store(comb + row * 16 + mix - 8, total, mask=(mix >= 8) & (mix < 24))


def _mix(streams: Any, fn: Any, mode: Mode, turn: tuple[Any, ...] | None = None) -> Any:
    """The first kernel; returns its partial sums (n, SUMS, chunks).

    Args:
        turn: y, post, comb, epsilon and rounds of the sub-layer whose output is taken up.
    """
    rows, width = streams.shape[0], streams.shape[1] // 4
    chunks = triton.cdiv(width, CHUNK)
    sums = scratch(streams.device, "hc sums", rows, SUMS, chunks)
    y, post, comb, epsilon, rounds = turn or (streams[:, None], streams, streams, 0.0, 1)
    _mix_kernel[(chunks, rows)](
        streams, y, y.stride(0), y.stride(1), post, comb, fn.planes[0], sums, width, fn.outputs,
        chunks, epsilon, rounds, TURN=turn is not None, PARTS=y.shape[1],
        ROUND=mode.batch and mode.round_rows, CHUNK=CHUNK, num_warps=4, **early(streams.device),
    )  # fmt: skip
    return sums


def hc_pre(
    streams: Any, weights: Any, norm: Any, epsilon: float, hc_epsilon: float, rounds: int, x: Any,
    post: Any, comb: Any, positions: Any, mode: Mode, y: Any = None,
) -> None:  # fmt: skip
    """As `kernels.hyper_connections.hc_pre`; with `y` the streams first take it up.

    The kernel before must be the one that wrote y: post and comb are read before it has ended.
    """
    turn = None if y is None else (pieces(y), post, comb, hc_epsilon, rounds)
    sums = _mix(streams, weights.fn, mode, turn)
    rows, width = x.shape
    chunks = sums.shape[2]
    _collapse_kernel[(triton.cdiv(width, COLUMNS) + 1, rows)](
        streams, sums, weights.base, weights.scale, norm, x, post, comb, width, chunks, epsilon,
        hc_epsilon, CHUNKS=triton.next_power_of_2(chunks), COLUMNS=COLUMNS, HEAD=False,
        num_warps=1, **early(x.device),
    )  # fmt: skip
    perturb(x, positions, mode)


@triton.jit
def _post_kernel(
    y, y_row, y_part, post, comb, streams, width, epsilon, rounds, PARTS: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    chunk, row = tl.program_id(0), tl.program_id(1)
    column = chunk * CHUNK + tl.arange(0, CHUNK)
    _turned(
        streams + row * 4 * width + column, width, column < width, y + row * y_row + column, y_part,
        post + row * 4, comb + row * 16, epsilon, rounds, PARTS,
    )  # fmt: skip


def hc_post(y: Any, post: Any, comb: Any, hc_epsilon: float, rounds: int, streams: Any) -> None:
    """As `kernels.hyper_connections.hc_post`."""
    y, (rows, width) = pieces(y), (streams.shape[0], streams.shape[1] // 4)
    _post_kernel[(triton.cdiv(width, CHUNK), rows)](
        y, y.stride(0), y.stride(1), post, comb, streams, width, hc_epsilon, rounds,
        PARTS=y.shape[1], CHUNK=CHUNK, **early(streams.device),
    )  # fmt: skip


def hc_head(
    streams: Any, weights: Any, epsilon: float, hc_epsilon: float, x: Any, positions: Any,
    mode: Mode,
) -> None:  # fmt: skip
    """As `kernels.hyper_connections.hc_head`."""
    sums = _mix(streams, weights.fn, mode)
    rows, width = x.shape
    chunks = sums.shape[2]
    _collapse_kernel[(triton.cdiv(width, COLUMNS), rows)](
        streams, sums, weights.base, weights.scale, x, x, x, x, width, chunks, epsilon, hc_epsilon,
        CHUNKS=triton.next_power_of_2(chunks), COLUMNS=COLUMNS, HEAD=True, num_warps=1,
        **early(x.device),
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
