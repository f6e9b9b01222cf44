"""A drafter's blocks on the CPU: one compiled call from the hidden rows to the last draft.

The head runs once for all rows that may be asked for, and only when the first confidence passes the
gate: reading its weights costs more than rows that a gate cuts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from engine.arrays import Array
from engine.block import Block, Found
from kernels.head import head
from kernels.markov import HeadChain
from kernels.mode import DRAFT

if TYPE_CHECKING:
    from engine.drafter import Drafter, DrafterContext


class HostBlocks:
    """Static memory of one drafter's blocks, and the work on it."""

    def __init__(self, drafter: Drafter, hidden: Array) -> None:
        w, self._epsilon = drafter.weights, drafter.model.config.norm_eps
        self.last: Block | None = None
        self._drafter = drafter
        self._chain = HeadChain(
            hidden, w.norm, drafter.output, self._epsilon, w.markov_embedding, w.markov_output,
            w.vocabulary, w.confidence, w.config.confidence_bias,
        )  # fmt: skip
        self._positions = np.arange(len(hidden))  # what fault injection asks for; drafts have none
        self._headed = 0  # rows of the last block whose logits are there

    def make(self, context: DrafterContext, anchor: int, rows: int, gate: float) -> Block:
        """As `engine.block.Blocks.make`."""
        hidden, chain = self._drafter.evaluate(context).hidden, self._chain
        chain.tokens[0] = anchor
        known = chain.run(rows, gate)
        self._headed = rows if known else 0
        found = Found(chain.tokens.tolist(), known, chain.confidences.tolist()[:rows])
        return Block(self._drafter, self, hidden, found)

    def logits(self, row: int) -> Array:
        """As `engine.block.Blocks.logits`."""
        logits = self._chain.logits
        if row >= self._headed:
            assert self.last is not None
            drafter = self._drafter
            head(
                self.last.hidden, drafter.weights.norm, drafter.output, self._epsilon, logits,
                self._positions, DRAFT,
            )  # fmt: skip
            self._headed = len(logits)
        return logits[row]
