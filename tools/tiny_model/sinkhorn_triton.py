"""Softmax and Sinkhorn rounds over 4 x 4 matrices as a Triton kernel pair, for training.

The forward keeps the sums it divided by; the backward walks back from the result with them, so
nothing else is stored. `reference` is the readable form. Row = source stream, column =
destination stream (DeepSeek-V4 report, hyper-connections).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tools.tiny_model.shape import EPS

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU machines: only `reference` is used
    triton = None

BLOCK = 128
"""Matrices a program."""


def reference(x: Tensor, rounds: int) -> Tensor:
    """(..., 16) logits -> (..., 16) nearly doubly stochastic matrices, float32."""
    c = torch.softmax(x.unflatten(-1, (4, 4)), -1) + EPS
    c = c / (c.sum(-2, keepdim=True) + EPS)
    for _ in range(rounds - 1):
        c = c / (c.sum(-1, keepdim=True) + EPS)
        c = c / (c.sum(-2, keepdim=True) + EPS)
    return c.flatten(-2)


if triton is not None:

    @triton.jit
    def _forward(
        x_ptr, c_ptr, sums_ptr, n, EPS: tl.constexpr, ROUNDS: tl.constexpr, B: tl.constexpr
    ):
        """Sums of round i: 4 column sums at 8 i, 4 row sums at 8 i + 4, each a plane of n."""
        m = tl.program_id(0) * B + tl.arange(0, B)
        j = tl.arange(0, 4)
        ok = (m < n)[:, None]
        at = m[:, None] * 16 + j[None, :]
        plane = j[None, :] * n + m[:, None]
        r0 = tl.load(x_ptr + at, mask=ok, other=0.0)
        r1 = tl.load(x_ptr + at + 4, mask=ok, other=0.0)
        r2 = tl.load(x_ptr + at + 8, mask=ok, other=0.0)
        r3 = tl.load(x_ptr + at + 12, mask=ok, other=0.0)
        r0 = tl.exp(r0 - tl.max(r0, 1)[:, None])
        r1 = tl.exp(r1 - tl.max(r1, 1)[:, None])
        r2 = tl.exp(r2 - tl.max(r2, 1)[:, None])
        r3 = tl.exp(r3 - tl.max(r3, 1)[:, None])
        r0 = r0 / tl.sum(r0, 1)[:, None] + EPS
        r1 = r1 / tl.sum(r1, 1)[:, None] + EPS
        r2 = r2 / tl.sum(r2, 1)[:, None] + EPS
        r3 = r3 / tl.sum(r3, 1)[:, None] + EPS
        for i in range(ROUNDS):
            base = sums_ptr + i * 8 * n
            s = r0 + r1 + r2 + r3 + EPS
            tl.store(base + plane, s, mask=ok)
            s = 1.0 / s
            r0 *= s
            r1 *= s
            r2 *= s
            r3 *= s
            if i < ROUNDS - 1:
                base += 4 * n
                s0 = tl.sum(r0, 1) + EPS
                s1 = tl.sum(r1, 1) + EPS
                s2 = tl.sum(r2, 1) + EPS
                s3 = tl.sum(r3, 1) + EPS
                tl.store(base + m, s0, mask=m < n)
                tl.store(base + n + m, s1, mask=m < n)
                tl.store(base + 2 * n + m, s2, mask=m < n)
                tl.store(base + 3 * n + m, s3, mask=m < n)
                r0 = r0 / s0[:, None]
                r1 = r1 / s1[:, None]
                r2 = r2 / s2[:, None]
                r3 = r3 / s3[:, None]
        tl.store(c_ptr + at, r0, mask=ok)
        tl.store(c_ptr + at + 4, r1, mask=ok)
        tl.store(c_ptr + at + 8, r2, mask=ok)
        tl.store(c_ptr + at + 12, r3, mask=ok)

    @triton.jit
    def _row_back(g, r, s):
        """Gradient and values before `r = before / s`, s = sum of the row: ((g - g.r) / s, r s)."""
        return (g - tl.sum(g * r, 1)[:, None]) / s[:, None], r * s[:, None]

    @triton.jit
    def _backward(
        c_ptr, sums_ptr, g_ptr, out_ptr, n, EPS: tl.constexpr, ROUNDS: tl.constexpr, B: tl.constexpr
    ):
        m = tl.program_id(0) * B + tl.arange(0, B)
        j = tl.arange(0, 4)
        inside = m < n
        ok = inside[:, None]
        at = m[:, None] * 16 + j[None, :]
        plane = j[None, :] * n + m[:, None]
        r0 = tl.load(c_ptr + at, mask=ok, other=0.25)
        r1 = tl.load(c_ptr + at + 4, mask=ok, other=0.25)
        r2 = tl.load(c_ptr + at + 8, mask=ok, other=0.25)
        r3 = tl.load(c_ptr + at + 12, mask=ok, other=0.25)
        g0 = tl.load(g_ptr + at, mask=ok, other=0.0)
        g1 = tl.load(g_ptr + at + 4, mask=ok, other=0.0)
        g2 = tl.load(g_ptr + at + 8, mask=ok, other=0.0)
        g3 = tl.load(g_ptr + at + 12, mask=ok, other=0.0)
        for k in range(ROUNDS):
            i = ROUNDS - 1 - k
            base = sums_ptr + i * 8 * n
            if k > 0:
                rows = base + 4 * n
                g0, r0 = _row_back(g0, r0, tl.load(rows + m, mask=inside, other=1.0))
                g1, r1 = _row_back(g1, r1, tl.load(rows + n + m, mask=inside, other=1.0))
                g2, r2 = _row_back(g2, r2, tl.load(rows + 2 * n + m, mask=inside, other=1.0))
                g3, r3 = _row_back(g3, r3, tl.load(rows + 3 * n + m, mask=inside, other=1.0))
            s = tl.load(base + plane, mask=ok, other=1.0)
            d = g0 * r0 + g1 * r1 + g2 * r2 + g3 * r3
            g0 = (g0 - d) / s
            g1 = (g1 - d) / s
            g2 = (g2 - d) / s
            g3 = (g3 - d) / s
            r0 *= s
            r1 *= s
            r2 *= s
            r3 *= s
        r0 -= EPS
        r1 -= EPS
        r2 -= EPS
        r3 -= EPS
        tl.store(out_ptr + at, r0 * (g0 - tl.sum(g0 * r0, 1)[:, None]), mask=ok)
        tl.store(out_ptr + at + 4, r1 * (g1 - tl.sum(g1 * r1, 1)[:, None]), mask=ok)
        tl.store(out_ptr + at + 8, r2 * (g2 - tl.sum(g2 * r2, 1)[:, None]), mask=ok)
        tl.store(out_ptr + at + 12, r3 * (g3 - tl.sum(g3 * r3, 1)[:, None]), mask=ok)


@torch.library.custom_op("tiny_model::sinkhorn", mutates_args=())
def _sinkhorn(x: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    n = x.numel() // 16
    c = torch.empty_like(x)
    sums = x.new_empty((8 * rounds - 4, n))
    _forward[(triton.cdiv(n, BLOCK),)](x, c, sums, n, EPS, rounds, BLOCK, num_warps=4)
    return c, sums


@_sinkhorn.register_fake
def _(x: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty((8 * rounds - 4, x.numel() // 16))


@torch.library.custom_op("tiny_model::sinkhorn_backward", mutates_args=())
def _sinkhorn_backward(c: Tensor, sums: Tensor, grad: Tensor, rounds: int) -> Tensor:
    n = c.numel() // 16
    out = torch.empty_like(c)
    _backward[(triton.cdiv(n, BLOCK),)](c, sums, grad, out, n, EPS, rounds, BLOCK, num_warps=4)
    return out


@_sinkhorn_backward.register_fake
def _(c: Tensor, sums: Tensor, grad: Tensor, rounds: int) -> Tensor:
    return torch.empty_like(c)


def _keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(*output)
    ctx.rounds = inputs[1]


def _differentiate(ctx, grad: Tensor, _: Tensor) -> tuple[Tensor, None]:
    c, sums = ctx.saved_tensors
    return _sinkhorn_backward(c, sums, grad.contiguous(), ctx.rounds), None


_sinkhorn.register_autograd(_differentiate, setup_context=_keep)


def sinkhorn(x: Tensor, rounds: int) -> Tensor:
    """(..., 16) float32 logits -> (..., 16) matrices; the kernels on CUDA, else `reference`."""
    if x.is_cuda:
        return _sinkhorn(x.contiguous(), rounds)[0]
    return reference(x, rounds)
