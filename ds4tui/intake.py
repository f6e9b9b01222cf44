"""What came from the engine: runs, suites, costs, and the state that their events add up to.

Owns which run is shown and slow motion, which plays a run's events once more. Knows no engine and
no widgets: it is given events and says what they changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ds4tui.changes import Changes
from ds4tui.over_prompts import OverPrompts
from ds4tui.paint.panes import LoadStep
from ds4tui.pair import PairRecord
from ds4tui.playback import Playback
from ds4tui.run_record import RunRecord, is_same, newest_of
from ds4tui.run_state import RunState
from ds4tui.session_runs import SessionRuns
from ds4tui.suite_record import SuiteRecord, begin
from engine.events import (
    CUT_SHORT,
    ArmFinished,
    CostMeasured,
    Diverged,
    EngineReady,
    Event,
    LoadProgress,
    MeasuringFinished,
    Notice,
    PromptRendered,
    RunFailed,
    RunFinished,
    RunStarted,
    SuiteFinished,
    SuiteStarted,
    TokensCommitted,
    TokenText,
)

Kinds = tuple[tuple[str, str], ...]


def kinds_of(record: RunRecord) -> Kinds:
    """Kind and role of every arm of a run: what two runs with the same arms have in common."""
    return tuple((arm.info.kind, arm.info.role) for arm in record.arms)


class Intake:
    """Takes events in order.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.state = RunState.IDLE
        self.steps: dict[str, LoadStep] = {}
        self.runs: list[RunRecord] = []
        self.session = SessionRuns()
        self.failure: RunFailed | None = None
        self.ready: EngineReady | None = None
        self.rendered: PromptRendered | None = None
        self.token_bytes: dict[int, bytes] = {}
        self.playback: Playback | None = None
        self.suites: dict[str, SuiteRecord] = {}
        self.over_prompts = OverPrompts()
        self.costs: list[CostMeasured] = []
        self.is_measuring = False
        self._suite: SuiteRecord | None = None
        self._sets: set[str] = set()
        self._played: RunRecord | None = None
        self._record: RunRecord | None = None
        self._chosen: RunRecord | None = None
        self._arms_shown: dict[str, tuple[Kinds, int]] = {}
        self._open: dict[str, RunRecord] = {}
        self._ended: list[RunRecord] = []
        self._clock = clock

    # What is shown

    @property
    def record(self) -> RunRecord | None:
        """The run shown: the one being replayed, else the one chosen, else the newest."""
        return self._played if self._played is not None else self.kept

    @property
    def kept(self) -> RunRecord | None:
        """The run shown when nothing is replayed."""
        return self._chosen if self._chosen is not None else self._record

    @property
    def looked_at(self) -> RunRecord | None:
        """The run shown; while two arms of any runs are put together, the newest one."""
        record = self.record
        return self.newest if isinstance(record, PairRecord) else record

    def arms_of(self, record: RunRecord) -> str:
        """The matrix or sweep that a run's arms are of; "" where they are those of the settings."""
        suite = record.started.suite_id if record.started else ""
        return "" if suite in self._sets else suite

    @property
    def newest(self) -> RunRecord | None:
        """The run that the engine is at, or was last at."""
        return self._record

    def open_run(self, record: RunRecord, arm: int | None = None) -> None:
        """Show another run than the newest, until a run is begun that is not of a suite.

        Args:
            arm: the one to show beside plain; None = the one shown last.
        """
        self.end_playback()
        self._remember_arm()
        if arm is not None:
            record.choose(arm)
        self._chosen = None if record is self._record else record

    def show_newest(self) -> None:
        """Show the newest run again."""
        self.end_playback()
        self._remember_arm()
        self._chosen = None

    @property
    def shown_state(self) -> RunState:
        """The state that row 1 names."""
        return RunState.REPLAY if self.playback is not None else self.state

    @property
    def is_busy(self) -> bool:
        """The engine does something that can be stopped: a run, a suite, a measurement."""
        return self.state.is_busy or self._suite is not None or self.is_measuring

    @property
    def running_suite(self) -> SuiteRecord | None:
        """The suite in progress."""
        return self._suite

    @property
    def can_slow(self) -> bool:
        """There is a run that has ended and committed something."""
        record = self.kept
        return record is not None and not self.is_busy and record.is_playable

    def slow_motion(self) -> bool:
        """Play the finished run again, slowly; False when there is none."""
        record = self.kept
        if record is None or not self.can_slow:
            return False
        self._remember_arm()
        self.playback = Playback.slowly(record.events, self._clock)
        self._played = RunRecord(keep_events=False)
        return True

    def end_playback(self) -> None:
        """Show the finished run again, and of it the arm that was shown."""
        self.playback = None
        self._take_arm_of_played()
        self._played = None

    # Events

    def take(self, event: Event, changes: Changes) -> None:
        """Take the next event and note what it changed."""
        if self._suite is not None:
            self._suite.feed(event)
        match event:
            case LoadProgress():
                self.steps[event.stage] = LoadStep(event.stage, event.done, event.total)
                changes.state = True
            case EngineReady():
                self.ready = event
                self.state = RunState.IDLE
                changes.state = True
            case PromptRendered():
                self.rendered = event
                changes.rendered = True
            case RunFailed():
                self._failed(event, changes)
            case CostMeasured():
                self.costs.append(event)
                changes.costs = True
            case MeasuringFinished():
                self.is_measuring = False
                changes.costs = changes.state = True
            case SuiteStarted():
                if event.kind == "set":
                    self._sets.add(event.suite_id)
                self._suite = begin(event, self.suites.get(event.kind))
                self.suites[event.kind] = self._suite
                changes.suite = changes.state = True
            case SuiteFinished():
                self._end_suite()
                if self.state.is_busy:
                    self.state = RunState.CANCELLED
                changes.suite = changes.state = True
            case Notice() if not event.run_id:
                changes.notices.append((event.level, event.text))
            case TokenText() if not event.run_id:
                self.token_bytes.update(event.entries)
            case _:
                self._take_of_run(event, changes)

    def _take_of_run(self, event: Event, changes: Changes) -> None:
        record = self._open.get(event.run_id)
        if record is None:
            record = self._open[event.run_id] = RunRecord()
        record.feed(event)
        if isinstance(event, RunStarted):
            self.end_playback()
            self._remember_arm()
            self._show_remembered(record)
            if self._record is not None:
                self._record.pack()
            self._record = record
            others = [run for run in self.runs if not is_same(run, event)]
            self.runs = newest_of([*others, record])
            self.over_prompts.add(record)
            self.session.begin(record)
            if self._suite is not None and event.suite_id == self._suite.started.suite_id:
                self._suite.add(record)
                changes.suite = True
            else:
                self._chosen = None
            self.state = RunState.PREFILL
            changes.record = True
        if isinstance(event, RunFinished):
            self._end(self._open.pop(event.run_id))
            changes.suite |= self._suite is not None
        if record is not self._record:
            return  # the last words of a run that was dropped
        match event:
            case TokensCommitted():
                if self.state is RunState.PREFILL:
                    self.state = RunState.DECODING
                changes.tokens = True
            case Notice() if self._suite is not None:
                if self._suite.is_news(event):
                    changes.notices.append((event.level, event.text))
            case Notice() if len(record.arms) != 1:
                # A plain run says so in its panes, every time.
                changes.notices.append((event.level, event.text))
            case ArmFinished():
                changes.tokens = True
            case Diverged():
                changes.parted = True
            case RunFinished():
                reasons = {arm.finished.reason for arm in record.arms if arm.finished}
                whole = reasons.isdisjoint(CUT_SHORT)
                self.state = RunState.DONE if whole else RunState.CANCELLED
                changes.ended = changes.tokens = True
            case _:
                pass

    def _remember_arm(self) -> None:
        """Note the arm that is shown, before another run is shown.

        A matrix or a sweep has other arms than the settings: what is shown of it and what is shown
        before and after it are kept apart.
        """
        record = self.looked_at
        if record is not None and len(record.arms) > 1:
            self._arms_shown[self.arms_of(record)] = kinds_of(record), record.shown_arm

    def _show_remembered(self, record: RunRecord) -> None:
        """Show the arm that was shown of the run before, where this one has such arms."""
        kinds, arm = self._arms_shown.get(self.arms_of(record), ((), 1))
        if kinds and kinds == kinds_of(record):
            record.choose(arm)

    def _take_arm_of_played(self) -> None:
        """Slow motion leaves its run at the arm that was shown."""
        played, record = self._played, self.kept
        if played is not None and record is not None and len(played.arms) > 1:
            record.choose(played.shown_arm)

    def play(self, changes: Changes) -> None:
        """Take what has come due of slow motion."""
        assert self.playback is not None
        assert self._played is not None
        events = self.playback.poll()
        if self.playback.take_rewind():
            self._take_arm_of_played()
            self._played = RunRecord(keep_events=False)
        for event in events:
            self._played.feed(event)
            if isinstance(event, RunStarted) and self.kept is not None and len(event.arms) > 1:
                self._played.choose(self.kept.shown_arm)
            changes.record |= isinstance(event, RunStarted)
            changes.tokens |= isinstance(event, TokensCommitted)
            changes.parted |= isinstance(event, Diverged)
        if self.playback.is_over and not self.playback.is_paused:
            self.end_playback()
            changes.record = True

    def rewind(self, trace: Playback) -> None:
        """A jump back in a trace takes away what comes again."""
        rewound = trace.take_rewind()
        if rewound:
            self._open.clear()
        if rewound == "run" and self._suite is not None:
            self._suite.forget_running()
        if rewound == "all":
            self._remember_arm()
            self.runs, self.suites, self.costs = [], {}, []
            self.over_prompts = OverPrompts()
            self._suite = self._record = self._chosen = None

    def follow(self, trace: Playback, has_come: bool, changes: Changes) -> None:
        """A trace's pauses are the run's; so is its end, where it was cut off."""
        if trace.is_over and not has_come and self.is_busy:
            self.state = RunState.CANCELLED
            self._end_suite()
            for record in self._open.values():
                self.session.end(record)
            changes.ended = True
            changes.notices.append(("warning", "The trace ends here, inside a run."))
        elif self.state.is_busy and trace.is_paused:
            self.state = RunState.PAUSED
        elif self.state is RunState.PAUSED and not trace.is_paused:
            self.state = RunState.DECODING

    def take_ended(self) -> list[RunRecord]:
        """Runs that have ended since the last call: nothing more comes of them."""
        ended, self._ended = self._ended, []
        return ended

    def _end(self, record: RunRecord) -> None:
        self.session.end(record)
        self._ended.append(record)

    def _end_suite(self) -> None:
        if self._suite is not None:
            self._suite.is_over = True
            self._suite = None

    def _failed(self, event: RunFailed, changes: Changes) -> None:
        expected = self.is_busy or self.state is RunState.LOADING
        self.state = RunState.FAILED
        self.is_measuring = False
        self._end_suite()
        self.end_playback()
        changes.state = changes.ended = True
        if not expected:
            # Nothing was going on: the verdict on the run shown stays, and `r` loads again.
            changes.notices.append(("error", f"{event.message} {event.hint}".strip()))
            return
        self.failure = event
        if self._record is not None and self._record.finished is None:
            self._record.feed(event)
            changes.tokens = True
        for record in self._open.values():
            self._end(record)
        self._open.clear()
