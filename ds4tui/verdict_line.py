"""Row 3: the verdict on a run in one line, in several lengths.

Owns its words. The glyph and the first words carry the verdict, colour only repeats it. Knows no
Textual.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ds4tui.knobs_now import policy_at
from ds4tui.marks import Marks
from ds4tui.paint.numbers import counted, fraction, logits, ulps
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.run_state import RunState
from ds4tui.spans import Row, crop, width_of
from ds4tui.state_words import compared_at, equal_at, since
from ds4tui.visible import drawable_line
from engine.events import CUT_SHORT, RunFailed
from engine.settings import as_json
from engine.verdict import identical_kind, margin, must_be_identical

Level = Literal["idle", "same", "differ", "bug", "withheld", "failed"]

NO_PROPOSALS_AFTER = 50
"""Cycles without a draft after which the line says so: behind a closed gate a run looks normal."""

NOT_DRAFTING = "strict drafts nothing, it only carries the drafter"
"""Why a run of `strict` has no drafts."""


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """The verdict in words: `head` is never cut, `bodies` go from longest to shortest."""

    level: Level
    head: str
    bodies: tuple[str, ...]


def verdict_line(
    record: RunRecord | None,
    state: RunState,
    failure: RunFailed | None = None,
    keys: Mapping[str, str] | None = None,
    has_prompt: bool = True,
    loads: str = "the model is being loaded",
) -> VerdictLine:
    """What is known about a run.

    Args:
        record: the run shown, or None.
        failure: what ended the engine or kept the last run from starting.
        keys: the key of an action by its id, for the hints in the line.
        has_prompt: there is a prompt that could be run.
        loads: what is going on while the state is `LOADING`.
    """
    key = {"run": "r", "prompt": "i", "next_prompt": "]", "confidence_down": "C"}
    key |= dict(keys or {})
    failed = failure or (record.failed if record is not None else None)
    if failed is not None:
        return _failed(failed, record, key)
    if record is None or record.started is None:
        return _before(state, key, has_prompt, loads)
    arm = record.beside
    if arm is None:
        return _plain_only(record)
    if arm.diverged is not None:
        return _diverged(record, arm)
    if record.finished is not None and record.finished.identical is None:
        reason = record.finished.withheld or "the arms were not compared to the end"
        return VerdictLine("withheld", "? WITHHELD", (reason,))
    if arm.info.role == "control":
        return _control(record, arm)
    if _proposes_nothing(arm):
        return _no_proposals(arm, key)
    if record.finished is not None:
        return _identical(record, arm, key)
    return _so_far(record, arm)


def _before(state: RunState, key: Mapping[str, str], has_prompt: bool, loads: str) -> VerdictLine:
    if state is RunState.LOADING:
        return VerdictLine("idle", "· no run yet", (loads,))
    if state is RunState.PREFILL:
        return VerdictLine("idle", "· no tokens yet", ("the prompt is being evaluated",))
    if not has_prompt:
        return VerdictLine("idle", "· no run yet", (f"{key['prompt']} takes a prompt",))
    hint = f"{key['run']} runs this prompt"
    return VerdictLine("idle", "· no run yet", (f"{hint}: plain and DSpark side by side", hint))


def _failed(failed: RunFailed, record: RunRecord | None, key: Mapping[str, str]) -> VerdictLine:
    message = drawable_line(failed.message).removesuffix(".")
    kept = "text kept   " if record is not None and record.arms and record.arms[0].ids else ""
    retry = f"{kept}{key['run']} retries"
    title = drawable_line(failed.title).lower()
    bodies = (f"{message}   {retry}", f"{title}   {retry}", title)
    return VerdictLine("failed", "\u00d7 FAILED", bodies)


def plain_only(record: RunRecord) -> str:
    """Why a run has no DSpark arm, in the engine's words."""
    notice = record.notices[0].text if record.notices else ""
    return drawable_line(notice) or "This run has no DSpark arm, so nothing is compared."


def _plain_only(record: RunRecord) -> VerdictLine:
    return VerdictLine("idle", "· PLAIN ONLY", (plain_only(record), "nothing is compared"))


def _gap_at(record: RunRecord) -> int | None:
    """Index of the smallest top-2 gap of plain's, among the ids that both arms have."""
    plain = record.plain
    if plain is None or plain.smallest_gap is None:
        return None
    at = plain.smallest_gap[1]
    return at if at < record.compared else plain.tally.smallest_gap(record.compared)


def _smallest_gap(record: RunRecord) -> str:
    plain, index = record.plain, _gap_at(record)
    if plain is None or index is None:
        return ""
    assert record.started is not None
    of_type = record.started.ulp_type(plain.info)
    gap = margin(plain.top[index][0][1], plain.top[index][1][1], of_type)
    in_ulps = f" = {ulps(gap.ulps)} ulp {gap.ulp_type}" if gap.logits else ""
    return f"smallest gap {logits(gap.logits)}{in_ulps} at {index}"


