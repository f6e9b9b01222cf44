"""How the interface reaches an engine: the protocol, and a link that plays recorded events.

`engine.process.EngineProcess` is the real one. Knows no widgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ds4tui.playback import Playback, recorded
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
