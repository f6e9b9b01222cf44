"""One arm, one step at a time: plain decode, DSpark cycles, recorded ids.

Every arm is a generator that yields the events of one step, so that `engine.ab` can interleave
arms. Owns budgets, ends of text and the single-row rule; the commit is `engine.commit`'s. Knows
nothing of other arms. What only a reader needs (top fives, gaps, drafts without bias) is made
outside the clocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from engine.commit import COMMITS, Settled, Verified, accepted_prefix
from engine.events import (
    CycleFinished,
    Event,
    FinishReason,
    Notice,
    SettingsChanged,
    Source,
    TokensCommitted,
)
from engine.greedy import gap, top
from engine.propose import Chain, Limit, Pause, Proposal, limit_of
from engine.settings import Knobs
from engine.timeline import Row, Timeline

Step = tuple[Event, ...]


def _nothing() -> None:
    """No command to look for."""


@dataclass(slots=True)
class Control:
    """What may change while arms run; read once per step.

    Args:
        limit: most ids of every arm.
        knobs: of the DSpark arms, by arm.
        checkpoint: looks for commands; may block while the run is paused.
    """

    limit: int
    knobs: dict[int, Knobs] = field(default_factory=dict)
    stopped: bool = False
    cancelled: bool = False
    checkpoint: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Stamp:
    """Head of an arm's events."""

    run_id: str
    arm: int
    now: Callable[[], int] = time.perf_counter_ns

    def __call__(self) -> tuple[str, int, int]:
        """(run id, arm, time now)."""
        return self.run_id, self.arm, self.now()


def end_of(timeline: Timeline, control: Control) -> FinishReason | None:
    """Why no further step is taken, or None."""
    if control.cancelled:
        return "cancelled"
    if timeline.ids and timeline.ids[-1] == timeline.target.eos_id:
        return "eos"
    if len(timeline.ids) >= control.limit:
        return "stop" if control.stopped else "length"
    if timeline.ids and timeline.free < 1:
        return "context"
    return None


def _committed(
    timeline: Timeline, head: tuple[str, int, int], sources: Sequence[Source]
) -> TokensCommitted:
    """The event of the ids just committed."""
    rows = timeline.sources
    index = len(timeline.ids) - len(rows)
    return TokensCommitted(
        *head,
        index,
        timeline.start + index,
        tuple(timeline.ids[index:]),
        tuple(sources),
        tuple(top(row.processed) for row in rows),
        timeline.clock.take(),
    )


def _first(timeline: Timeline, stamp: Stamp) -> Step:
    """Commit the token that the prefill's last row chose; costs nothing."""
    timeline.commit((timeline.row.choice,), (timeline.row,), timeline.row)
    return (_committed(timeline, stamp(), ("prefill",)),)


def plain_arm(timeline: Timeline, stamp: Stamp, control: Control) -> Iterator[Step]:
    """Greedy decode, one token a step."""
    while (reason := end_of(timeline, control)) is None:
        if not timeline.ids:
            yield _first(timeline, stamp)
            continue
        with timeline.clock("decode"):
            row, _ = timeline.decode(timeline.ids[-1])
            timeline.commit((row.choice,), (row,), row)
        yield (_committed(timeline, stamp(), ("plain",)),)
    timeline.reason = reason


def recorded_arm(
    timeline: Timeline, stamp: Stamp, control: Control, ids: Sequence[int]
) -> Iterator[Step]:
    """Ids of another run, teacher-forced through plain decode."""
    for token in ids:
        reason = end_of(timeline, control)
        if reason is not None:
            timeline.reason = reason
            name, known = timeline.info.name, len(timeline.ids)
            text = f"{name} has {len(ids)} ids; those after the first {known} are not compared."
            yield (Notice(*stamp(), "warning", text),)
            return
        row = timeline.row
        if timeline.ids:
            with timeline.clock("decode"):
                row, _ = timeline.decode(timeline.ids[-1])
        source: Source = "plain" if timeline.ids else "prefill"
        timeline.commit((token,), (row,), row)
        yield (_committed(timeline, stamp(), (source,)),)
    timeline.reason = end_of(timeline, control) or "length"


def dspark_arm(
    timeline: Timeline, stamp: Stamp, control: Control, *, markov: bool = True
) -> Iterator[Step]:
    """Draft, verify, commit; one cycle a step."""
    knobs = control.knobs[stamp.arm]
    pause, cycle, told = Pause(), 0, False
    while (reason := end_of(timeline, control)) is None:
        if not timeline.ids:
            yield _first(timeline, stamp)
            continue
        turned = _turned(timeline, stamp, cycle, knobs, control.knobs[stamp.arm])
        knobs = control.knobs[stamp.arm]
        finished, committed = _cycle(timeline, stamp, control, knobs, markov, pause, cycle)
        warned: Step = ()
        if finished.is_cut_by_nan and not told:
            warned, told = (_nan(stamp, timeline.info.name),), True
        yield (*turned, finished, committed, *warned)
        cycle += 1
    timeline.reason = reason


