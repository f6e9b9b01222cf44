"""A drafter's blocks on the CPU: one compiled call from the hidden rows to the last draft.

The head runs once for all rows, and only when the first confidence passes the gate: reading its
weights costs more than rows that a gate cuts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.arrays import Array
from engine.block import Block, Found
from kernels.head import head
from kernels.markov import chain
from kernels.mode import DRAFT

if TYPE_CHECKING:
    from engine.drafter import Drafter, DrafterContext


class HostChain:
    """Static memory of one drafter's chains, and the work on it."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        rows, vocab = drafter.block_size, drafter.vocabulary.rows
        self._logits = np.empty((rows, vocab), np.float32)
        self._scores = np.empty(vocab, np.float32)
        self._tokens = np.zeros(rows + 1, np.int64)
        self._confidences = np.zeros(rows, np.float64)
        self._positions = np.arange(rows)  # what fault injection asks for; drafts have none
        self._hidden = np.zeros(0, np.float32)
        self._headed = False

    def block(self, context: DrafterContext, anchor: int, rows: int, gate: float) -> Block:
        """Evaluate the block whose ids, positions and spans are in the drafter's buffers.

        Args:
            rows: most drafts to look for.
            gate: confidence that a draft needs; 0 = none.
        """
        drafter, w = self._drafter, self._drafter.weights
        self._hidden = drafter.evaluate(context).hidden
        self._tokens[0] = anchor
        known = chain(
            self._hidden, w.norm, drafter.output, drafter.model.config.norm_eps, self._logits,
            w.markov_embedding, w.markov_output, w.vocabulary, w.confidence,
            w.config.confidence_bias, self._scores, self._tokens, self._confidences, rows, gate,
        )  # fmt: skip
        self._headed = known > 0
        tokens = tuple(self._tokens.tolist()[: known + 1])
        asked = min(known + 1, rows)
        found = Found(tokens, tokens[1:], (), tuple(self._confidences.tolist()[:asked]))
        return Block(drafter, self, self._hidden, found)

    def logits(self) -> Array:
        """(B, Vd) float32 of the last block's rows."""
        if not self._headed:
            drafter = self._drafter
            head(
                self._hidden, drafter.weights.norm, drafter.output, drafter.model.config.norm_eps,
                self._logits, self._positions, DRAFT,
            )  # fmt: skip
            self._headed = True
        return self._logits
