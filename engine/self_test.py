"""Whether `invariant` keeps its promise on this machine, with this target, right now.

Evaluates the same tokens one by one and in batches of every size up to the largest verify and
compares logits and states bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.paths import DECODE, Plan
from engine.roles import Model, State

TOKENS = 48
"""Tokens evaluated: a dozen windows of the shorter compressor."""


def rows_differ(model: Model, new_state: Callable[[], State], rows: int, vocab_size: int) -> str:
    """What differs between rows in a batch and the same rows alone; nothing when all is equal.

    Args:
        rows: of the largest verify.
    """
    tokens = np.random.default_rng(0).integers(0, vocab_size, TOKENS).tolist()
    alone, batched = new_state(), new_state()
    expected = [_evaluate(model, alone, [token], DECODE["invariant"])[0] for token in tokens]
    at, size = 0, rows
    while at < len(tokens):
        part = tokens[at : at + size]
        found = _evaluate(model, batched, part, Plan("invariant"))
        for row, logits in enumerate(found):
            if logits.tobytes() != expected[at + row].tobytes():
                return f"row {row} of {len(part)} has other logits than the same row alone"
        at, size = at + len(part), size - 1 if size > 2 else rows
    left, right = alone.digest(), batched.digest()
    for layer, tensor in left:
        if left[layer, tensor] != right[layer, tensor]:
            return f"layer {layer} {tensor} differs between batches and single rows"
    return ""


def _evaluate(model: Model, state: State, tokens: Sequence[int], plan: Plan) -> np.ndarray:
    return np.array(model.forward(state, tokens, plan).logits)
