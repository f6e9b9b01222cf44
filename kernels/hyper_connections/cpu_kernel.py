"""CPU kernels of `kernels.hyper_connections`: one row after the other, sums in order."""

from __future__ import annotations

import numpy as np

from kernels.cpu.compiling import inline, kernel
from kernels.cpu.lanes import address, keep
from kernels.cpu.matrix import product
from kernels.cpu.row_lanes import collapse_row, mix_row, scale_row
from kernels.cpu.rows import inverse_rms, perturb, rms_norm, sigmoid
from kernels.cpu.transform_lanes import sinkhorn

MIXES, HEAD_MIXES = 24, 4
"""Outputs of the mixing product: 4 pre + 4 post + 16 comb; for the head 4 pre only."""


@inline
def _mix(streams, rows, words, epsilon, space, flags, mixes):  # type: ignore[no-untyped-def]
    """space = [mixes of every row | normed streams of every row]."""
    width = streams.shape[1]
    normed = address(space) + 4 * rows * mixes
    for r in range(rows):
        row = address(streams) + 4 * r * width
        scale_row(row, width, inverse_rms(row, width, epsilon), normed + 4 * r * width)
    product(address(words), rows, normed, width, address(space), mixes, flags)


@kernel(
    "void(float32[:,::1], int64[:,::1], float32[::1], float32[::1], float32[::1], float32,"
    " float32, int64, float32[:,::1], float32[:,::1], float32[:,::1], int64[::1], float32[::1],"
    " int64[::1])"
)
def hc_pre(  # type: ignore[no-untyped-def]
    streams, words, base, scale, norm, epsilon, hc_epsilon, rounds, x, post, comb, positions,
    space, mode,
):  # fmt: skip
    rows = streams.shape[0]
    _mix(streams, rows, words, epsilon, space, mode[0], MIXES)
    pre = np.empty(4, np.float32)
    two, width = np.float32(2.0), x.shape[1]
    for r in range(rows):
        mix = r * MIXES
        for j in range(4):
            pre[j] = sigmoid(space[mix + j] * scale[0] + base[j]) + hc_epsilon
            post[r, j] = two * sigmoid(space[mix + 4 + j] * scale[1] + base[4 + j])
        for j in range(16):
            comb[r, j] = space[mix + 8 + j] * scale[2] + base[8 + j]
        row = address(x) + 4 * r * width
        collapse_row(address(streams) + 16 * r * width, address(pre), width, row)
        rms_norm(row, norm, epsilon, row)
    keep(pre)
    sinkhorn(address(comb), rows, rounds, hc_epsilon)
    perturb(address(x), x.shape[1], rows, x.shape[1], positions, mode)


@kernel("void(float32[:,::1], float32[:,::1], float32[:,::1], float32[:,::1])")
def hc_post(y, post, comb, streams):  # type: ignore[no-untyped-def]
    width = y.shape[1]
    for r in range(y.shape[0]):
        mix_row(
            address(y) + 4 * r * width, address(post) + 16 * r, address(comb) + 64 * r, width,
            address(streams) + 16 * r * width,
        )  # fmt: skip


@kernel(
    "void(float32[:,::1], int64[:,::1], float32[::1], float32[::1], float32, float32,"
    " float32[:,::1], int64[::1], float32[::1], int64[::1])"
)
def hc_head(  # type: ignore[no-untyped-def]
    streams, words, base, scale, epsilon, hc_epsilon, x, positions, space, mode
):
    rows = streams.shape[0]
    _mix(streams, rows, words, epsilon, space, mode[0], HEAD_MIXES)
    pre = np.empty(4, np.float32)
    for r in range(rows):
        for j in range(4):
            mix = space[r * HEAD_MIXES + j]
            pre[j] = sigmoid(mix * scale[0] + base[j]) + hc_epsilon
        row = address(x) + 4 * r * x.shape[1]
        collapse_row(address(streams) + 16 * r * x.shape[1], address(pre), x.shape[1], row)
    keep(pre)
    perturb(address(x), x.shape[1], rows, x.shape[1], positions, mode)


@kernel("void(float32[:,::1], float32[:,::1], int64)")
def stream_mean(streams, out, column):  # type: ignore[no-untyped-def]
    width = streams.shape[1] // 4
    quarters = np.full(4, np.float32(0.25))
    for r in range(streams.shape[0]):
        target = address(out) + 4 * (r * out.shape[1] + column)
        collapse_row(address(streams) + 16 * r * width, address(quarters), width, target)
    keep(quarters)
