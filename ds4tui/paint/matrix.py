"""The matrix as rows of text: the table of cells, its prompts, its categories. Knows no Textual."""

from __future__ import annotations

from collections.abc import Sequence

from ds4tui.marks import Marks
from ds4tui.matrix_names import column_of, row_of, short_row
from ds4tui.matrix_view import Cell, MatrixView, PromptRow
from ds4tui.paint.numbers import fraction, logits, mean, rate
from ds4tui.paint.panes import wrapped
from ds4tui.paint.window import around
from ds4tui.report import Document
from ds4tui.spans import Row, crop, fit
from ds4tui.visible import drawable_line

WIDE = 100
"""Columns from which a cell has its columns spelled out."""
NARROW_CELL = 29
WIDE_CELL = 50
LONG_CELL = 98
"""Cells of one cell of the table: short form, with its columns, with those of a set too."""
LEGEND = (
    "! = must be identical, a miss there is a bug   < = fastest identical cell   ids differ: diff. "
    "work"
)
SHORT_LEGEND = "! must be identical   < fastest identical   ≠ different work"


def _speed(found: Document | None, short: bool) -> str:
    """`1.26x ±.01`, `1.26x diff. work`, `1.01x unresolved`."""
    if found is None:
        return "-"
    value = f"{found['value']:.2f}x"
    if found["different_work"]:
        return f"{value}≠" if short else f"{value} diff. work"
    if not found["resolved"]:
        return f"{value}?" if short else f"{value} unresolved"
    half = fraction((found["high"] - found["low"]) / 2, 2)
    return value if short else f"{value} ±{half}"


def _mark(cell: Cell) -> str:
    figures = cell.figures
    return "!" if figures is not None and figures["must_be_identical"] else " "


def _role(cell: Cell) -> str:
    figures = cell.figures
    if figures is None:
        return "dim"
    if figures["as_required"] is False or figures["logic_errors"]:
        return "error"
    if figures["identical"] < figures["prompts"]:
        return "lost"
    return "same" if figures["must_be_identical"] else ""


def _first(cell: Cell) -> str:
    found = cell.figures["first_divergence"] if cell.figures else None
    return f"#{found['index']}" if found else "-"


_WAITS = {"queued": "queued", "running": "running"}
"""What a cell says before it has figures."""


def _end(cell: Cell) -> str:
    waits = {"idle": ".", "queued": ".", "running": "..", "done": ""}[cell.state]
    return "<" if cell.fastest else waits


def short_cell(cell: Cell) -> str:
    """`! 10/10 -     1.29x <`, `  6/10 #87   1.26x≠`."""
    figures = cell.figures
    if figures is None:
        return f"  {_WAITS.get(cell.state, ''):<12}{'':8}{_end(cell)}"
    same = f"{figures['identical']}/{figures['prompts']}"
    speed = _speed(figures["speedup"], short=True)
    return f"{_mark(cell)} {same:>5} {_first(cell):<6}{speed:<8}{_end(cell)}"


def long_cell(cell: Cell, more: bool) -> str:
    """The same with its columns; with those of a set too."""
    figures = cell.figures
    if figures is None:
        return f"  {'':7}   {'':6}  {_WAITS.get(cell.state, ''):<17}{'':9} {_end(cell)}"
    same = f"{figures['identical']}/{figures['prompts']}"
    speed = _speed(figures["speedup"], short=False)
    text = f"{_mark(cell)} {same:>7}   {_first(cell):<6}  {speed:<17}{figures['replay_ms']:>9.0f}"
    if more:
        text += f"{rate(figures['tokens_per_s']):>9}{mean(figures['mean_depth']):>8}"
        text += f"{fraction(figures['accept_rate']):>12}  {figures['ids_sha256'][:8]}"
    return f"{text} {_end(cell)}"


def _heads(more: bool) -> str:
    head = f"  {'identical':<9} {'first':<6}  {'speed-up':<17}{'replay ms':>9}"
    return head + (f"{'tok/s':>9}{'depth':>8}{'acc/prop.':>12}  ids" if more else "")


