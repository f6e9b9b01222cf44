"""The token popup as rows of text: one index, both arms, and the cycle that committed it."""

from __future__ import annotations

from ds4tui.arm_names import name_of
from ds4tui.paint.numbers import logits
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.spans import Row, crop, fit, spread
from ds4tui.visible import drawable_line
from engine.events import CycleFinished


def title(record: RunRecord, index: int) -> str:
    """`#163, pos 181`."""
    position = index + (len(record.started.prompt_ids) if record.started else 0)
    return f"#{index}, pos {position}"


def rows(record: RunRecord, index: int, width: int) -> list[Row]:
    """Top 5 of plain and of the arm shown beside it, then that arm's cycle."""
    beside = record.shown_arm
    arms = [arm for at, arm in enumerate(record.arms) if at in (0, beside)]
    column = (width - 3) // max(1, len(arms))
    blocks = [_arm(record, arm, index, column) for arm in arms]
    height = max((len(block) for block in blocks), default=0)
    out: list[Row] = []
    for at in range(height):
        row: Row = []
        for block in blocks:
            row += [("   ", "")] * bool(row) + fit(block[at] if at < len(block) else [], column)
        out.append(row)
    dspark = arms[-1] if arms and arms[-1].info.kind == "dspark" else None
    cycle = dspark.cycle_of(index) if dspark is not None else None
    if cycle is not None and dspark is not None and index < len(dspark.ids):
        out += [[], *_cycle(record, cycle, width)]
    if record.parts_at is not None and index > record.parts_at:
        out += [[], [("after the ids part the arms no longer read the same text", "dim")]]
    return out


def _arm(record: RunRecord, arm: ArmRecord, index: int, width: int) -> list[Row]:
    name = f"DSpark {name_of(arm)}" if arm.info.kind == "dspark" else name_of(arm)
    if index >= len(arm.ids):
        return [[(name, "strong")], [("no token yet", "dim")]]
    token = arm.ids[index]
    out: list[Row] = [
        spread([(name, "strong")], [(f"from {arm.sources[index]}", "dim")], width),
        crop([(record.label(token), ""), (f"  id {token}", "dim")], width, "…"),
        [],
    ]
    top = arm.top[index] if index < len(arm.top) else ()
    for other, value in top:
        chosen = other == token
        left: Row = [("> " if chosen else "  ", ""), (record.label(other), "strong" * chosen)]
        out.append(spread(crop(left, width - 10, "…"), [(f"{value:.3f}", "")], width))
    if len(top) > 1:
        out.append([(f"gap {logits(top[0][1] - top[1][1])} logits", "dim")])
    return out


def _cycle(record: RunRecord, cycle: CycleFinished, width: int) -> list[Row]:
    last = cycle.index + cycle.depth - 1
    head = f"cycle {cycle.cycle}, #{cycle.index}..#{last}: "
    if not cycle.proposed:
        why = f" ({cycle.clip})" if cycle.clip else ""
        return [[(f"{head}no draft was proposed{why}, one row decoded", "")]]
    counts = f"{cycle.proposed} proposed, {cycle.accepted} accepted, depth {cycle.depth}"
    drafts = " ".join(record.label(token) for token in cycle.drafts[: cycle.proposed])
    gates = " ".join(f"{value:.2f}".lstrip("0") for value in cycle.confidences)
    out: list[Row] = [[(head + counts, "")], crop([("drafts  ", "dim"), (drafts, "")], width, "…")]
    if gates:
        out.append(crop([("said    ", "dim"), (drawable_line(gates), "")], width, "…"))
    return out
