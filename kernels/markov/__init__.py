"""The small heads of a DSpark drafter: Markov bias after a token, confidence of a draft.

Source: the DSpark paper, sections 3.1 and 3.2.1 (vanilla Markov head).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def _cpu() -> Any:
    from kernels.cpu.workspace import workspace
    from kernels.markov import cpu_kernel

    return cpu_kernel, workspace


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
    best: int = _cpu()[0].markov_scores(table, previous, output.words, logits, out)
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
    found: float = _cpu()[0].confidence(hidden, table, previous, weights, bias)
    return found


_NO_IDS, _NO_WEIGHTS = np.zeros(0, np.int64), np.zeros(0, np.float32)


def chain(
    hidden: np.ndarray,
    norm: np.ndarray,
    output: Any,
    epsilon: float,
    logits: np.ndarray,
    table: np.ndarray,
    markov_output: Any,
    vocabulary: np.ndarray | None,
    weights: np.ndarray | None,
    bias: float,
    scores: np.ndarray,
    tokens: np.ndarray,
    confidences: np.ndarray,
    rows: int,
    gate: float,
) -> int:
    """The head over a block's rows, then row by row confidence and draft; on the CPU.

    Row r's confidence and draft are those of `confidence` and `markov_scores` after tokens[r]; the
    draft becomes tokens[r + 1]. It ends at the first confidence below the gate, for row 0 before
    any head, and at the first draft whose score is NaN or -inf.

    Args:
        hidden: (B, D) float32. norm: (D,). output: packed (Vd, D). table: (V, r) float32.
        markov_output: packed (Vd, r).
        vocabulary: (Vd,) int64, the tokens of the head's rows; None = their numbers.
        weights: (D + r,) float32; None = every confidence is 1.
        logits, scores: (B, Vd), (Vd,) float32, written.
        tokens: (B + 1,) int64, of which [0] is given. confidences: (B,) float64, written.
        rows: most drafts, 0..B. gate: 0 = none, which passes a NaN too.
    Returns:
        How many drafts there are.
    """
    cpu, workspace = _cpu()
    known: int = cpu.chain(
        hidden, norm, output.words, epsilon, logits, table, markov_output.words,
        _NO_IDS if vocabulary is None else vocabulary,
        _NO_WEIGHTS if weights is None else weights,
        bias, scores, tokens, confidences, rows, gate, workspace(hidden.size),
    )  # fmt: skip
    return known
