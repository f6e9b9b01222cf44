"""The ledger of engine milliseconds as rows of text: strip and box."""

from __future__ import annotations

from ds4tui.figures import KINDS, Ledger
from ds4tui.marks import Marks
from ds4tui.paint.numbers import apportioned, bar, ms, signed
from ds4tui.spans import Row, Span, crop


def title(narrow: bool) -> str:
    """Title of the box."""
    return "ms per token" if narrow else "engine ms per token"


def strip(ledger: Ledger, width: int, marks: Marks) -> list[Row]:
    """Both totals with bars, and the kinds of the DSpark arm."""
    plain, dspark = sum(ledger.plain.values()), sum(ledger.dspark.values())
    full, cells = max(plain, dspark), max(1, width - 15)
    rows: list[Row] = [
        [(f" plain  {ms(plain):>5} ", ""), (bar(plain, full, cells, marks.solid, ""), "plain")]
    ]
    if not ledger.dspark:
        return rows
    drawn = bar(dspark, full, cells, marks.solid, "")
    rows.append([(f" DSpark {ms(dspark):>5} ", ""), (drawn, "dspark")])
    for first, second in (("draft", "verify"), ("replay", "decode")):
        left = f"{first} {ms(ledger.dspark[first])}"
        both = f" {left:<10} {second} {ms(ledger.dspark[second])}"
        rows.append([(both if len(both) <= width else both[1:], "dim")])
    commit = f" commit {ms(ledger.dspark['commit'])} "
    rows.append([(commit, "dim"), _saved(ledger, width - len(commit))])
    return rows


def _saved(ledger: Ledger, room: int) -> Span:
    role = "saved" if ledger.saved_ms >= 0 else "lost"
    value = ledger.saved_ms
    number = f"{value:.0f}" if abs(value) < 999.5 else f"{value / 1000:.1f} s"
    text = f"saved {number}"
    return (text if len(text) <= room else number, role)


def box(ledger: Ledger, width: int, marks: Marks) -> list[Row]:
    """A table of kinds, and the terms whose sum is the saving."""
    cells = max(2, width - 25)
    full = max((*ledger.dspark.values(), 1e-9))
    rows: list[Row] = [[(f"{'':9}{'plain':>6}  {'DSpark':>6}", "dim")]]
    for kind in KINDS:
        plain = ledger.plain[kind]
        dspark = ledger.dspark.get(kind, 0.0)
        drawn = bar(dspark, full, cells, marks.bar, marks.bar_half)
        shown = ms(dspark) if ledger.dspark else "-"
        rows.append(
            [
                (f" {kind:<8}{ms(plain) if plain else '':>6}  {shown:>6} ", ""),
                (drawn, "dspark"),
            ]
        )
    totals = [sum(ledger.plain.values()), sum(ledger.dspark.values())]
    second = ms(totals[1]) if ledger.dspark else "-"
    rows.append([(f" {'total':<8}{ms(totals[0]):>6}  {second:>6}", "strong")])
    if not ledger.terms:
        return rows
    role = "saved" if ledger.saved_ms >= 0 else "lost"
    # As they are printed the terms sum to what is saved, so that it can be checked by eye.
    whole = apportioned(list(ledger.terms.values()), ledger.saved_ms)
    rows.append([(f" saved {signed(sum(whole))} ms of {ledger.plain_total_ms:.0f} ms", role)])
    terms = [f"{name} {signed(value)}" for name, value in zip(ledger.terms, whole, strict=True)]
    for first, second, end in ((terms[0], terms[1], ","), (terms[2], terms[3], "")):
        line = f" {first}, {second}{end}"
        short = line.replace("accepted", "acc.")
        rows.append(crop([(line if len(line) <= width else short, "dim")], width, marks.ellipsis))
    return rows
