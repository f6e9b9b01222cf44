"""The DSpark drafter as plain functions for training and evaluation.

Owns the block's geometry (what an anchor's five rows see and at which positions), the head, the
Markov bias, the confidence logit and the losses. Does not know where features come from.
Sources: DSpark paper (arXiv 2607.05147) sections 2 and 3; DeepSpec `modeling/dspark`.

Shape letters: B rows of text, T tokens, A anchors a row, K block rows (5), D width, S streams.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.tiny_model.file_types import DRAFT_HEAD, DRAFTED
from tools.tiny_model.rounding import fp8_row, mxfp4
from tools.tiny_model.shape import DraftShape, Shape
from tools.tiny_model.target import (
    Params,
    Target,
    angles,
    block_shapes,
    embed,
    experts,
    fresh,
    hc_head,
    hc_in,
    hc_out,
    linear,
    output_projection,
    rms_norm,
    rotate,
)

DECAY = 4.0
"""Loss weight of block row k is exp(-k / DECAY) (DeepSpec `loss_decay_gamma`)."""
CONFIDENCE_WEIGHT = 2.0
"""Weight of the confidence's loss; the recipe's is 1. The head is linear and can only read what the
stages write into the rows for it."""


@dataclass
class Drafter:
    """Tensors outside the stages, and one dictionary a stage."""

    shape: Shape
    draft: DraftShape
    top: Params
    stages: list[Params]

    def named(self) -> dict[str, Tensor]:
        named = dict(self.top)
        for i, p in enumerate(self.stages):
            named.update({f"mtp.{i}.{name}": t for name, t in p.items()})
        return named

    def trainable(self) -> dict[str, Tensor]:
        return {name: t for name, t in self.named().items() if t.requires_grad}


def from_named(shape: Shape, draft: DraftShape, named: dict[str, Tensor]) -> Drafter:
    """The inverse of `Drafter.named`."""
    stages: list[Params] = [{} for _ in range(draft.stages)]
    top: Params = {}
    for name, tensor in named.items():
        if name.startswith("mtp."):
            _, index, rest = name.split(".", 2)
            stages[int(index)][rest] = tensor
        else:
            top[name] = tensor
    return Drafter(shape, draft, top, stages)


def fresh_drafter(target: Target, draft: DraftShape, seed: int) -> Drafter:
    """A drafter whose stages start from the target's first layers, its head from the target's.

    The stages have fewer experts than the layers: the first ones are taken, with their router
    rows.
    """
    shape, rng = target.shape, torch.Generator().manual_seed(seed)
    device = target.top["output"].device
    plain = [i for i, ratio in enumerate(shape.ratios) if ratio == 0]

    def make(name: str, size: tuple[int, ...]) -> Tensor:
        return fresh(name, size, draft.stages, rng).to(device).requires_grad_()

    eye = torch.eye(shape.dim).repeat(1, draft.taps) / draft.taps
    noise = make("main_proj", (shape.dim, draft.taps * shape.dim)).detach()
    top = {
        "main_proj": (eye.to(device) + 0.3 * noise).requires_grad_(),
        "main_norm": make("main_norm", (shape.dim,)),
        "markov_head.markov_w1": (0.1 * torch.randn(shape.vocab, draft.markov_rank, generator=rng))
        .to(device)
        .requires_grad_(),
        "markov_head.markov_w2": torch.zeros(
            shape.vocab, draft.markov_rank, device=device, requires_grad=True
        ),
        "confidence_head.proj": torch.zeros(
            1, shape.dim + draft.markov_rank, device=device, requires_grad=True
        ),
    }
    copied = {
        "norm": "output_norm",
        "hc_head_fn": "output_hc_fn",
        "hc_head_base": "output_hc_base",
        "hc_head_scale": "output_hc_scale",
    }
    for name, source in copied.items():
        top[name] = target.top[source].detach().clone().requires_grad_()
    stages = []
    for stage in range(draft.stages):
        source = target.layers[plain[min(stage, len(plain) - 1)]]
        p: Params = {}
        for name, size in block_shapes(shape, 0, draft.experts, draft.expert_dim).items():
            if source[name].shape[1:] == size[1:] and len(source[name]) >= size[0]:
                p[name] = source[name].detach()[: size[0]].clone().requires_grad_()
            else:
                p[name] = make(name, size)
        p["exp_probs_b"] = torch.zeros(draft.experts, device=device)
        stages.append(p)
    return Drafter(shape, draft, top, stages)


def narrowed(named: dict[str, Tensor], expert_dim: int) -> dict[str, Tensor]:
    """A drafter whose experts keep the `expert_dim` hidden units with the largest weights."""
    out = dict(named)
    for gate_name in [name for name in named if name.endswith(("ffn_gate_exps", "ffn_gate_shexp"))]:
        up_name, down_name = (gate_name.replace("gate", kind) for kind in ("up", "down"))
        gate, up, down = (named[name] for name in (gate_name, up_name, down_name))
        size = gate.norm(dim=-1) * up.norm(dim=-1) * down.norm(dim=-2)  # (E, F) or (F,)
        kept = size.topk(expert_dim, dim=-1).indices.sort(-1).values
        rows = kept[..., None].expand(*kept.shape, gate.shape[-1])
        columns = kept[..., None, :].expand(*down.shape[:-1], expert_dim)
        out[gate_name], out[up_name] = gate.gather(-2, rows), up.gather(-2, rows)
        out[down_name] = down.gather(-1, columns)
    return out


def with_own_head(named: dict[str, Tensor], output: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """The drafter with a head of its own, and Markov output rows, for these tokens.

    Args:
        output: (V, D), the target's head.
        tokens: (Vd,) rising; for all V there is no draft vocabulary, only the head.

    Raises:
        ValueError: when it has a draft vocabulary already: other rows may be gone.
    """
    _refuse_vocabulary(named)
    markov, head = "markov_head.markov_w2", named.get(DRAFT_HEAD, output)
    own = named | {markov: named[markov][tokens], DRAFT_HEAD: head[tokens]}
    return own if len(tokens) == len(output) else own | {DRAFTED: tokens}


def _refuse_vocabulary(named: dict[str, Tensor]) -> None:
    if DRAFTED in named:
        raise ValueError(f"the drafter has a head of {len(named[DRAFTED])} tokens of its own")


def in_4_bits(drafter: Drafter, names: Sequence[str]) -> Drafter:
    """The drafter with the values that these matrices have in MXFP4; gradients pass through."""
    named = drafter.named()
    if names:
        blocks = [named[name].reshape(-1, 32) for name in names]
        parts = mxfp4(torch.cat(blocks)).split([len(block) for block in blocks])
        named |= {name: part.view_as(named[name]) for name, part in zip(names, parts, strict=True)}
    return from_named(drafter.shape, drafter.draft, named)


def continued(shape: Shape, named: dict[str, Tensor], expert_dim: int) -> Drafter:
    """A trained drafter to train on, its experts narrowed where they are wider.

    Raises:
        ValueError: when it has a draft vocabulary: drafters learn with all tokens.
    """
    _refuse_vocabulary(named)
    if DraftShape.of(named).expert_dim > expert_dim:
        named = narrowed(named, expert_dim)
    leaves = {
        name: t.detach().clone().requires_grad_(not name.endswith("exp_probs_b"))
        for name, t in named.items()
    }
    return from_named(shape, DraftShape.of(leaves), leaves)


def visible_context(anchors: Tensor, tokens: int, window: int) -> Tensor:
    """(B, A, T) mask: the last `window` positions before the anchor, the anchor excluded."""
    j = torch.arange(tokens, device=anchors.device)
    return (j < anchors[..., None]) & (j >= anchors[..., None] - window)


def context_input(taps: Tensor, top: Params) -> Tensor:
    """(B, T, 3 D) stream means -> (B, T, D), what every stage makes its context rows of."""
    return rms_norm(linear(taps, top["main_proj"]), top["main_norm"])


def block_streams(
    tokens: Tensor, anchors: Tensor, target_top: Params, draft: DraftShape, dtype: torch.dtype
) -> Tensor:
    """(B, A * K, 4, D) embeddings of [anchor token, noise, ...]."""
    ids = torch.full((*anchors.shape, draft.block), draft.noise_id, device=tokens.device)
    ids[..., 0] = tokens.gather(1, anchors)
    return embed(ids.flatten(1), target_top, dtype)


def stage(
    streams: Tensor,
    context: Tensor,
    anchors: Tensor,
    p: Params,
    shape: Shape,
    draft: DraftShape,
    rounding: bool,
) -> tuple[Tensor, Tensor]:
    """One stage over all blocks; returns the streams and the experts' loads.

    Every block row sees the same keys: the anchor's context and all rows of its own block.
    """
    batch, count = anchors.shape
    heads, dim, block = shape.heads, shape.head_dim, draft.block
    tokens = context.shape[1]
    positions = (anchors[..., None] + torch.arange(block, device=anchors.device)).flatten(1)
    cos, sin = angles(positions, shape.rope_base, shape.rope_dim)
    at = angles(torch.arange(tokens, device=anchors.device), shape.rope_base, shape.rope_dim)
    far = rotate(rms_norm(linear(context, p["attn_kv"]), p["attn_kv_a_norm"]), *at)

    x, post, comb = hc_in(streams, p, "attn", shape)
    x = rms_norm(x, p["attn_norm"])
    q_low = rms_norm(linear(x, p["attn_q_a"]), p["attn_q_a_norm"])
    q = rms_norm(linear(q_low, p["attn_q_b"]).unflatten(-1, (heads, dim)))
    q = rotate(q, cos[:, :, None], sin[:, :, None])  # (B, A K, H, hd)
    near = rotate(rms_norm(linear(x, p["attn_kv"]), p["attn_kv_a_norm"]), cos, sin)
    if rounding:
        far = fp8_row(far, shape.rope_dim, half=False)
        near = fp8_row(near, shape.rope_dim, half=False)
    near = near.unflatten(1, (count, block))
    scale = dim**-0.5
    far_scores = (q.flatten(1, 2) @ far.transpose(-1, -2)).unflatten(1, (count, block * heads))
    mask = visible_context(anchors, tokens, shape.window)[:, :, None]
    far_scores = (far_scores.float() * scale).masked_fill(~mask, float("-inf"))
    q = q.reshape(batch, count, block * heads, dim)
    near_scores = (q @ near.transpose(-1, -2)).float() * scale
    sink = p["attn_sinks"].float().repeat(block)[None, None, :, None]
    top = torch.maximum(near_scores.detach().amax(-1, keepdim=True), sink.detach())
    top = torch.maximum(top, far_scores.detach().amax(-1, keepdim=True))
    far_weights, near_weights = torch.exp(far_scores - top), torch.exp(near_scores - top)
    total = far_weights.sum(-1, keepdim=True) + near_weights.sum(-1, keepdim=True)
    total = total + torch.exp(sink - top)
    o = (far_weights / total).to(x.dtype).flatten(1, 2) @ far
    o = o.unflatten(1, (count, block * heads)) + (near_weights / total).to(x.dtype) @ near
    o = o.reshape(batch, count * block, heads, dim)
    o = rotate(o, cos[:, :, None], -sin[:, :, None])
    streams = hc_out(output_projection(o, p, shape), streams, post, comb)

    x, post, comb = hc_in(streams, p, "ffn", shape)
    y, load = experts(rms_norm(x, p["ffn_norm"]), None, p, draft.experts_used, shape)
    return hc_out(y, streams, post, comb), load


def collapsed(streams: Tensor, top: Params) -> Tensor:
    """The un-normed rows after the drafter's own head, which the confidence reads."""
    return hc_head(streams, top["hc_head_fn"], top["hc_head_base"], top["hc_head_scale"])


