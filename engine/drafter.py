"""The DSpark drafter: context rows from the target's taps, and a block of drafts.

A block `[anchor, noise, ...]` at positions L.. runs through the drafter's stages in one pass; its
rows see each other and the last `window` context rows, which end at position L - 1. The Markov head
and the confidence head are evaluated row by row, as far as they are asked. Owns no target state.
Source: DeepSeek-V4-Flash-DSpark's reference `inference/model.py`, as restated by public ports.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.buffers import Buffers
from engine.model import MAX_ROWS, Model
from engine.weights import DrafterWeights
from kernels.attention import attention
from kernels.attn_out import attn_out
from kernels.embedding import embed
from kernels.experts import mix_experts
from kernels.head import head
from kernels.hyper_connections import hc_head, hc_post, hc_pre
from kernels.linear import fixed_point_copy, linear_norm
from kernels.markov import confidence, markov_scores
from kernels.mode import EXACT
from kernels.qkv import Rounding, kv_rows, qkv
from kernels.router import route


class DrafterContext:
    """Context rows of one timeline: a ring per stage, rows of positions start..end - 1."""

    def __init__(self, rings: np.ndarray, start: int = 0, end: int = 0) -> None:
        self.rings = rings  # (stages, window + MAX_ROWS, head_dim)
        self.start = start
        self.end = end

    def clone(self) -> DrafterContext:
        """An independent copy."""
        return DrafterContext(self.rings.copy(), self.start, self.end)

    def take(self, position: int, rows: int) -> None:
        """Make room for rows from `position` on: later ones go, a gap empties the ring."""
        if not self.start <= position <= self.end:
            self.start = position
        highest = max(self.end, position + rows)
        self.start = max(self.start, highest - self.rings.shape[1])
        self.end = position + rows


class Drafter:
    """A loaded drafter; nothing about it changes after loading, its buffers apart.

    Raises:
        ValueError: when the model does not tap the layers that the drafter reads.
    """

    def __init__(self, weights: DrafterWeights, model: Model) -> None:
        config = weights.config
        if model.tap_layers != config.target_layers:
            raise ValueError(
                f"the drafter reads layers {config.target_layers}, the model taps "
                f"{model.tap_layers}"
            )
        self.config = config
        self.block_size = config.block_size
        self.noise_id = config.noise_id
        self.weights = weights
        self.model = model
        self.output = fixed_point_copy(model.weights.output)
        self._rounding: Rounding = "fp8" if model.rounded else "none"
        sizes = replace(
            model.sizes, vocab=0, experts_used=config.experts_used, selectable=0, taps=0
        )
        self._buffers = Buffers(config.block_size, sizes)
        self._block_rows = np.zeros((config.block_size, model.config.head_dim), np.float32)
        self._main = np.zeros((MAX_ROWS, model.config.dim), np.float32)

    def new_context(self) -> DrafterContext:
        """Empty rings."""
        rows = self.config.window + MAX_ROWS
        shape = (self.config.stages, rows, self.model.config.head_dim)
        return DrafterContext(np.zeros(shape, np.float32))

    def extend(self, context: DrafterContext, taps: np.ndarray, position: int) -> None:
        """Append the context rows of committed positions.

        Args:
            taps: (n, T * D) float32 of positions position..position + n - 1. Rows from `position`
                on are replaced; positions missing before it empty the context.
        """
        skipped = max(0, len(taps) - self.config.window)
        context.take(position + skipped, len(taps) - skipped)
        for first in range(skipped, len(taps), MAX_ROWS):
            part = np.ascontiguousarray(taps[first : first + MAX_ROWS], np.float32)
            self._extend(context, part, position + first)

    def _extend(self, context: DrafterContext, taps: np.ndarray, position: int) -> None:
        w, eps = self.weights, self.model.config.norm_eps
        main = self._main[: len(taps)]  # (n, D)
        linear_norm(taps, w.main_proj, w.main_norm, eps, main, EXACT)
        positions = np.arange(position, position + len(taps))
        for stage, ring in zip(w.stages, context.rings, strict=True):
            kv_rows(main, positions, stage.qkv, self.model.turns, eps, self._rounding, ring)

    def block(self, context: DrafterContext, anchor: int, position: int) -> Block:
        """Evaluate the block whose anchor is at `position`.

        Its rows see the context rows before `position`, the last `window` of them.
        """
        c, b, w, model = self.config, self._buffers, self.weights, self.model
        t, eps = model.config, model.config.norm_eps
        size = self.block_size
        b.ids[0], b.ids[1:] = anchor, self.noise_id
        b.positions[:] = range(position, position + size)
        end = min(context.end, position)
        spans = b.spans[0]
        spans[:] = max(context.start, end - c.window), end, size
        embed(b.ids, model.weights.embedding, b.streams)  # (B, 4 * D)
        for stage, ring in zip(w.stages, context.rings, strict=True):
            hc_pre(
                b.streams, stage.hc_attn, stage.attn_norm, eps, t.hc_eps, t.sinkhorn_iterations,
                b.x, b.post, b.comb, b.positions, EXACT,
            )  # fmt: skip
            qkv(
                b.x, b.positions, stage.qkv, model.turns, eps, t.heads, self._rounding, b.qr, b.q,
                self._block_rows, position, EXACT,
            )  # fmt: skip
            attention(
                b.q, ring, self._block_rows, spans, b.selected, b.all_rows, stage.sinks,
                b.positions, model.turns, b.o, EXACT,
            )  # fmt: skip
            attn_out(b.o, stage.attn_out, b.y, b.positions, EXACT)
            hc_post(b.y, b.post, b.comb, b.streams)
            hc_pre(
                b.streams, stage.hc_ffn, stage.ffn_norm, eps, t.hc_eps, t.sinkhorn_iterations,
                b.x, b.post, b.comb, b.positions, EXACT,
            )  # fmt: skip
            route(
                b.x, b.ids, stage.router, b.none_forced, t.expert_scale, b.experts,
                b.expert_weights, b.gaps, b.positions, EXACT,
            )  # fmt: skip
            mix_experts(
                b.x, b.experts, b.expert_weights, stage.experts, stage.clamp, b.y, False,
                b.positions, EXACT,
            )  # fmt: skip
            mix_experts(
                b.x, b.shared_expert, b.shared_weight, stage.shared, stage.clamp, b.y, True,
                b.positions, EXACT,
            )  # fmt: skip
            hc_post(b.y, b.post, b.comb, b.streams)
        hidden = np.empty((size, t.dim), np.float32)
        hc_head(b.streams, w.hc_head, eps, t.hc_eps, hidden, b.positions, EXACT)
        return Block(self, hidden)


class Block:
    """One evaluated block: hidden rows now, logits when first asked for.

    Args:
        hidden: (B, D) float32, collapsed streams before the final norm.
    """

    def __init__(self, drafter: Drafter, hidden: np.ndarray) -> None:
        self.hidden = hidden
        self._drafter = drafter
        self._logits: np.ndarray | None = None

    def confidence(self, row: int, previous: int) -> float:
        """Estimate of P(draft accepted | all before accepted); 1 without a confidence head.

        Args:
            row: 0..B - 1.
            previous: token before the draft: the anchor, then the draft of the row before.
        """
        w = self._drafter.weights
        if w.confidence is None:
            return 1.0
        bias = w.config.confidence_bias
        return confidence(self.hidden[row], w.markov_embedding, previous, w.confidence, bias)

    def logits(self, row: int) -> np.ndarray:
        """(V,) float32 without the Markov bias; not to be changed.

        The head runs once for all rows: reading its weights costs more than rows that a gate cuts.
        """
        if self._logits is None:
            w, model = self._drafter.weights, self._drafter.model
            rows = len(self.hidden)
            self._logits = np.empty((rows, model.config.vocab_size), np.float32)
            head(
                self.hidden, w.norm, self._drafter.output, model.config.norm_eps, self._logits,
                np.arange(rows), EXACT,
            )  # fmt: skip
        logits: np.ndarray = self._logits[row]
        return logits

    def scores(self, row: int, previous: int) -> tuple[np.ndarray, int]:
        """logits(row) with the Markov bias, (V,) float32, and its argmax (lower id on ties)."""
        w = self._drafter.weights
        scores = np.empty(self._drafter.model.config.vocab_size, np.float32)
        best = markov_scores(
            w.markov_embedding, previous, w.markov_output, self.logits(row), scores
        )
        return scores, best
