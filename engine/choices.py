"""The discrete choices of evaluated rows: routed experts and selected indexer rows.

A forward fills one when asked to (`record`) and takes choices over from one (`pin`). Knows token
ids and positions only. Recording copies arrays and no more: it happens inside the arms' clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Integers = Sequence[int] | np.ndarray[Any, Any]

KINDS = ("router", "indexer")
"""What can be recorded and pinned."""


@dataclass(slots=True)
class _Pass:
    """Rows evaluated together, and per layer and kind what they chose."""

    first: int
    tokens: list[int]
    notes: list[tuple[int, str, np.ndarray, np.ndarray | None, np.ndarray]] = field(
        default_factory=list
    )


class Choices:
    """Choices by position; a position evaluated again replaces what was recorded.

    Args:
        kinds: kinds that are recorded, and that a forward pinned to this takes over.
    """

    def __init__(self, kinds: Sequence[str] = KINDS) -> None:
        unknown = sorted(set(kinds) - set(KINDS))
        if unknown:
            raise ValueError(f"unknown kinds of choices {unknown}, known are {list(KINDS)}")
        self.kinds = tuple(kinds)
        self._at: dict[int, _Pass] = {}
        self._newest = _Pass(0, [])

    def begin(self, first: int, ids: Integers) -> None:
        """Start over at these tokens' positions, `first` and after."""
        self._newest = _Pass(first, [int(token) for token in ids])
        for position in range(first, first + len(self._newest.tokens)):
            self._at[position] = self._newest

    def note(
        self,
        layer: int,
        kind: str,
        chosen: np.ndarray,
        gaps: np.ndarray,
        counts: np.ndarray | None = None,
    ) -> None:
        """Record what the rows begun last chose in one layer.

        Args:
            chosen: (n, k) integers.
            gaps: (n,) distance of the last chosen one from the best of the others.
            counts: (n,) how many of `chosen` count, -1 = nothing was chosen; all when absent.
        """
        if kind in self.kinds:
            counted = None if counts is None else counts.copy()
            self._newest.notes.append((layer, kind, chosen.copy(), counted, gaps.copy()))

    def token(self, position: int) -> int | None:
        """Token evaluated at a position, None where nothing is recorded."""
        rows = self._at.get(position)
        return None if rows is None else rows.tokens[position - rows.first]

    def at(self, position: int) -> dict[tuple[int, str], tuple[int, ...]]:
        """(layer, `router` or `indexer`) -> what a position chose, as the kernels order it.

        An indexer that had no choice (it attends to all rows) has no entry.
        """
        return {key: tuple(chosen.tolist()) for key, chosen, _ in self._notes(position)}

    def gaps(self, position: int) -> dict[tuple[int, str], float]:
        """(layer, kind) -> score of the last chosen one minus the best other score."""
        return {key: gap for key, _, gap in self._notes(position)}

    def _notes(self, position: int) -> Iterator[tuple[tuple[int, str], np.ndarray, float]]:
        rows = self._at.get(position)
        if rows is None:
            return
        r = position - rows.first
        for layer, kind, chosen, counts, gaps in rows.notes:
            count = chosen.shape[1] if counts is None else int(counts[r])
            if count >= 0:
                yield (layer, kind), chosen[r, :count], float(gaps[r])
