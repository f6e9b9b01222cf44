"""The five best ids of every token of an arm, stored as numbers side by side. Knows no run."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

TopRow = tuple[tuple[int, float], ...]
"""(id, logit), the best first."""


class TopRows:
    """A growing list of rows of any length; reading one makes its tuples anew."""

    def __init__(self) -> None:
        self._ids = array("q")
        self._logits = array("d")
        self._ends = array("q")

    def append(self, row: TopRow) -> None:
        """Add the row of the next token."""
        for token, logit in row:
            self._ids.append(token)
            self._logits.append(logit)
        self._ends.append(len(self._ids))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> TopRow:
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        first, last = self._ends[at - 1] if at else 0, self._ends[at]
        return tuple(zip(self._ids[first:last], self._logits[first:last], strict=True))

    def __iter__(self) -> Iterator[TopRow]:
        return (self[index] for index in range(len(self)))
