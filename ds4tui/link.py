"""How the interface reaches an engine: the protocol, and links that play recorded events.

`engine.process.EngineProcess` is the real one. Knows no widgets.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ds4tui.playback import Playback, recorded
from engine.errors import Ds4Error
from engine.events import EngineReady, Event, LoadProgress, RunStarted
from engine.process import Cancel, Command, Pause, Quit, Resume, Run, Stop
from engine.text import one_line
from engine.trace import check_trace, is_after_loading, read_trace


class EngineLink(Protocol):
    """An engine somewhere else: commands go there, events come back."""

    def start(self) -> None:
        """Begin to load; returns at once."""

    def send(self, command: Command) -> None:
        """Hand over a command; never waits for its effect."""

    def poll(self) -> list[Event]:
        """Events since the last call; never waits. The death of the engine is a RunFailed."""

    @property
    def is_alive(self) -> bool:
        """The engine can take a command."""

    def close(self) -> None:
        """End the engine and free what belongs to it."""


class ReplayLink:
    """The events of a trace as an engine; they begin to come with the first `Run`.

    A `Run` after the end, or in the middle, plays the run at hand again from its start.

    Args:
        events: of one trace.
        clock: seconds, monotonic.
        speed: recorded seconds in one second; infinity gives everything at once.
    """

    def __init__(
        self, events: Sequence[Event], clock: Callable[[], float], speed: float = 1.0
    ) -> None:
        kept = [e for e in events if not isinstance(e, LoadProgress | EngineReady)]
        self._greeting = _greeting(events)
        self.playback = Playback(recorded(kept), clock, speed)
        self.playback.is_paused = True
        self.has_begun = False
        self.is_alive = False

    def start(self) -> None:
        """There is nothing to load."""
        self.is_alive = True

    def close(self) -> None:
        """There is nothing to free."""
        self.is_alive = False

    def send(self, command: Command) -> None:
        """Play, pause, resume or go to the end; what would need an engine is ignored."""
        match command:
            case Run() if not self.has_begun:
                self.has_begun = True
                self.playback.pause(False)
            case Run():
                self.playback.restart()
            case Pause() | Resume():
                self.playback.pause(isinstance(command, Pause))
            case Stop() | Cancel() | Quit():
                self.playback.finish()
            case _:
                pass

    def poll(self) -> list[Event]:
        """Events whose time has come; at first that the engine is ready."""
        if self._greeting:
            greeting, self._greeting = self._greeting, []
            return greeting
        return self.playback.poll()


class TraceLink(ReplayLink):
    """A trace file as an engine: what takes long to load is the file, read in a thread.

    Args:
        path: of the trace.
        clock: seconds, monotonic.
    Raises:
        Ds4Error: when the file is missing, or its first line is not a trace's; of a pipe that is
            told by `poll`.
    """

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        if not Path(path).is_fifo():  # whose first line could not be read again
            check_trace(path)
        super().__init__((), clock)
        self._path = path
        self._clock = clock
        self._so_far = (0, 0)
        self._read: ReplayLink | Exception | None = None
        self._is_reading = True

    def start(self) -> None:
        """Begin to read."""
        super().start()
        threading.Thread(target=self._work, name="ds4tui-trace", daemon=True).start()

    def _work(self) -> None:
        try:
            events = read_trace(self._path, lambda *so_far: setattr(self, "_so_far", so_far))
            if not any(map(is_after_loading, events)):
                raise Ds4Error(
                    "Empty trace",
                    f"{one_line(self._path)} holds no run: it ends before one began.",
                )
            self._read = ReplayLink(events, self._clock)
            gc.freeze()  # they stay: the collector need not walk over a million of them
        except Exception as error:
            self._read = error

    def poll(self) -> list[Event]:
        """How far the file is read; then what it holds.

        Raises:
            Ds4Error: once, when the file is damaged or holds no run.
        """
        if not self._is_reading:
            return super().poll()
        read, self._read = self._read, None
        if isinstance(read, Exception):
            raise read
        if read is None:
            return [LoadProgress("", -1, time.perf_counter_ns(), READING_TRACE, *self._so_far)]
        self._is_reading = False
        self.playback, self._greeting = read.playback, read._greeting
        return super().poll()


READING_TRACE = "reading the trace"
"""The one stage of loading a trace."""


def _greeting(events: Sequence[Event]) -> list[Event]:
    """What an engine would say after loading the files of these events."""
    for event in events:
        if isinstance(event, EngineReady):
            return [event]
    for event in events:
        if isinstance(event, RunStarted):
            gates = [arm.confidence for arm in event.arms if arm.confidence is not None]
            gate = gates[0] if gates else 0.0
            files, block, context = event.files, event.block_size, event.context
            return [EngineReady("", -1, event.t_ns, files, block, gate, 0, context, 0)]
    return [EngineReady("", -1, 0, (), 0, 0.0, 0, 0, 0)]
