"""The target's forward, in execution order: one code for decode, verify and prefill.

Only the plan differs between them: it says which kernels' numerics each op class takes. Reads
weights, changes a `State`; knows neither files nor decoding. Comments give shapes: n rows, D model
width, S = 4 streams, H heads of hd, Q low rank, K experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from engine.arrays import HOST, Array, Arrays, copy_of, joined
from engine.buffers import Buffers, Sizes
from engine.choices import Choices
from engine.config import ModelConfig
from engine.errors import Ds4Error
from engine.paths import OP_CLASSES, Perturb, Plan
from engine.rope import rope_turns
from engine.rows import Rows
from engine.state import MAX_ROWS, LayerState, Layout, State, usual_context
from engine.weights import BlockWeights, TargetWeights
from kernels.attention import attention, key_spans
from kernels.attn_out import attn_out
from kernels.compressor import compress_layer
from kernels.embedding import embed
from kernels.experts import mix_all
from kernels.head import head
from kernels.hyper_connections import hc_head, hc_post, hc_pre, hc_turn, stream_mean
from kernels.indexer import select_rows
from kernels.mode import EXACT, TILES, Mode
from kernels.qkv import Rounding, qkv
from kernels.router import route

DEFAULT_TAPS = 3
"""Layers whose output is tapped when nothing else is asked for: the last three."""


class Modes(NamedTuple):
    """Numerics of every op class in one layer, in the order of `OP_CLASSES`."""

    hc: Mode
    qkv: Mode
    compressor: Mode
    indexer: Mode
    attention: Mode
    attn_out: Mode
    router: Mode
    experts: Mode
    shared: Mode
    head: Mode


class Model:
    """A loaded target; nothing about it changes after loading, its buffers apart.

    Args:
        kv_rounding: "fp8" = ds4's roundings of stored rows; "none" = none of them.
        max_rows: rows of one pass through the layers, at most MAX_ROWS.
        context: capacity of its states in tokens; `usual_context` when absent.
        tap_layers: layers whose output is tapped; the last three when absent.
        arrays: where everything is that is not weights; the weights are there too.
    """

    def __init__(
        self,
        weights: TargetWeights,
        config: ModelConfig,
        *,
        kv_rounding: str = "fp8",
        max_rows: int = MAX_ROWS,
        context: int | None = None,
        tap_layers: Sequence[int] | None = None,
        arrays: Arrays = HOST,
    ) -> None:
        if kv_rounding not in ("fp8", "none"):
            raise ValueError(f"kv_rounding is {kv_rounding!r}, expected 'fp8' or 'none'")
        if not 1 <= max_rows <= MAX_ROWS:
            raise ValueError(f"max_rows is {max_rows}, expected 1 to {MAX_ROWS}")
        if config.streams != 4:
            raise ValueError(f"{config.streams} hyper-connection streams, expected 4")
        self.arrays = arrays
        self.config = config
        self.weights = weights
        self.rounded = kv_rounding == "fp8"
        self._raw_rounding: Rounding = "fp8+f16" if self.rounded else "none"
        self.max_rows = max_rows
        self.context = context or usual_context(config)
        last = range(max(0, config.layers - DEFAULT_TAPS), config.layers)
        self.tap_layers = tuple(last if tap_layers is None else tap_layers)
        c, size = config, config.rope_dim
        self.turns = arrays.take(rope_turns(self.context + MAX_ROWS, size, c.rope_base, None))
        self.compress_turns = arrays.take(
            rope_turns(self.context, size, c.compress_rope_base, c.yarn)
        )
        self.sizes = Sizes(
            dim=c.dim,
            vocab=c.vocab_size,
            heads=c.heads,
            head_dim=c.head_dim,
            q_rank=c.q_rank,
            experts_used=c.experts_used,
            selectable=c.index_top_k if 4 in c.ratios else 0,
            taps=len(self.tap_layers),
        )
        self._layout = Layout(config, self.context, MAX_ROWS)
        self._buffers: dict[int, Buffers] = {}
        self._modes: dict[tuple[Plan, bool], tuple[Modes, ...]] = {}

    def new_state(self) -> State:
        """An empty timeline."""
        return State(self._layout, self._recompress, self.arrays)

    def forward(
        self,
        state: State,
        ids: Sequence[int],
        plan: Plan,
        *,
        all_logits: bool = True,
        record: Choices | None = None,
        pin: Choices | None = None,
        on_rows: Callable[[int, int], None] | None = None,
    ) -> Rows:
        """Evaluate `ids` at the state's position and after it, and advance the state.

        Args:
            plan: numerics of every op class; its fault injection needs two or more ids.
            all_logits: logits of every row, else of the last one only.
            record: takes the rows' discrete choices.
            pin: choices that rows take over, where its token is theirs at that position.
            on_rows: called with (rows done, rows in all) after every pass.
        Raises:
            ValueError: when there is nothing to evaluate, an id is not in the vocabulary, or the
                state has no room.
            Ds4Error: when logits are not finite; it names the layer where that began.
        """
        tokens = np.asarray(ids, np.int64)
        total = tokens.size
        if not total:
            raise ValueError("a forward needs at least one token id")
        if state.position + total > state.context:
            raise ValueError(
                f"{total} tokens at position {state.position} exceed the context of "
                f"{state.context} tokens"
            )
        if min(ids) < 0 or max(ids) >= self.config.vocab_size:
            raise ValueError(f"token ids must be in 0..{self.config.vocab_size - 1}")
        modes = self._modes_of(plan, total > 1)
        state.tiles = plan.path == "invariant"
        if total <= self.max_rows:
            rows = self._pass(state, tokens, modes, all_logits, record, pin)
            if on_rows is not None:
                on_rows(total, total)
            return rows
        logits, taps = [], []
        for start in range(0, total, self.max_rows):
            chunk = tokens[start : start + self.max_rows]
            last = start + chunk.size == total
            rows = self._pass(state, chunk, modes, all_logits, record, pin, head_too=last)
            if all_logits or last:
                logits.append(np.array(rows.logits))
            taps.append(copy_of(rows.taps))
            if on_rows is not None:
                on_rows(start + chunk.size, total)
        return Rows(np.concatenate(logits), joined(taps))

    def _pass(
        self,
        state: State,
        tokens: np.ndarray,
        modes: tuple[Modes, ...],
        all_logits: bool,
        record: Choices | None,
        pin: Choices | None,
        head_too: bool = True,
    ) -> Rows:
        """One pass of at most `max_rows` rows through all layers, and the head."""
        n = tokens.size
        b = self._buffers_of(n)
        wanted = self._buffers_of(n if all_logits else 1)
        headed = all_logits or head_too
        self.arrays.write(b.inputs, (tokens, range(state.position, state.position + n)))
        if record is not None:
            record.begin(state.position, tokens)
        chosen = self._has_choice(state.position + n)

        def work() -> Any:
            self.arrays.send(b.inputs)
            self._run_layers(state, b, modes, chosen, record, pin)
            if not headed:
                return None
            bad = self._run_head(b, wanted, modes[-1].head)
            return self.arrays.found(wanted.logits, bad)

        # What a diagnosis reads or changes on the way is never replayed.
        once = record is not None or pin is not None
        key = (id(state.memory), n, all_logits, headed, chosen, id(modes))
        found = self.arrays.run(None if once else key, work)
        state.position += n

        def failure() -> Ds4Error:
            state.position -= n
            return self._not_finite(state, b, modes, chosen, pin)

        rows: Rows = self.arrays.rows(wanted.logits, b.taps, found, failure)
        return rows

    def _run_layers(
        self,
        state: State,
        b: Buffers,
        modes: tuple[Modes, ...],
        chosen: bool,
        record: Choices | None = None,
        pin: Choices | None = None,
        watch: Callable[[int], None] | None = None,
    ) -> None:
        """All layers of one pass, in order; `watch` is called after each with its number.

        Args:
            chosen: a row sees more compressed rows than the indexer selects.
        """
        c, w, eps = self.config, self.weights, self.config.norm_eps
        embed(b.ids, w.embedding, b.streams)  # (n, S * D)
        for ratio, spans in b.spans.items():
            key_spans(b.positions, c.window, ratio, spans)
        inputs = state.inputs(len(b.ids))
        hc_pre(
            b.streams, w.layers[0].hc_attn, w.layers[0].attn_norm, eps, c.hc_eps,
            c.sinkhorn_iterations, inputs[0], b.post, b.comb, b.positions, modes[0].hc,
        )  # fmt: skip
        for layer, block in enumerate(w.layers):
            m, s = modes[layer], state.layers[layer]
            x = inputs[layer]  # (n, D), kept in the state for a re-projection
            y = self._attend(b, block, s, layer, x, m, chosen, record, pin)
            hc_turn(
                y, b.streams, block.hc_ffn, block.ffn_norm, eps, c.hc_eps,
                c.sinkhorn_iterations, b.x, b.post, b.comb, b.positions, m.hc,
            )  # fmt: skip
            y = self._feed_forward(b, block, layer, m, record, pin)
            if layer + 1 < c.layers:
                after = w.layers[layer + 1]
                hc_turn(
                    y, b.streams, after.hc_attn, after.attn_norm, eps, c.hc_eps,
                    c.sinkhorn_iterations, inputs[layer + 1], b.post, b.comb, b.positions,
                    modes[layer + 1].hc,
                )  # fmt: skip
            else:
                hc_post(y, b.post, b.comb, c.hc_eps, c.sinkhorn_iterations, b.streams)
            if layer in self.tap_layers:
                stream_mean(b.streams, b.taps, self.tap_layers.index(layer) * c.dim)
            if watch is not None:
                watch(layer)

    def _attend(
        self,
        b: Buffers,
        block: BlockWeights,
        s: LayerState,
        layer: int,
        x: Array,
        m: Modes,
        chosen: bool,
        record: Choices | None,
        pin: Choices | None,
    ) -> Array:
        """Attention sub-layer of its normed input x: (n, D), or pieces of it."""
        c, eps = self.config, self.config.norm_eps
        ratio = block.ratio
        turns = self.compress_turns if ratio else self.turns
        indexer = block.indexer if chosen else None
        counts = b.all_rows if indexer is None else b.counts

        def compressed_rows() -> None:
            if ratio:
                self._compress(block, s, x, b.positions, m.compressor)
            if indexer is not None:
                select_rows(
                    x, b.qr, b.positions, indexer, turns, c.index_heads, ratio, c.index_top_k,
                    self.rounded, s.index, b.selected, counts, b.gaps, m.indexer,
                )  # fmt: skip

        qkv(
            x, b.positions, block.qkv, turns, eps, c.heads, self._raw_rounding, b.qr, b.q, s.raw,
            b.origin, m.qkv, beside=compressed_rows,
        )  # fmt: skip
        if indexer is not None and pin is not None:
            self._pin_rows(b, layer, pin)
        if indexer is not None and record is not None:
            self._note(record, layer, "indexer", b.selected, b.gaps, counts)
        attention(
            b.q, s.raw, s.comp, b.spans[ratio], b.selected, counts, block.sinks, b.positions,
            turns, eps, b.o, m.attention,
            reach=(c.window, c.index_top_k if ratio == 4 else s.comp.shape[0]),
            ratio=ratio if indexer is None else 0,
        )  # fmt: skip
        return attn_out(b.o, block.attn_out, b.y, b.positions, m.attn_out)

    def _compress(
        self, block: BlockWeights, s: LayerState, x: Array, positions: Array, mode: Mode
    ) -> None:
        """Both compressors of a layer: projections into the frontier, completed rows."""
        if block.compressor is None:
            return
        compress_layer(
            x, positions, block.compressor, block.index_compressor, self.compress_turns,
            self.config.norm_eps, block.ratio, self.rounded, s, mode,
        )  # fmt: skip

    def _feed_forward(
        self,
        b: Buffers,
        block: BlockWeights,
        layer: int,
        m: Modes,
        record: Choices | None,
        pin: Choices | None,
    ) -> Array:
        """Mixture-of-experts sub-layer of its normed input b.x: (n, D), or pieces of it."""
        forced = b.none_forced if pin is None else self._pinned_experts(b, layer, pin)
        route(
            b.x, b.ids, block.router, forced, self.config.expert_scale, b.experts,
            b.expert_weights, b.gaps, b.positions, m.router,
        )  # fmt: skip
        if record is not None:
            self._note(record, layer, "router", b.experts, b.gaps)
        return mix_all(
            b.x, b.experts, b.expert_weights, block.experts, block.shared, b.shared_expert,
            b.shared_weight, block.clamp, b.y, b.positions, m.experts, m.shared,
        )  # fmt: skip

    def _run_head(self, b: Buffers, wanted: Buffers, mode: Mode) -> Any:
        """Logits of the last rows of b into `wanted`; which rows are not finite."""
        c, w = self.config, self.weights
        n = len(wanted.ids)
        streams, positions = b.streams[-n:], b.positions[-n:]
        hc_head(streams, w.hc_head, c.norm_eps, c.hc_eps, wanted.hidden, positions, mode)
        return head(wanted.hidden, w.norm, w.output, c.norm_eps, wanted.logits, positions, mode)

    def _has_choice(self, end: int) -> bool:
        """Whether the row before position `end` sees more rows than the indexer selects."""
        return 4 in self.config.ratios and end // 4 > self.config.index_top_k

    def _note(self, record: Choices, layer: int, kind: str, *found: Array) -> None:
        record.note(layer, kind, *(self.arrays.host(array) for array in found))

    def _recompress(self, state: State, position: int, rows: int) -> None:
        """Re-run the compressors of `rows` rows by the decode path, on the captured inputs."""
        if not rows:
            return
        b = self._buffers_of(rows)
        self.arrays.put(b.positions, range(position, position + rows))
        mode = TILES if state.tiles else EXACT

        def work() -> None:
            inputs = state.inputs(rows)
            for block, s, x in zip(self.weights.layers, state.layers, inputs, strict=True):
                self._compress(block, s, x, b.positions, mode)

        self.arrays.run((id(state.memory), rows, "recompress", mode), work)

    def _buffers_of(self, n: int) -> Buffers:
        b = self._buffers.get(n)
        if b is None:
            b = self._buffers[n] = Buffers(n, self.sizes, self.arrays)
        return b

    def _modes_of(self, plan: Plan, several: bool) -> tuple[Modes, ...]:
        """Every layer's modes under a plan; fault injection only where there are several rows."""
        found = self._modes.get((plan, several))
        if found is None:
            perturb = plan.perturb if several else None
            found = tuple(_layer_modes(plan, perturb, layer) for layer in range(self.config.layers))
            self._modes[plan, several] = found
        return found

    def _not_finite(
        self,
        state: State,
        b: Buffers,
        modes: tuple[Modes, ...],
        chosen: bool,
        pin: Choices | None,
    ) -> Ds4Error:
        """The error for logits that are not finite: runs the layers again to find the first."""
        bad: list[int] = []

        def watch(layer: int) -> None:
            if not bad and not np.isfinite(self.arrays.host(b.streams)).all():
                bad.append(layer)

        self._run_layers(state, b, modes, chosen, None, pin, watch)
        where = f"layer {bad[0]}" if bad else "the output head"
        return Ds4Error(
            "Logits not finite",
            f"Tokens {state.position} to {state.position + len(b.ids) - 1} gave logits with a NaN "
            f"or an infinity, expected finite numbers; it first appeared in {where}.",
            "The weights are damaged, or too large for this numerics.",
        )

    def _pin_rows(self, b: Buffers, layer: int, pin: Choices) -> None:
        """Take over recorded indexer rows, where the pinned token is the row's."""
        host = self.arrays.host
        ids, selected, counts = host(b.ids), host(b.selected), host(b.counts)
        for r, position in enumerate(host(b.positions).tolist()):
            if "indexer" in pin.kinds and pin.token(position) == ids[r]:
                rows = pin.at(position).get((layer, "indexer"), ())
                if rows and counts[r] >= 0:
                    selected[r, : len(rows)] = rows
                    counts[r] = len(rows)
        self.arrays.put(b.selected, selected)
        self.arrays.put(b.counts, counts)

    def _pinned_experts(self, b: Buffers, layer: int, pin: Choices) -> Array:
        """(n, K) recorded experts where the pinned token is the row's, -1 elsewhere."""
        ids, forced = self.arrays.host(b.ids), np.array(self.arrays.host(b.none_forced))
        for r, position in enumerate(self.arrays.host(b.positions).tolist()):
            if "router" in pin.kinds and pin.token(position) == ids[r]:
                experts = pin.at(position).get((layer, "router"), ())
                if experts:
                    forced[r] = experts
        return self.arrays.take(forced)


def _layer_modes(plan: Plan, perturb: Perturb | None, layer: int) -> Modes:
    modes = []
    for op_class in OP_CLASSES:
        path = plan.path_of(op_class)
        batch = path == "batch"
        ulps = salt = 0
        if perturb is not None and perturb.op_class == op_class:
            ulps = perturb.ulps
            place = layer * len(OP_CLASSES) + OP_CLASSES.index(op_class)
            salt = perturb.seed * 0x632BE59BD9B4E019 + place * 0x9E6C63D0876A9A47
        invariant = path == "invariant"
        # Q8_0 products; a batch that rounds its rows gains more from their speed than from F16.
        fixed: Literal[0, 16] = 16 if invariant or (batch and plan.round_rows) else 0
        modes.append(Mode(batch, batch and plan.round_rows, ulps, salt, invariant, fixed))
    return Modes(*modes)
