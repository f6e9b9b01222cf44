"""One run from its request to its last event: checks, prompt, prefill, arms, race.

Owns what only a loaded model can refuse, the head of a run, and what is kept of it for the next
turn. Knows no files, pipes or front ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from engine.ab import Race, RaceRules, no_explanation
from engine.arms import ArmPlan, arm_plans, check_recorded, notices
from engine.compare import Lane
from engine.decode import Control, Stamp
from engine.environment import environment
from engine.errors import Ds4Error
from engine.events import (
    ArmInfo,
    Event,
    LoadProgress,
    Notice,
    RunFinished,
    RunStarted,
    target_types,
)
from engine.greedy import Rules
from engine.lanes import LaneMaker, Start, evaluate_prompt, prefill_plan
from engine.parts import Parts
from engine.paths import Plan
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings, as_text
from engine.timeline import Target, Timeline
from engine.tokenizer import Turn
from engine.verdict import must_be_identical, ulp_type

LARGE_TARGET_BYTES = 2**30
"""The states of targets above this are compared at every 16th boundary by default."""
SAMPLED_EVERY = 16


class _Dropped(Exception):
    """The run was stopped before its first token."""


Report = Callable[[Event], None]


@dataclass(slots=True)
class Conversation:
    """What is left of the last run: plain's whole text and where every arm stands."""

    ids: list[int] = field(default_factory=list)
    timelines: dict[str, Timeline] = field(default_factory=dict)

    def forget(self) -> None:
        """A run that failed leaves nothing to go on with."""
        self.ids, self.timelines = [], {}

    def keep(self, prompt_ids: Sequence[int], lanes: Sequence[Lane]) -> None:
        """Remember the arms of a run that has ended or was left."""
        self.ids = [*prompt_ids, *lanes[0].timeline.ids]
        self.timelines = {lane.timeline.info.name: lane.timeline for lane in lanes}

    def turn(self, name: str, exact: bool) -> Timeline:
        """Where an arm goes on: its own timeline, or plain's when their texts differ.

        Args:
            exact: the arm promises plain's state, which its own may have left in an earlier turn,
                in other numerics or under a fault; then it goes on from plain's too.
        """
        plain = next(iter(self.timelines.values()))
        own = self.timelines.get(name, plain)
        if own is plain or own.ids != plain.ids:
            return plain
        return plain if exact and own.state.digest() != plain.state.digest() else own


def render(parts: Parts, prompt: Prompt, said: Sequence[int] = ()) -> list[int]:
    """The ids that a prompt adds to what was said.

    Args:
        said: ids of the conversation so far; empty = the first turn.
    """
    if not prompt.text.strip():
        raise Ds4Error("Empty prompt", "The prompt is empty; expected some text.")
    tokenizer, control_tokens = parts.tokenizer, prompt.control_tokens
    if not prompt.chat:
        if said:
            return tokenizer.encode(prompt.text, control_tokens=control_tokens)
        return tokenizer.render_raw(prompt.system + prompt.text, control_tokens=control_tokens)
    if said:
        return tokenizer.render_follow_up(
            prompt.text,
            ended=said[-1] == parts.eos_id,
            think=prompt.think,
            control_tokens=control_tokens,
        )
    return tokenizer.render_chat(
        [Turn("user", prompt.text)],
        system=prompt.system,
        think=prompt.think,
        control_tokens=control_tokens,
    )


