"""The DSpark drafter: context rows from the target's taps, and a block of drafts.

A block `[anchor, noise, ...]` at positions L.. runs through the drafter's stages in one pass; its
rows see each other and the last `window` context rows, which end at position L - 1. What follows
(the head, then row by row the Markov and the confidence head) is `engine.block`'s. Owns no target
state.
Source: DeepSeek-V4-Flash-DSpark's reference `inference/model.py`, as restated by public ports.
"""

from __future__ import annotations

import math
from dataclasses import replace

from engine.arrays import Array, Arrays
from engine.block import Block
from engine.buffers import Buffers
from engine.draft_vocabulary import DraftVocabulary
from engine.model import Model
from engine.state import MAX_ROWS
from engine.weights import DrafterWeights
from kernels.attention import attention
from kernels.attn_out import attn_out
from kernels.embedding import embed
from kernels.experts import mix_all
from kernels.hyper_connections import hc_head, hc_post, hc_pre, hc_turn
from kernels.linear import linear_norm
from kernels.mode import DRAFT
from kernels.qkv import Rounding, kv_rows, qkv
from kernels.router import route


class DrafterContext:
    """Context rows of one timeline: a ring per stage, rows of positions start..end - 1."""

    def __init__(
        self,
        arrays: Arrays,
        shape: tuple[int, int, int],
        like: Array | None = None,
        start: int = 0,
        end: int = 0,
    ) -> None:
        self._arrays = arrays
        self.memory = arrays.memory(self, math.prod(shape) if like is None else like)
        self.rings = self.memory.reshape(shape)  # (stages, window + MAX_ROWS, head_dim)
        self.start = start
        self.end = end

    def clone(self) -> DrafterContext:
        """An independent copy."""
        shape = tuple(self.rings.shape)
        return DrafterContext(self._arrays, shape, self.memory, self.start, self.end)

    def take(self, position: int, rows: int) -> None:
        """Make room for rows from `position` on: later ones go, a gap empties the ring."""
        if not self.start <= position <= self.end:
            self.start = position
        highest = max(self.end, position + rows)
        self.start = max(self.start, highest - self.rings.shape[1])
        self.end = position + rows


