"""What decoding needs of a model, its state and a drafter, as protocols.

`engine.model`, `engine.state` and `engine.drafter` fill these roles; tests fill them with scripted
ones. Arrays are numpy on the CPU; V = vocabulary, n = rows of a forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from engine.paths import Plan

Array = Any
"""A numpy array, or what `numpy.asarray` accepts."""


class Rows(Protocol):
    """Result of a forward."""

    @property
    def logits(self) -> Array:
        """(n, V) float32, or (1, V) of the last row."""

    @property
    def taps(self) -> Array:
        """(n, taps * D) float32: what a drafter's context rows are made of."""


class State(Protocol):
    """One timeline of the target; a forward advances it by its rows."""

    @property
    def position(self) -> int:
        """Tokens evaluated so far."""

    @property
    def context(self) -> int:
        """Capacity in tokens."""

    def snapshot(self) -> Any:
        """What `restore` and `install_prefix` need to go back to now."""

    def restore(self, snapshot: Any) -> None:
        """Back to the snapshot."""

    def install_prefix(self, snapshot: Any, rows: int) -> None:
        """As after the first `rows` rows evaluated since the snapshot."""

    def reproject(self, snapshot: Any, rows: int) -> None:
        """As `install_prefix`, with compressors re-run by the decode path."""

    def clone(self) -> State:
        """An independent copy."""

    def names(self) -> tuple[tuple[int, str], ...]:
        """(layer, tensor) of everything that `live` gives and `digest` hashes."""

    def digest(self) -> dict[tuple[int, str], bytes]:
        """(layer, tensor) -> hash of the live bytes."""

    def live(self, layer: int, tensor: str) -> Array:
        """The live rows of one tensor."""


class Model(Protocol):
    """The target: weights that do not change, evaluated on a state."""

    def forward(
        self,
        state: Any,
        ids: Sequence[int],
        plan: Plan,
        *,
        all_logits: bool = True,
        record: Any = None,
        pin: Any = None,
        on_rows: Callable[[int, int], None] | None = None,
    ) -> Rows:
        """Evaluate `ids` at the state's position and advance it."""


class Block(Protocol):
    """One drafted block."""

    def best(self, row: int, previous: int | None) -> int | None:
        """The best token of a row after `previous` (None = without bias), where it is known."""

    def confidence(self, row: int, previous: int) -> float:
        """Estimate of P(row's draft accepted | all before accepted)."""

    def logits(self, row: int) -> Array:
        """(V,) float32 without the Markov bias."""

    def scores(self, row: int, previous: int) -> Array:
        """(V,) float32 logits with the Markov bias after a token."""


class Drafter(Protocol):
    """The DSpark drafter: weights that do not change, evaluated on a context."""

    @property
    def block_size(self) -> int:
        """Drafts of a whole block."""

    @property
    def noise_id(self) -> int:
        """Token that fills a block after the anchor."""

    @property
    def window(self) -> int:
        """Context rows that a block sees."""

    def new_context(self) -> Any:
        """An empty ring of context rows."""

    def extend(self, context: Any, taps: Array, position: int) -> None:
        """Append the taps of committed rows, the first of which is at `position`."""

    def block(
        self, context: Any, anchor: int, position: int, rows: int | None = None, gate: float = 0.0
    ) -> Block:
        """The block `[anchor, noise...]` at `position`.., of which at most `rows` drafts (None =
        all) will be asked for, and none from a confidence below `gate` on (0 = no gate).
        """
