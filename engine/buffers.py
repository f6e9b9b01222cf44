"""Activations of one forward, for a fixed number of rows; overwritten by the next forward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.arrays import Array, Arrays


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the buffers' shapes depend on; letters as in the model's comments."""

    dim: int
    vocab: int
    heads: int
    head_dim: int
    q_rank: int
    experts_used: int
    selectable: int
    taps: int


class Buffers:
    """Buffers of n rows.

    `all_rows`, `none_forced`, `shared_expert` and `shared_weight` are constants that kernels read.
    """

    def __init__(self, n: int, s: Sizes, arrays: Arrays) -> None:
        def floats(*shape: int) -> Array:
            return arrays.zeros((n, *shape))

        self.inputs = arrays.zeros((2, n), "int64")  # what a forward is told, in one copy
        self.ids, self.positions = self.inputs[0], self.inputs[1]
        self.spans = {ratio: arrays.zeros((n, 3), "int64") for ratio in (0, 4, 128)}
        self.origin = arrays.scalar(0)
        self.streams = floats(4 * s.dim)
        self.x = floats(s.dim)
        self.y = floats(s.dim)
        self.post = floats(4)
        self.comb = floats(16)
        self.qr = floats(s.q_rank)
        self.q = floats(s.heads * s.head_dim)
        self.o = floats(s.heads * s.head_dim)
        self.selected = arrays.zeros((n, max(s.selectable, 1)), "int32")
        self.counts = arrays.take(np.full(n, -1, np.int32))
        self.all_rows = arrays.take(np.full(n, -1, np.int32))
        self.gaps = floats()
        self.experts = arrays.zeros((n, s.experts_used), "int32")
        self.expert_weights = floats(s.experts_used)
        self.none_forced = arrays.take(np.full((n, s.experts_used), -1, np.int32))
        self.shared_expert = arrays.zeros((n, 1), "int32")
        self.shared_weight = arrays.take(np.ones((n, 1), np.float32))
        self.hidden = floats(s.dim)
        self.logits = floats(s.vocab)
        self.taps = floats(s.taps * s.dim)
