"""The one state that says what the engine is doing; everything else derives from it."""

from __future__ import annotations

from enum import Enum


class RunState(Enum):
    """What the engine does for the interface, and how the last run ended."""

    IDLE = "idle"
    LOADING = "loading"
    PREFILL = "prefill"
    DECODING = "decoding"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"
    REPLAY = "replay"

    @property
    def is_busy(self) -> bool:
        """A run is going on, so that it can be paused and stopped."""
        return self in (RunState.PREFILL, RunState.DECODING, RunState.PAUSED)