def base_logits(u: Tensor, top: Params, output: Tensor) -> Tensor:
    """(..., V) logits by the target's head, (..., Vd) by the drafter's own where it has one."""
    return linear(rms_norm(u, top["norm"]), top.get(DRAFT_HEAD, output))


def of_all_tokens(logits: Tensor, top: Params, vocab: int) -> Tensor:
    """(..., Vd) logits of a draft vocabulary as (..., V), minus infinity elsewhere."""
    if DRAFTED not in top:
        return logits
    whole = logits.new_full((*logits.shape[:-1], vocab), -math.inf)
    return whole.index_copy(-1, top[DRAFTED], logits)


def markov_bias(previous: Tensor, top: Params) -> Tensor:
    """(..., V) or (..., Vd) bias of the logits after the token `previous`."""
    return F.linear(top["markov_head.markov_w1"][previous], top["markov_head.markov_w2"])


def confidence_logit(u: Tensor, previous: Tensor, top: Params) -> Tensor:
    """(...) logit of "this draft will be accepted"."""
    read = torch.cat([u.float(), top["markov_head.markov_w1"][previous].float()], -1)
    return linear(read, top["confidence_head.proj"])[..., 0]


def rows(
    drafter: Drafter,
    target_top: Params,
    taps: Tensor,
    tokens: Tensor,
    anchors: Tensor,
    *,
    rounding: bool,
    dtype: torch.dtype,
    stage_fn=stage,
) -> tuple[Tensor, list[Tensor]]:
    """Un-normed rows (B, A, K, D) of every anchor's block, and each stage's expert loads."""
    context = context_input(taps, drafter.top)
    streams = block_streams(tokens, anchors, target_top, drafter.draft, dtype)
    loads = []
    for p in drafter.stages:
        streams, load = stage_fn(
            streams, context, anchors, p, drafter.shape, drafter.draft, rounding
        )
        loads.append(load)
    u = collapsed(streams, drafter.top)
    return u.unflatten(1, (anchors.shape[1], drafter.draft.block)), loads


