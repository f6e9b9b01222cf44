"""One evaluated block of a drafter: what its chain found, and single rows after other tokens.

The chain over its rows knows no rules of choice (`engine.host_blocks`, `engine.cuda.blocks`); where
a rule forbids a draft, rows are evaluated one by one from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from engine.arrays import Array
from kernels.markov import confidence, markov_scores

if TYPE_CHECKING:
    from engine.drafter import Drafter, DrafterContext


class Found(NamedTuple):
    """What a chain knows of a block's rows.

    Attributes:
        tokens: the anchor, then every row's draft, the best token after the one before.
        known: how many of these drafts count: those before the first whose score is no number.
        confidences: of the drafts that were asked for, each after the one before; they count up to
            the first draft that does not.
        unbiased: every row's best token without the Markov bias, None where that is no number; may
            be empty.
    """

    tokens: list[int]
    known: int
    confidences: list[float]
    unbiased: Sequence[int | None] = ()


class Blocks(Protocol):
    """What makes a drafter's blocks on its device, one after the other in the same memory.

    Attributes:
        last: the block whose rows the memory holds.
    """

    last: Block | None

    def make(self, context: DrafterContext, anchor: int, rows: int, gate: float) -> Block:
        """Evaluate the block whose ids, positions and spans are in the drafter's buffers.

        Args:
            rows: most drafts that will be asked for.
            gate: confidence below which none will be; 0 = none.
        """

    def logits(self, row: int) -> Array:
        """(Vd,) float32 of a row of the last block without the Markov bias, on the device."""


class Block:
    """One evaluated block, until its drafter makes the next one.

    Args:
        hidden: (B, D) float32, collapsed streams before the final norm.
    """

    def __init__(self, drafter: Drafter, blocks: Blocks, hidden: Array, found: Found) -> None:
        self.hidden = hidden
        self.found = found
        self._drafter = drafter
        self._blocks = blocks
        blocks.last = self

    def confidence(self, row: int, previous: int) -> float:
        """Estimate of P(draft accepted | all before accepted); 1 without a confidence head.

        Args:
            row: 0..B - 1.
            previous: token before the draft: the anchor, then the draft of the row before.
        """
        w, found = self._drafter.weights, self.found
        is_judged = row <= found.known and row < len(found.confidences)
        if is_judged and found.tokens[row] == previous:
            return found.confidences[row]
        if w.confidence is None:
            return 1.0
        assert self._blocks.last is self
        bias = w.config.confidence_bias
        return confidence(self.hidden[row], w.markov_embedding, previous, w.confidence, bias)

    def best(self, row: int, previous: int | None) -> int | None:
        """The best token of a row after `previous` (None = without bias), where it is known."""
        found = self.found
        if previous is None:
            return found.unbiased[row] if row < len(found.unbiased) else None
        if row < found.known and found.tokens[row] == previous:
            return found.tokens[row + 1]
        return None

    def logits(self, row: int) -> np.ndarray:
        """(V,) float32 without the Markov bias; not to be changed. -inf for undraftable tokens."""
        return self._spread(self._logits(row))

    def scores(self, row: int, previous: int) -> np.ndarray:
        """logits(row) with the Markov bias after a token, (V,) float32."""
        w = self._drafter.weights
        out = self._drafter.model.arrays.empty((self._drafter.vocabulary.rows,))
        markov_scores(w.markov_embedding, previous, w.markov_output, self._logits(row), out)
        return self._spread(out)

    def _logits(self, row: int) -> Array:
        assert self._blocks.last is self
        return self._blocks.logits(row)

    def _spread(self, row: Any) -> np.ndarray:
        return self._drafter.vocabulary.spread(self._drafter.model.arrays.host(row))
