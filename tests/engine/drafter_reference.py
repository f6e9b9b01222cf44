"""A readable torch drafter, written from the description of DSpark alone: whole tensors, no rings.

Float32 throughout, nothing is rounded when stored. Works on a drafter's dequantised tensors under
ds4's names and shares no code with the engine. Comments give shapes: B rows of the block, n context
rows, S streams, D model width, H heads of hd, T tapped layers, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Geometry:
    """Sizes that the tensors do not tell; all but the last line are the target's."""

    heads: int
    head_dim: int
    rope_dim: int
    rope_base: float
    groups: int
    window: int
    experts_used: int
    expert_scale: float
    clamp: float
    sinkhorn: int
    stages: int
    block_size: int
    noise_id: int
    eps: float = 1e-6


def block(
    taps: Tensor, anchor: int, position: int, tensors: Tensors, embedding: Tensor, g: Geometry
) -> Tensor:
    """Hidden rows of the block `[anchor, noise...]` at `position`..

    Args:
        taps: (n, T * D) of the n committed tokens right before `position`; any n.
        embedding: (V, D), the target's.
    Returns:
        (B, D): the streams collapsed by the drafter's own head mixer, before its final norm.
    """
    ids = [anchor] + [g.noise_id] * (g.block_size - 1)
    rows = embedding[ids]  # (B, D)
    streams = rows[:, None, :].repeat(1, 4, 1)  # (B, S, D)
    taps = taps[-g.window :] if len(taps) else taps
    # One row per token for every stage, straight from the projected taps: no mixer, no attn_norm.
    context = _norm(taps @ tensors["mtp.0.main_proj.weight"].T, tensors["mtp.0.main_norm.weight"])
    for stage in range(g.stages):
        w = {name.removeprefix(f"mtp.{stage}."): t for name, t in tensors.items()}
        x, post, comb = _hc_pre(streams, w, "hc_attn", g)
        y = _attention(_norm(x, w["attn_norm.weight"]), context, position, w, g)
        streams = _hc_post(y, streams, post, comb)
        x, post, comb = _hc_pre(streams, w, "hc_ffn", g)
        y = _experts(_norm(x, w["ffn_norm.weight"]), w, g)
        streams = _hc_post(y, streams, post, comb)
    last = {name.removeprefix(f"mtp.{g.stages - 1}.hc_head_"): t for name, t in tensors.items()}
    mix = _mix(streams, last["fn.weight"], g.eps) * last["scale.weight"] + last["base.weight"]
    return torch.einsum("bs,bsd->bd", torch.sigmoid(mix) + g.eps, streams)


def chain(
    hidden: Tensor, anchor: int, tensors: Tensors, output: Tensor, g: Geometry
) -> tuple[list[int], list[float], Tensor]:
    """The greedy Markov chain over a block's hidden rows.

    Args:
        hidden: (B, D) of `block`.
        output: (V, D), the target's head; a drafter's own comes before it.
    Returns:
        Drafts, confidence of each given that all before are accepted, (B, V) logits without bias.
    """
    prefix = f"mtp.{g.stages - 1}."
    rows = _norm(hidden, tensors[f"{prefix}norm.weight"])
    logits = _of_all(rows @ tensors.get("output.weight", output).T, tensors, g)
    gate = tensors[f"{prefix}confidence_head.proj.weight"].reshape(-1)  # (D + rank,)
    drafts: list[int] = []
    confidences: list[float] = []
    previous = anchor
    for u, row in zip(hidden, logits, strict=True):
        state = tensors[f"{prefix}markov_head.markov_w1.weight"][previous]
        confidences.append(float(torch.sigmoid(gate @ torch.cat([u, state]))))
        previous = int(torch.argmax(row + bias(previous, tensors, g)))
        drafts.append(previous)
    return drafts, confidences, logits


def bias(previous: int, tensors: Tensors, g: Geometry) -> Tensor:
    """(V,) Markov bias of the row after a token."""
    head = f"mtp.{g.stages - 1}.markov_head."
    some = tensors[f"{head}markov_w2.weight"] @ tensors[f"{head}markov_w1.weight"][previous]
    return _of_all(some, tensors, g)


def _of_all(scores: Tensor, tensors: Tensors, g: Geometry) -> Tensor:
    """(..., Vd) scores of the tokens in `d2t` -> (..., V), -inf for all others."""
    if "d2t" not in tensors:
        return scores
    vocab = len(tensors[f"mtp.{g.stages - 1}.markov_head.markov_w1.weight"])
    whole = torch.full((*scores.shape[:-1], vocab), -math.inf)
    whole[..., tensors["d2t"].long()] = scores
    return whole


