"""Rows 1 and 2 and the footer as rows of text. Knows neither widgets nor the controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ds4tui.marks import Marks
from ds4tui.paint.numbers import fraction
from ds4tui.spans import Row, crop, fit, spread, text_of, width_of


def screens_row(screens: Sequence[tuple[str, str]], active: str, state: str, width: int) -> Row:
    """`ds4tui [1 Play] 2 Cycle   DONE 1.9 s`: the screens by key, and the run's state.

    Where that is too wide only the active screen has its name.
    """
    right: Row = [(state + " ", "strong")]
    room = max(0, width - width_of(right) - 1)
    left: Row = []
    for others in ("{} {}", "{}"):
        left = [("ds4tui ", "brand")]
        for key, name in screens:
            here, there = f"[{key} {name}]", f" {others.format(key, name)} "
            left.append((here, "strong") if key == active else (there, "dim"))
        if len(text_of(left).rstrip()) <= room:
            break
    if width_of(left) <= room:
        return spread(left, right, width)
    return fit([*crop(left, room), (" ", ""), *right], width)


@dataclass(frozen=True, slots=True)
class Shown:
    """Settings of the run shown, with what the next run or cycle will have instead.

    Each pair is (now, pending); pending is None where nothing was turned. `flags` are the switches
    of the prompt that are not as usual, such as `control tokens`; `words` stand in place of all.
    """

    numerics: tuple[str, str | None]
    policy: tuple[str, str | None]
    confidence: tuple[float | None, float | None]
    block: tuple[int | None, int | None]
    max_tokens: int
    model: str = ""
    flags: tuple[str, ...] = ()
    words: str = ""


def _confidence(value: float | None, narrow: bool, marks: Marks) -> str:
    if value is None:
        return "-"
    if narrow:
        return marks.at_least + fraction(value, 2)
    return f"{value:.2f}"


def _knob(now: str, pending: str | None) -> list[tuple[str, str]]:
    return [(now, "dim")] if pending is None else [(f"{now}>{pending}", "pending")]


def settings_spans(shown: Shown, room: int, narrow: bool, marks: Marks) -> Row:
    """The settings on the right of row 2; the last ones are left out when there is no room."""
    if shown.words:
        return [(shown.words, "dim")]
    conf_now, conf_next = (
        None if value is None else _confidence(value, narrow, marks) for value in shown.confidence
    )
    block_now, block_next = (None if n is None else str(n) for n in shown.block)
    parts = [
        _knob(shown.numerics[0], shown.numerics[1]),
        _knob(shown.policy[0], shown.policy[1]),
    ]
    if conf_now is not None:
        label = "" if narrow else f"conf {marks.at_least} "
        later = None if conf_next is None else conf_next.removeprefix(marks.at_least)
        parts.append([(label, "dim"), *_knob(conf_now, later)])
    if block_now is not None:
        label = "blk" if narrow else "block "
        parts.append([(label, "dim"), *_knob(block_now, block_next)])
    parts.append([(f"n{shown.max_tokens}" if narrow else f"max {shown.max_tokens}", "dim")])
    parts += [[(flag.split(" ")[0] if narrow else flag, "strong")] for flag in shown.flags]
    if shown.model and not narrow:
        parts.append([(shown.model, "dim")])
    joint = " " if narrow else " · "
    row: Row = []
    for part in parts:
        longer = [*row, *([(joint, "dim")] if row else []), *part]
        if width_of(longer) > room:
            break
        row = longer
    return row


LEAST_PROMPT = 14
"""Cells of row 2 that the prompt always gets."""


def prompt_row(prompt: str, shown: Shown, width: int, narrow: bool, marks: Marks) -> Row:
    """`» prompt    settings`: the prompt is cut where the settings begin."""
    right = settings_spans(shown, width - LEAST_PROMPT - 2, narrow, marks)
    room = max(LEAST_PROMPT, width - width_of(right) - 3)
    left = crop([(f"{marks.prompt} ", "key"), (prompt, "")], room, marks.ellipsis)
    return fit(spread(left, [*right, (" ", "")], width), width)


NARROW_KEYS = 6
"""Keys in the footer of a terminal of less than 100 columns."""


def footer_row(entries: Sequence[tuple[str, str]], width: int) -> list[tuple[int, Row]]:
    """(entry, spans) of the keys that fit: whole entries only, help kept at the end.

    Args:
        entries: (key, label) by importance; the last one is always shown.
    """
    if not entries:
        return []
    cells = [len(key) + len(label) + 1 for key, label in entries]
    last = len(entries) - 1
    room = width - cells[last]
    most = NARROW_KEYS if width < 100 else len(entries)
    shown: list[int] = []
    for at in range(last):
        if cells[at] + 2 > room or len(shown) + 1 >= most:
            continue
        shown.append(at)
        room -= cells[at] + 2
    shown.append(last)
    return [(at, [(entries[at][0], "key"), (f" {entries[at][1]}", "")]) for at in shown]
