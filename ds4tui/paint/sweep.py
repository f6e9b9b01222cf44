"""The sweep as rows of text: chart, table, what is best and the line of the verdict.

Knows no widgets; the figures are `ds4tui.sweep_rows`'.
"""

from __future__ import annotations

from ds4tui.marks import Marks
from ds4tui.paint.numbers import bar, fraction, mean, rate
from ds4tui.paint.window import around
from ds4tui.spans import Row, Span, crop, fit, width_of
from ds4tui.sweep_rows import PLAIN, STRICT, BestRange, SweepRow, SweepTable
from ds4tui.verdict_line import VerdictLine
from engine.stats import Speedup
from engine.verdict import length_pattern

WIDE, TINY = 100, 66
IDS_CELLS, NOTE_CELLS = 9, 15
"""Of the narrow table: its bars begin and end in the same columns."""
MOST_NAMED = 4
"""Values that the verdict names; of more it says how many."""
NAMES = {"confidence": "conf", "block": "block"}
SWEPT = {"confidence": "confidence threshold", "block": "block length"}


def value_text(axis: str, value: float | None) -> str:
    """A threshold with two digits, a block length as a whole number."""
    if value is None:
        return "-"
    return f"{value:.2f}" if axis == "confidence" else f"{value:.0f}"


def label(table: SweepTable, row: SweepRow) -> str:
    """What a row is called."""
    return row.name if row.value is None else value_text(table.axis, row.value)


def times(found: Speedup) -> str:
    """`1.56x ±.02`."""
    return f"{found.value:.2f}x ±{fraction(found.half, 2)}"


def range_text(table: SweepTable, best: BestRange) -> str:
    """`0.70 .. 0.90`, or one value."""
    low, high = (value_text(table.axis, value) for value in (best.low, best.high))
    return low if low == high else f"{low} .. {high}"


# What it comes to


def best_sentences(table: SweepTable, cure: str = "") -> tuple[str, ...]:
    """What is best, whether it pays, and what the default loses; empty before a run has ended.

    Args:
        cure: what makes the rows with other ids comparable; "" = nothing is known to.
    """
    best, swept = table.best, SWEPT[table.axis]
    parted = any(row.differs for row in table.values)
    if best is None:
        return _none_best(table, cure if parted else "")
    found = best.fastest.speedup
    assert found is not None
    several = "not resolved from each other (95 %)"
    single = "faster than its neighbours (95 %)"
    known = sum(row.speedup is not None for row in table.values)
    why = several if best.low != best.high else single if known > 1 else "the only one so far"
    name = f"best {swept} {range_text(table, best)}"
    among = f"of the {known} with plain's ids" if parted else ""
    rest = "the others are not compared" if parted else ""
    pays = f"{times(found)} over plain: it pays"
    said = (f"{name} {among}".rstrip(), why, rest, pays, *_default(table, best))
    return tuple(filter(None, said))


def _none_best(table: SweepTable, cure: str) -> tuple[str, ...]:
    """Why no value is best: all have other ids, or none is surely faster than plain."""
    swept, fastest = SWEPT[table.axis], table.fastest
    parted = any(row.differs for row in table.values)
    if fastest is None:
        same = f"no {swept} is known to pay: all that have run have other ids than plain"
        return tuple(filter(None, (same, cure))) if parted and table.runs_done else ()
    found = fastest.speedup
    assert found is not None
    none = f"no {swept} is faster than plain" + (" with plain's ids" if parted else "")
    rest = "the others are not compared" if parted else ""
    nearest = f"the nearest, {value_text(table.axis, fastest.value)}, is {times(found)} of it"
    if not found.resolved:
        nearest += ", not resolved: more tokens would tell"
    return tuple(filter(None, (none, rest, cure, nearest)))


def _default(table: SweepTable, best: BestRange) -> tuple[str, ...]:
    """What the default gives of the fastest value's rate; both are in the table."""
    if table.default is None:
        return ()
    name = value_text(table.axis, table.default)
    row = table.row(f"{table.axis} {table.default:g}")
    if row is None:
        return ()
    if best.has(table.default):
        return (f"default {name} loses nothing",)
    against, own, most = best.default, row.tokens_per_s, best.fastest.tokens_per_s
    if against is None or own is None or most is None:
        return ()
    if not against.resolved or against.value > 1:
        return (f"default {name} is not resolved from it",)
    return (f"default {name} gives {own / most:.0%} of it ({rate(own)} of {rate(most)} tok/s)",)


