"""Drafts that verifies rejected, by the index of the token that replaced the first of them.

Stored as numbers side by side. Knows no run.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence


class RejectedDrafts(Mapping[int, tuple[int, ...]]):
    """Ids of rejected drafts by token index; cycles add them in order."""

    def __init__(self) -> None:
        self._indexes = array("q")
        self._ids = array("q")
        self._ends = array("q", [0])

    def add(self, index: int, ids: Sequence[int]) -> None:
        """The drafts rejected before a token; later than all before."""
        self._indexes.append(index)
        self._ids.extend(ids)
        self._ends.append(len(self._ids))

    def __getitem__(self, index: int) -> tuple[int, ...]:
        at = bisect_left(self._indexes, index)
        if at == len(self._indexes) or self._indexes[at] != index:
            raise KeyError(index)
        return tuple(self._ids[self._ends[at] : self._ends[at + 1]])

    def __iter__(self) -> Iterator[int]:
        return iter(self._indexes)

    def __len__(self) -> int:
        return len(self._indexes)
