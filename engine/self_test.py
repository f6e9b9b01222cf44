"""Whether `invariant` keeps its promise on this machine, with this target, right now.

Evaluates the same tokens one by one and in batches of every size up to the largest verify and
compares logits and states bit by bit, over positions at which as much as possible happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.config import ModelConfig
from engine.paths import DECODE, Plan
from engine.roles import Model, State

TOKENS = 72
"""Tokens compared: enough for all that `first_position` looks for in the embedded target."""

MOST_BEFORE = 512
"""Tokens evaluated before them at most, so that a start stays quick."""


def first_position(config: ModelConfig, ring: int, context: int) -> int:
    """Where to compare: the first position after which most of what is rare happens soon.

    That is a choice of the indexer, the end of a window of the longer compressor, and the wrap of
    the ring of raw rows. A choice that needs more than MOST_BEFORE tokens is left out.

    Args:
        ring: rows of the ring. context: capacity of a state in tokens.
    """
    events: list[Callable[[int], bool]] = [lambda p: p > 0 and p % ring == 0]
    if 4 in config.ratios:
        events.append(lambda p: (p + 1) // 4 > config.index_top_k)
    longest = max(config.ratios)
    if longest:
        events.append(lambda p: (p + 1) % longest == 0)

    def seen(first: int) -> int:
        positions = range(first, first + TOKENS)
        return sum(any(event(p) for p in positions) for event in events)

    return max(range(0, max(1, min(MOST_BEFORE, context - TOKENS)), 2), key=seen)


def rows_differ(
    model: Model, new_state: Callable[[], State], rows: int, vocab_size: int, first: int = 0
) -> str:
    """What differs between rows in a batch and the same rows alone; nothing when all is equal.

    Args:
        rows: of the largest verify.
        first: position of the first row compared.
    """
    rng, alone = np.random.default_rng(0), new_state()
    tokens = rng.integers(0, vocab_size, min(TOKENS, alone.context - first)).tolist()
    if first:
        before = rng.integers(0, vocab_size, first).tolist()
        model.forward(alone, before, Plan("invariant"), all_logits=False)
    batched = alone.clone()
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
