"""Titles of the token panes, and what an empty pane says. Knows no widgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from ds4tui.marks import Marks
from ds4tui.paint.numbers import logits, rate
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.spans import Row, crop, fit, spread, text_of, width_of
from ds4tui.visible import drawable_line
from engine.events import RunFailed


def top_title(arm: ArmRecord, width: int, marks: Marks, number: str = "") -> Row:
    """`plain · split ───── ids 5b1e90c2`: the arm, and the hash of its ids.

    When narrow the words `ids` and `DSpark` go, never the hash: no rate is shown without it.

    Args:
        number: `2/3` of one of several arms.
    """
    info = arm.info
    mixed = " MIXED" if arm.mixed else ""
    again = " again" if info.role == "control" else ""
    head = f"{number} " if number else ""
    names: tuple[str, ...]
    if info.kind == "dspark":
        name = f"{info.commit}{again}{mixed}"
        names = (f"DSpark {head}· {name}", f"{head}{name}", name)
    elif info.kind == "plain":
        names = (f"{head}plain{again}", "plain")
    else:
        names = (f"{head}{drawable_line(info.name)}", f"{head}recorded", "recorded")
    hashes = (f"ids {arm.ids_hash}", arm.ids_hash) if arm.ids else ("",)
    for name in names:
        for found in hashes:
            left: Row = [(f"{name} · {info.numerics}", "strong")]
            right: Row = [(f" {found}", "dim")] if found else []
            if width_of(left) + width_of(right) + 2 <= width:
                return _filled(left, right, width, marks)
    return crop([(hashes[-1], "dim")], width, marks.ellipsis)


def _filled(left: Row, right: Row, width: int, marks: Marks) -> Row:
    if not right:
        return crop(left, width, marks.ellipsis)
    return spread([*left, (" ", "")], right, width, marks.horizontal, "frame")


def tabs(names: Sequence[str], active: int, arm: ArmRecord | None, width: int, marks: Marks) -> Row:
    """Title of the one pane that a small terminal shows: `[plain] DSpark ── 5b1e90c2`.

    When narrow the other name goes, then the pane's own, never the hash.
    """
    right: Row = [(f" {arm.ids_hash}", "dim")] if arm is not None and arm.ids else []
    own: Row = [(f"[{names[active]}]", "strong")]
    row: Row = []
    for at, name in enumerate(names):
        row += own if at == active else [(f" {name} ", "dim")]
    for left in (row, own, []):
        if width_of(left) + width_of(right) + 2 <= width:
            return _filled(left, right, width, marks)
    return crop(right or own, width, marks.ellipsis)


@dataclass(frozen=True, slots=True)
class PaneFoot:
    """What the bottom border of a pane needs to know.

    Args:
        unseen: tokens below the last visible row.
        follows: the pane follows the end.
        cursor: index of the cursor token, or None.
    """

    unseen: int
    follows: bool
    cursor: int | None


def bottom_title(
    record: RunRecord, arm: ArmRecord, foot: PaneFoot, width: int, marks: Marks
) -> Row:
    """Rate, count, reason and speed-up; the token under the cursor when there is one."""
    if foot.cursor is not None and foot.cursor < len(arm.ids):
        return _cursor(record, arm, foot.cursor, width, marks)
    running = arm.finished is None and record.failed is None
    if running and not foot.follows and foot.unseen:
        return crop([(f"{foot.unseen} new, end follows", "pending")], width, marks.ellipsis)
    speed = f"{rate(arm.tokens_per_s)} tok/s"
    if running:
        return crop([(f"#{max(0, len(arm.ids) - 1)}  {speed}", "")], width, marks.ellipsis)
    reason = f", {arm.finished.reason}" if arm.finished is not None else ""
    count = f"{len(arm.ids)} token{'s' * (len(arm.ids) != 1)}{reason}"
    ups = _speedup(record, arm, marks)
    forms = (f"{speed} · {count}", speed) if ups[0] else (f"{speed} · {count}", count)
    for up in ups:
        right: Row = [(f" {up}", "strong")] if up else []
        for form in forms:
            left: Row = [(form, "")]
            if width_of(left) + width_of(right) + 2 <= width:
                return _filled(left, right, width, marks)
    return _filled(left, [], width, marks)


def _speedup(record: RunRecord, arm: ArmRecord, marks: Marks) -> tuple[str, ...]:
    """The speed-up, from its longest to its shortest form."""
    plain = record.plain
    if plain is None or arm is plain or arm.info.kind != "dspark":
        return ("",)
    if not plain.tokens_per_s or not arm.tokens_per_s:
        return ("",)
    ratio = f"{arm.tokens_per_s / plain.tokens_per_s:.2f}x"
    if record.is_other_work:
        return (f"{ratio} different work",)
    found = record.speedup
    if found is None:
        return (ratio,)
    number = f"{found.value:.2f}x {marks.plus_minus}{found.half:.2f}"
    return (number,) if found.resolved else (f"{number} not resolved", f"{number} n.r.")


def _cursor(record: RunRecord, arm: ArmRecord, index: int, width: int, marks: Marks) -> Row:
    """`#163 " reply" id 5121 plain gap 0.012`, without source or id when narrow."""
    token_id = arm.ids[index]
    head: Row = [(f"#{index} ", "strong"), (record.label(token_id), "")]
    row = arm.top[index]
    gap = f" gap {logits(row[0][1] - row[1][1])}" if len(row) > 1 else ""
    for rest in (f" id {token_id} {arm.sources[index]}", f" id {token_id}", ""):
        spans: Row = [*head, (f"{rest}{gap}", "dim")]
        if width_of(spans) <= width:
            return spans
    return crop(head, width, marks.ellipsis)


LOAD_STEPS = 3
"""Steps of loading, prefill not counted: the prompt's, not the model's."""

_STAGE_WORDS = {
    "reading": "read files",
    "reading the trace": "read the trace",
    "repacking": "repack weights",
    "compiling kernels": "compile kernels",
    "self-test": "self-test",
    "prefill": "prefill",
}


@dataclass(frozen=True, slots=True)
class LoadStep:
    """One step of loading, as far as it has come."""

    stage: str
    done: int
    total: int


def loading_rows(steps: Sequence[LoadStep], width: int, marks: Marks) -> list[Row]:
    """Numbered steps: what is done, and what is going on, with a bar of how far."""
    rows: list[Row] = []
    for number, step in enumerate(steps, 1):
        name = f"{number} {_STAGE_WORDS.get(step.stage, drawable_line(step.stage))}"
        if step.total > 0 and step.done >= step.total:
            rows.append(spread([(name, "dim")], [("done ", "dim")], width))
            continue
        count = _count(step)
        rows.append(spread([(name, "strong")], [(count, "strong")], width))
        if step.total > 1:
            cells = max(1, width - 3)
            filled = cells * step.done // step.total
            track = marks.dot * (cells - filled)
            rows.append([("  ", ""), (marks.bar * filled, "plain"), (track, "dim")])
        if step.stage == "compiling kernels":
            rows.append([("  on the first start only", "dim")])
    return [fit(row, width) for row in rows]


def _count(step: LoadStep) -> str:
    """How far a step is; of many small ones, as the bytes of a file, in percent."""
    if step.total > MOST_COUNTED:
        return f"{100 * step.done // step.total} % "
    return f"{step.done}/{step.total} " if step.total > 1 else "... "


MOST_COUNTED = 9999
"""Up to here steps are counted."""


def failure_rows(failed: RunFailed, key: str, width: int) -> list[Row]:
    """The sentence, what to do, and the last lines that the engine wrote."""
    rows = wrapped(failed.message, width, "strong")
    hint = f"{failed.hint} {key} tries again.".strip()
    rows += wrapped(hint, width, "")
    tail = [line for line in failed.detail.splitlines() if line.strip()][-DETAIL_LINES:]
    return rows + [crop([(drawable_line(line), "dim")], width, "…") for line in tail]


DETAIL_LINES = 3
"""Last lines of a dead engine's stderr that are shown."""


def wrapped(text: str, width: int, role: str) -> list[Row]:
    """A sentence on as many rows as it needs, broken at spaces."""
    lines = [""]
    for word in drawable_line(text).split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and cell_len(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return [crop([(line, role)], width) for line in lines if line]


def padded(text: str, width: int, role: str) -> list[Row]:
    """The same with a space on both sides."""
    return [[(f" {text_of(row)} ", role)] for row in wrapped(text, width - 1, role)]
