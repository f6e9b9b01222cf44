"""Which arms a run has, in which order, under which names, and what must be said of them.

Owns what is announced of arms before they exist; `engine.lanes` makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from engine.errors import Ds4Error
from engine.events import ArmInfo
from engine.parts import Parts
from engine.roles import Drafter
from engine.settings import Knobs, Recorded, Settings


@dataclass(frozen=True, slots=True)
class ArmPlan:
    """One arm to be made: what is announced of it, its drafter and knobs or its given ids.

    Args:
        gate: the drafter's own confidence threshold.
    """

    info: ArmInfo
    drafter: Drafter | None = None
    knobs: Knobs | None = None
    gate: float = 0.0
    recorded: Recorded | None = None


def arm_plans(
    parts: Parts, settings: Settings, against: Sequence[Recorded]
) -> tuple[list[ArmPlan], list[tuple[int, int]]]:
    """Plain, DSpark arms, recorded ones, then controls of plain and the DSpark arms.

    Args:
        settings: with every knob's drafter named.
    Returns:
        The arms, and (arm, its control) pairs.
    """
    numerics = settings.numerics
    plans = [ArmPlan(ArmInfo("plain", "arm", "plain", numerics, None, None, None))]
    for name, knobs in zip(arm_names(settings.dspark), settings.dspark, strict=True):
        assert knobs.mtp is not None
        drafter = parts.drafters[knobs.mtp]
        gated = knobs.commit != "strict"
        info = ArmInfo(
            name,
            "arm",
            "dspark",
            numerics,
            knobs.commit,
            knobs.confidence if gated else None,
            knobs.draft_max if gated else None,
            knobs.mtp,
            drafter.block_size,
            drafter.noise_id,
            drafter.window,
        )
        plans.append(ArmPlan(info, drafter, knobs, parts.gates[knobs.mtp]))
    repeated = list(plans) if settings.controls else []
    recordings = _numbered([f"recorded {recorded.name}" for recorded in against])
    for name, recorded in zip(recordings, against, strict=True):
        info = ArmInfo(name, "arm", "recorded", numerics, None, None, None)
        plans.append(ArmPlan(info, recorded=recorded))
    pairs = []
    for arm, plan in enumerate(repeated):
        pairs.append((arm, len(plans)))
        info = replace(plan.info, name=f"{plan.info.name} again", role="control")
        plans.append(replace(plan, info=info))
    return plans, pairs


def arm_names(arms: Sequence[Knobs]) -> list[str]:
    """The policies, with what else tells two arms of one policy apart."""
    names: list[str] = []
    files = _file_names(arms)
    for knobs in arms:
        same = [other for other in arms if other.commit == knobs.commit]
        parts: list[str] = [knobs.commit]
        for label in ("confidence", "draft_max", "mtp"):
            value = getattr(knobs, label)
            if any(getattr(other, label) != value for other in same):
                missing = "block" if label == "draft_max" else "default"
                shown = f"{value:g}" if isinstance(value, float) else str(value or missing)
                shown = files.get(value, shown)
                parts.append(f"{label.replace('_', '-')} {shown}")
        names.append(" ".join(parts))
    return _numbered(names)


def _numbered(names: Sequence[str]) -> list[str]:
    """The names, from the second one of a kind on with its number."""
    found = []
    for at, name in enumerate(names):
        twins = list(names[:at]).count(name)
        found.append(f"{name} #{twins + 1}" if twins else name)
    return found


def _file_names(arms: Sequence[Knobs]) -> dict[str, str]:
    """Drafters' paths, each with the name of its file; two of one name keep their paths."""
    paths = {knobs.mtp for knobs in arms if knobs.mtp is not None}
    names = {path: Path(path).name for path in paths}
    return {path: name for path, name in names.items() if list(names.values()).count(name) == 1}


def notices(parts: Parts, settings: Settings) -> Iterator[tuple[Literal["info", "warning"], str]]:
    """What a user should know of a run before its first token: (level, sentence)."""
    for text in parts.warnings:
        yield "warning", text
    if not parts.drafters:
        yield "info", "No drafter was given (--mtp), so nothing is drafted: plain decode only."
    if any(knobs.commit == "strict" for knobs in settings.dspark):
        yield (
            "info",
            "Policy strict drafts nothing: it carries the drafter's state and decodes by the "
            "target alone, to show what carrying costs.",
        )
    if settings.perturb is not None:
        yield (
            "info",
            f"--perturb {settings.perturb.op_class}:{settings.perturb.ulps} changes verifies on "
            f"purpose; {_STILL}.",
        )
    if settings.pin:
        yield (
            "info",
            f"--pin {','.join(settings.pin)} makes verifies take plain's choices, a diagnostic; "
            f"{_STILL}.",
        )


_STILL = "only replay and strict still promise identical ids"


def check_recorded(against: Sequence[Recorded], prompt_ids: Sequence[int], vocab_size: int) -> None:
    """Refuse ids that were recorded for another prompt or another vocabulary."""
    for recorded in against:
        given = recorded.prompt_ids
        if given is not None and list(given) != list(prompt_ids):
            pairs = enumerate(zip(given, prompt_ids, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(given), len(prompt_ids)))
            raise Ds4Error(
                "Different prompts",
                f"{recorded.name} was recorded for other prompt ids: {len(given)} against "
                f"{len(prompt_ids)} here, the first difference is at {at}.",
                "Give the same prompt and the same rendering options.",
            )
        wrong = next((token for token in recorded.ids if not 0 <= token < vocab_size), None)
        if wrong is not None:
            raise Ds4Error(
                "Not ids of this vocabulary",
                f"{recorded.name} holds id {wrong}; expected 0 to {vocab_size - 1}.",
            )
