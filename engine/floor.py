"""The bytes that decoding one token must read, counted from a target's tensors and its states.

What no implementation can save: every weight that a token uses once, and the live rows that its
attention sees. Knows headers and sizes, never values, kernels or times.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import ModelConfig
from engine.gguf import GGUFFile

ROW_ELEMENT_BYTES = 4
"""Rows of a state are float32."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Bytes of one decode: weights as the file stores them, rows as a state holds them."""

    weights: int
    rows: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.weights + self.rows


def decode_floor(file: GGUFFile, config: ModelConfig, position: int) -> Floor:
    """What a decode at `position` reads at least.

    Of routed experts only those in use count, of the embedding and of the experts by token id one
    row, of the indexer nothing while there is nothing to select. Rows that are read once in several
    tokens, a compressor's window, count by their share.
    """
    chooses = _completed(position, 4) > config.index_top_k
    weights = 0.0
    for expected in config.table():
        tensor = file.tensors[expected.name]
        if chooses or ".indexer." not in expected.name:
            weights += tensor.nbytes * _share(config, tensor.name, tensor.shape[0])
    rows = sum(_elements(config, ratio, position) for ratio in config.ratios)
    return Floor(round(weights), round(rows * ROW_ELEMENT_BYTES))


def _completed(position: int, ratio: int) -> int:
    """Compressed rows that a token at `position` sees."""
    return (position + 1) // ratio


def _share(c: ModelConfig, name: str, rows: int) -> float:
    """How much of a tensor one token uses."""
    if name == "token_embd.weight" or "tid2eid" in name:
        return 1 / rows
    return c.experts_used / c.experts if "_exps." in name else 1.0


def _elements(c: ModelConfig, ratio: int, position: int) -> float:
    """Elements of one layer's rows that a token at `position` reads, its own included."""
    raw = min(position + 1, c.window) * c.head_dim
    if not ratio:
        return raw
    done = _completed(position, ratio)
    pooled = 2 * c.head_dim  # key-values and scores of a window, once per window
    if ratio != 4:
        return raw + done * c.head_dim + pooled
    pooled = 2 * (pooled + 2 * c.index_dim)  # two half windows, of two compressors
    scored = done * c.index_dim if done > c.index_top_k else 0
    return raw + min(done, c.index_top_k) * c.head_dim + scored + pooled
