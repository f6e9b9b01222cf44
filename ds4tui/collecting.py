"""When Python's collector of reference cycles walks over everything: when no run is going on.

What a run leaves is many objects that stay. A full collection walks over all of them, which takes
0.15 s for 20,000 tokens of two arms, and no key is answered meanwhile.
"""

from __future__ import annotations

import gc

REST_SECONDS = 1.0
"""After a run, before a key is made to wait."""
NEVER = 1_000_000
"""Collections of the young after which the collector would do a full one by itself."""


class Collecting:
    """Keeps full collections for the times that are left to them; young ones go on."""

    def __init__(self) -> None:
        self._before = gc.get_threshold()

    def begin(self) -> None:
        """No full collection by itself from here on."""
        self._before = gc.get_threshold()
        gc.set_threshold(*self._before[:2], NEVER)

    def collect(self) -> None:
        """Now is a good time."""
        gc.collect()

    def end(self) -> None:
        """As it was before."""
        gc.set_threshold(*self._before)
