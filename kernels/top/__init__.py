"""The best few of every row of logits, without those that are excluded. On CUDA only.

The CPU chooses in `engine.greedy`, where the logits already are.
"""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _cuda() -> Any:
    from kernels.top import triton_kernel

    return triton_kernel


def best_of(logits: Any, excluded: Any, ids: Any, values: Any, tokens: Any = None) -> None:
    """The k best ids of every row, best first, ties by id; a NaN counts as infinity.

    Args:
        logits: (n, V) float32. excluded: (n, X) int64 ids that do not count, -1 = none.
        ids: (n, k) int64, written. values: (n, k) float32, written; -inf where nothing is left.
        tokens: (V,) int64, what is written in place of an id; None = the id itself.
    """
    _cuda().best_of(logits, excluded, ids, values, tokens)