def _plain(view: MatrixView, numerics: str, form: int) -> str:
    found = view.plain.get(numerics)
    if found is None:
        return "  -"
    same = f"{found['prompts']}/{found['prompts']}"
    speed = f"{rate(found['tokens_per_s'])} tok/s" if form < LONG_CELL else ""
    ids = found["ids_sha256"][:8]  # no speed without it
    if form == NARROW_CELL:
        return f"  {same:>5} {speed} {ids}"
    text = f"  {same:>7}   {'-':<6}  {speed:<17}"
    if form == WIDE_CELL:
        return f"{text} {ids}"
    return f"{text}{'-':>9}{rate(found['tokens_per_s']):>9}{'1.00':>8}{'-':>12}  {ids}"


def _form(numerics: int, room: int) -> int:
    if numerics == 1 and room >= LONG_CELL:
        return LONG_CELL
    return WIDE_CELL if numerics * WIDE_CELL <= room else NARROW_CELL


def grid_rows(
    view: MatrixView, cursor: tuple[int, int] | None, width: int, height: int, marks: Marks
) -> list[Row]:
    """A row per policy, a group of columns per numerics: all that fit, the chosen one among them.

    Args:
        cursor: (row, column) of the chosen cell, drawn reversed.
    """
    label = min(24, max(8, *(len(short_row(row)) for row in view.rows))) + 2 if view.rows else 10
    room, count = width - label - 1, len(view.numerics)
    first, last = _columns([NARROW_CELL] * count, cursor[1] if cursor else 0, room)
    shown, others = view.numerics[first:last], view.numerics[:first] + view.numerics[last:]
    form = _form(len(shown), room)
    more = f"  {marks.ellipsis} {' '.join(others)}" if others else ""
    head: Row = [(f" {'policy':<{label}}", "dim")]
    head += [(f"{numerics + more:<{form}}"[:form], "strong") for numerics in shown]
    rows: list[Row] = [head]
    if form > NARROW_CELL:
        columns = _heads(form == LONG_CELL)
        rows.append([(" " * (label + 1), ""), *((f"{columns:<{form}}", "dim") for _ in shown)])
    plain: Row = [(f" {'plain':<{label}}", "")]
    plain += [(f"{_plain(view, n, form):<{form}}", "") for n in shown]
    rows.append(plain)
    legend = LEGEND if width >= len(LEGEND) + 2 else SHORT_LEGEND
    lines: list[Row] = []
    for at, policy in enumerate(view.rows):
        name = drawable_line(short_row(policy))
        row: Row = crop([(f" {name:<{label}}", "")], label + 1, marks.ellipsis)
        for column, numerics in enumerate(shown, first):
            row += _cell_spans(view.cell(policy, numerics), (at, column) == cursor, form)
        lines.append(row)
    rows += around(lines, cursor[0] if cursor is not None else 0, height - len(rows) - 1, marks)
    if len(rows) < height:
        rows.append([(f" {legend}", "dim")])
    return [crop(row, width, marks.ellipsis) for row in rows[:height]]


def _cell_spans(cell: Cell | None, chosen: bool, form: int) -> Row:
    if cell is None:
        return [(" " * form, "")]
    text = short_cell(cell) if form == NARROW_CELL else long_cell(cell, form == LONG_CELL)
    text = text.rstrip()[: form - 1]
    role = "reverse" if chosen else _role(cell)
    return [(text, role), (" " * (form - len(text)), "")]


PROMPT_COLUMN = 7
"""Least cells of one cell's column in the table of prompts."""


def prompt_rows(
    view: MatrixView, chosen: str | None, cursor: int | None, width: int, height: int, marks: Marks
) -> list[Row]:
    """A row per prompt, a column per cell.

    Args:
        chosen: the cell whose column is marked.
        cursor: the prompt whose row is marked.
    """
    cells = list(view.cells)
    label = 14 if width < WIDE else 20
    verdict = 15
    heads = [column_of(cell).partition(" ") for cell in cells]
    sizes = [max(PROMPT_COLUMN, *(len(part) + 1 for part in head)) for head in heads]
    first, last = _columns(sizes, cells.index(chosen) if chosen in cells else 0,
                           width - label - 9 - verdict - 1)  # fmt: skip
    shown = range(first, last)
    more = marks.ellipsis if first or last < len(cells) else " "

    def named(part: int, left: str, right: str) -> Row:
        row: Row = [(f" {left:<{label + 8}}", "dim")]
        for at in shown:
            role = "strong" if cells[at] == chosen else "dim"
            row.append((f"{heads[at][part]:>{sizes[at]}}", role))
        return [*row, (right, "dim")]

    rows = [named(0, f"{'prompt':<{label}}{'gap min':>8}", f" {more} verdict")]
    if any(rest for _, _, rest in heads):  # what tells cells of one policy apart
        rows.append(named(2, "", ""))
    legend = _prompt_legend(width)
    room = height - len(rows) - len(legend)
    lines = [
        _prompt_row(entry, index == cursor, cells, chosen, shown, sizes, label, marks)
        for index, entry in enumerate(view.prompts)
    ]
    rows += around(lines, cursor or 0, room, marks)
    rows += legend if len(rows) + len(legend) <= height else []
    return [crop(row, width, marks.ellipsis) for row in rows[:height]]


