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
