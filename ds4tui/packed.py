"""Long lists in little memory: the newest items as they are, older pages packed, far ones on disk.

Owns the pages and the unnamed temporary file behind them. Knows nothing of what is in a list. A
list of fewer than two pages is a plain list with one more call.
"""

from __future__ import annotations

import pickle
import tempfile
import threading
import zlib
from bisect import bisect_right
from collections.abc import Iterator, MutableSequence
from typing import Any, BinaryIO, TypeVar, cast, overload

Item = TypeVar("Item")

IN_MEMORY = 1 << 20
"""Bytes of pages that stay in memory; what comes later goes to disk. A run of some thousand tokens
never gets there."""
OPEN_PAGES = 4
"""Pages that stay unpacked after they were read: a screenful and what is around it."""


class Spill:
    """Bytes out of the way: in memory at first, then in a temporary file that has no name.

    A disk that is full is no error: from then on everything stays in memory.
    """

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._room = in_memory
        self._file: BinaryIO | None = None
        self._end = 0
        self._is_full = False
        self._lock = threading.Lock()

    def put(self, data: bytes) -> bytes | tuple[int, int]:
        """Take bytes; `get` gives them back for what this returns."""
        with self._lock:
            self._room -= len(data)
            if self._room >= 0 or self._is_full:
                return data
            try:
                if self._file is None:
                    self._file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115
                self._file.seek(self._end)
                self._file.write(data)
                self._file.flush()
            except OSError:
                self._is_full = True
                return data
            place = (self._end, len(data))
            self._end += len(data)
            return place

    def get(self, place: bytes | tuple[int, int]) -> bytes:
        """The bytes of a place."""
        if isinstance(place, bytes):
            return place
        assert self._file is not None
        with self._lock:
            self._file.seek(place[0])
            return self._file.read(place[1])


class PackedList(MutableSequence[Item]):
    """A list that grows at its end. Items are packed by pickling: what was changed in an item
    after it left the newest two pages is lost.

    One thread appends; others may iterate meanwhile, over what was there when they began.

    Args:
        page: items packed together, which is also how many are unpacked to read one of them.
        spill: shared by the lists that are forgotten together; None = one of its own.
    """

    def __init__(self, page: int, spill: Spill | None = None) -> None:
        self._page = page
        self._spill = spill or Spill()
        self._places: list[bytes | tuple[int, int]] = []
        self._ends: list[int] = []
        self._loose: list[Item] = []
        self._open: dict[int, list[Item]] = {}
        self._lock = threading.Lock()

    def append(self, item: Item) -> None:
        """Add an item at the end."""
        self._loose.append(item)
        if len(self._loose) >= 2 * self._page:
            self._pack(self._page)

    def pack(self) -> None:
        """Pack everything: the list is done growing, or rarely looked at from now on."""
        while self._loose:
            self._pack(self._page)

    def clear(self) -> None:
        """Forget everything, the file too."""
        with self._lock:
            self._spill = Spill()
            self._places, self._ends, self._loose, self._open = [], [], [], {}

    def _pack(self, count: int) -> None:
        data = zlib.compress(pickle.dumps(self._loose[:count], pickle.HIGHEST_PROTOCOL), 1)
        with self._lock:
            count = len(self._loose[:count])
            self._ends.append(self._packed + count)
            self._places.append(self._spill.put(data))
            del self._loose[:count]

    @property
    def _packed(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _unpacked(self, place: bytes | tuple[int, int]) -> list[Item]:
        # Pickled above, by this process.
        return cast("list[Item]", pickle.loads(zlib.decompress(self._spill.get(place))))

    def _page_of(self, page: int) -> list[Item]:
        found = self._open.pop(page, None)
        if found is None:
            found = self._unpacked(self._places[page])
            while len(self._open) >= OPEN_PAGES:
                del self._open[next(iter(self._open))]
        self._open[page] = found  # the last one is the newest
        return found

    def _place(self, index: int) -> tuple[list[Item], int]:
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        if at >= self._packed:
            return self._loose, at - self._packed
        page = bisect_right(self._ends, at)
        return self._page_of(page), at - (self._ends[page - 1] if page else 0)

    def __len__(self) -> int:
        return self._packed + len(self._loose)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        items, at = self._place(index)
        return items[at]

    def __setitem__(self, index: Any, item: Any) -> None:
        items, at = self._place(index)
        if items is not self._loose:
            raise TypeError("a packed item does not change")
        items[at] = item

    def __delitem__(self, index: Any) -> None:
        raise TypeError("a packed list only grows")

    def insert(self, index: int, value: Item) -> None:
        """Only at the end."""
        if index < len(self):
            raise TypeError("a packed list only grows")
        self.append(value)

    def __iter__(self) -> Iterator[Item]:
        with self._lock:
            places, loose = list(self._places), list(self._loose)
        for place in places:
            yield from self._unpacked(place)
        yield from loose
