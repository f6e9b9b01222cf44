"""The small heads of a DSpark drafter: Markov bias after a token, confidence of a draft.

Source: the DSpark paper, sections 3.1 and 3.2.1 (vanilla Markov head).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def _cpu() -> Any:
    from kernels.markov import cpu_kernel

    return cpu_kernel


@cache
def _cuda() -> Any:
    from kernels.markov import triton_kernel

    return triton_kernel


def markov_scores(
    table: Any, previous: int, output: Any, logits: np.ndarray, out: np.ndarray
) -> int:
    """out = logits + output @ table[previous]; returns its argmax, the lower id on ties.

    On the CPU -1 in place of the argmax when a score is NaN.

    Args:
        table: (V, r) float32; packed on CUDA. previous: token id. output: packed (V, r).
        logits: (V,) float32. out: (V,) float32, written.
    """
    if not isinstance(logits, np.ndarray):
        return int(_cuda().markov_scores(table, previous, output, logits, out))
    best: int = _cpu().markov_scores(table, previous, output.words, logits, out)
    return best


def confidence(
    hidden: np.ndarray, table: Any, previous: int, weights: np.ndarray, bias: float
) -> float:
    """sigmoid(weights . [hidden ; table[previous]] + bias).

    Args:
        hidden: (D,) float32. table: (V, r) float32; packed on CUDA. weights: (D + r,) float32.
    """
    if not isinstance(hidden, np.ndarray):
        return float(_cuda().confidence(hidden, table, previous, weights, bias))
    found: float = _cpu().confidence(hidden, table, previous, weights, bias)
    return found


_KINDS = ("f4", "f4", "i8", "f4", "i8", "i8", "f4", "f4", "f4", "i8", "f4", "f4")
"""Types of a chain's arrays."""


class HeadChain:
    """The head over a block's rows, then row by row confidence and draft; on the CPU.

    Row r's confidence and draft are those of `confidence` and `markov_scores` after tokens[r]; the
    draft becomes tokens[r + 1].

    Args:
        hidden: (B, D) float32, read at every run.
        norm, output, epsilon: of the head, (D,), packed (Vd, D) and its norm's.
        table, markov_output: (V, r) float32 and packed (Vd, r).
        vocabulary: (Vd,) int64, the tokens of the head's rows; None = their numbers.
        weights, bias: of the confidence, (D + r,) float32; None = every confidence is 1.

    Attributes:
        logits: (B, Vd) float32 of the rows that the head was evaluated for.
        tokens: (B + 1,) int64, of which [0] is given. confidences: (B,) float32.
    """

    def __init__(
        self,
        hidden: np.ndarray,
        norm: np.ndarray,
        output: Any,
        epsilon: float,
        table: np.ndarray,
        markov_output: Any,
        vocabulary: np.ndarray | None,
        weights: np.ndarray | None,
        bias: float,
    ) -> None:
        (rows, width), size = hidden.shape, output.outputs
        self.logits = np.empty((rows, size), np.float32)
        self.tokens = np.zeros(rows + 1, np.int64)
        self.confidences = np.zeros(rows, np.float32)
        made = self.logits, np.empty(size, np.float32), self.tokens, self.confidences
        own = hidden, norm, output.words, table, markov_output.words, vocabulary, weights
        self._kept = (*own, *made, np.empty(hidden.size, np.float32))
        for array, kind in zip(self._kept, _KINDS, strict=True):  # compiled code takes addresses
            assert array is None or (array.dtype == kind and array.flags.c_contiguous)
        at = [0 if array is None else array.ctypes.data for array in self._kept]
        self._words = np.array([width, table.shape[1], size, *at], np.int64)
        self._epsilon, self._bias = epsilon, bias

    def run(self, rows: int, gate: float) -> int:
        """Go on to the first confidence below the gate, for row 0 before any head, or to the first
        draft whose score is NaN or -inf.

        Args:
            rows: most drafts, 0..B; the head is evaluated for as many rows.
            gate: 0 = none, which passes a NaN too.
        Returns:
            How many drafts there are.
        """
        known: int = _cpu().chain(self._words, self._epsilon, self._bias, rows, gate)
        return known