def best_rows(table: SweepTable, width: int, marks: Marks, cure: str = "") -> list[Row]:
    """The sentences, as many in a row as fit."""
    rows: list[Row] = []
    for at, sentence in enumerate(best_sentences(table, cure)):
        part: Row = [(sentence, "" if at else "strong")]
        if rows and width_of(rows[-1]) + width_of(part) + 2 <= width:
            rows[-1] += [("; ", ""), *part]
        else:
            rows.append([(" ", ""), *part])
    return [crop(row, width, marks.ellipsis) for row in rows]


def verdict(table: SweepTable | None, *, cure: str = "", hint: str = "") -> VerdictLine:
    """Row 3: whether the rows did the same work.

    Args:
        cure: what makes all rows alike when they are not; "" = nothing is known to.
        hint: what to press before there is a table.
    """
    if table is None or not any(row.runs or row.tokens for row in table.rows):
        if table is not None and table.runs_done and table.is_over:
            return VerdictLine(
                "idle", "· nothing decoded", ("the runs ended at their first token",)
            )
        return VerdictLine("idle", "· no sweep yet", (hint,))
    rows = [row for row in table.rows if row.name != PLAIN and row.tokens]
    amount = f"{table.tokens} ids"
    if table.prompts > 1:
        each = f"{table.tokens} ids each"
        if table.fewest < table.tokens:
            each = f"{table.fewest} to {table.tokens} ids"
        amount = f"{table.prompts} prompts x {each}"
    if table.disagrees is not None:
        text = f"plain has other ids from run to run in prompt {table.disagrees + 1}"
        return VerdictLine("withheld", "? WITHHELD", (f"{text}: nothing is compared", text))
    if table.different:
        return _different(table, cure)
    if not table.is_over:
        done = f"{len(rows)} rows, {table.runs_done} of {table.runs or '?'} runs"
        return VerdictLine("same", "= identical so far", (f"{done}, {amount}", done))
    same = f"in all {len(rows)} rows, {amount}"
    return VerdictLine(
        "same",
        "= IDENTICAL",
        (
            f"{same}: the rows did the same work, speeds are comparable",
            f"{same}: same work, comparable",
            same,
        ),
    )


def _different(table: SweepTable, cure: str) -> VerdictLine:
    names = ", ".join(label(table, row) for row in table.different)
    if len(table.different) > MOST_NAMED:
        names = f"{len(table.different)} of {len(table.values)} values"
    text = f"in {names}: no speed-up for those rows"
    short = f"in {names}: no speed-up there"
    bodies = [f"{text}   {cure}", f"{short}   {cure}", short] if cure else [text, short]
    if table.axis == "block" and table.prompts == 1:
        first = {
            int(row.value): row.differs[0][1] if row.differs else None
            for row in table.values
            if row.value is not None and row.runs
        }
        bodies.insert(0, f"{text}; {length_pattern(first)}")
    return VerdictLine("differ", "≠ DIFFERENT WORK", tuple(bodies))


# The table


def table_title(table: SweepTable | None, width: int) -> tuple[str, str]:
    """Left and right part of the title."""
    if table is None:
        return "table", ""
    ranked = f"by {SWEPT[table.axis]}; the best has most tok/s, whatever its acceptance"
    left = "table" if width >= WIDE else f"tok/s by {SWEPT[table.axis]}"
    return left, ranked if width >= WIDE else amount(table)


def amount(table: SweepTable) -> str:
    """Runs done of all."""
    if not table.runs_done:
        return ""
    return f"{table.runs_done} of {table.runs or '?'} runs"


def table_rows(
    table: SweepTable,
    cursor: str,
    chosen: float | None,
    width: int,
    height: int,
    marks: Marks,
    cure: str = "",
) -> list[Row]:
    """Header, a row each, what is best; the rows around the cursor when not all fit.

    Args:
        cursor: name of the row that is reversed.
        chosen: the playground's own value.
        cure: of `best_sentences`.
    """
    wide = width >= WIDE
    head = (
        f" {NAMES[table.axis]:<8}{'drafts/cycle':>12}{'acc/proposed':>14}{'depth':>8}{'tok/s':>8}"
        f"{'±':>7}{'vs plain':>11}{'no-draft':>11}{'ms/cycle':>10}   ids vs plain"
        if wide
        else f" {NAMES[table.axis]:<7}{'acc/prop' if width >= TINY else ''}{'depth':>6}"
        f"{'tok/s':>7}{'±':>6}{'vs plain':>9}  ids"
    )
    lines = [
        _wide_cells(table, row, chosen) if wide else _narrow_cells(table, row, chosen, width, marks)
        for row in table.rows
    ]
    said = [] if wide else best_rows(table, width, marks, cure)
    room = max(1, height - 1 - len(said))
    at = next((n for n, row in enumerate(table.rows) if row.name == cursor), 0)
    lines = [fit(line, width, marks.ellipsis) for line in lines]
    lines[at] = [(text, "reverse") for text, _ in lines[at]]
    rows: list[Row] = [[(head, "dim")], *around(lines, at, room, marks), *said]
    if len(rows) < height:
        rows.append([(_legend(table), "dim")])
    return rows