def block_places(anchors: Tensor, block: int) -> Tensor:
    """(B, A * K) positions of the block rows: row k stands at anchor + k and predicts the next."""
    return (anchors[..., None] + torch.arange(block, device=anchors.device)).flatten(1)


def block_bans(banned: Tensor, anchors: Tensor, block: int) -> Tensor:
    """(B, T, n) ids that the no-repeat rule forbids at each place -> (B, A, K, n), those that the
    block rows must not predict; -1 where none."""
    at = block_places(anchors, block) + 1
    found = banned.gather(1, at[..., None].expand(-1, -1, banned.shape[-1]))
    return found.unflatten(1, (-1, block))


def allowed(logits: Tensor, banned: Tensor) -> Tensor:
    """(..., V) logits with minus infinity at the ids of `banned` (..., n)."""
    ids = torch.arange(logits.shape[-1], device=logits.device)
    for i in range(banned.shape[-1]):
        logits = logits.masked_fill(ids == banned[..., i, None], -math.inf)
    return logits


def teacher(final: Tensor, output: Tensor, anchors: Tensor, bans: Tensor) -> Tensor:
    """The target's distributions (B, A, K, V) for the tokens that the block rows predict, under
    the no-repeat rule; bans: (B, A, K, n)."""
    block = bans.shape[2]
    at = block_places(anchors, block)
    picked = final.gather(1, at[..., None].expand(-1, -1, final.shape[-1]))
    logits = linear(picked, output).float().unflatten(1, (-1, block))
    return allowed(logits, bans).softmax(-1)