def _norm(x: Tensor, weight: Tensor | float = 1.0, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def _mix(streams: Tensor, fn: Tensor, eps: float) -> Tensor:
    """(B, S, D) -> (B, outputs of fn), of the flattened and normed streams."""
    return _norm(streams.flatten(1), eps=eps) @ fn.T


def _hc_pre(streams: Tensor, w: Tensors, name: str, g: Geometry) -> tuple[Tensor, Tensor, Tensor]:
    """(B, S, D) -> input (B, D), post (B, S), comb (B, S source, S destination)."""
    rows, count, _ = streams.shape
    scale, base = w[f"{name}_scale.weight"], w[f"{name}_base.weight"]
    pre, post, comb = (
        part * s + b
        for part, s, b in zip(
            _mix(streams, w[f"{name}_fn.weight"], g.eps).split([count, count, count**2], dim=1),
            scale,
            base.split([count, count, count**2]),
            strict=True,
        )
    )
    pre, post = torch.sigmoid(pre) + g.eps, 2 * torch.sigmoid(post)
    comb = comb.view(rows, count, count).softmax(-1) + g.eps
    comb = comb / (comb.sum(-2, keepdim=True) + g.eps)
    for _ in range(g.sinkhorn - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + g.eps)
        comb = comb / (comb.sum(-2, keepdim=True) + g.eps)
    return torch.einsum("bs,bsd->bd", pre, streams), post, comb


def _hc_post(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    return post[:, :, None] * y[:, None, :] + torch.einsum("bst,bsd->btd", comb, streams)


def _rotate(x: Tensor, positions: Tensor, g: Geometry, direction: int = 1) -> Tensor:
    """RoPE over adjacent pairs of the last `rope_dim` elements; direction -1 undoes it.

    Args:
        x: (rows, ..., hd). positions: (rows,).
    """
    pairs = torch.arange(0, g.rope_dim, 2, dtype=torch.float64)
    angles = positions[:, None] * g.rope_base ** (-pairs / g.rope_dim) * direction
    turn = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
    turn = turn.view(len(x), *[1] * (x.dim() - 2), g.rope_dim // 2)
    still, turned = x[..., : -g.rope_dim], x[..., -g.rope_dim :]
    pairs_of_x = torch.view_as_complex(turned.unflatten(-1, (-1, 2)).contiguous())
    return torch.cat([still, torch.view_as_real(pairs_of_x * turn).flatten(-2)], dim=-1)


def _attention(y: Tensor, context: Tensor, position: int, w: Tensors, g: Geometry) -> Tensor:
    """Every row of the block sees all context rows and all rows of the block.

    Args:
        y: (B, D). context: (n, D), of the n tokens before `position`.
    """
    rows, n = len(y), len(context)
    own = torch.arange(position, position + rows)
    latent = _norm(y @ w["attn_q_a.weight"].T, w["attn_q_a_norm.weight"])
    q = (latent @ w["attn_q_b.weight"].T).view(rows, g.heads, g.head_dim)
    q = _rotate(_norm(q), own, g)
    before = torch.arange(position - n, position)
    keys = torch.cat([_key(context, before, w, g), _key(y, own, w, g)])  # one head for all, K = V
    scores = torch.einsum("bhd,kd->bhk", q, keys) / math.sqrt(g.head_dim)
    # The sink takes its share of the softmax and gives nothing.
    sinks = w["attn_sinks.weight"].view(1, g.heads, 1).expand(rows, -1, -1)
    shares = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]
    o = _rotate(torch.einsum("bhk,kd->bhd", shares, keys), own, g, direction=-1)
    grouped = o.reshape(rows, g.groups, -1)
    wo_a = w["attn_output_a.weight"].reshape(g.groups, -1, grouped.shape[-1])
    low = torch.einsum("bgi,goi->bgo", grouped, wo_a)
    return low.flatten(1) @ w["attn_output_b.weight"].T


def _key(x: Tensor, positions: Tensor, w: Tensors, g: Geometry) -> Tensor:
    kv = _norm(x @ w["attn_kv.weight"].T, w["attn_kv_a_norm.weight"])
    return _rotate(kv, positions, g)


def _experts(y: Tensor, w: Tensors, g: Geometry) -> Tensor:
    """The best experts by biased score, weighted by their plain scores, and the shared one."""
    scores = torch.nn.functional.softplus(y @ w["ffn_gate_inp.weight"].T).sqrt()
    chosen = (scores + w["exp_probs_b.bias"]).topk(g.experts_used, dim=-1).indices
    shares = scores.gather(-1, chosen)
    shares = shares / shares.sum(-1, keepdim=True) * g.expert_scale
    gates, ups, downs = (w[f"ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    shared = [w[f"ffn_{part}_shexp.weight"] for part in ("gate", "up", "down")]
    out = []
    for row, experts, parts in zip(y, chosen.tolist(), shares, strict=True):
        total = _swiglu(row, *shared, g.clamp)
        for expert, part in zip(experts, parts, strict=True):
            total = total + part * _swiglu(row, gates[expert], ups[expert], downs[expert], g.clamp)
        out.append(total)
    return torch.stack(out)


def _swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, clamp: float) -> Tensor:
    limit = clamp or math.inf
    g = (gate @ x).clamp(max=limit)
    return down @ (g * torch.sigmoid(g) * (up @ x).clamp(-limit, limit))
