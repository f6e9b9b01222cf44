"""The training forward of the tiny DeepSeek-V4: plain functions over a flat dictionary of tensors.

The parameters carry the GGUF names of the `deepseek4` dialect without `.weight`. Rows of one
length, a multiple of the window, no cache: that makes every shape static. Knows nothing of data,
optimisers or files. Sources: DeepSeek-V4 report for the layers, `transformers`
`modeling_deepseek_v4.py` for the details that the tests compare.

Shape letters: B rows, T tokens, H heads, C compressed rows, E experts, S streams.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.tiny_model.rounding import fp4_block, fp8_row, hadamard
from tools.tiny_model.shape import EPS, STREAMS, Shape
from tools.tiny_model.sinkhorn_triton import sinkhorn

Params = dict[str, Tensor]


def linear(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x, w.to(x.dtype))


def rms_norm(x: Tensor, weight: Tensor | None = None) -> Tensor:
    f = x.float()
    f = f * torch.rsqrt(f.square().mean(-1, keepdim=True) + EPS)
    return (f if weight is None else f * weight).to(x.dtype)


def angles(positions: Tensor, base: float, rope_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (..., rope_dim / 2) at integer positions, float32."""
    index = torch.arange(0, rope_dim, 2, dtype=torch.float32, device=positions.device)
    angle = positions.float()[..., None] * (1.0 / base ** (index / rope_dim))
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates adjacent pairs of the trailing dimensions; `-sin` rotates back."""
    rope_dim = 2 * cos.shape[-1]
    a, b = x[..., -rope_dim:].float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
    return torch.cat([x[..., :-rope_dim], turned.to(x.dtype)], -1)


# --- hyper-connections -----------------------------------------------------------------------


def _mix(streams: Tensor, fn: Tensor) -> Tensor:
    z = streams.flatten(-2)
    inverse_rms = torch.rsqrt(z.float().square().mean(-1, keepdim=True) + EPS)
    return linear(z, fn).float() * inverse_rms


def hc_in(streams: Tensor, p: Params, name: str, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """(..., 4, D) streams -> collapsed input (..., D), post (..., 4), comb (..., 4, 4)."""
    m = _mix(streams, p[f"hc_{name}_fn"])
    base, scale = p[f"hc_{name}_base"], p[f"hc_{name}_scale"]
    pre = torch.sigmoid(m[..., :4] * scale[0] + base[:4]) + EPS
    post = 2 * torch.sigmoid(m[..., 4:8] * scale[1] + base[4:8])
    comb = sinkhorn(m[..., 8:] * scale[2] + base[8:], shape.sinkhorn).unflatten(-1, (4, 4))
    return (pre[..., None] * streams).sum(-2).to(streams.dtype), post, comb


def hc_out(y: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """The streams after a sub-layer with output `y`; comb is [source, destination]."""
    carried = (comb[..., None] * streams[..., :, None, :]).sum(-3)
    return (post[..., None] * y[..., None, :] + carried).to(streams.dtype)


def hc_head(streams: Tensor, fn: Tensor, base: Tensor, scale: Tensor) -> Tensor:
    """Collapses the streams with the learned head, without a norm."""
    pre = torch.sigmoid(_mix(streams, fn) * scale + base) + EPS
    return (pre[..., None] * streams).sum(-2).to(streams.dtype)


# --- attention -------------------------------------------------------------------------------


def pool(kv: Tensor, gate: Tensor, norm: Tensor, ratio: int) -> Tensor:
    """Compressed rows before the rotation.

    Args:
        kv, gate: (B, T, c * d); c = 2 for ratio 4, whose windows overlap, else 1. `gate` has the
            position bias added.
    Returns:
        (B, T // ratio, d).
    """
    rows = kv.shape[1] // ratio
    kv = kv[:, : rows * ratio].unflatten(1, (rows, ratio))
    gate = gate[:, : rows * ratio].float().unflatten(1, (rows, ratio))
    if ratio == 4:
        d = kv.shape[-1] // 2
        previous = F.pad(kv[:, :-1, :, :d], (0, 0, 0, 0, 1, 0))
        missing = F.pad(gate[:, :-1, :, :d], (0, 0, 0, 0, 1, 0), value=float("-inf"))
        kv = torch.cat([previous, kv[..., d:]], 2)
        gate = torch.cat([missing, gate[..., d:]], 2)
    return rms_norm((kv * torch.softmax(gate, 2).to(kv.dtype)).sum(2), norm)


def _compress(x: Tensor, p: Params, name: str, ratio: int, shape: Shape) -> Tensor:
    gate = linear(x, p[f"{name}_gate"])
    ape = p[f"{name}_ape"].repeat(gate.shape[1] // ratio, 1)
    rows = pool(linear(x, p[f"{name}_kv"]), gate + ape.to(gate.dtype), p[f"{name}_norm"], ratio)
    at = torch.arange(rows.shape[1], device=x.device) * ratio
    return rotate(rows, *angles(at, shape.compress_rope_base, shape.rope_dim))


def index_scores(
    q_low: Tensor,
    x: Tensor,
    rows: Tensor,
    p: Params,
    shape: Shape,
    cos: Tensor,
    sin: Tensor,
    rounding: bool,
) -> Tensor:
    """The indexer's scores (B, T, C) float32 of compressed rows (B, C, ID), before any mask."""
    q = linear(q_low, p["indexer.attn_q_b"]).unflatten(-1, (shape.index_heads, shape.index_dim))
    q = rotate(q, cos[:, None], sin[:, None])
    if rounding:
        q = fp4_block(q @ hadamard(shape.index_dim, q.device, q.dtype))
    raw = (q.flatten(-3, -2) @ rows.transpose(-1, -2)).unflatten(-2, (-1, shape.index_heads))
    weight = linear(x, p["indexer.proj"]).float() * (shape.index_heads * shape.index_dim) ** -0.5
    return (F.relu(raw.float()) * weight[..., None]).sum(-2)


def index_rows(x: Tensor, p: Params, shape: Shape, rounding: bool) -> Tensor:
    rows = _compress(x, p, "indexer_compressor", 4, shape)
    if rounding:
        rows = fp4_block(rows @ hadamard(shape.index_dim, rows.device, rows.dtype))
    return rows


def output_projection(o: Tensor, p: Params, shape: Shape) -> Tensor:
    """(..., H, hd) heads -> (..., D): per group, then together."""
    o = o.flatten(-2).unflatten(-1, (shape.groups, -1))
    w = p["attn_output_a"].unflatten(0, (shape.groups, shape.out_rank)).to(o.dtype)
    return linear(torch.einsum("...gi,goi->...go", o, w).flatten(-2), p["attn_output_b"])


def _window_mask(tokens: int, window: int, device: torch.device) -> Tensor:
    """(T / W, W, 2 W): which of the previous and own block of keys each query sees."""
    i = torch.arange(window, device=device)[:, None]
    j = torch.arange(2 * window, device=device)[None]
    near = (j > i) & (j <= i + window)
    first = torch.arange(tokens // window, device=device)[:, None, None] == 0
    return near[None] & ~(first & (j < window)[None])


def attention(
    x: Tensor,
    p: Params,
    ratio: int,
    shape: Shape,
    *,
    rounding: bool,
    select: bool = True,
    want_index_loss: bool = False,
) -> tuple[Tensor, Tensor]:
    """One attention sub-layer over whole rows.

    Args:
        x: (B, T, D), T a multiple of the window.
    Returns:
        (B, T, D) and the indexer's loss, float32: the cross-entropy of its softmax against the
        attention mass that the compressed rows get when all of them are seen (0 when not asked).
    """
    batch, tokens, _ = x.shape
    heads, dim, window = shape.heads, shape.head_dim, shape.window
    blocks, scale = tokens // window, dim**-0.5
    positions = torch.arange(tokens, device=x.device)
    base = shape.compress_rope_base if ratio else shape.rope_base
    cos, sin = angles(positions, base, shape.rope_dim)
    q_low = rms_norm(linear(x, p["attn_q_a"]), p["attn_q_a_norm"])
    q = rms_norm(linear(q_low, p["attn_q_b"]).unflatten(-1, (heads, dim)))
    q = rotate(q, cos[:, None], sin[:, None])  # (B, T, H, hd)
    kv = rotate(rms_norm(linear(x, p["attn_kv"]), p["attn_kv_a_norm"]), cos, sin)
    if rounding:
        kv = fp8_row(kv, shape.rope_dim, half=True)

    kv = kv.unflatten(1, (blocks, window))
    near = torch.cat([F.pad(kv[:, :-1], (0, 0, 0, 0, 1, 0)), kv], 2)  # (B, T/W, 2W, hd)
    scores = q.reshape(batch, blocks, window * heads, dim) @ near.transpose(-1, -2)
    scores = scores.unflatten(2, (window, heads)).float() * scale
    mask = _window_mask(tokens, window, x.device)[None, :, :, None, :]
    scores = scores.masked_fill(~mask, float("-inf")).flatten(1, 2)  # (B, T, H, 2W)
    sink = p["attn_sinks"].float()[None, None, :, None]
    top = torch.maximum(scores.detach().amax(-1, keepdim=True), sink.detach())
    index_loss = x.new_zeros((), dtype=torch.float32)

    if ratio:
        rows = _compress(x, p, "attn_compressor", ratio, shape)
        if rounding:
            rows = fp8_row(rows, shape.rope_dim, half=False)
        far = (q.flatten(1, 2) @ rows.transpose(-1, -2)).unflatten(1, (tokens, heads))
        far = far.float() * scale  # (B, T, H, C)
        count = rows.shape[1]
        visible = torch.arange(count, device=x.device)[None] < ((positions + 1) // ratio)[:, None]
        seen = visible[None]
        if ratio == 4 and select:
            # The indexer learns from its own loss only, so it reads detached inputs.
            index = index_rows(x.detach(), p, shape, rounding)
            rank = index_scores(q_low.detach(), x.detach(), index, p, shape, cos, sin, rounding)
            rank = rank.masked_fill(~visible[None], -1e4)
            if want_index_loss:
                index_loss = _index_loss(
                    rank, far.detach(), scores.detach(), sink.detach(), visible
                )
            if count > shape.index_top_k:
                bar = rank.detach().topk(shape.index_top_k, -1).values[..., -1:]
                seen = seen & (rank.detach() >= bar)
        far = far.masked_fill(~seen[:, :, None, :], float("-inf"))
        top = torch.maximum(top, far.detach().amax(-1, keepdim=True))

    weights = torch.exp(scores - top)
    total = weights.sum(-1, keepdim=True) + torch.exp(sink - top)
    if ratio:
        far_weights = torch.exp(far - top)
        total = total + far_weights.sum(-1, keepdim=True)
    weights = (weights / total).to(x.dtype).view(batch, blocks, window * heads, 2 * window)
    o = (weights @ near).view(batch, tokens, heads, dim)
    if ratio:
        far_weights = (far_weights / total).to(x.dtype).flatten(1, 2)
        o = o + (far_weights @ rows).view(batch, tokens, heads, dim)
    o = rotate(o, cos[:, None], -sin[:, None])
    return output_projection(o, p, shape), index_loss


def _index_loss(rank: Tensor, far: Tensor, near: Tensor, sink: Tensor, visible: Tensor) -> Tensor:
    seen = visible[None, :, None, :]
    far = far.masked_fill(~seen, -1e9)
    top = torch.maximum(
        torch.maximum(near.amax(-1, keepdim=True), sink), far.amax(-1, keepdim=True)
    )
    mass = torch.exp(far - top) * seen
    total = mass.sum(-1, keepdim=True) + torch.exp(near - top).sum(-1, keepdim=True)
    wanted = (mass / (total + torch.exp(sink - top))).sum(2) + 1e-6 * visible
    wanted = wanted / wanted.sum(-1, keepdim=True).clamp_min(1e-9)
    return -(wanted * F.log_softmax(rank, -1) * visible).sum() / (rank.shape[0] * rank.shape[1])


# --- experts ---------------------------------------------------------------------------------


def experts(
    x: Tensor, ids: Tensor | None, p: Params, used: int, shape: Shape
) -> tuple[Tensor, Tensor]:
    """The mixture with every expert evaluated: two large products and a gate with zeros.

    Returns:
        (..., D) and the (E,) number of tokens that chose each expert.
    """
    clamp = shape.clamp
    scores = torch.sqrt(F.softplus(linear(x, p["ffn_gate_inp"]).float()))
    if "ffn_gate_tid2eid" in p:
        chosen = p["ffn_gate_tid2eid"][ids]
    else:
        chosen = torch.topk(scores.detach() + p["exp_probs_b"], used, -1).indices
    hot = F.one_hot(chosen, scores.shape[-1]).sum(-2).to(scores.dtype)
    weight = scores * hot
    weight = weight / (weight.sum(-1, keepdim=True) + 1e-20) * shape.expert_scale
    count, width = p["ffn_gate_exps"].shape[:2]
    gate_up = torch.cat([p["ffn_gate_exps"].flatten(0, 1), p["ffn_up_exps"].flatten(0, 1)])
    gate, up = linear(x, gate_up).unflatten(-1, (2, count, width)).unbind(-3)
    act = F.silu(gate.clamp(max=clamp)) * up.clamp(-clamp, clamp) * weight[..., None].to(x.dtype)
    y = linear(act.flatten(-2), p["ffn_down_exps"].transpose(0, 1).flatten(1))
    gate = linear(x, p["ffn_gate_shexp"]).clamp(max=clamp)
    up = linear(x, p["ffn_up_shexp"]).clamp(-clamp, clamp)
    y = y + linear(F.silu(gate) * up, p["ffn_down_shexp"])
    return y, hot.flatten(0, -2).sum(0)


# --- the model -------------------------------------------------------------------------------


def layer(
    streams: Tensor,
    ids: Tensor,
    p: Params,
    ratio: int,
    shape: Shape,
    rounding: bool,
    select: bool,
    want_index_loss: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """One block: (B, T, 4, D) streams -> streams, indexer loss, expert loads."""
    x, post, comb = hc_in(streams, p, "attn", shape)
    y, index_loss = attention(
        rms_norm(x, p["attn_norm"]),
        p,
        ratio,
        shape,
        rounding=rounding,
        select=select,
        want_index_loss=want_index_loss,
    )
    streams = hc_out(y, streams, post, comb)
    x, post, comb = hc_in(streams, p, "ffn", shape)
    y, load = experts(rms_norm(x, p["ffn_norm"]), ids, p, shape.experts_used, shape)
    return hc_out(y, streams, post, comb), index_loss, load


def embed(ids: Tensor, top: Params, dtype: torch.dtype) -> Tensor:
    x = top["token_embd"][ids].to(dtype)
    return x[..., None, :].expand(*ids.shape, STREAMS, -1).contiguous()


def final_row(streams: Tensor, top: Params) -> Tensor:
    """The normed row that the output matrix reads."""
    u = hc_head(streams, top["output_hc_fn"], top["output_hc_base"], top["output_hc_scale"])
    return rms_norm(u, top["output_norm"])


@dataclass
class Target:
    """Top-level tensors and one dictionary a layer."""

    shape: Shape
    top: Params
    layers: list[Params]

    def trainable(self) -> dict[str, Tensor]:
        """Every tensor with a gradient by its GGUF name without `.weight`."""
        named = dict(self.top)
        for i, p in enumerate(self.layers):
            named.update({f"blk.{i}.{name}": t for name, t in p.items()})
        return {name: t for name, t in named.items() if t.requires_grad}

    def named(self) -> dict[str, Tensor]:
        """Every tensor, the router's biases and hash tables included."""
        named = dict(self.top)
        for i, p in enumerate(self.layers):
            named.update({f"blk.{i}.{name}": t for name, t in p.items()})
        return named


def from_named(shape: Shape, named: dict[str, Tensor]) -> Target:
    """The inverse of `Target.named`."""
    layers: list[Params] = [{} for _ in range(shape.layers)]
    top: Params = {}
    for name, tensor in named.items():
        if name.startswith("blk."):
            _, index, rest = name.split(".", 2)
            layers[int(index)][rest] = tensor
        else:
            top[name] = tensor
    return Target(shape, top, layers)


Layer = Callable[..., tuple[Tensor, Tensor, Tensor]]


def forward(
    target: Target,
    ids: Tensor,
    *,
    rounding: bool,
    dtype: torch.dtype = torch.float32,
    taps: int = 0,
    layer_fn: Layer = layer,
) -> tuple[Tensor, Tensor | None]:
    """Final rows (B, T, D) of token ids (B, T), and the stream means after the last `taps` layers
    side by side (B, T, taps * D)."""
    streams = embed(ids, target.top, dtype)
    means = []
    for i, p in enumerate(target.layers):
        streams, _, _ = layer_fn(
            streams, ids, p, target.shape.ratios[i], target.shape, rounding, True, False
        )
        if i >= target.shape.layers - taps:
            means.append(streams.float().mean(-2).to(dtype))
    return final_row(streams, target.top), torch.cat(means, -1) if taps else None


# --- parameters ------------------------------------------------------------------------------


def block_shapes(shape: Shape, ratio: int, count: int, width: int) -> dict[str, tuple[int, ...]]:
    """Shapes of one block's trained tensors; also a drafter stage's, with ratio 0."""
    s, mix = shape, 4 * shape.dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (s.dim,),
        "ffn_norm": (s.dim,),
        "attn_sinks": (s.heads,),
        "attn_q_a": (s.q_rank, s.dim),
        "attn_q_a_norm": (s.q_rank,),
        "attn_q_b": (s.heads * s.head_dim, s.q_rank),
        "attn_kv": (s.head_dim, s.dim),
        "attn_kv_a_norm": (s.head_dim,),
        "attn_output_a": (s.groups * s.out_rank, s.heads * s.head_dim // s.groups),
        "attn_output_b": (s.dim, s.groups * s.out_rank),
        "hc_attn_fn": (24, mix),
        "hc_attn_base": (24,),
        "hc_attn_scale": (3,),
        "hc_ffn_fn": (24, mix),
        "hc_ffn_base": (24,),
        "hc_ffn_scale": (3,),
        "ffn_gate_inp": (count, s.dim),
        "ffn_gate_exps": (count, width, s.dim),
        "ffn_up_exps": (count, width, s.dim),
        "ffn_down_exps": (count, s.dim, width),
        "ffn_gate_shexp": (width, s.dim),
        "ffn_up_shexp": (width, s.dim),
        "ffn_down_shexp": (s.dim, width),
    }
    if ratio:
        wide = s.head_dim * (2 if ratio == 4 else 1)
        shapes |= {
            "attn_compressor_kv": (wide, s.dim),
            "attn_compressor_gate": (wide, s.dim),
            "attn_compressor_ape": (ratio, wide),
            "attn_compressor_norm": (s.head_dim,),
        }
    if ratio == 4:
        wide = 2 * s.index_dim
        shapes |= {
            "indexer.attn_q_b": (s.index_heads * s.index_dim, s.q_rank),
            "indexer.proj": (s.index_heads, s.dim),
            "indexer_compressor_kv": (wide, s.dim),
            "indexer_compressor_gate": (wide, s.dim),
            "indexer_compressor_ape": (4, wide),
            "indexer_compressor_norm": (s.index_dim,),
        }
    return shapes


def fresh(name: str, size: tuple[int, ...], depth: int, rng: torch.Generator) -> Tensor:
    """The initial value of one tensor by the kind of its name."""
    if name.endswith("norm"):
        return torch.ones(size)
    if name.endswith(("sinks", "_ape", "head_base", "output_hc_base")):
        return torch.zeros(size)
    if name.endswith("_scale"):
        return torch.full(size, 0.3)
    if name.endswith("_base"):
        base = torch.zeros(size)
        base[8::5] = 3.0  # comb starts near the identity: a stream carries over to itself
        return base
    noise = torch.randn(size, generator=rng)
    if name == "token_embd":
        return 0.3 * noise
    if name == "output" or name.endswith("_fn"):
        return 0.02 * noise
    noise *= 0.8 / math.sqrt(size[-1])
    if name in ("attn_output_b", "ffn_down_exps", "ffn_down_shexp"):
        noise /= math.sqrt(2 * depth)
    return noise


def fresh_target(shape: Shape, seed: int, device: str) -> Target:
    """An untrained target; hash layers get random tables of distinct experts."""
    rng = torch.Generator().manual_seed(seed)

    def make(name: str, size: tuple[int, ...]) -> Tensor:
        return fresh(name, size, shape.layers, rng).to(device).requires_grad_()

    top = {
        "token_embd": make("token_embd", (shape.vocab, shape.dim)),
        "output": make("output", (shape.vocab, shape.dim)),
        "output_norm": make("output_norm", (shape.dim,)),
        "output_hc_fn": make("output_hc_fn", (4, 4 * shape.dim)),
        "output_hc_base": make("output_hc_base", (4,)),
        "output_hc_scale": make("output_hc_scale", (1,)),
    }
    layers = []
    for i, ratio in enumerate(shape.ratios):
        sizes = block_shapes(shape, ratio, shape.experts, shape.expert_dim)
        p = {name: make(name, size) for name, size in sizes.items()}
        if i < shape.hash_layers:
            table = torch.rand(shape.vocab, shape.experts, generator=rng).argsort(-1)
            p["ffn_gate_tid2eid"] = table[:, : shape.experts_used].to(device)
        else:
            p["exp_probs_b"] = torch.zeros(shape.experts, device=device)
        layers.append(p)
    return Target(shape, top, layers)
