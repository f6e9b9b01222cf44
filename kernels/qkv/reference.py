"""Readable reference of `kernels.qkv`."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.rounding.reference import fp8_blocks


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x / rms(x) over the last axis, times `weight` if there is one."""
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return normed if weight is None else normed * weight


def rotate(x: Tensor, turns: Tensor, sign: int = 1) -> Tensor:
    """Rotate the adjacent pairs of the last R elements of x (n, ..., D).

    `turns`: (n, R) cos and sin of each pair, interleaved; `sign` -1 rotates back.
    """
    size = turns.shape[-1]
    rest, tail = x[..., :-size], x[..., -size:]
    shape = (x.shape[0], *[1] * (x.dim() - 2), size // 2)
    c, s = turns[:, 0::2].view(shape), turns[:, 1::2].view(shape) * sign
    a, b = tail[..., 0::2], tail[..., 1::2]
    return torch.cat([rest, torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)], -1)


def kv_rows(
    x: Tensor, kv: Tensor, kv_norm: Tensor, turns: Tensor, eps: float, rounded: bool
) -> Tensor:
    """(n, C) normed inputs -> (n, D) rows that are both key and value."""
    row = rotate(rms_norm(x @ kv.T, kv_norm, eps), turns)
    if not rounded:
        return row
    rest = row.shape[-1] - turns.shape[-1]
    return torch.cat([fp8_blocks(row[:, :rest], 64), row[:, rest:]], -1).half().float()


def queries(
    x: Tensor, q_a: Tensor, q_norm: Tensor, q_b: Tensor, turns: Tensor, heads: int, eps: float
) -> tuple[Tensor, Tensor]:
    """(n, C) normed inputs -> low-rank activation (n, Q) and queries (n, H, D)."""
    qr = rms_norm(x @ q_a.T, q_norm, eps)
    q = rms_norm((qr @ q_b.T).unflatten(-1, (heads, -1)), None, eps)
    return qr, rotate(q, turns)
