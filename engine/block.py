"""One evaluated block of a drafter: what its chain found, and single rows after other tokens.

The chain over its rows knows no rules of choice (`engine.chain`, `engine.cuda.chain`); where a
rule forbids a draft, rows are evaluated one by one from there on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from engine.arrays import Array
from kernels.markov import confidence, markov_scores

if TYPE_CHECKING:
    from engine.drafter import Drafter


class Found(NamedTuple):
    """What a chain knows of a block's first rows.

    Attributes:
        tokens: the anchor, then the draft of every row, each the best after the one before.
        drafts: these drafts, None where the score is no finite number.
        unbiased: every row's best token without the Markov bias, or None likewise; may be empty.
        confidences: of the drafts; also of the first one that is not known any more.
    """

    tokens: tuple[int, ...]
    drafts: tuple[int | None, ...] = ()
    unbiased: tuple[int | None, ...] = ()
    confidences: tuple[float, ...] = ()


class Heads(Protocol):
    """Whoever evaluates the head over a block's rows."""

    def logits(self) -> Array:
        """(B, Vd) float32 without the Markov bias, on the device."""


class Block:
    """One evaluated block, valid until the drafter's next one.

    Args:
        hidden: (B, D) float32, collapsed streams before the final norm.
    """

    def __init__(self, drafter: Drafter, heads: Heads, hidden: Array, found: Found) -> None:
        self.hidden = hidden
        self.found = found
        self._drafter = drafter
        self._heads = heads

    def confidence(self, row: int, previous: int) -> float:
        """Estimate of P(draft accepted | all before accepted); 1 without a confidence head.

        Args:
            row: 0..B - 1.
            previous: token before the draft: the anchor, then the draft of the row before.
        """
        w, found = self._drafter.weights, self.found
        if row < len(found.confidences) and found.tokens[row] == previous:
            return found.confidences[row]
        if w.confidence is None:
            return 1.0
        bias = w.config.confidence_bias
        return confidence(self.hidden[row], w.markov_embedding, previous, w.confidence, bias)

    def best(self, row: int, previous: int | None) -> int | None:
        """The best token of a row after `previous` (None = without bias), where it is known."""
        found = self.found
        if previous is None:
            return found.unbiased[row] if row < len(found.unbiased) else None
        if row < len(found.drafts) and found.tokens[row] == previous:
            return found.drafts[row]
        return None

    def logits(self, row: int) -> np.ndarray:
        """(V,) float32 without the Markov bias; not to be changed. -inf for undraftable tokens."""
        return self._drafter.vocabulary.spread(self._host(self._heads.logits()[row]))

    def scores(self, row: int, previous: int) -> tuple[np.ndarray, int]:
        """logits(row) with the Markov bias, (V,) float32, and its argmax (lower id on ties).

        On the CPU -1 in place of the argmax when a score is NaN.
        """
        w, vocabulary = self._drafter.weights, self._drafter.vocabulary
        out = self._drafter.model.arrays.empty((vocabulary.rows,))
        logits = self._heads.logits()[row]
        best = markov_scores(w.markov_embedding, previous, w.markov_output, logits, out)
        return vocabulary.spread(self._host(out)), vocabulary.token(best)

    def _host(self, row: Any) -> np.ndarray:
        found: np.ndarray = self._drafter.model.arrays.host(row)
        return found
