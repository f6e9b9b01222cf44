"""What arms are called where a sentence or a column names them. Knows no widgets."""

from __future__ import annotations

from pathlib import PurePath

from ds4tui.run_record import ArmRecord
from ds4tui.visible import drawable_line
from engine.events import ArmInfo


def name_of(arm: ArmRecord) -> str:
    """What an arm is called in a sentence: its policy, `plain`, or where it was recorded."""
    info = arm.info
    return info.commit or (info.kind if info.kind == "plain" else drawable_line(info.name))


def told_apart(left: ArmRecord, right: ArmRecord) -> tuple[str, str]:
    """Names of two compared arms, with what tells them apart when both have the same policy."""
    names = name_of(left), name_of(right)
    if names[0] != names[1]:
        return names
    for one, other in zip(_knobs(left.info), _knobs(right.info), strict=True):
        if one != other:
            return f"{names[0]} {one}".rstrip(), f"{names[1]} {other}".rstrip()
    return f"left {names[0]}", f"right {names[1]}"


def _knobs(info: ArmInfo) -> tuple[str, ...]:
    """What may tell two arms of one policy apart, the most telling first."""
    gate = "" if info.confidence is None else f"{info.confidence:.2f}"
    block = "" if info.draft_max is None else f"block {info.draft_max}"
    drafter = drawable_line(PurePath(info.drafter).stem) if info.drafter else ""
    return info.numerics, gate, block, drafter
