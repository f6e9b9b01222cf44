"""A drafter's whole block on the GPU: hidden rows, head, Markov chain, confidences, one read back.

The chain takes the best token of every row, without rules of choice. Where a rule forbids one, the
block's rows are evaluated on from there as on the CPU. Imports torch.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

import torch

from engine.arrays import Array
from engine.block import Block, Found
from kernels.cuda import lanes
from kernels.head import head
from kernels.markov import triton_kernel as markov
from kernels.mode import DRAFT
from kernels.top import best_of

if TYPE_CHECKING:
    from engine.cuda.arrays import DeviceArrays
    from engine.drafter import Drafter, DrafterContext


class DeviceBlocks:
    """Static memory of one drafter's blocks, and the work on it."""

    def __init__(self, drafter: Drafter, arrays: DeviceArrays, hidden: Array) -> None:
        self.last: Block | None = None
        self._drafter = drafter
        self._arrays = arrays
        rows, vocab = drafter.block_size, drafter.vocabulary.rows
        self._hidden = hidden
        self._logits = arrays.empty((rows, vocab))
        self._scores = arrays.empty((rows, vocab))
        self._rows = arrays.empty((rows, drafter.config.markov_rank))
        self._none = torch.full((rows, 1), -1, dtype=torch.int64, device=arrays.device)
        self._values, self._plain_values = (arrays.empty((rows, 1)) for _ in range(2))
        # Per row: the chain's draft, the best without the Markov bias, both as tokens of the
        # target; then the confidences.
        self._drafts = arrays.zeros((rows, 1), "int64")
        self._plain = arrays.zeros((rows, 1), "int64")
        self._confidences = torch.ones(rows, device=arrays.device)

    def _work(self, context: DrafterContext) -> torch.Tensor:
        drafter = self._drafter
        w, eps, rows = drafter.weights, drafter.model.config.norm_eps, drafter.block_size
        b = drafter.evaluate(context)
        head(b.hidden, w.norm, drafter.output, eps, self._logits, b.positions, DRAFT)
        lanes.ready(self._logits)
        with lanes.aside(self._logits, lanes.ROWS):
            best_of(self._logits, self._none, self._plain, self._plain_values, w.vocabulary)
        for i in range(rows):
            previous = b.ids[:1] if i == 0 else self._drafts[i - 1]
            row = self._rows[i : i + 1]
            markov.markov_row(w.markov_embedding, previous, row)
            lanes.ready(row)
            with lanes.aside(row, lanes.SHARED):
                if w.confidence is not None:
                    out = self._confidences[i : i + 1]
                    bias = w.config.confidence_bias
                    markov.estimate(b.hidden[i], row, w.confidence, bias, out)
            markov.add_bias(row, w.markov_output, self._logits[i], self._scores[i])
            best_of(
                self._scores[i : i + 1], self._none[:1], self._drafts[i : i + 1],
                self._values[i : i + 1], w.vocabulary,
            )  # fmt: skip
        lanes.join()
        best = torch.stack((self._values[:, 0], self._plain_values[:, 0], self._confidences))
        tokens = torch.stack((self._drafts[:, 0], self._plain[:, 0]))
        return torch.cat((tokens, best.view(torch.int32).long()))

    def make(self, context: DrafterContext, anchor: int, _rows: int, _gate: float) -> Block:
        """As `engine.block.Blocks.make`; the whole block, since one launch costs less than to ask
        the host how much of it is needed.
        """
        drafter = self._drafter
        key = (id(drafter), id(context.memory), "chain")
        read = self._arrays.run(key, lambda: self._work(context)).cpu()
        drafts, unbiased = read[:2].tolist()
        scores, logits, confidences = read[2:].int().view(torch.float32).tolist()
        known = next((i for i, score in enumerate(scores) if not isfinite(score)), len(scores))
        pairs = zip(unbiased, logits, strict=True)
        best = [token if isfinite(logit) else None for token, logit in pairs]
        found = Found([anchor, *drafts], known, confidences, best)
        return Block(drafter, self, self._hidden, found)

    def logits(self, row: int) -> Array:
        """As `engine.block.Blocks.logits`."""
        return self._logits[row]
