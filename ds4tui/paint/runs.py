"""The list of runs as rows of text, wide and narrow. Knows no widgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from ds4tui.marks import Marks
from ds4tui.paint.numbers import fraction, rate
from ds4tui.paint.window import first_shown
from ds4tui.runs_list import CUT_OFF, RUNNING, RunLine
from ds4tui.spans import Row, crop, fit, text_of
from ds4tui.visible import drawable_line

WIDE = 100
_SHORT = {"different work": "diff.", "invariant": "invar.", "large-margin": "large"}


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A line with what the list knows of it.

    Args:
        number: of the run in the session, "d3" on disk; it never changes.
        mark: 1 or 2 for the first and second of a pair, 0 = none.
    """

    line: RunLine
    number: str
    mark: int = 0


def rows(
    listed: Sequence[ListedRun], cursor: int, width: int, height: int, marks: Marks
) -> list[Row]:
    """The header and the lines around the cursor, the newest first."""
    wide = width >= WIDE
    room = max(1, height - 1)
    first = first_shown(cursor, len(listed), room)
    prompt = max(8, width - sum(_cells(wide)) - len(_cells(wide)) - 6)
    out: list[Row] = [crop([(_header(wide, prompt), "dim")], width)]
    for at in range(first, min(len(listed), first + room)):
        row = _row(listed[at], wide, prompt)
        if at == cursor:
            out.append(crop([(text_of(row).ljust(width), "reverse")], width))
        else:
            out.append(crop(row, width, marks.ellipsis))
    return out


def _cells(wide: bool) -> tuple[int, ...]:
    """Cells of the columns but marks and prompt."""
    return (5, 9, 9, 4, 9, 8, 20, 5, 15) if wide else (6, 9, 4, 8, 16, 5, 6)


def _header(wide: bool, prompt: int) -> str:
    names = ["time", "prompt", "numerics", "policy", "conf", "drafter", "ids", "verdict"]
    if not wide:
        names = ["prompt", "numer.", "policy", "conf", "ids", "verdict"]
    return "    # " + _joined([*names, "tok/s", "vs plain" if wide else "vs"], wide, prompt)


def _joined(values: Sequence[str], wide: bool, prompt: int) -> str:
    widths = list(_cells(wide))
    widths.insert(1 if wide else 0, prompt)
    right = len(values) - 2
    cells = []
    for at, (value, width) in enumerate(zip(values, widths, strict=True)):
        text = text_of(fit([(value, "")], width))
        if at == right and cell_len(value) <= width:
            text = " " * (width - cell_len(value)) + value
        cells.append(text)
    return " ".join(cells)


def _row(found: ListedRun, wide: bool, prompt: int) -> Row:
    line = found.line
    gate = "-" if line.confidence is None else fraction(line.confidence, 2)
    values = [
        *((line.time,) if wide else ()),
        drawable_line(line.prompt),
        line.numerics if wide else _SHORT.get(line.numerics, line.numerics),
        line.policy,
        gate,
        *((drawable_line(line.drafter),) if wide else ()),
        line.ids,
        line.verdict if wide else line.verdict.replace("large-margin", "large"),
        rate(line.tokens_per_s),
        line.versus if wide else _SHORT.get(line.versus, line.versus.split(" ")[0]),
    ]
    mark = " " if not found.mark else str(found.mark)
    head: Row = [("+" if found.mark else " ", "strong"), (mark, "strong")]
    differs = line.verdict.startswith(("≠", "!", "\u00d7"))
    role = "warn" if differs else "dim" if line.verdict.startswith((RUNNING, CUT_OFF)) else ""
    whole = f"{found.number:>3} {_joined(values, wide, prompt)}"
    start = whole.find(line.verdict) if differs else -1
    if start < 0:
        return [*head, (whole, role)]
    end = start + len(line.verdict)
    return [*head, (whole[:start], ""), (whole[start:end], role), (whole[end:], "")]


def empty(run_key: str, open_key: str) -> list[Row]:
    """What an empty list says."""
    return [
        [("no run yet", "strong")],
        [(f"{run_key} runs the prompt, {open_key} opens a trace file", "dim")],
        [("every run of the session comes here, and the last 20 stay on disk", "dim")],
    ]