def _control(record: RunRecord, arm: ArmRecord) -> VerdictLine:
    """A control is compared with the arm that it repeats, at the end of the run."""
    name = drawable_line(arm.info.name)
    ids = f"{name}: {counted(len(arm.ids), 'id')} as the first time"
    waits = f"{name} is compared with the first time at the end"
    if record.parts_at is not None:
        bodies = (waits,) if record.finished is None else (f"{ids}, not as plain's", ids)
        return VerdictLine("differ", f"≠ DIVERGED at {record.parts_at}", bodies)
    if record.finished is None:
        return VerdictLine("idle", "· CONTROL", (waits,))
    return VerdictLine("same", "= IDENTICAL", (ids,))


def _so_far(record: RunRecord, arm: ArmRecord) -> VerdictLine:
    assert record.started is not None
    compared = f"{record.compared} of {record.started.max_tokens} compared"
    plain = record.plain
    bodies: tuple[str, ...] = (compared,)
    if arm.info.commit == "strict" and not arm.mixed:
        bodies = (f"{compared}   {NOT_DRAFTING}", NOT_DRAFTING)
    elif plain is not None and plain.smallest_gap is not None:
        gap, at = plain.smallest_gap
        bodies = (f"{compared}   smallest gap {logits(gap)} at {at}", compared)
    return VerdictLine("same", "= identical so far", bodies)


def _identical(record: RunRecord, arm: ArmRecord, key: Mapping[str, str]) -> VerdictLine:
    return VerdictLine("same", "= IDENTICAL", _what_is_identical(record, arm, key))


def _what_is_identical(
    record: RunRecord, arm: ArmRecord, key: Mapping[str, str]
) -> tuple[str, ...]:
    assert record.plain is not None
    most = max(len(record.plain.ids), len(arm.ids))
    short = f" of {most} compared" if record.compared < most else ""
    ids = counted(record.compared, "id") + short
    if arm.finished and arm.finished.reason in CUT_SHORT:
        ids += ", stopped"
    if arm.mixed:
        return _mixed(record, arm, ids)
    if arm.info.kind == "dspark" and not arm.cycles:
        return f"{ids}, of the prefill that all arms share: nothing was decoded", ids
    at = _gap_at(record)
    gap = None if at is None else record.plain.tally.gaps[at]
    kind = identical_kind(arm.finished.state_equal if arm.finished else None, gap)
    state, short_state = _state(arm)
    if arm.info.commit == "strict" and arm.first_drift is None:
        return f"{ids}{state}   {NOT_DRAFTING}", f"{ids}   {NOT_DRAFTING}", NOT_DRAFTING
    if kind == "cannot-show":
        down = 0.0 if gap is None else math.floor(gap * 100) / 100  # so that it stays true
        under = "no gap was seen" if gap is None else f"no gap under {down:.2f}"
        long = f"{ids}, {under}: cannot show a divergence so far"
        hint = f"   {key['next_prompt']} next prompt"
        bodies = (f"{long}{state}{hint}", f"{long}{short_state}{hint}", f"{long}{short_state}")
        return (*bodies, f"{ids}, {under} so far{short_state}")
    if arm.first_drift is not None:
        return f"{ids}{state}: another prompt may part", f"{ids}{short_state}"
    return f"{ids}{state}   {_smallest_gap(record)}", f"{ids}{state}"


def _state(arm: ArmRecord) -> tuple[str, str]:
    """What is known of the state of an arm whose ids are identical, after a comma; and shorter."""
    if arm.info.kind != "dspark":
        return "", ""
    compared, boundaries = arm.tally.compared, arm.tally.boundaries
    drift = arm.first_drift
    if drift is not None:
        begins = f"from {since(drift.position, compared, boundaries)}"
        begins += " on" if compared >= boundaries else ""
        return f", but the state differs {begins}", f", state differs {begins}"
    words = equal_at(compared, boundaries, len(arm.cycles))
    return f", state {words}", f", state {words}"


def _mixed(record: RunRecord, arm: ArmRecord, ids: str) -> tuple[str, ...]:
    """Every policy with the index up to which it was in force, and what all of them promise."""
    turns = {
        turn.cycle: dict(turn.settings)["commit"]  # of several at one boundary the last counts
        for turn in arm.changes
        if any(name == "commit" for name, _ in turn.settings)
    }
    policies, starts = [arm.info.commit or ""], [0]
    for cycle, policy in turns.items():
        if policy != policies[-1]:
            at = arm.index_at(cycle)
            policies.append(policy)
            starts.append(len(arm.ids) if at is None else at)
    settings = as_json(tuple(record.settings.items()))
    exact = all(
        must_be_identical(
            arm.info.numerics,
            policy,
            perturbed=settings.get("perturb") is not None,
        )
        for policy in policies
    )
    promise = "as each of them must be" if exact else "nothing is promised"
    if len(policies) == 1:
        return (f"{ids}, MIXED: {policies[0]}, turned and turned back; {promise}",)
    until = zip(policies, starts[1:], strict=False)
    long = ", ".join(f"{policy} to #{end}" for policy, end in until)
    begun = zip(policies[1:], starts[1:], strict=True)
    short = ", ".join([policies[0], *(f"{policy} #{start}" for policy, start in begun)])
    return (
        f"{ids}, MIXED: {long}, then {policies[-1]}; {promise}",
        f"{ids}, MIXED, {promise}: {short}",
    )