def _gate(timeline: Timeline, knobs: Knobs) -> float:
    """The threshold in force: the drafter's own where none is set."""
    return timeline.gate if knobs.confidence is None else knobs.confidence


def _turned(timeline: Timeline, stamp: Stamp, cycle: int, old: Knobs, new: Knobs) -> Step:
    """What an arm's knobs change, if anything."""
    settings = (
        ("commit", old.commit, new.commit),
        ("confidence", _gate(timeline, old), _gate(timeline, new)),
        ("draft_max", old.draft_max, new.draft_max),
    )
    changed = tuple(
        (name, str(after).lower()) for name, before, after in settings if before != after
    )
    return (SettingsChanged(*stamp(), cycle, changed),) if changed else ()


def _nan(stamp: Stamp, name: str) -> Notice:
    what = f"{name}: the drafter's confidence is NaN, which the gate never passes"
    return Notice(*stamp(), "warning", f"{what}, so such drafts are not proposed.")


def _cycle(
    timeline: Timeline,
    stamp: Stamp,
    control: Control,
    knobs: Knobs,
    markov: bool,
    pause: Pause,
    cycle: int,
) -> tuple[CycleFinished, TokensCommitted]:
    anchor, position = timeline.ids[-1], timeline.state.position
    proposal, drafts = _propose(timeline, control, knobs, markov, pause)
    if drafts:
        settled, verify_rows = _verify(timeline, knobs, anchor, drafts)
    else:
        with timeline.clock("decode"):
            row, taps = timeline.decode(anchor)
        settled = Settled((row.choice,), (row,), row, taps, 0)
        verify_rows = (row,)
    with timeline.clock("commit"):
        timeline.keep_taps(position, settled.taps)
        timeline.commit(settled.ids, settled.rows, settled.last)
        if proposal.most:
            pause.settle(settled.accepted, proposal.most)
    sources: list[Source] = ["draft"] * settled.accepted
    sources += ["bonus"] * (len(settled.ids) - settled.accepted)
    head = stamp()
    committed = _committed(timeline, head, sources)
    finished = CycleFinished(
        *head,
        cycle,
        committed.index,
        committed.position,
        anchor,
        proposal.drafts,
        proposal.unbiased,
        proposal.confidences,
        proposal.proposed,
        tuple(row.choice for row in verify_rows),
        tuple(gap(top(row.processed, 2)) for row in verify_rows),
        settled.replayed,
        settled.accepted,
        settled.ids[-1] if len(settled.ids) > settled.accepted else -1,
        len(settled.ids),
        settled.recheck_cut,
        proposal.clip,
        committed.time,
    )
    return finished, committed


def _propose(
    timeline: Timeline, control: Control, knobs: Knobs, markov: bool, pause: Pause
) -> tuple[Proposal, tuple[int, ...]]:
    drafter = timeline.drafter
    assert drafter is not None
    limit = Limit(0, "strict")
    if knobs.commit != "strict":
        remaining = control.limit - len(timeline.ids)
        limit = limit_of(drafter.block_size, knobs.draft_max, remaining, timeline.free)
    gate = _gate(timeline, knobs)
    if limit.drafts and pause.applies(gate):
        return Proposal(clip="pause"), ()
    with timeline.clock("draft"):
        timeline.carry()
        if not limit.drafts:
            return Proposal(clip=limit.reason), ()
        anchor, position = timeline.ids[-1], timeline.state.position
        rows = limit.drafts if markov else 0  # the block's own chain is biased
        chain = Chain(
            drafter.block(timeline.drafter_context, anchor, position, rows, gate),
            timeline.rules,
            anchor,
            markov=markov,
            gate=gate,
            eos_id=timeline.target.eos_id,
        )
        chain.run(limit)
    return chain.record(), chain.proposed


def _verify(
    timeline: Timeline, knobs: Knobs, anchor: int, drafts: tuple[int, ...]
) -> tuple[Settled, Sequence[Row]]:
    with timeline.clock("commit"):
        snapshot = timeline.state.snapshot()
    with timeline.clock("verify"):
        rows, taps = timeline.evaluate((anchor, *drafts), timeline.target.verify)
        accepted, ends = accepted_prefix(drafts, rows, timeline.target.eos_id)
    verified = Verified(snapshot, anchor, drafts, rows, taps, accepted, ends)
    return COMMITS[knobs.commit](timeline, verified), rows