class Drafter:
    """A loaded drafter; nothing about it changes after loading, its buffers apart.

    Attributes:
        output: the head, its own or its target's, packed (Vd, D).
        vocabulary: the tokens of the head's rows.

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
        self.window = config.window
        self.weights = weights
        self.model = model
        self._rounding: Rounding = "fp8" if model.rounded else "none"
        sizes = replace(
            model.sizes, vocab=0, experts_used=config.experts_used, selectable=0, taps=0
        )
        arrays = self._arrays = model.arrays
        self.output = model.weights.output if weights.output is None else weights.output
        drafted = None if weights.vocabulary is None else arrays.host(weights.vocabulary)
        self.vocabulary = DraftVocabulary(model.config.vocab_size, drafted)
        self._buffers = Buffers(config.block_size, sizes, arrays)
        self._block_rows = arrays.zeros((config.block_size, model.config.head_dim))
        self._main = arrays.zeros((MAX_ROWS, model.config.dim))
        self._taps = arrays.zeros((MAX_ROWS, len(config.target_layers) * model.config.dim))
        self._places = arrays.zeros((MAX_ROWS,), "int64")
        self._blocks = arrays.blocks(self, self._buffers.hidden)

    def new_context(self) -> DrafterContext:
        """Empty rings."""
        rows = self.window + MAX_ROWS
        shape = (self.config.stages, rows, self.model.config.head_dim)
        return DrafterContext(self._arrays, shape)

    def extend(self, context: DrafterContext, taps: Array, position: int) -> None:
        """Append the context rows of committed positions.

        Args:
            taps: (n, T * D) float32 of positions position..position + n - 1. Rows from `position`
                on are replaced; positions missing before it empty the context.
        """
        skipped = max(0, len(taps) - self.window)
        context.take(position + skipped, len(taps) - skipped)
        for first in range(skipped, len(taps), MAX_ROWS):
            self._extend(context, taps[first : first + MAX_ROWS], position + first)

    def _extend(self, context: DrafterContext, taps: Array, position: int) -> None:
        w, eps, rows = self.weights, self.model.config.norm_eps, len(taps)
        self._taps[:rows] = taps
        self._arrays.put(self._places[:rows], range(position, position + rows))

        def work() -> None:
            main, places = self._main[:rows], self._places[:rows]  # (n, D), (n,)
            linear_norm(self._taps[:rows], w.main_proj, w.main_norm, eps, main, DRAFT)
            for stage, ring in zip(w.stages, context.rings, strict=True):
                kv_rows(main, places, stage.qkv, self.model.turns, eps, self._rounding, ring, DRAFT)

        self._arrays.run((id(self), id(context.memory), rows), work)

    def block(
        self,
        context: DrafterContext,
        anchor: int,
        position: int,
        rows: int | None = None,
        gate: float = 0.0,
    ) -> Block:
        """Evaluate the block whose anchor is at `position`.

        Its rows see the context rows before `position`, the last `window` of them.

        Args:
            rows: most drafts that will be asked for; None = the whole block.
            gate: confidence below which none will be; 0 = no gate.
        """
        b, size = self._buffers, self.block_size
        ids = [anchor] + [self.noise_id] * (size - 1)
        self._arrays.put(b.inputs, (ids, range(position, position + size)))
        end = min(context.end, position)
        span = max(context.start, end - self.window), end, size
        self._arrays.put(b.spans[0], [span] * size)
        b.origin = self._arrays.scalar(position, b.origin)
        return self._blocks.make(context, anchor, size if rows is None else rows, gate)

    def draft(
        self, context: DrafterContext, anchor: int, position: int
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """A whole block's drafts without any rule, and their confidences."""
        found = self.block(context, anchor, position).found
        return tuple(found.tokens[1:]), tuple(found.confidences)

    def evaluate(self, context: DrafterContext) -> Buffers:
        """The block's hidden rows, from the buffers' ids, positions, spans and origin.

        Returns:
            The buffers that hold them.
        """
        b, w, model = self._buffers, self.weights, self.model
        t, eps = model.config, model.config.norm_eps
        embed(b.ids, model.weights.embedding, b.streams)  # (B, 4 * D)
        for stage, ring in zip(w.stages, context.rings, strict=True):
            hc_pre(
                b.streams, stage.hc_attn, stage.attn_norm, eps, t.hc_eps, t.sinkhorn_iterations,
                b.x, b.post, b.comb, b.positions, DRAFT,
            )  # fmt: skip
            qkv(
                b.x, b.positions, stage.qkv, model.turns, eps, t.heads, self._rounding, b.qr, b.q,
                self._block_rows, b.origin, DRAFT,
            )  # fmt: skip
            attention(
                b.q, ring, self._block_rows, b.spans[0], b.selected, b.all_rows, stage.sinks,
                b.positions, model.turns, eps, b.o, DRAFT,
                reach=(self.window, self.block_size),
            )  # fmt: skip
            y = attn_out(b.o, stage.attn_out, b.y, b.positions, DRAFT)
            hc_turn(
                y, b.streams, stage.hc_ffn, stage.ffn_norm, eps, t.hc_eps,
                t.sinkhorn_iterations, b.x, b.post, b.comb, b.positions, DRAFT,
            )  # fmt: skip
            route(
                b.x, b.ids, stage.router, b.none_forced, t.expert_scale, b.experts,
                b.expert_weights, b.gaps, b.positions, DRAFT,
            )  # fmt: skip
            y = mix_all(
                b.x, b.experts, b.expert_weights, stage.experts, stage.shared, b.shared_expert,
                b.shared_weight, stage.clamp, b.y, b.positions, DRAFT, DRAFT,
            )  # fmt: skip
            hc_post(y, b.post, b.comb, t.hc_eps, t.sinkhorn_iterations, b.streams)
        hc_head(b.streams, w.hc_head, eps, t.hc_eps, b.hidden, b.positions, DRAFT)
        return b
