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


def markov_scores(
    table: np.ndarray, previous: int, output: Any, logits: np.ndarray, out: np.ndarray
) -> int:
    """out = logits + output @ table[previous]; returns its argmax, the lower id on ties.

    Args:
        table: (V, r) float32. previous: token id. output: packed (V, r).
        logits: (V,) float32. out: (V,) float32, written.
    """
    best: int = _cpu().markov_scores(table, previous, output.words, logits, out)
    return best


def confidence(
    hidden: np.ndarray, table: np.ndarray, previous: int, weights: np.ndarray, bias: float
) -> float:
    """sigmoid(weights . [hidden ; table[previous]] + bias).

    Args:
        hidden: (D,) float32. table: (V, r) float32. weights: (D + r,) float32.
    """
    found: float = _cpu().confidence(hidden, table, previous, weights, bias)
    return found
