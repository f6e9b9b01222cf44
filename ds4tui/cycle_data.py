"""One cycle as the inspector shows it: a row per row of the verify batch, and what it cost.

Owns the words for outcomes, for what a commit policy did and for where the time went. Pure
functions over a run's record; knows no widgets and no layout.
"""

from __future__ import annotations

from dataclasses import dataclass

from ds4tui.knobs_now import gate_at, policy_at
from ds4tui.paint.numbers import fraction
from ds4tui.run_record import ArmRecord, RunRecord
from engine.events import CycleFinished

CUTS = {
    "draft_max": "over the block length",
    "budget": "over the token budget",
    "context": "over the context",
    "eos": "after the end of the text",
    "excluded": "no token left to draft",
    "strict": "strict drafts nothing",
}


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A row of the verify batch and the draft that it judges; "-" where there is none."""

    number: int
    token: str
    confidence: float | None
    draft: str
    unbiased: str
    verify: str
    gap: float | None
    plain: str
    outcome: str
    parts: bool


def batch_rows(record: RunRecord, arm: ArmRecord, cycle: CycleFinished) -> list[BatchRow]:
    """A row per verified row, then one per draft that was cut before the verify."""
    count = max(cycle.proposed + 1, len(cycle.drafts), len(cycle.confidences))
    parting = record.parts_at
    rows = []
    for at in range(count):
        inputs = (cycle.anchor, *cycle.drafts)
        verified = at < len(cycle.verify_ids)
        rows.append(
            BatchRow(
                number=at,
                token=record.text(inputs[at]) if at < len(inputs) else "-",
                confidence=cycle.confidences[at] if at < len(cycle.confidences) else None,
                draft=_of(record, cycle.drafts, at),
                unbiased=_of(record, cycle.drafts_unbiased, at),
                verify=_of(record, cycle.verify_ids, at),
                gap=cycle.verify_gaps[at] if verified and at < len(cycle.verify_gaps) else None,
                plain=_plain(record, cycle.index + at, parting),
                outcome=_outcome(record, arm, cycle, at),
                parts=parting == cycle.index + at,
            )
        )
    return rows


def _of(record: RunRecord, ids: tuple[int, ...], at: int) -> str:
    return record.text(ids[at]) if at < len(ids) else "-"


def _plain(record: RunRecord, index: int, parting: int | None) -> str:
    if parting is not None and index > parting:
        return "differs"
    ids = record.arms[0].ids
    return record.text(ids[index]) if index < len(ids) else "-"


def _outcome(record: RunRecord, arm: ArmRecord, cycle: CycleFinished, at: int) -> str:
    accepted, proposed = cycle.accepted, cycle.proposed
    if at < accepted:
        return "accepted"
    bonus = f"bonus {record.label(cycle.bonus)}" if cycle.bonus >= 0 else "the text ends here"
    words = []
    if at == accepted and at < proposed:
        cut = "accepted, dropped by the re-decode" if cycle.recheck_cut else "rejected"
        words.append(f"{cut}; {bonus}")
    elif at == accepted:
        words.append(bonus)
    elif at < proposed:
        dropped = at < accepted + cycle.recheck_cut
        words.append("accepted, dropped by the re-decode" if dropped else "after a rejected draft")
    cut_here = at >= proposed and (at < len(cycle.drafts) or at < len(cycle.confidences))
    if cut_here and cycle.clip == "confidence":
        gate = gate_at(arm, cycle.cycle)
        said = cycle.confidences[at] if at < len(cycle.confidences) else None
        numbers = f" {fraction(said, 2)} < {fraction(gate, 2)}" if said is not None and gate else ""
        words.append(f"cut by gate{': NaN' if cycle.is_cut_by_nan else numbers}")
    elif cut_here:
        words.append(CUTS.get(cycle.clip, "not proposed"))
    return "; ".join(words) or "not reached"


def context_of(cycle: CycleFinished, window: int) -> tuple[int, int]:
    """First and last absolute position that the drafter's block attends to."""
    anchor = cycle.position - 1
    return max(0, anchor - window), max(0, anchor - 1)