def losses(
    u: Tensor,
    top: Params,
    output: Tensor,
    wanted: Tensor,
    bans: Tensor,
    tokens: Tensor,
    anchors: Tensor,
    ce_weight: float | Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """0.1 CE + 0.9 L1, weighted by exp(-k / 4), and the BCE of the confidence over judged drafts.

    The confidence learns what a greedy engine asks: whether the draft is the target's own token,
    both chosen under the no-repeat rule, given that all earlier drafts of the block were.

    Args:
        u: (B, A, K, D) un-normed rows; wanted: (B, A, K, V) the target's distributions.
        bans: (B, A, K, n) ids that the rule forbids at the drafts' places, -1 where none.
        ce_weight: weight of the cross-entropy; the recipe ends at 0.1.
    Returns:
        The loss; mean acceptance probability and mean share of equal argmaxes a block row, (K,).
    """
    block = u.shape[2]
    at = block_places(anchors, block)
    previous = tokens.gather(1, at).unflatten(1, (-1, block))
    label = tokens.gather(1, at + 1).unflatten(1, (-1, block))
    logits = base_logits(u, top, output) + markov_bias(previous, top).to(u.dtype)
    logits = allowed(logits, bans)
    log_q = logits.float().log_softmax(-1)
    ce = -log_q.gather(-1, label[..., None])[..., 0]
    l1 = (log_q.exp() - wanted).abs().sum(-1)
    accept = (1 - 0.5 * l1).detach()
    same = (logits.detach().argmax(-1) == wanted.argmax(-1)).float()
    judged = torch.cat([torch.ones_like(same[..., :1]), same[..., :-1].cumprod(-1)], -1)
    bce = F.binary_cross_entropy_with_logits(
        confidence_logit(u, previous, top), same, reduction="none"
    )
    weight = torch.exp(-torch.arange(block, device=u.device) / DECAY)
    loss = ((ce_weight * ce + 0.9 * l1) * (weight / weight.sum())).sum(-1).mean()
    loss = loss + CONFIDENCE_WEIGHT * (bce * judged).sum() / judged.sum()
    return loss, accept.mean((0, 1)), same.mean((0, 1))


def propose(
    u: Tensor,
    top: Params,
    output: Tensor,
    anchor: Tensor,
    bans: Tensor,
    markov: bool = True,
) -> tuple[Tensor, Tensor]:
    """Greedy chains.

    Args:
        u: (..., K, D); anchor: (...) token ids; bans: (..., K, n) ids that the no-repeat rule
            forbids at the drafts' places when all earlier drafts are right, -1 where none.
    Returns:
        Drafts (..., K) and confidences (..., K) in 0..1.
    """
    drafts, confidences, previous = [], [], anchor
    for k in range(u.shape[-2]):
        logits = base_logits(u[..., k, :], top, output).float()
        if markov:
            logits = logits + markov_bias(previous, top)
        confidences.append(torch.sigmoid(confidence_logit(u[..., k, :], previous, top)))
        logits = of_all_tokens(logits, top, len(output))
        previous = allowed(logits, bans[..., k, :]).argmax(-1)
        drafts.append(previous)
    return torch.stack(drafts, -1), torch.stack(confidences, -1)
