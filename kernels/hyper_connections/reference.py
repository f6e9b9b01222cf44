"""Readable reference of `kernels.hyper_connections`: DeepSeek-V4's manifold-constrained streams."""

from __future__ import annotations

import torch
from torch import Tensor


def _mixes(streams: Tensor, fn: Tensor, eps: float) -> Tensor:
    """(n, 4, C) streams, (m, 4 C) mixer -> (n, m)."""
    flat = streams.flatten(1)
    return (flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)) @ fn.T


def hc_pre(
    streams: Tensor, fn: Tensor, base: Tensor, scale: Tensor, eps: float, hc_eps: float, rounds: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(n, 4, C) streams -> sub-layer input (n, C) before its norm, post (n, 4), comb (n, 4, 4)."""
    mix = _mixes(streams, fn, eps)
    pre = torch.sigmoid(mix[:, :4] * scale[0] + base[:4]) + hc_eps
    post = 2 * torch.sigmoid(mix[:, 4:8] * scale[1] + base[4:8])
    comb = (mix[:, 8:] * scale[2] + base[8:]).view(-1, 4, 4).softmax(-1) + hc_eps
    comb = comb / (comb.sum(-2, keepdim=True) + hc_eps)
    for _ in range(rounds - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + hc_eps)
        comb = comb / (comb.sum(-2, keepdim=True) + hc_eps)
    return torch.einsum("nj,njc->nc", pre, streams), post, comb


def hc_post(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """Sub-layer output (n, C) back into the streams (n, 4, C)."""
    return post[..., None] * y[:, None] + torch.einsum("nij,nic->njc", comb, streams)


def hc_head(
    streams: Tensor, fn: Tensor, base: Tensor, scale: Tensor, eps: float, hc_eps: float
) -> Tensor:
    """(n, 4, C) streams -> (n, C), before the output norm."""
    pre = torch.sigmoid(_mixes(streams, fn, eps) * scale + base) + hc_eps
    return torch.einsum("nj,njc->nc", pre, streams)
