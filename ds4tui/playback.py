"""A finished run again, paced by each arm's own engine clock: slow motion.

Owns the schedule and the speed. Knows the events and a clock that it is given; no widgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.events import (
    ArmFinished,
    CycleFinished,
    Diverged,
    Event,
    RunFinished,
    RunStarted,
    SettingsChanged,
    StateDrift,
    TokensCommitted,
)

TOKENS_PER_S = 20.0
"""Plain tokens a second at first: slow enough to read along."""
SLOWEST, FASTEST = 1.25, 1280.0


def schedule(events: Sequence[Event]) -> list[tuple[int, Event]]:
    """(engine ns since the first token, event) in the order of the arms' own clocks.

    A cycle comes with the tokens it commits; a comparison when the later arm is there.
    """
    clocks: dict[int, int] = {}
    commits: dict[int, list[tuple[int, int]]] = {}
    waiting: dict[int, list[Event]] = {}
    timed: list[tuple[int, Event]] = []
    parted: list[Diverged] = []
    for event in events:
        arm = event.arm
        now = clocks.get(arm, 0)
        match event:
            case CycleFinished() | SettingsChanged():
                waiting.setdefault(arm, []).append(event)
            case TokensCommitted():
                clocks[arm] = now = now + event.time.total - event.time.prefill
                commits.setdefault(arm, []).append((event.index + len(event.ids), now))
                timed += [(now, held) for held in waiting.pop(arm, [])]
                timed.append((now, event))
            case StateDrift():
                timed.append((max(now, clocks.get(0, 0)), event))
            case Diverged():
                parted.append(event)
            case ArmFinished():
                timed.append((now, event))
            case RunFinished():
                timed.append((max(clocks.values(), default=0), event))
            case _:
                timed.append((0, event))
    for event in parted:
        both = [_reached(commits.get(arm, []), event.index) for arm in (0, event.arm)]
        timed.append((max(both), event))
    timed.sort(key=lambda item: (item[0], isinstance(item[1], RunFinished)))
    return timed


def _reached(commits: Sequence[tuple[int, int]], index: int) -> int:
    """When an arm committed a token."""
    return next((ns for end, ns in commits if end > index), 0)


class Playback:
    """Plays a run's events at a number of plain tokens a second.

    Args:
        events: all events of the run.
        clock: seconds, monotonic.
    """

    def __init__(self, events: Sequence[Event], clock: Callable[[], float]) -> None:
        self._schedule = schedule(events)
        self._clock = clock
        self._at = 0
        self._engine_ns = 0.0
        self._last = clock()
        self._plain_rate = _plain_rate(events)
        self.tokens_per_s = TOKENS_PER_S
        self.is_paused = False

    @property
    def speed(self) -> float:
        """Engine seconds that pass in one second."""
        return self.tokens_per_s / self._plain_rate

    @property
    def is_over(self) -> bool:
        """Every event has been given out."""
        return self._at >= len(self._schedule)

    def faster(self, factor: float) -> None:
        """Change the speed, within what can be followed."""
        self._advance()
        self.tokens_per_s = min(FASTEST, max(SLOWEST, self.tokens_per_s * factor))

    def pause(self, paused: bool) -> None:
        """Stop the clock, or let it go on."""
        self._advance()
        self.is_paused = paused

    def poll(self) -> list[Event]:
        """Events that have come due since the last call."""
        self._advance()
        first = self._at
        while self._at < len(self._schedule) and self._schedule[self._at][0] <= self._engine_ns:
            self._at += 1
        return [event for _, event in self._schedule[first : self._at]]

    def _advance(self) -> None:
        now = self._clock()
        if not self.is_paused:
            self._engine_ns += (now - self._last) * self.speed * 1e9
        self._last = now


def _plain_rate(events: Sequence[Event]) -> float:
    decoded = 0
    spent = 0
    for event in events:
        if isinstance(event, TokensCommitted) and event.arm == 0:
            decoded += sum(source != "prefill" for source in event.sources)
            spent += event.time.total - event.time.prefill
    return decoded * 1e9 / spent if decoded and spent else TOKENS_PER_S


def is_playable(events: Sequence[Event]) -> bool:
    """A run has started and committed something, so that there is something to see."""
    started = any(isinstance(event, RunStarted) for event in events)
    return started and any(isinstance(event, TokensCommitted) for event in events)
