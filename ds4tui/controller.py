"""Between the engine and the screens: one run state, the run shown, and the knobs.

Owns the link, the runs of the session, what the next run will be, and slow motion. Knows no
widgets: `drain()` says what changed, and whoever draws asks for the rest.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ds4tui.changes import Changes as Changes  # what `drain` answers with
from ds4tui.knobs_now import NO_CHOICES as NO_CHOICES
from ds4tui.knobs_now import Choices as Choices
from ds4tui.knobs_now import knobs_of, next_confidence
from ds4tui.link import EngineLink, ReplayLink
from ds4tui.options import PromptEntry
from ds4tui.paint.panes import LoadStep
from ds4tui.playback import Playback, is_playable
from ds4tui.run_record import RunRecord, is_same, newest_of
from ds4tui.run_state import RunState
from ds4tui.suite_record import SuiteRecord, begin
from engine.errors import Ds4Error
from engine.events import (
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
from engine.paths import Numerics, Policy
from engine.process import Cancel, Measure, Pause, Render, Resume, Run, RunSuite, Stop, Turn
from engine.settings import (
    Knobs,
    Prompt,
    RunRequest,
    Settings,
)

if TYPE_CHECKING:
    from engine.costs import CostRequest
    from engine.suite import SuiteRequest

HISTORY = 100


class Controller:
    """Runs prompts on an engine and keeps what came back.

    Args:
        connect: makes a link that has not been started yet.
        prompt: of the first run; None starts none.
        settings: of the first run.
        prompts: the set for `[` and `]`.
        choices: what the engine can do.
        recorder: gets every batch of events, for a trace.
        clock: seconds, monotonic.
        set_name: what the set is called.
    """

    def __init__(
        self,
        connect: Callable[[], EngineLink],
        prompt: Prompt | None = None,
        settings: Settings | None = None,
        prompts: Sequence[PromptEntry] = (),
        choices: Choices | None = None,
        recorder: Callable[[Sequence[Event]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        set_name: str = "demo",
    ) -> None:
        self.prompt = prompt or Prompt("")
        self.settings = settings or Settings()
        self.prompts = tuple(prompts)
        self.set_name = set_name
        self.choices = choices or Choices()
        self.history: list[str] = []
        self.state = RunState.IDLE
        self.steps: dict[str, LoadStep] = {}
        self.runs: list[RunRecord] = []
        self.failure: RunFailed | None = None
        self.ready: EngineReady | None = None
        self.rendered: PromptRendered | None = None
        self.token_bytes: dict[int, bytes] = {}
        self.playback: Playback | None = None
        self.suites: dict[str, SuiteRecord] = {}
        self.costs: list[CostMeasured] = []
        self.is_measuring = False
        self._suite: SuiteRecord | None = None
        self._waiting_suite: SuiteRequest | None = None
        self._played: RunRecord | None = None
        self._record: RunRecord | None = None
        self._chosen: RunRecord | None = None
        self._open: dict[str, RunRecord] = {}
        self._connect = connect
        self._link: EngineLink | None = None
        self._wants_run = prompt is not None
        self._recorder = recorder
        self._clock = clock
        self._prompt_at: int | None = None

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
    def newest(self) -> RunRecord | None:
        """The run that the engine is at, or was last at."""
        return self._record

    def open_run(self, record: RunRecord, arm: int | None = None) -> None:
        """Show another run than the newest, until a run is begun that is not of a suite.

        Args:
            arm: the one to show beside plain; None = the one shown last.
        """
        self.end_playback()
        if arm is not None:
            record.choose(arm)
        self._chosen = None if record is self._record else record

    @property
    def player(self) -> Playback | None:
        """What the keys of time act on: slow motion, else the trace that is open."""
        if self.playback is None and isinstance(self._link, ReplayLink):
            return self._link.playback
        return self.playback

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
    def now(self) -> Knobs | None:
        """The knobs of the run shown, with those turned since it began."""
        record = self.record
        arm = record.dspark if record else None
        return None if arm is None else knobs_of(arm)

    @property
    def wanted(self) -> Knobs | None:
        """The knobs of the next run; None when it is plain only."""
        return self.settings.dspark[0] if self.settings.dspark else None

    @property
    def block_size(self) -> int:
        """Drafts of a whole block."""
        if self.ready is not None:
            return self.ready.block_size
        record = self.record
        return record.started.block_size if record and record.started else 0

    @property
    def default_confidence(self) -> float | None:
        """The drafter's own threshold, once known."""
        return self.ready.confidence if self.ready is not None else None

    # Commands

    def start(self) -> None:
        """Begin to load the engine."""
        self._link = self._connect()
        self.state = RunState.LOADING
        self.steps.clear()
        self.failure = None
        # Spawning hands on stderr's file descriptor; while Textual draws, sys.stderr has none.
        with contextlib.redirect_stderr(sys.__stderr__):
            self._link.start()

    def close(self) -> None:
        """End the engine."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def run(self, prompt: Prompt | None = None) -> None:
        """Run the prompt with the wanted settings; loads the engine again if it has ended."""
        if prompt is not None:
            self.prompt = prompt
        self.end_playback()
        if self.prompt.text and self.history[-1:] != [self.prompt.text]:
            self.history = [*self.history, self.prompt.text][-HISTORY:]
        alive = self._link is not None and self._link.is_alive
        if alive and self.ready is not None:
            self._send_run()
            return
        self._wants_run = True
        if not alive or self.state is not RunState.LOADING:
            self.close()
            self.start()

    @property
    def can_follow_up(self) -> bool:
        """There is a conversation that can go on: a run has ended and shows tokens."""
        newest = self.newest
        ended = newest is not None and newest.finished is not None and self.kept is newest
        return ended and self.can_begin and newest is not None and bool(newest.arms[0].ids)

    def follow_up(self, prompt: Prompt) -> None:
        """Run the next turn of the newest run's conversation; `r` still runs its first one."""
        if self.can_follow_up:
            self.history = [*self.history, prompt.text][-HISTORY:]
            self._send_run(prompt)

    @property
    def can_begin(self) -> bool:
        """The engine is loaded and idle."""
        alive = self._link is not None and self._link.is_alive
        return alive and self.ready is not None and not self.is_busy

    @property
    def can_run_suite(self) -> bool:
        """A suite can be started, now or once the engine is loaded; it ends a run in progress."""
        return bool(self.choices.numerics) and self._suite is None and not self.is_measuring

    @property
    def suite_waits(self) -> bool:
        """A suite begins as soon as the engine is loaded."""
        return self._waiting_suite is not None

    def run_suite(self, request: SuiteRequest) -> None:
        """Start a suite; it shows in `suites` by its kind, its newest run in `record`.

        A run in progress is cancelled; an engine that has ended is loaded again first.
        """
        if not self.can_run_suite:
            return
        alive = self._link is not None and self._link.is_alive
        self._waiting_suite, self._wants_run = request, False
        if alive and self.ready is not None:
            self._send_suite()
        elif not alive or self.state is not RunState.LOADING:
            self.close()
            self.start()

    def _send_suite(self) -> None:
        assert self._link is not None
        assert self._waiting_suite is not None
        request, self._waiting_suite = self._waiting_suite, None
        self._begin()
        self._link.send(RunSuite(request))

    def measure(self, request: CostRequest) -> None:
        """Measure what steps cost; the answers come as `costs`."""
        if self.can_begin and self._link is not None:
            self.end_playback()
            self.costs = []
            self.is_measuring = True
            self.steps.pop("measuring", None)
            self._link.send(Measure(request))

    def _begin(self) -> None:
        self.end_playback()
        self._chosen = None
        self.failure = None
        self.state = RunState.PREFILL
        self.steps.pop("prefill", None)

    def _send_run(self, turn: Prompt | None = None) -> None:
        """Start the prompt's run, or a further turn of the conversation."""
        assert self._link is not None
        self._wants_run = False
        if self.is_busy:
            self._link.send(Cancel())
        self._begin()
        at = self.prompt_index if turn is None else None
        request = RunRequest(
            prompt=turn or self.prompt,
            settings=self.settings,
            follow_up=turn is not None,
            prompt_index=at or 0,
            category=self.prompts[at].category if at is not None else "",
        )
        self._link.send(Run(request))

    @property
    def prompt_index(self) -> int | None:
        """Where the prompt is in the set; None when it is not of the set."""
        at = self._prompt_at
        if at is not None and self.prompts[at].prompt == self.prompt:
            return at
        same = (n for n, entry in enumerate(self.prompts) if entry.prompt == self.prompt)
        return next(same, None)

    def pause(self) -> None:
        """Pause or resume the run, or slow motion."""
        if self.player is not None:
            self.player.pause(not self.player.is_paused)
        elif self._link is not None and self.state is RunState.PAUSED:
            self._link.send(Resume())
            self.state = RunState.DECODING
        elif self._link is not None and self.state.is_busy:
            self._link.send(Pause())
            self.state = RunState.PAUSED

    def stop(self) -> None:
        """Stop the run, or end slow motion."""
        if self.playback is not None:
            self.end_playback()
        elif self._link is not None and self.is_busy:
            self._link.send(Stop())

    def render(self, prompt: Prompt) -> None:
        """Ask which ids a prompt becomes; the answer comes as `rendered`."""
        if self._link is not None and self._link.is_alive and self.ready is not None:
            self._link.send(Render(prompt))

    def can_turn(self, knob: str) -> bool:
        """A knob has more than one position now."""
        if knob == "numerics":
            return self.next_numerics() is not None
        if knob == "policy":
            return self.next_policy() is not None
        return self.wanted is not None and bool(self.choices.policies) and self.block_size > 0

    def turn(self, knob: str, step: int) -> None:
        """Turn a knob: policy, threshold and block length act from the next cycle of a running
        run on, numerics from the next run on.

        Args:
            knob: `numerics`, `policy`, `confidence` or `block`.
            step: 1 or -1.
        """
        if not self.can_turn(knob):
            return
        numerics, policy, wanted = self.next_numerics(), self.next_policy(step), self.wanted
        if knob == "numerics" and numerics is not None:
            self.settings = replace(self.settings, numerics=numerics)
        elif wanted is None:
            return
        elif knob == "policy" and policy is not None:
            self.take_knobs(replace(wanted, commit=policy))
        elif knob == "confidence":
            gate = next_confidence(wanted.confidence, self.default_confidence, step)
            self.take_knobs(replace(wanted, confidence=gate))
        elif knob == "block":
            most = wanted.draft_max or self.block_size
            most = max(1, min(self.block_size, most + step))
            self.take_knobs(replace(wanted, draft_max=None if most == self.block_size else most))

    def next_policy(self, step: int = 1) -> Policy | None:
        """The policy that turning the knob would choose; None when there is no other."""
        wanted = self.wanted
        policies = self.choices.policies
        if wanted is None or len(policies) < 2:
            return None
        at = policies.index(wanted.commit) if wanted.commit in policies else -1
        return policies[(at + step) % len(policies)]

    def next_numerics(self) -> Numerics | None:
        """The numerics that turning the knob would choose; None when there is no other."""
        numerics = self.choices.numerics
        if len(numerics) < 2:
            return None
        return numerics[(numerics.index(self.settings.numerics) + 1) % len(numerics)]

    def take_knobs(self, knobs: Knobs) -> None:
        """Take all knobs of the first DSpark arm; they act when a turned one would."""
        self.settings = replace(self.settings, dspark=(knobs, *self.settings.dspark[1:]))
        if self._suite is not None:
            return  # all runs of a suite have the same settings
        if self._link is not None and self.state.is_busy and self._record is not None:
            arm = next((n for n, a in enumerate(self._record.arms) if a.info.kind == "dspark"), 0)
            if arm:
                self._link.send(Turn(arm, knobs))

    def take_set(self, prompts: Sequence[PromptEntry], name: str) -> None:
        """Step through another set from now on."""
        self.prompts, self.set_name, self._prompt_at = tuple(prompts), name, None

    def choose_prompt(self, step: int) -> bool:
        """Take the next or previous prompt of the set; False when there is none."""
        if not self.prompts:
            return False
        at = self.prompt_index
        if at is None:
            at = self._prompt_at if self._prompt_at is not None else (-1 if step > 0 else 0)
        self._prompt_at = (at + step) % len(self.prompts)
        self.prompt = self.prompts[self._prompt_at].prompt
        return True

    @property
    def can_slow(self) -> bool:
        """There is a run that has ended and committed something."""
        record = self.kept
        return record is not None and not self.is_busy and is_playable(record.events)

    def slow_motion(self) -> bool:
        """Play the finished run again, slowly; False when there is none."""
        record = self.kept
        if record is None or not self.can_slow:
            return False
        self.playback = Playback.slowly(record.events, self._clock)
        self._played = RunRecord(keep_events=False)
        return True

    def end_playback(self) -> None:
        """Show the finished run again."""
        self.playback = None
        self._played = None

    # Events

    def drain(self) -> Changes:
        """Take all events that have come; call it at the frame rate."""
        changes = Changes()
        before = self.shown_state
        if self._link is not None:
            events = self._link.poll()
            if isinstance(self._link, ReplayLink):
                self._rewind(self._link.playback)
            if events and self._recorder is not None:
                self._record_events(events, changes)
            for event in events:
                self._take(event, changes)
            if isinstance(self._link, ReplayLink):
                self._follow(self._link.playback, bool(events), changes)
        if self.playback is not None:
            self._play(changes)
        changes.state |= before is not self.shown_state
        return changes

    def _rewind(self, trace: Playback) -> None:
        """A jump back in a trace takes away what comes again."""
        rewound = trace.take_rewind()
        if rewound:
            self._open.clear()
        if rewound == "all":
            self.runs, self.suites, self.costs = [], {}, []
            self._suite = self._record = self._chosen = None

    def _follow(self, trace: Playback, has_come: bool, changes: Changes) -> None:
        """A trace's pauses are the run's; so is its end, where it was cut off."""
        if trace.is_over and not has_come and self.is_busy:
            self.state = RunState.CANCELLED
            self._end_suite()
            changes.ended = True
            changes.notices.append(("warning", "The trace ends here, inside a run."))
        elif self.state.is_busy and trace.is_paused:
            self.state = RunState.PAUSED
        elif self.state is RunState.PAUSED and not trace.is_paused:
            self.state = RunState.DECODING

    def _record_events(self, events: Sequence[Event], changes: Changes) -> None:
        assert self._recorder is not None
        try:
            self._recorder(events)
        except Ds4Error as error:
            # What was recorded stays readable; the run goes on.
            self._recorder = None
            changes.notices.append(("error", f"{error} The trace ends here."))

    def _play(self, changes: Changes) -> None:
        assert self.playback is not None
        assert self._played is not None
        events = self.playback.poll()
        if self.playback.take_rewind():
            self._played = RunRecord(keep_events=False)
        for event in events:
            self._played.feed(event)
            changes.record |= isinstance(event, RunStarted)
            changes.tokens |= isinstance(event, TokensCommitted)
            changes.parted |= isinstance(event, Diverged)
        if self.playback.is_over and not self.playback.is_paused:
            self.end_playback()
            changes.record = True

    def _take(self, event: Event, changes: Changes) -> None:
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
                if self._waiting_suite is not None:
                    self._send_suite()
                elif self._wants_run:
                    self._send_run()
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
        record = self._open.setdefault(event.run_id, RunRecord())
        record.feed(event)
        if isinstance(event, RunStarted):
            self.end_playback()
            self._record = record
            others = [run for run in self.runs if not is_same(run, event)]
            self.runs = newest_of([*others, record])
            if self._suite is not None and event.suite_id == self._suite.started.suite_id:
                self._suite.add(record)
                changes.suite = True
            else:
                self._chosen = None
            self.state = RunState.PREFILL
            changes.record = True
        if isinstance(event, RunFinished):
            del self._open[event.run_id]
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
                stopped = reasons & {"stop", "cancelled"}
                self.state = RunState.CANCELLED if stopped else RunState.DONE
                changes.ended = changes.tokens = True
            case _:
                pass

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
        if self._link is not None and not self._link.is_alive:
            self.ready = None
        if not expected:
            # Nothing was going on: the verdict on the run shown stays, and `r` loads again.
            changes.notices.append(("error", f"{event.message} {event.hint}".strip()))
            return
        self.failure = event
        self._open.clear()
        if self._record is not None and self._record.finished is None:
            self._record.feed(event)
            changes.tokens = True
