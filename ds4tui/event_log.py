"""All events of a run in little memory: the newest as they are, older ones packed.

A run of a few hundred tokens is never packed. Knows no run and no widget.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from typing import cast

from engine.events import Event

LOOSE = 4096
"""Events that are kept as they are."""
PACK = 1024
"""Events of one pack: packing them takes about as long as drawing a frame."""


class EventLog:
    """A list of events that only grows and is read from its start."""

    def __init__(self) -> None:
        self._packs: list[bytes] = []
        self._loose: list[Event] = []

    def append(self, event: Event) -> None:
        """Add an event at the end."""
        self._loose.append(event)
        if len(self._loose) >= LOOSE + PACK:
            old, self._loose = self._loose[:PACK], self._loose[PACK:]
            self._packs.append(zlib.compress(pickle.dumps(old, pickle.HIGHEST_PROTOCOL), 1))

    def __len__(self) -> int:
        return PACK * len(self._packs) + len(self._loose)

    def __iter__(self) -> Iterator[Event]:
        packs, loose = list(self._packs), list(self._loose)
        for pack in packs:
            # Packed above, by this process.
            yield from cast("list[Event]", pickle.loads(zlib.decompress(pack)))
        yield from loose

    def clear(self) -> None:
        """Forget everything."""
        self._packs.clear()
        self._loose.clear()
