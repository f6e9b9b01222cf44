"""How the interface reaches an engine: the protocol, and a link that plays recorded events.

`engine.process.EngineProcess` is the real one. Knows no widgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from engine.events import EngineReady, Event, LoadProgress, RunStarted
from engine.process import Cancel, Command, Pause, Quit, Resume, Run, Stop


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
    """Recorded events as an engine: a `Run` plays them again at the pace at which they came.

    Args:
        events: of one trace.
        clock: seconds, monotonic.
        speed: recorded seconds in one second; infinity gives everything at once.
    """

    def __init__(
        self, events: Sequence[Event], clock: Callable[[], float], speed: float = 1.0
    ) -> None:
        self._events = [e for e in events if not isinstance(e, LoadProgress | EngineReady)]
        self._greeting = _greeting(events)
        self._clock = clock
        self._speed = speed
        self._at = len(self._events)
        self._plays = 0
        self._elapsed_ns = 0.0
        self._last = clock()
        self._paused = False
        self.is_alive = False

    def start(self) -> None:
        """There is nothing to load."""
        self.is_alive = True

    def close(self) -> None:
        """There is nothing to free."""
        self.is_alive = False

    def send(self, command: Command) -> None:
        """Play, pause, resume or stop; what would need an engine is ignored."""
        self._advance()
        match command:
            case Run():
                self._at, self._elapsed_ns, self._paused = 0, 0.0, False
                self._plays += 1
            case Pause():
                self._paused = True
            case Resume():
                self._paused = False
            case Stop() | Cancel() | Quit():
                self._at = len(self._events)
            case _:
                pass

    def poll(self) -> list[Event]:
        """Events whose time has come; at first that the engine is ready."""
        self._advance()
        if self._greeting:
            greeting, self._greeting = self._greeting, []
            return greeting
        first = self._at
        if not self._events or first >= len(self._events):
            return []
        origin = self._events[0].t_ns
        while self._at < len(self._events):
            if self._events[self._at].t_ns - origin > self._elapsed_ns:
                break
            self._at += 1
        due = self._events[first : self._at]
        if self._plays > 1:
            return [replace(event, run_id=f"{event.run_id}.{self._plays}") for event in due]
        return due

    def _advance(self) -> None:
        now = self._clock()
        if not self._paused:
            passed = now - self._last
            self._elapsed_ns += passed * self._speed * 1e9 if passed else 0.0
        if self._speed == float("inf"):
            self._elapsed_ns = float("inf")
        self._last = now


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
