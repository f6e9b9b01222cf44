"""The knobs of an arm, as they stand now and as they stood in a cycle: announced, then turned."""

from __future__ import annotations

from dataclasses import dataclass

from ds4tui.run_record import ArmRecord
from engine.paths import NUMERICS, POLICIES, Numerics, Policy
from engine.settings import Knobs

CONFIDENCES = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Thresholds that `c` steps through: the ones of the sweep."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the knobs can be turned to; empty in a recorded run."""

    numerics: tuple[Numerics, ...] = NUMERICS
    policies: tuple[Policy, ...] = POLICIES


NO_CHOICES = Choices((), ())


def next_confidence(wanted: float | None, default: float | None, step: int) -> float:
    """The threshold that the knob turns to; the same at its end.

    Args:
        wanted: where it stands; None = the drafter's default.
        default: the drafter's, None while it is unknown.
        step: 1 or -1.
    """
    value = wanted if wanted is not None else default
    current = 0.9 if value is None else value
    beyond = [c for c in CONFIDENCES if (c > current if step > 0 else c < current)]
    if not beyond:
        return current
    return beyond[0] if step > 0 else beyond[-1]


def knobs_of(arm: ArmRecord) -> Knobs:
    """The knobs of an arm as they stand after everything that was turned during its run."""
    info = arm.info
    knobs: dict[str, str] = {}
    for change in arm.changes:
        knobs.update(change.settings)
    commit = knobs.get("commit", info.commit or "direct")
    confidence = knobs.get("confidence")
    draft_max = knobs.get("draft_max")
    return Knobs(
        commit=commit,  # type: ignore[arg-type]  # the engine's own word for a policy
        confidence=info.confidence if confidence is None else _float(confidence),
        draft_max=info.draft_max if draft_max is None else _int(draft_max),
    )


def policy_at(arm: ArmRecord, cycle: int) -> str:
    """The commit policy in force in a cycle."""
    return _turned(arm, "commit", cycle) or arm.info.commit or ""


def gate_at(arm: ArmRecord, cycle: int) -> float | None:
    """The confidence threshold in force in a cycle; None where nothing is drafted."""
    text = _turned(arm, "confidence", cycle)
    # Beside another knob "none" says that the threshold is the drafter's own, as it was.
    return arm.info.confidence if text in (None, "none") else float(text)


def _turned(arm: ArmRecord, knob: str, cycle: int) -> str | None:
    """What a knob was last turned to by a cycle; None = not at all."""
    found = None
    for change in arm.changes:
        if change.cycle <= cycle:
            found = dict(change.settings).get(knob, found)
    return found


def _float(text: str) -> float | None:
    return None if text == "none" else float(text)


def _int(text: str) -> int | None:
    return None if text == "none" else int(text)