def committed_words(record: RunRecord, arm: ArmRecord, cycle: CycleFinished) -> str:
    """What the policy did with the state after the verify, and what a re-decode said."""
    policy = policy_at(arm, cycle.cycle)
    kept = cycle.accepted + (cycle.bonus >= 0)
    anchor = f"#{cycle.index - 1}"
    if policy == "strict":
        return "strict: the drafter's state is carried, nothing is drafted; one row decoded"
    if cycle.clip == "pause":
        return f"{policy}: drafting pauses after cycles that lost, so one row was decoded"
    if not cycle.proposed:
        return f"{policy}: nothing was proposed, so one row was decoded and nothing restored"
    what = f"{policy}, {cycle.accepted} of {cycle.proposed}"
    whole = kept == cycle.proposed + 1
    if cycle.replay_ids:
        rows = len(cycle.replay_ids)
        text = f"{what}: restored to {anchor}, {rows} row{'s' * (rows > 1)} re-decoded"
        return f"{text}; {_redecoded(record, cycle, policy)}"
    if policy == "reproject":
        return f"{what}: compressors of {kept} rows run again by the decode path; raw rows kept"
    if whole:
        return f"{what}: all accepted, so the verify's state is kept as it is"
    return f"{what}: prefix slot {kept} installed, nothing re-decoded"


def _redecoded(record: RunRecord, cycle: CycleFinished, policy: str) -> str:
    committed = (*cycle.drafts[: cycle.accepted], *((cycle.bonus,) if cycle.bonus >= 0 else ()))
    if cycle.recheck_cut:
        row = len(cycle.replay_ids) - 1
        said = record.label(cycle.replay_ids[row])
        dropped = f"{cycle.recheck_cut} accepted draft{'s' * (cycle.recheck_cut > 1)} dropped"
        return f"row {row} now says {said}: {dropped}"
    for row, (other, token) in enumerate(zip(cycle.replay_ids, committed, strict=False)):
        if other != token:
            text = f"row {row} now says {record.label(other)}"
            return f"{text}: replay would cut here, {policy} does not look"
    if cycle.verify_ids[: len(cycle.replay_ids)] != cycle.replay_ids:
        return "its last row changed its mind about the bonus"
    return "the re-decode says the same"


@dataclass(frozen=True, slots=True)
class CycleTime:
    """Where a cycle's engine time went, in ms, against plain's time for as many tokens."""

    kinds: tuple[tuple[str, float], ...]
    total: float
    plain: float | None

    @property
    def saved(self) -> float | None:
        """Plain's time less the cycle's; None before plain has decoded."""
        return None if self.plain is None else self.plain - self.total


def plain_ms(record: RunRecord) -> float | None:
    """Plain's mean engine ms per token."""
    tally = record.arms[0].tally if record.arms else None
    if tally is None or len(tally.ids) < 2:
        return None
    return tally.decode_ns / 1e6 / (len(tally.ids) - 1)


def time_of(record: RunRecord, cycle: CycleFinished) -> CycleTime:
    """The time split of a cycle."""
    time, rows = cycle.time, cycle.proposed + 1
    replayed = len(cycle.replay_ids)
    named = (
        ("draft", time.draft),
        (f"verify, {rows} rows" if cycle.proposed else "verify", time.verify),
        ("decode, 1 row", time.decode),
        (f"replay, {replayed} row{'s' * (replayed != 1)}", time.replay),
        ("commit", time.commit),
    )
    each = plain_ms(record)
    return CycleTime(
        tuple((name, ns / 1e6) for name, ns in named if ns),
        time.total / 1e6,
        None if each is None else each * cycle.depth,
    )


def state_after(arm: ArmRecord, cycle: CycleFinished) -> tuple[int, int] | None:
    """(tensors that differ from plain's, all) after a cycle; None when not compared there."""
    boundary = cycle.index + cycle.accepted + (cycle.bonus >= 0) - 1
    sample = arm.drift.at(boundary)
    if sample is None or arm.drift.boundaries[sample] != boundary:
        return None
    return arm.drift.differing(sample)
