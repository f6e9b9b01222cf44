"""Between the engine and the screens: what is asked of the engine, and what the next run will be.

Owns the link, the knobs and the prompts; what came back is the intake's. Knows no widgets:
`drain()` says what changed, and whoever draws asks for the rest.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ds4tui.changes import Changes
from ds4tui.intake import Intake, kinds_of
from ds4tui.knobs_now import Choices, knobs_of, next_confidence
from ds4tui.link import EngineLink, ReplayLink, TraceLink
from ds4tui.playback import Playback
from ds4tui.run_state import RunState
from engine.errors import Ds4Error
from engine.events import EngineReady, Event
from engine.paths import Numerics, Policy
from engine.process import Cancel, Measure, Pause, Render, Resume, Run, RunSuite, Stop, Turn
from engine.prompt_set import PromptEntry
from engine.settings import Knobs, Prompt, RunRequest, Settings

if TYPE_CHECKING:
    from engine.costs import CostRequest
    from engine.suite import SuiteRequest

HISTORY = 100


class Controller(Intake):
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
        super().__init__(clock)
        self.prompt = prompt or Prompt("")
        self.settings = settings or Settings()
        self.prompts = tuple(prompts)
        self.set_name = set_name
        self.choices = choices or Choices()
        self.history: list[str] = []
        self._waiting_suite: SuiteRequest | None = None
        self._connect = connect
        self._link: EngineLink | None = None
        self._wants_run = prompt is not None
        self._recorder = recorder
        self._prompt_at: int | None = None

    @property
    def player(self) -> Playback | None:
        """What the keys of time act on: slow motion, else the trace that is open."""
        if self.playback is None and isinstance(self._link, ReplayLink):
            return self._link.playback
        return self.playback

    # Knobs

    @property
    def now(self) -> Knobs | None:
        """The knobs of the arm shown as they stand after what was turned; None without any."""
        record = self.record
        arm = record.beside if record else None
        return knobs_of(arm) if arm is not None and arm.info.kind == "dspark" else None

    @property
    def _turned(self) -> int:
        """Which of the next run's arms the knobs are of.

        The one shown; over the runs of a matrix or a sweep, whose arms are others, the one that the
        next run will show.
        """
        record = self.looked_at
        if record is None or not record.arms or self.arms_of(record):
            kinds, shown = self._arms_shown.get("", ((), 1))
        else:
            kinds, shown = kinds_of(record), record.shown_arm
        compared = [arm for arm, kind in enumerate(kinds) if kind == ("dspark", "arm")]
        is_known = len(compared) == len(self.settings.dspark) and shown in compared
        return compared.index(shown) if is_known else 0

    @property
    def wanted(self) -> Knobs | None:
        """The knobs of the next run's arm that is shown; None when it is plain only."""
        return self.settings.dspark[self._turned] if self.settings.dspark else None

    @property
    def _drafter(self) -> str | None:
        """The drafter of the arm that the knobs are of; None = the engine's first one."""
        wanted = self.wanted
        return wanted.mtp if wanted is not None else None

    @property
    def block_size(self) -> int:
        """Drafts of a whole block of the arm that the knobs are of."""
        record = self.record
        if self.ready is not None:
            return self.ready.drafter(self._drafter)[0]
        return record.started.block_size if record and record.started else 0

    @property
    def loads(self) -> str:
        """What is going on before there is an engine, or before a trace plays."""
        what = (
            "trace is being read" if isinstance(self._link, TraceLink) else "model is being loaded"
        )
        return f"the {what}"

    @property
    def default_confidence(self) -> float | None:
        """The own threshold of the drafter of the arm that the knobs are of, once known."""
        return self.gate_of(self._drafter)

    def gate_of(self, drafter: str | None) -> float | None:
        """A drafter's own threshold, once known; None = the first one."""
        return self.ready.drafter(drafter)[1] if self.ready is not None else None

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
        if self._is_ready:
            self._send_run()
        else:
            self._wants_run = bool(self.prompt.text)
            self._load_again()

    @property
    def _is_alive(self) -> bool:
        """There is an engine, loaded or not."""
        return self._link is not None and self._link.is_alive

    @property
    def _is_ready(self) -> bool:
        """The engine is loaded."""
        return self._is_alive and self.ready is not None

    def _load_again(self) -> None:
        """Load the engine, unless that is what it does."""
        if not self._is_alive or self.state is not RunState.LOADING:
            self.close()
            self.start()

    @property
    def can_follow_up(self) -> bool:
        """There is a conversation that can go on: a run has ended and shows tokens."""
        newest = self.newest
        if newest is None or newest.finished is None or self.kept is not newest:
            return False
        return self.can_begin and bool(newest.arms[0].ids)

    def follow_up(self, prompt: Prompt) -> None:
        """Run the next turn of the newest run's conversation; `r` still runs its first one."""
        if self.can_follow_up:
            self.history = [*self.history, prompt.text][-HISTORY:]
            self._send_run(prompt)

    @property
    def can_begin(self) -> bool:
        """The engine is loaded and idle."""
        return self._is_ready and not self.is_busy

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
        self._waiting_suite, self._wants_run = request, False
        if self._is_ready:
            self._send_suite()
        else:
            self._load_again()

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
        self._remember_arm()
        self._chosen = None
        if self._record is not None:
            self._show_remembered(self._record)
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
        if self._link is not None and self._is_ready:
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
        if len(numerics) < 2 or self.settings.why_split:
            return None
        return numerics[(numerics.index(self.settings.numerics) + 1) % len(numerics)]

    def take_knobs(self, knobs: Knobs) -> None:
        """Take all knobs of the arm that is shown; they act when a turned one would."""
        at, arms = self._turned, list(self.settings.dspark)
        arms[at] = knobs
        self.settings = replace(self.settings, dspark=tuple(arms))
        if self._suite is not None:
            return  # all runs of a suite have the same settings
        if self._link is not None and self.state.is_busy and self._record is not None:
            running = [n for n, arm in enumerate(self._record.arms) if arm.info.is_compared]
            if at < len(running):
                self._link.send(Turn(running[at], knobs))

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

    # Events

    def drain(self) -> Changes:
        """Take all events that have come; call it at the frame rate."""
        changes = Changes()
        before = self.shown_state
        link = self._link
        if link is not None:
            events = link.poll()
            if isinstance(link, ReplayLink):
                self.rewind(link.playback)
            if events and self._recorder is not None:
                self._record_events(events, changes)
            for event in events:
                self.take(event, changes)
                if isinstance(event, EngineReady):
                    self._send_what_waits()
            if isinstance(link, ReplayLink):
                self.follow(link.playback, bool(events), changes)
            if self.state is RunState.FAILED and not link.is_alive:
                self.ready = None
        if self.playback is not None:
            self.play(changes)
        changes.state |= before is not self.shown_state
        return changes

    def _send_what_waits(self) -> None:
        if self._waiting_suite is not None:
            self._send_suite()
        elif self._wants_run:
            self._send_run()

    def _record_events(self, events: Sequence[Event], changes: Changes) -> None:
        assert self._recorder is not None
        try:
            self._recorder(events)
        except Ds4Error as error:
            # What was recorded stays readable; the run goes on.
            self._recorder = None
            changes.notices.append(("error", f"{error} The trace ends here."))
