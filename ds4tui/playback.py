"""Events again, paced by a clock: a finished run in slow motion, or a trace.

Owns the schedule, the speed, stepping by cycles and seeking. Knows the events and a clock that it
is given; no widgets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from engine.events import (
    ArmFinished,
    CycleFinished,
    Diverged,
    Event,
    RunFailed,
    RunFinished,
    RunStarted,
    SettingsChanged,
    StateDrift,
    SuiteStarted,
    TokensCommitted,
)

TOKENS_PER_S = 20.0
"""Plain tokens a second of slow motion at first: slow enough to read along."""
SLOWEST, FASTEST = 1 / 1024, 64.0
"""Recorded or engine seconds in one second."""
LONGEST_GAP_NS = 500_000_000
"""Pauses of a trace, as between two runs, are cut to this."""

MOST = 2000
"""Events given out at once: taking them lasts about as long as drawing a frame or two."""

Rewind = Literal["", "run", "all"]
Timed = Sequence[tuple[int, Event]]


def schedule(events: Iterable[Event]) -> list[tuple[int, Event]]:
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


def recorded(events: Iterable[Event]) -> list[tuple[int, Event]]:
    """(ns since the first event, event) at the pace at which they came, long pauses cut."""
    timed: list[tuple[int, Event]] = []
    at, before = 0, None
    for event in events:
        passed = 0 if before is None else max(0, event.t_ns - before)
        at += min(passed, LONGEST_GAP_NS)
        before = event.t_ns
        timed.append((at, event))
    return timed


class Playback:
    """Gives out timed events as their time comes.

    Args:
        timed: (ns, event), by time.
        clock: seconds, monotonic.
        speed: seconds of the schedule in one second; infinity gives everything at once.
    """

    def __init__(self, timed: Timed, clock: Callable[[], float], speed: float = 1.0) -> None:
        self._times = [ns for ns, _ in timed]
        self._events = [event for _, event in timed]
        self._clock = clock
        self._at = 0
        self._given = 0
        self._ns = 0.0
        self._last = clock()
        self._stops: list[int] | None = None
        self._has_suites = any(isinstance(event, SuiteStarted) for event in self._events)
        self._rewound: Rewind = ""
        self.speed = speed
        self.is_paused = False

    @staticmethod
    def slowly(events: Iterable[Event], clock: Callable[[], float]) -> Playback:
        """A run by its arms' own clocks, at `TOKENS_PER_S`."""
        timed = schedule(events)
        return Playback(timed, clock, TOKENS_PER_S / _plain_rate(event for _, event in timed))

    @property
    def is_over(self) -> bool:
        """Every event has been given out."""
        return self._given >= len(self._events) and self._at >= len(self._events)

    def faster(self, factor: float) -> None:
        """Change the speed, within what can be followed."""
        self._advance()
        self.speed = min(FASTEST, max(SLOWEST, self.speed * factor))

    def pause(self, paused: bool) -> None:
        """Stop the clock, or let it go on."""
        self._advance()
        self.is_paused = paused

    def poll(self) -> list[Event]:
        """Events that have come due since the last call, `MOST` of them at once.

        After a jump back they come again from the first one of the run, or of everything:
        `take_rewind` says so.
        """
        self._advance()
        if self._given > self._at:
            first = self._start_of(self._at)
            whole = self._has_suites and self._ends_run(first, self._given)
            self._given = 0 if whole else first
            self._rewound = "all" if whole else "run"
        first, self._given = self._given, min(self._at, self._given + MOST)
        return self._events[first : self._given]

    def _ends_run(self, first: int, last: int) -> bool:
        """A run ends here: what its suite has gathered of it cannot be taken back."""
        return any(isinstance(event, RunFinished) for event in self._events[first:last])

    def take_rewind(self) -> Rewind:
        """What the last `poll` gave out again, told once."""
        found, self._rewound = self._rewound, ""
        return found

    def step(self, cycles: int) -> None:
        """Go to the end of the next or an earlier cycle of the first DSpark arm, and stay there."""
        self._advance()
        stops = self._cycle_stops()
        if cycles > 0:
            at = bisect_right(stops, self._at) + cycles - 1
        else:
            at = bisect_left(stops, self._at) + cycles
        self._go(stops[max(0, min(len(stops) - 1, at))] if stops else len(self._events))

    def seek(self, index: int) -> None:
        """Go to the end of the cycle that commits a token of the run at hand, and stay there."""
        self._advance()
        first = self._start_of(self._at)
        last = self._end_of(first)
        followed = _followed(self._events[first:last])
        found = last
        for at in range(first, last):
            event = self._events[at]
            if not isinstance(event, TokensCommitted) or event.arm != followed:
                continue
            if event.index + len(event.ids) > index:
                found = at + 1
                break
        stops = self._cycle_stops()
        later = bisect_left(stops, found)
        self._go(min(last, stops[later]) if later < len(stops) else last)

    def restart(self) -> None:
        """From the beginning of the run at hand, running."""
        self._go(self._start_of(self._at))
        self._given, self._rewound, self.is_paused = self._at, "run", False

    def finish(self) -> None:
        """Everything that is left is due now."""
        self._go(len(self._events))

    def _go(self, at: int) -> None:
        self._at = at
        self.is_paused = True
        self._ns = float(self._times[at - 1]) if at > 0 else 0.0

    def _advance(self) -> None:
        now = self._clock()
        if not self.is_paused:
            passed = now - self._last
            self._ns += passed * self.speed * 1e9 if passed else 0.0
            if self.speed == float("inf"):
                self._ns = float("inf")
            self._at = max(self._at, bisect_right(self._times, self._ns))
        self._last = now

    def _start_of(self, at: int) -> int:
        """Where the run begins that the event before a place is of."""
        at = max(0, min(at, len(self._events)) - 1)
        while at > 0 and not self._events[at].run_id:
            at -= 1
        run = self._events[at].run_id if self._events else ""
        while at > 0 and self._events[at - 1].run_id == run:
            at -= 1
        return at

    def _end_of(self, first: int) -> int:
        """One behind the last event of the run that begins here."""
        at = first
        while at < len(self._events) and self._events[at].run_id == self._events[first].run_id:
            at += 1
        return at

    def _cycle_stops(self) -> list[int]:
        """Places between two cycles: everything of the earlier one has been given out."""
        if self._stops is None:
            self._stops = list(_stops(self._events))
        return self._stops


def _followed(events: Iterable[Event]) -> int:
    """The arm whose cycles are stepped through: the first DSpark arm, else plain."""
    started = next((event for event in events if isinstance(event, RunStarted)), None)
    arms = started.arms if started is not None else ()
    return next((at for at, arm in enumerate(arms) if arm.kind == "dspark"), 0)


def _stops(events: Sequence[Event]) -> Iterable[int]:
    followed = 0
    for at, event in enumerate(events):
        match event:
            case RunStarted():
                followed = _followed((event,))
            case CycleFinished() if event.arm == followed:
                yield at
            case TokensCommitted() if event.arm == followed == 0:
                yield at
            case RunFinished() | RunFailed():
                yield at + 1
            case _:
                pass


def _plain_rate(events: Iterable[Event]) -> float:
    decoded = 0
    spent = 0
    for event in events:
        if isinstance(event, TokensCommitted) and event.arm == 0:
            decoded += sum(source != "prefill" for source in event.sources)
            spent += event.time.total - event.time.prefill
    return decoded * 1e9 / spent if decoded and spent else TOKENS_PER_S