def _legend(table: SweepTable) -> str:
    unresolved = any(row.speedup is not None and not row.speedup.resolved for row in table.rows)
    more = "   ? = not resolved from plain" if unresolved else ""
    if any(len(row.differs) > 1 for row in table.rows):
        more += "   #.. x2 = first index, in 2 prompts"
    return f" ± = half of the 95 % interval, tok/s{more}"


def _versus(row: SweepRow) -> str:
    if row.name == PLAIN:
        return "1.00x" if row.tokens else "-"
    if row.speedup is None:
        return "-"
    return f"{row.speedup.value:.2f}x" + ("" if row.speedup.resolved else " ?")


def _ids(table: SweepTable, row: SweepRow, *, short: bool) -> Span:
    if row.state == "queued":
        return "-" if table.is_over or not table.runs else "." if short else "queued", "dim"
    if not row.tokens:
        return "..", "dim"
    if row.name == PLAIN:
        return row.ids[:8], "dim"
    if not row.differs:
        return ("=" if row.runs else ".."), "same" if row.runs else "dim"
    at, many = min(index for _, index in row.differs), len(row.differs)
    text = f"≠ #{at}" + (f" x{many}" if many > 1 else "")
    return (text if short else f"{text} {row.ids[:8]}"), "warn"


def _notes(table: SweepTable, row: SweepRow, chosen: float | None) -> str:
    notes = []
    if row.name == STRICT and row.tokens:
        notes.append("carry cost")
    if row.value is not None:
        if table.best is not None and row.speedup is not None and table.best.has(row.value):
            notes.append("best")
        if row.value == table.default:
            notes.append("default")
        if row.value == chosen and chosen != table.default:
            notes.append("chosen")
        if row.value == 0 and table.axis == "confidence" and not notes:
            notes.append("no gate")
    return ", ".join(notes)


def _half(row: SweepRow) -> str:
    if row.half is None:
        return "-"
    return f"±{row.half:.1f}" if row.half < 10 else f"±{row.half:.0f}"


def _wide_cells(table: SweepTable, row: SweepRow, chosen: float | None) -> Row:
    idle = f"{row.no_draft:.0%}" if row.no_draft is not None else "-"
    cycle = f"{row.cycle_ms:.2f}" if row.cycle_ms is not None else "-"
    is_plain = row.name in (PLAIN, STRICT)
    drafts = "-" if is_plain else mean(row.drafts_per_cycle) if row.counts.cycles else "-"
    accepted = "-" if is_plain or not row.counts.cycles else fraction(row.counts.accept_rate)
    depth = mean(row.depth) if row.depth is not None else "-"
    ids, role = _ids(table, row, short=False)
    numbers = (
        f" {label(table, row):<8}{drafts:>12}{accepted:>14}{depth:>8}"
        f"{rate(row.tokens_per_s):>8}{_half(row):>7}{_versus(row):>11}{idle:>11}{cycle:>10}"
    )
    return [
        (numbers, "dim" if row.state == "queued" else ""),
        ("   ", ""),
        (ids, role),
        (f"  {_notes(table, row, chosen)}", "strong"),
    ]


def _narrow_cells(
    table: SweepTable, row: SweepRow, chosen: float | None, width: int, marks: Marks
) -> Row:
    accepted = ""
    if width >= TINY:
        accepted = f"{fraction(row.counts.accept_rate) if row.counts.proposed else '-':>8}"
    depth = mean(row.depth) if row.depth is not None else "-"
    ids, role = _ids(table, row, short=True)
    numbers = (
        f" {label(table, row):<7}{accepted}{depth:>6}{rate(row.tokens_per_s):>7}"
        f"{_half(row):>6}{_versus(row):>9}  "
    )
    notes = _notes(table, row, chosen)
    spans: Row = [(numbers, "dim" if row.state == "queued" else ""), (ids, role)]
    spans.append((" " * max(1, len(numbers) + IDS_CELLS - width_of(spans)), ""))
    full = max((each.tokens_per_s or 0.0 for each in table.rows), default=0.0)
    room = max(0, width - len(numbers) - IDS_CELLS - NOTE_CELLS)
    drawn = bar(row.tokens_per_s or 0.0, full, room, marks.bar, marks.bar_half)
    return [*spans, (drawn.ljust(room), role_of(row)), (f" {notes}" if notes else "", "strong")]


def role_of(row: SweepRow) -> str:
    """Role of a row's bar, point or line."""
    return "plain" if row.value is None else "dspark"
