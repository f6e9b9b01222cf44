"""One mutable timeline of the target: what earlier tokens left behind for later ones.

Everything that rolls (raw rows, the compressors' projections) is a ring indexed by absolute
position, with MAX_ROWS rows of head-room: rows of a verify never overwrite what lies before it, so
that going back is a change of position. Compressed rows are valid below position // ratio. Knows
shapes and positions; what the rows mean is `engine.model`'s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.arrays import HOST, Array, Arrays
from engine.config import ModelConfig

MAX_ROWS = 32
"""Rows of one forward at most, and head-room of every ring."""

TENSORS: Mapping[int, tuple[str, ...]] = {
    0: ("raw",),
    128: ("raw", "comp", "frontier_kv", "frontier_score"),
    4: (
        "raw",
        "comp",
        "index",
        "frontier_kv",
        "frontier_score",
        "index_frontier_kv",
        "index_frontier_score",
    ),
}
"""What a layer's state consists of, by its compression ratio."""


def usual_context(config: ModelConfig) -> int:
    """Tokens that a state holds where no number is asked for."""
    return min(config.context_length, 8192)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A position to go back to."""

    position: int


@dataclass(frozen=True, slots=True)
class LayerState:
    """One layer's arrays, float32, views of one buffer on their device; unused ones have no rows.

    Args:
        raw: (window + MAX_ROWS, head_dim) ring of key-value rows.
        comp: (context // ratio + 1, head_dim) compressed rows.
        index: (context // ratio + 1, index_dim) compressed rows of the indexer (ratio 4).
        frontier_kv, frontier_score: rings of the compressor's projections, one row per token.
        index_frontier_kv, index_frontier_score: the same of the indexer's compressor.
        captured: (MAX_ROWS, dim) normed inputs of the last forward's attention sub-layer.
    """

    raw: Array
    comp: Array
    index: Array
    frontier_kv: Array
    frontier_score: Array
    index_frontier_kv: Array
    index_frontier_score: Array
    captured: Array


@dataclass(frozen=True)
class Layout:
    """Shapes of a state: those of a target's layers, for so many tokens."""

    config: ModelConfig
    context: int
    max_rows: int

    def shapes(self, layer: int) -> tuple[tuple[int, int], ...]:
        """Shapes of the arrays of `LayerState`, in its order."""
        c, ratio = self.config, self.config.ratios[layer]
        width, overlap = c.head_dim, 2 if ratio == 4 else 1
        rows = self.context // ratio + 1 if ratio else 0
        ring = overlap * ratio + self.max_rows if ratio else 0
        index_rows, index_ring = (rows, ring) if ratio == 4 else (0, 0)
        return (
            (c.window + self.max_rows, width),
            (rows, width),
            (index_rows, c.index_dim),
            (ring, overlap * width),
            (ring, overlap * width),
            (index_ring, overlap * c.index_dim),
            (index_ring, overlap * c.index_dim),
            (self.max_rows, c.dim),
        )

    @cached_property
    def floats(self) -> int:
        """Elements of all arrays together."""
        return sum(a * b for layer in range(self.config.layers) for a, b in self.shapes(layer))

    def views(self, buffer: Array) -> tuple[LayerState, ...]:
        """Every layer's arrays inside one buffer."""
        layers, start = [], 0
        for layer in range(self.config.layers):
            arrays = []
            for rows, width in self.shapes(layer):
                arrays.append(buffer[start : start + rows * width].reshape(rows, width))
                start += rows * width
            layers.append(LayerState(*arrays))
        return tuple(layers)


class State:
    """A timeline of evaluated tokens.

    Besides evaluation only `restore`, `install_prefix` and `reproject` change it.

    Args:
        recompress: re-runs the compressors of the first `rows` rows from a position, on the inputs
            that the last forward captured (`Model` gives it).
        arrays: where its memory is.
        like: another timeline's memory, to begin as it is; all zero when absent.

    `tiles` says whether its last forward was `invariant`: a re-projection goes the same way.
    """

    def __init__(
        self,
        layout: Layout,
        recompress: Callable[[State, int, int], None],
        arrays: Arrays = HOST,
        like: Array | None = None,
        position: int = 0,
    ) -> None:
        self.position = position
        self._layout = layout
        self._recompress = recompress
        self.tiles = False
        self._arrays = arrays
        self.memory = arrays.memory(self, layout.floats if like is None else like)
        self.layers = layout.views(self.memory)
        self._inputs: dict[int, tuple[Array, ...]] = {}

    @property
    def context(self) -> int:
        """Capacity in tokens."""
        return self._layout.context

    def inputs(self, rows: int) -> tuple[Array, ...]:
        """Every layer's buffer for `rows` normed attention inputs, kept until the next forward."""
        views = self._inputs.get(rows)
        if views is None:
            views = tuple(layer.captured[:rows] for layer in self.layers)
            self._inputs[rows] = views
        return views

    def snapshot(self) -> Snapshot:
        """What it takes to go back to now, from at most MAX_ROWS rows later."""
        return Snapshot(self.position)

    def restore(self, snapshot: Snapshot) -> None:
        """Back to the snapshot."""
        self.install_prefix(snapshot, 0)

    def install_prefix(self, snapshot: Snapshot, rows: int) -> None:
        """As after the first `rows` rows evaluated since the snapshot.

        Raises:
            ValueError: when fewer rows were evaluated since, or more than can be undone.
        """
        evaluated = self.position - snapshot.position
        if not 0 <= rows <= evaluated:
            raise ValueError(f"{rows} rows of a batch of {evaluated} cannot be kept")
        if evaluated > self._layout.max_rows:
            raise ValueError(
                f"{evaluated} rows after a snapshot cannot be undone, at most "
                f"{self._layout.max_rows} can"
            )
        self.position = snapshot.position + rows

    def reproject(self, snapshot: Snapshot, rows: int) -> None:
        """As `install_prefix`, then both compressors re-run for those rows by the decode path.

        Takes the inputs that the last forward captured: the one of that batch.
        """
        self.install_prefix(snapshot, rows)
        self._recompress(self, snapshot.position, rows)

    def clone(self) -> State:
        """An independent copy."""
        other = State(self._layout, self._recompress, self._arrays, self.memory, self.position)
        other.tiles = self.tiles
        return other

    def tensors(self, layer: int) -> tuple[str, ...]:
        """Names of the tensors that a layer has."""
        return TENSORS[self._layout.config.ratios[layer]]

    def live(self, layer: int, tensor: str) -> np.ndarray:
        """The live rows of one tensor, in order of position: what later tokens can see.

        Raises:
            ValueError: when the layer has no such tensor.
        """
        return self._arrays.host(self._live(layer, tensor))

    def _live(self, layer: int, tensor: str) -> Array:
        """The same on the device."""
        if tensor not in self.tensors(layer):
            raise ValueError(f"layer {layer} has {self.tensors(layer)}, not {tensor!r}")
        ratio = self._layout.config.ratios[layer]
        array = getattr(self.layers[layer], tensor)
        if tensor in ("comp", "index"):
            return array[: self.position // ratio]
        first = self.position - min(self.position, self._layout.config.window)
        if tensor != "raw":
            # The current window's rows and, where windows overlap, all of the one before.
            first = self.position - self.position % ratio - (ratio if ratio == 4 else 0)
        return array[np.arange(max(first, 0), self.position) % array.shape[0]]

    def names(self) -> tuple[tuple[int, str], ...]:
        """(layer, tensor) of all tensors, in order."""
        layers = range(self._layout.config.layers)
        return tuple((layer, tensor) for layer in layers for tensor in self.tensors(layer))

    def digest(self) -> dict[tuple[int, str], bytes]:
        """(layer, tensor) -> 16-byte hash of the live bytes."""
        return {
            name: hashlib.blake2b(self.live(*name).tobytes(), digest_size=16).digest()
            for name in self.names()
        }
