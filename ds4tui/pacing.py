"""When the next frame may be drawn, so that drawing leaves the processor to the engine."""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.2
"""Most of a core that the interface takes while the engine decodes: a slow machine gets fewer
frames instead of a slower engine."""
LONGEST_S = 0.1
"""A frame waits no longer than this."""


class Pacing:
    """Counts what this process has spent since the last frame.

    Args:
        clock: seconds that have passed.
        spent: seconds of the processor that this process has taken.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        spent: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._spent = clock, spent
        self._frame = clock(), spent()

    def is_due(self) -> bool:
        """A frame may be drawn now; it is taken as drawn."""
        now, spent = self._clock(), self._spent()
        passed, cost = now - self._frame[0], spent - self._frame[1]
        if cost > SHARE * passed and passed < LONGEST_S:
            return False
        self._frame = now, spent
        return True