def _proposes_nothing(arm: ArmRecord) -> bool:
    strict = arm.info.commit == "strict"
    if strict or len(arm.cycles) < NO_PROPOSALS_AFTER:
        return False
    return not any(cycle.proposed for cycle in arm.cycles)


def _no_proposals(arm: ArmRecord, key: Mapping[str, str]) -> VerdictLine:
    cycles = len(arm.cycles)
    # A pause follows from what stopped the cycles before it, and a last token needs no drafts.
    drafted = [c.clip for c in arm.cycles if c.confidences or c.clip == "strict"]
    last = (drafted[-1] if drafted else "") or "none"
    text = f"in {cycles} cycles; last stage that ran: {last}"
    if last != "confidence":
        return VerdictLine("withheld", "! 0 PROPOSALS", (text,))
    known = [said for c in arm.cycles for said in c.confidences if not math.isnan(said)]
    if not known:
        nan = "every confidence is NaN, which the gate never passes"
        bodies = (f"in {cycles} cycles; {nan}", nan)
        return VerdictLine("withheld", "! 0 PROPOSALS", bodies)
    gate, highest = arm.info.confidence, max(known)
    text += f", highest {fraction(highest, 2)}"
    text += f" < {fraction(gate, 2)}" if gate is not None else ""
    hint = f"{key['confidence_down']} lowers the gate"
    return VerdictLine("withheld", "! 0 PROPOSALS", (f"{text}   {hint}", text))


def _diverged(record: RunRecord, arm: ArmRecord) -> VerdictLine:
    event = arm.diverged
    assert event is not None
    left, right = record.label(event.left), record.label(event.right)
    if event.logic_error:
        return _logic_error(record, arm, right)
    gap = logits(event.margin_logits)
    in_ulps = f" = {ulps(event.margin_ulps)} ulp {event.ulp_type}" if event.margin_logits else ""
    margin = f"{event.verdict} {gap}{in_ulps}"
    cause, short_cause = _cause(arm)
    both = "  ".join(map(" ".join, zip(record.names, (left, right), strict=True)))
    bodies = [
        f"{both}  {margin}  {cause}",
        f"{both}  {margin}  {short_cause}",
        f"{left} / {right}  {margin} {short_cause}",
        f"{left} / {right}  {margin}",
        f"{left} / {right}",
    ]
    if event.differing_choices:
        choices = "; ".join(drawable_line(choice) for choice in event.differing_choices)
        bodies.insert(0, f"{bodies[0]}  differ: {choices}")
    return VerdictLine("differ", f"≠ DIVERGED at {event.index}", tuple(bodies))


def _cause(arm: ArmRecord) -> tuple[str, str]:
    event = arm.diverged
    assert event is not None
    compared = arm.tally.compared, arm.tally.boundaries
    if event.cause is None:
        if arm.info.kind != "dspark":  # recorded ids have no state
            return "", ""
        return f"cause not known: states {compared_at(*compared)}", "cause not known"
    if event.cause == "verify_row":
        return "cause verify_row: the states were equal", "verify_row"
    drift = event.first_drift
    if drift is None:
        return "cause state", "state"
    is_sampled = arm.tally.compared < arm.tally.boundaries
    begins = since(drift.position, *compared)
    words = f"cause state: L{drift.layer} {drift.tensor} from {begins}"
    if arm.mixed:
        seen = ", seen" if is_sampled else ""
        words += f"{seen} under {policy_at(arm, arm.cycle_at(drift.position))}"
    return words, f"state {'by ' if is_sampled else ''}#{drift.position}"


def _logic_error(record: RunRecord, arm: ArmRecord, committed: str) -> VerdictLine:
    event = arm.diverged
    assert event is not None
    row = arm.top[event.index] if event.index < len(arm.top) else ()
    what = f"{committed} was committed, but its row's argmax is "
    if row and row[0][0] != event.right:
        own = dict(row).get(event.right)
        by = f" by {logits(row[0][1] - own)}" if own is not None else ""
        what += f"{record.label(row[0][0])}{by}"
    else:
        what += "another token"
    long = f"{what}: a bug, whatever the acceptance"
    bodies = (long, f"{what}: a bug", f"{committed} is not its row's argmax: a bug")
    return VerdictLine("bug", f"! LOGIC ERROR at {event.index}", bodies)


HEAD_CELLS = 18
"""Cells of the head in a wide terminal, so that the bodies of all runs start at one column."""
WIDE = 100


def verdict_row(line: VerdictLine, width: int, marks: Marks) -> Row:
    """The line in one row: the longest body that fits, else the shortest, cut."""
    roles = {"same": "same", "differ": "warn", "idle": "dim"}
    role = roles.get(line.level, "error")
    heads = (line.head.ljust(HEAD_CELLS), line.head) if width >= WIDE else (line.head,)
    for body in line.bodies:
        for head in heads:
            row: Row = [(f"{head}  {body}".rstrip(), role)]
            if width_of(row) <= width:
                return row
    return crop(row, width, marks.ellipsis)
