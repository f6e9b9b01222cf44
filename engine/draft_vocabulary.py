"""Which of a target's tokens a drafter can draft, and its scores of them as rows over all tokens.

Known as frequency-ranked draft vocabularies (FR-Spec, 2025); EAGLE-3's drafters have one too. The
smaller head costs less to read, and a token that is missing is never drafted, only chosen by the
target.
"""

from __future__ import annotations

import numpy as np


class DraftVocabulary:
    """The tokens of the rows of a drafter's head, Vd of the target's V.

    Args:
        size: V.
        ids: (Vd,) token ids in rising order, so that ties go to the lower id; None = all tokens.
    """

    def __init__(self, size: int, ids: np.ndarray | None = None) -> None:
        self._size = size
        self._ids = ids
        self.rows = size if ids is None else len(ids)

    def spread(self, scores: np.ndarray) -> np.ndarray:
        """(Vd,) scores of the head's rows as (V,), -inf for tokens that cannot be drafted."""
        if self._ids is None:
            return scores
        whole = np.full(self._size, -np.inf, np.float32)
        whole[self._ids] = scores
        return whole
