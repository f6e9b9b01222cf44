"""Greedy generation of thousands of rows side by side, one token a step, with a KV cache.

All rows are at the same position: prompts are fed token by token and each row switches to its
own choices when its prompt ends. So one CUDA graph a step kind serves the whole run. Owns the
no-repeat rule of the generator. The numbers equal `target.forward` up to summation order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.tiny_model.rounding import fp4_block, fp8_row, hadamard
from tools.tiny_model.target import (
    Params,
    Target,
    angles,
    embed,
    experts,
    final_row,
    hc_in,
    hc_out,
    linear,
    output_projection,
    rms_norm,
    rotate,
)


@dataclass
class LayerCache:
    """What one layer keeps: a ring of raw rows, rings of compressor inputs, compressed rows."""

    raw: Tensor
    """(N, W, hd)"""
    rings: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Compressor name -> values and gate scores, (N, 8 or 128, c * d)"""
    rows: dict[str, Tensor] = field(default_factory=dict)
    """Compressor name -> (N, C, d)"""


class Cache:
    """The state of N rows; `position` is a device tensor so that a graph can read it."""

    def __init__(self, target: Target, rows: int, length: int) -> None:
        s = target.shape
        device, dtype = target.top["output"].device, torch.float32
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.layers = []
        for ratio in s.ratios:
            cache = LayerCache(torch.zeros(rows, s.window, s.head_dim, device=device, dtype=dtype))
            names = {4: ("attn_compressor", "indexer_compressor"), 128: ("attn_compressor",)}
            for name in names.get(ratio, ()):
                d = s.head_dim if name == "attn_compressor" else s.index_dim
                size = (rows, 8, 2 * d) if ratio == 4 else (rows, ratio, d)
                scores = torch.full(size, float("-inf"), device=device, dtype=dtype)
                cache.rings[name] = (torch.zeros_like(scores), scores)
                cache.rows[name] = torch.zeros(
                    rows, -(-length // ratio), d, device=device, dtype=dtype
                )
            self.layers.append(cache)

    def reset(self) -> None:
        """Back to position 0; everything else is overwritten before it becomes visible."""
        self.position.zero_()
        for cache in self.layers:
            for _, scores in cache.rings.values():
                scores.fill_(float("-inf"))


def _store_and_pool(
    x: Tensor,
    p: Params,
    name: str,
    ratio: int,
    cache: LayerCache,
    position: Tensor,
    emit: bool,
    target: Target,
    rounding: bool,
) -> None:
    """Adds this token to the compressor's ring; at a window's end writes the compressed row."""
    s = target.shape
    values, scores = cache.rings[name]
    ring = values.shape[1]
    slot = position % ring
    values.index_copy_(1, slot, linear(x, p[f"{name}_kv"])[:, None])
    gate = linear(x, p[f"{name}_gate"]) + p[f"{name}_ape"][position % ratio]
    scores.index_copy_(1, slot, gate[:, None])
    if not emit:
        return
    window = position // ratio
    if ratio == 4:
        d = values.shape[-1] // 2
        four = torch.arange(4, device=x.device)
        now, before = window % 2 * 4 + four, (window + 1) % 2 * 4 + four
        kv = torch.cat([values[:, before, :d], values[:, now, d:]], 1)
        gate = torch.cat([scores[:, before, :d], scores[:, now, d:]], 1)
    else:
        kv, gate = values, scores
    row = rms_norm((kv * torch.softmax(gate, 1)).sum(1, keepdim=True), p[f"{name}_norm"])
    row = rotate(row, *angles(window * ratio, s.compress_rope_base, s.rope_dim))
    if rounding and name == "attn_compressor":
        row = fp8_row(row, s.rope_dim, half=False)
    elif rounding:
        row = fp4_block(row @ hadamard(s.index_dim, row.device, row.dtype))
    cache.rows[name].index_copy_(1, window, row)


def _selected(
    x: Tensor,
    q_low: Tensor,
    p: Params,
    cache: LayerCache,
    target: Target,
    visible: Tensor,
    cos: Tensor,
    sin: Tensor,
    rounding: bool,
) -> Tensor:
    """(N, C) mask of the compressed rows that the indexer picks among the visible ones."""
    s = target.shape
    rows = cache.rows["indexer_compressor"]
    if rows.shape[1] <= s.index_top_k:
        return visible
    q = linear(q_low, p["indexer.attn_q_b"]).unflatten(-1, (s.index_heads, s.index_dim))
    q = rotate(q, cos, sin)
    if rounding:
        q = fp4_block(q @ hadamard(s.index_dim, q.device, q.dtype))
    weight = linear(x, p["indexer.proj"]) * (s.index_heads * s.index_dim) ** -0.5
    rank = (F.relu(q @ rows.transpose(-1, -2)) * weight[..., None]).sum(1)
    rank = rank.masked_fill(~visible, -1e4)
    return visible & (rank >= rank.topk(s.index_top_k, -1).values[:, -1:])


def _attention(
    x: Tensor,
    p: Params,
    ratio: int,
    cache: LayerCache,
    position: Tensor,
    emit: bool,
    target: Target,
    rounding: bool,
) -> Tensor:
    s = target.shape
    base = s.compress_rope_base if ratio else s.rope_base
    cos, sin = angles(position, base, s.rope_dim)  # (1, R / 2)
    q_low = rms_norm(linear(x, p["attn_q_a"]), p["attn_q_a_norm"])
    q = rotate(
        rms_norm(linear(q_low, p["attn_q_b"]).unflatten(-1, (s.heads, s.head_dim))), cos, sin
    )
    kv = rotate(rms_norm(linear(x, p["attn_kv"]), p["attn_kv_a_norm"]), cos, sin)
    if rounding:
        kv = fp8_row(kv, s.rope_dim, half=True)
    cache.raw.index_copy_(1, position % s.window, kv[:, None])
    keys, mask = cache.raw, torch.arange(s.window, device=x.device)[None] <= position[:, None]
    if ratio:
        _store_and_pool(x, p, "attn_compressor", ratio, cache, position, emit, target, rounding)
        rows = cache.rows["attn_compressor"]
        count = (position[:, None] + 1) // ratio
        seen = (torch.arange(rows.shape[1], device=x.device)[None] < count).expand(len(x), -1)
        if ratio == 4:
            _store_and_pool(x, p, "indexer_compressor", 4, cache, position, emit, target, rounding)
            seen = _selected(x, q_low, p, cache, target, seen, cos, sin, rounding)
        keys, mask = torch.cat([keys, rows], 1), torch.cat([mask.expand(len(x), -1), seen], 1)
    scores = (q @ keys.transpose(-1, -2)) * s.head_dim**-0.5
    scores = scores.masked_fill(~mask[:, None], float("-inf"))
    sink = p["attn_sinks"][None, :, None].expand(len(x), -1, 1)
    weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
    return output_projection(rotate(weights @ keys, cos, -sin), p, s)


def step(
    target: Target, cache: Cache, ids: Tensor, emit4: bool, emit128: bool, rounding: bool
) -> Tensor:
    """Logits (N, V) after feeding one token a row; advances the cache.

    `emit4` and `emit128` say whether a window of that length ends here (position % r == r - 1).
    """
    streams = embed(ids, target.top, torch.float32)
    emits = {0: False, 4: emit4, 128: emit128}
    for p, ratio, cached in zip(target.layers, target.shape.ratios, cache.layers, strict=True):
        x, post, comb = hc_in(streams, p, "attn", target.shape)
        x = rms_norm(x, p["attn_norm"])
        y = _attention(x, p, ratio, cached, cache.position, emits[ratio], target, rounding)
        streams = hc_out(y, streams, post, comb)
        x, post, comb = hc_in(streams, p, "ffn", target.shape)
        y, _ = experts(rms_norm(x, p["ffn_norm"]), ids, p, target.shape.experts_used, target.shape)
        streams = hc_out(y, streams, post, comb)
    cache.position += 1
    return linear(final_row(streams, target.top), target.top["output"])


class NoRepeat:
    """Which tokens would complete an N-gram that a row has generated before (the prompt is no
    history), kept as hashes of the last N - 1 generated tokens."""

    def __init__(self, n: int, rows: int, length: int, device: torch.device) -> None:
        rng = torch.Generator().manual_seed(7)
        factors = torch.randint(-(2**62), 2**62, (n - 1,), generator=rng, dtype=torch.long)
        self.factors = (factors | 1).to(device)
        self.hashes = torch.zeros(rows, length, dtype=torch.long, device=device)
        self.places = torch.arange(length, device=device)

    def banned(
        self, tokens: Tensor, prompt_lengths: Tensor, position: Tensor, vocab: int
    ) -> Tensor:
        """(N, length) token ids, `vocab` where nothing is banned.

        Args:
            tokens: (N, length + 1) of which 0..position are known.
            position: (1,) the last known place.
        """
        width = len(self.factors)
        window = (position - width + 1 + torch.arange(width, device=tokens.device)).clamp_min(0)
        now = (tokens[:, window] * self.factors).sum(-1)
        self.hashes.index_copy_(1, position, now[:, None])
        whole = self.places[None] - (width - 1) >= prompt_lengths[:, None]
        earlier = self.places[None] < position
        grown = position - (width - 1) >= prompt_lengths  # (N,): the last N - 1 are all generated
        hit = (self.hashes == now[:, None]) & whole & earlier & grown[:, None]
        return torch.where(hit, tokens[:, 1:], vocab)


@dataclass
class Generated:
    """Rows of tokens and what was seen while choosing them (CPU tensors)."""

    tokens: Tensor
    """(N, length) int64, prompt included"""
    prompt_lengths: Tensor
    """(N,)"""
    banned: Tensor
    """(N, length, MAX_BANNED) what was banned when this token was chosen, -1 where nothing"""
    margins: Tensor
    """(N, length) difference of the two best logits, float32"""


MAX_BANNED = 6
"""Banned tokens remembered a step; more are rare."""


class Generator:
    """Reusable buffers and CUDA graphs for a fixed number of rows and length."""

    def __init__(
        self, target: Target, rows: int, length: int, *, rounding: bool, no_repeat: int
    ) -> None:
        device = target.top["output"].device
        self.target, self.length, self.rounding = target, length, rounding
        self.cache = Cache(target, rows, length)
        self.rule = NoRepeat(no_repeat, rows, length, device) if no_repeat else None
        self.tokens = torch.zeros(rows, length + 1, dtype=torch.long, device=device)
        self.prompts = torch.ones(rows, dtype=torch.long, device=device)
        self.banned = torch.full(
            (rows, length + 1, MAX_BANNED), -1, dtype=torch.int32, device=device
        )
        self.margins = torch.zeros(rows, length + 1, device=device)
        self.graphs: dict[tuple[bool, bool], torch.cuda.CUDAGraph] = {}

    def _step(self, emit4: bool, emit128: bool) -> None:
        at = self.cache.position.clone()
        logits = step(
            self.target,
            self.cache,
            self.tokens.index_select(1, at)[:, 0],
            emit4,
            emit128,
            self.rounding,
        )
        vocab = logits.shape[-1]
        if self.rule:
            banned = self.rule.banned(self.tokens, self.prompts, at, vocab)
            logits = F.pad(logits, (0, 1)).scatter(1, banned, float("-inf"))[:, :vocab]
            some = torch.where(banned == vocab, -1, banned).topk(MAX_BANNED, -1).values
            self.banned.index_copy_(1, at + 1, some.int()[:, None])
        best = logits.topk(2, -1)
        self.margins.index_copy_(1, at + 1, (best.values[:, :1] - best.values[:, 1:]))
        given = self.tokens.index_select(1, at + 1)
        chosen = torch.where(at + 1 < self.prompts[:, None], given, best.indices[:, :1])
        self.tokens.index_copy_(1, at + 1, chosen)

    @torch.no_grad()
    def run(self, prompts: list[list[int]]) -> Generated:
        """Continues every prompt greedily to `length` tokens, end tokens notwithstanding."""
        assert len(prompts) <= len(self.tokens), "more prompts than rows"
        self.cache.reset()
        self.tokens.zero_()
        self.prompts.fill_(1)
        self.banned.fill_(-1)
        rows = torch.zeros(len(prompts), self.length + 1, dtype=torch.long)
        for i, prompt in enumerate(prompts):
            rows[i, : min(len(prompt), self.length)] = torch.tensor(prompt[: self.length])
        self.tokens[: len(prompts)] = rows.to(self.tokens.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        self.prompts[: len(prompts)] = lengths.to(self.prompts.device)
        for i in range(self.length):
            self._advance(i % 4 == 3, i % 128 == 127)
        n = len(prompts)
        return Generated(
            self.tokens[:n, : self.length].cpu(),
            lengths,
            self.banned[:n, : self.length].cpu(),
            self.margins[:n, : self.length].cpu(),
        )

    def _advance(self, emit4: bool, emit128: bool) -> None:
        if not self.tokens.is_cuda:
            self._step(emit4, emit128)
            return
        key = (emit4, emit128)
        if key not in self.graphs:
            self._capture(key)
        self.graphs[key].replay()

    def _capture(self, key: tuple[bool, bool]) -> None:
        """Captures the step; the warm-up runs it, so what it changed is put back."""
        kept = [t.clone() for t in self._state()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._step(*key)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(*key)
        for tensor, old in zip(self._state(), kept, strict=True):
            tensor.copy_(old)
        self.graphs[key] = graph

    def _state(self) -> list[Tensor]:
        state = [self.cache.position, self.tokens, self.banned, self.margins]
        if self.rule:
            state.append(self.rule.hashes)
        for cache in self.cache.layers:
            state += [
                cache.raw,
                *cache.rows.values(),
                *(t for r in cache.rings.values() for t in r),
            ]
        return state