def _columns(sizes: Sequence[int], chosen: int, room: int) -> tuple[int, int]:
    """The columns that fit, the chosen one among them."""
    first = 0
    while True:
        last, used = first, 0
        while last < len(sizes) and used + sizes[last] <= room:
            used += sizes[last]
            last += 1
        if last > chosen or last == len(sizes) or first >= chosen:
            return first, max(last, min(len(sizes), first + 1))
        first += 1


def _prompt_row(
    entry: PromptRow,
    chosen: bool,
    cells: Sequence[str],
    cell: str | None,
    shown: range,
    sizes: Sequence[int],
    label: int,
    marks: Marks,
) -> Row:
    name = crop([(drawable_line(entry.label), "")], label - 1, marks.ellipsis)
    gap = "-" if entry.gap is None else logits(entry.gap)
    row: Row = [(" ", ""), *fit(name, label), (f"{gap:>8}", "")]
    if chosen:
        row = [(text, "reverse") for text, _ in row]
    for at in shown:
        place = entry.places[at] if at < len(entry.places) else "."
        role = "dim" if place.startswith(".") else ""
        if place.startswith("#"):
            role = "lost"
        if cells[at] in entry.missed:
            role = "error"
        if chosen and cells[at] == cell:
            role = "reverse"
        row += [(" " * (sizes[at] - len(place)), ""), (place, role)]
    row.append((f"   {entry.verdict}", "error" if entry.verdict == "LOGIC ERROR" else "dim"))
    return row


def _prompt_legend(width: int) -> list[Row]:
    if width < WIDE:
        return [[(" = identical   ~ state differs   .. running   . not run yet", "dim")]]
    text = (
        " = identical   ~ identical, state differs   .. running   . not run yet   "
        "no near-tie: no gap under 1 logit"
    )
    return [[(text, "dim")]]


def category_rows(
    found: Sequence[Document], cell: str | None, width: int, height: int, marks: Marks
) -> list[Row]:
    """A cell's figures, a row per category."""
    if cell is None or not found:
        return [[(" nothing by category: no prompt of this set that has ended has one", "dim")]]
    wide = width >= WIDE
    head = f" {'category':<14}{'identical':>9}  {'first':<6}{'depth':>7}{'acc/prop.':>11}"
    head += f"  {'speed-up':<17}"
    head += f"{'tok/s':>6}  ids" if wide else ""
    lines: list[Row] = []
    for figures in found:
        parted = figures["identical"] < figures["prompts"]
        first = figures["first_divergence"]
        name = fit([(drawable_line(figures["category"]), "")], 14, marks.ellipsis)
        same = f"{figures['identical']}/{figures['prompts']}"
        text = f"{same:>9}  {'-' if first is None else f'#{first}':<6}"
        rest = f"{mean(figures['mean_depth']):>7}{fraction(figures['accept_rate']):>11}"
        rest += f"  {_speed(figures['speedup'], short=False):<17}"
        row: Row = [(" ", ""), *name, (text, "lost" if parted else ""), (rest, "")]
        if wide:
            row.append((f"{rate(figures['tokens_per_s']):>6}  ", ""))
            row.append((figures["ids_sha256"][:8], "dim"))
        lines.append(row)
    of = f"of {short_row_of(cell)}, runs of this set only"
    notes = wrapped(f"{of}; the cursor in the other table chooses it", width - 1, "dim")
    notes = notes[: max(1, height - 1 - len(lines))]
    rows: list[Row] = [[(head, "dim")], *around(lines, 0, height - 1 - len(notes), marks)]
    rows += [[(" ", ""), *note] for note in notes]
    return [crop(row, width, marks.ellipsis) for row in rows]


def short_row_of(cell: str) -> str:
    """`split direct @0.9`."""
    return drawable_line(f"{cell.partition(' ')[0]} {short_row(row_of(cell))}")