class Run:
    """One run of an engine; `events` may be iterated once."""

    def __init__(
        self,
        parts: Parts,
        files: EngineFiles,
        conversation: Conversation,
        request: RunRequest,
        control: Control,
        report: Report,
    ) -> None:
        self.run_id = uuid.uuid4().hex[:8]
        self._parts = parts
        self._files = files
        self._conversation = conversation
        self._request = request
        self._settings = self._resolve(request.settings)
        self._control = control
        self._report = report
        self._stamp = Stamp(self.run_id, -1)

    def events(self) -> Iterator[Event]:
        """Everything from `RunStarted` to `RunFinished`."""
        request, settings, control = self._request, self._settings, self._control
        said = self._conversation.ids if request.follow_up else []
        if request.follow_up and not said:
            raise Ds4Error(
                "Nothing to follow",
                "A follow-up turn needs a run that has ended; there is none.",
                "Run the prompt as a first turn.",
            )
        new = render(self._parts, request.prompt, said)
        self._check_room(len(said), len(new))
        check_recorded(request.against, [*said, *new], self._parts.vocab_size)
        plans, controls = arm_plans(self._parts, settings, request.against)
        control.limit = settings.max_tokens
        control.knobs = {i: plan.knobs for i, plan in enumerate(plans) if plan.knobs is not None}
        yield self._started([plan.info for plan in plans], [*said, *new], len(said))
        for level, text in notices(self._parts, settings):
            yield Notice(*self._stamp(), level, text)
        try:
            self._self_test()
            starts = self._starts(plans, said, new)
            self._conversation.forget()
            maker = self._maker(plans, starts)
        except _Dropped:
            yield RunFinished(*self._stamp(), None, "the run was stopped before its first token")
            return
        lanes = maker.lanes()
        if self._parts.rehearse is not None:
            timelines = [lane.timeline for lane in lanes]
            self._parts.rehearse(timelines, self._progress("compiling kernels"))
        race = Race(
            self.run_id, lanes, control, self._race_rules(), controls, self._explainer(maker)
        )
        yield from race.events()
        self._conversation.keep([*said, *new], lanes)

    def _resolve(self, settings: Settings) -> Settings:
        """The same settings with the model's own values in place of None."""
        parts = self._parts
        if settings.no_repeat is None:
            settings = replace(settings, no_repeat=parts.no_repeat)
        if settings.digest_every is None:
            large = sum(f.size for f in parts.files if f.role == "target") > LARGE_TARGET_BYTES
            settings = replace(settings, digest_every=SAMPLED_EVERY if large else 1)
        if not parts.drafters:
            return replace(settings, dspark=())
        return replace(settings, dspark=tuple(self._knobs(knobs) for knobs in settings.dspark))

    def _knobs(self, knobs: Knobs) -> Knobs:
        parts = self._parts
        path = knobs.mtp or next(iter(parts.drafters))
        if path not in parts.drafters:
            raise Ds4Error("Unknown drafter", f'The engine was loaded without drafter "{path}".')
        block = parts.drafters[path].block_size
        if knobs.draft_max is not None and knobs.draft_max > block:
            raise Ds4Error(
                "Invalid option",
                f"--draft-max is {knobs.draft_max}; expected 1 to {block}, the drafter's block.",
            )
        gate = parts.gates[path] if knobs.confidence is None else knobs.confidence
        return replace(knobs, mtp=path, confidence=gate)

    def _check_room(self, said: int, new: int) -> None:
        parts, what, less = self._parts, "The prompt", "Shorten it"
        if said:
            what, less = "The conversation with this turn", "Run it as a first turn"
        if said + new > parts.context:
            raise Ds4Error(
                "Prompt too long",
                f"{what} has {said + new} tokens, the context holds {parts.context}.",
                parts.room_hint(said + new, less),
            )

    def _started(
        self, arms: Sequence[ArmInfo], prompt_ids: Sequence[int], cached: int
    ) -> RunStarted:
        request, settings, parts = self._request, self._settings, self._parts
        prompt = request.prompt
        pairs = as_text(
            settings,
            self._files,
            context=parts.context,
            system=prompt.system or None,
            chat=prompt.chat,
            think=prompt.think,
            control_tokens=prompt.control_tokens,
        )
        return RunStarted(
            *self._stamp(),
            environment(),
            parts.files,
            pairs,
            tuple(arms),
            prompt.text,
            tuple(prompt_ids),
            settings.max_tokens,
            parts.context,
            parts.block_size,
            parts.noise_id,
            parts.window,
            parts.eos_id,
            parts.layer_kinds,
            request.suite_id,
            request.cell,
            request.prompt_index,
            request.category,
            cached,
        )

    def _target(self) -> Target:
        settings, eos = self._settings, self._parts.eos_id
        if settings.numerics == "invariant":
            verify = Plan("invariant", perturb=settings.perturb)
        else:
            verify = Plan("batch", frozenset(settings.batch_ops), perturb=settings.perturb)
        return Target(
            self._parts.model, settings.numerics, verify, None if settings.ignore_eos else eos
        )

    def _rules(self) -> Rules:
        ignored = self._parts.eos_id if self._settings.ignore_eos else None
        return Rules(self._settings.no_repeat or 0, ignored)

    def _self_test(self) -> None:
        """Refuse `invariant` where it would not keep its promise."""
        test = self._parts.rows_differ
        if self._settings.numerics != "invariant" or test is None:
            return
        progress = self._progress("self-test")
        progress(0, 1)
        found = test()
        progress(1, 1)
        if found:
            raise Ds4Error(
                "Not invariant here",
                f"--numerics invariant does not hold on this machine: {found}.",
                "Use --numerics split.",
            )

    def _maker(self, plans: Sequence[ArmPlan], starts: Sequence[Start]) -> LaneMaker:
        parts, settings = self._parts, self._settings

        def make(target: Target) -> LaneMaker:
            return LaneMaker(
                self.run_id,
                target,
                self._rules(),
                plans,
                starts,
                self._control,
                markov=settings.markov,
                settle=parts.settle,
            )

        target = self._target()
        if settings.pin:
            if parts.new_choices is None:
                raise Ds4Error("Not yet", "--pin is not built yet for this target.")
            choices = parts.new_choices(settings.pin)
            make(target).record_plain(choices, self._progress("recording choices"))
            target = replace(target, pin=choices)
        return make(target)

    def _starts(
        self, plans: Sequence[ArmPlan], said: Sequence[int], new: Sequence[int]
    ) -> list[Start]:
        target, parts = self._target(), self._parts
        plan = prefill_plan(self._settings.numerics, self._files.kv_rounding)
        progress, seen = self._progress("prefill"), parts.drafter_window
        if not said:
            start = evaluate_prompt(target, parts.new_state(), new, plan, seen, progress)
            return [start] * len(plans)
        made: dict[int, Start] = {}
        starts = []
        for arm in plans:
            timeline = self._conversation.turn(
                arm.info.name.removesuffix(" again"), self._promises(arm)
            )
            if id(timeline) not in made:
                fresh = timeline.state.clone()
                # The last shown token was never evaluated, except where nothing was shown.
                pending = [*timeline.ids[-1:], *new]
                start = evaluate_prompt(target, fresh, pending, plan, seen, progress)
                taps = (*timeline.taps, *start.taps)
                made[id(timeline)] = replace(
                    start, taps=taps, drafter_context=timeline.drafter_context
                )
            starts.append(made[id(timeline)])
        return starts

    def _promises(self, arm: ArmPlan) -> bool:
        settings = self._settings
        return arm.knobs is not None and must_be_identical(
            settings.numerics,
            arm.knobs.commit,
            perturbed=settings.perturb is not None,
        )

    def _progress(self, stage: str) -> Callable[[int, int], None]:
        def progress(done: int, total: int) -> None:
            self._report(LoadProgress(*self._stamp(), stage, done, total))
            self._control.checkpoint()
            if done < total and (self._control.cancelled or self._control.stopped):
                raise _Dropped

        return progress

    def _race_rules(self) -> RaceRules:
        settings = self._settings
        return RaceRules(
            settings.digest_every or 0,
            settings.near_tie_ulps,
            ulp_type(settings.numerics, self._files.device, target_types(self._parts.files)),
        )

    def _explainer(self, maker: LaneMaker) -> Callable[[int, int], tuple[str, ...]]:
        new_choices, control = self._parts.new_choices, self._control
        if new_choices is None:
            return no_explanation
        knobs = dict(control.knobs)

        def explain(arm: int, index: int) -> tuple[str, ...]:
            if control.knobs != knobs:  # a mixed run cannot be decoded again as it was
                return ()
            return maker.differing_choices(lambda: new_choices(("router", "indexer")), arm, index)

        return explain
