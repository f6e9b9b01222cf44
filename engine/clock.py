"""One arm's engine time by kind. Knows nothing of what is timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal

from engine.events import TimeSplit

Kind = Literal["prefill", "decode", "draft", "verify", "replay", "commit"]


class Clock:
    """Adds up what is spent inside `with clock(kind):`; blocks do not nest.

    Args:
        now: nanoseconds.
        settle: waits for the device, so that its work falls into the block that started it.
    """

    def __init__(
        self,
        now: Callable[[], int] = time.perf_counter_ns,
        settle: Callable[[], None] | None = None,
    ) -> None:
        self._now = now
        self._settle = settle
        self._spent: dict[str, int] = {}
        self._kind: Kind | None = None
        self._since = 0

    def __call__(self, kind: Kind) -> Clock:
        assert self._kind is None, f"{kind} inside {self._kind}"
        self._kind = kind
        return self

    def __enter__(self) -> None:
        self._since = self._now()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._settle:
            self._settle()
        assert self._kind is not None
        self.add(self._kind, self._now() - self._since)
        self._kind = None

    def add(self, kind: Kind, nanoseconds: int) -> None:
        """Count time that was measured elsewhere."""
        self._spent[kind] = self._spent.get(kind, 0) + nanoseconds

    def take(self) -> TimeSplit:
        """What was spent since the last call."""
        split = TimeSplit(**self._spent)
        self._spent.clear()
        return split
