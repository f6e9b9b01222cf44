"""The accepted-depth histogram as rows of text: strip, box and proposed x accepted table."""

from __future__ import annotations

from ds4tui.figures import Depths
from ds4tui.marks import Marks
from ds4tui.paint.numbers import bar, fraction, mean
from ds4tui.paint.numbers import rate as tokens_per_s
from ds4tui.spans import Row, crop

STRIP_BAR_ROWS = 3


def title(depths: Depths | None, narrow: bool) -> tuple[str, str]:
    """Left and right part of the title over a run's histogram."""
    right = mean_of(depths)
    if narrow:
        return "depth, 1=bonus", right
    if depths and depths.lengths_vary:
        return "depth, lengths vary: f table", right
    return "depth = tokens a cycle commits", right


def mean_of(depths: Depths | None) -> str:
    """`mean 2.71`, the right part of every title."""
    return f"mean {mean(depths.mean if depths else None)}"


def _group(depths: Depths, most: int) -> list[tuple[str, int]]:
    """(label, cycles) of each bar; two or more depths share one when there is no room."""
    bins = len(depths.counts)
    size = -(-bins // max(1, most))
    groups = []
    for first in range(0, bins, size):
        last = min(bins, first + size)
        label = str(first + 1) if last - first == 1 else f"{first + 1}-{last}"
        groups.append((label, sum(depths.counts[first:last])))
    return groups


def strip(depths: Depths, width: int, marks: Marks) -> list[Row]:
    """Three rows of vertical bars, the counts and the depths."""
    bins = len(depths.counts)
    step = max(3, min(5, (width - 1) // bins))
    groups = _group(depths, (width - 1) // step)
    step = max(3, min(9, (width - 1) // len(groups)))
    full = max(1, *(count for _, count in groups))
    levels = len(marks.blocks) - 1
    heights = [max(count > 0, round(count / full * STRIP_BAR_ROWS * levels)) for _, count in groups]
    rows: list[Row] = []
    for row in range(STRIP_BAR_ROWS):
        below = (STRIP_BAR_ROWS - 1 - row) * levels
        cells = [marks.blocks[max(0, min(levels, height - below))] for height in heights]
        rows.append([(" " + "".join((cell * (step - 1)).ljust(step) for cell in cells), "dspark")])
    counts = [_short(count, step - 1) for _, count in groups]
    if groups[0][0] == "1" and depths.no_draft:
        split = f"{depths.no_draft}+{depths.counts[0] - depths.no_draft}"
        counts[0] = split if len(split) < step else counts[0]
    rows.append([(" " + "".join(_middle(count, step) for count in counts), "")])
    rows.append([(" " + "".join(_middle(label, step) for label, _ in groups), "dim")])
    return rows


def _short(count: int, cells: int) -> str:
    text = str(count)
    return text if len(text) <= cells else f"{count / 1000:.0f}k"


def _middle(text: str, step: int) -> str:
    return text[: step - 1].center(step - 1).ljust(step)


LEAST_BAR, MOST_BAR = 4, 24
"""Cells of a bar; figures give way before it gets shorter."""


def box(depths: Depths, width: int, height: int, marks: Marks) -> list[Row]:
    """One row per depth with its share, acceptance by draft position beside it, and the sums.

    Where there is no room for all figures, whole columns go; none is ever cut.
    """
    groups = _group(depths, max(1, height - 4))
    full = max(1, *(count for _, count in groups))
    labels = max(len(label) for label, _ in groups)
    counts = max(5, *(len(str(count)) for _, count in groups))
    alone = len(groups) == len(depths.counts)
    ratios = [f"{got}/{reached}" for got, reached in depths.by_position] if alone else []
    ratio_cells = max(9, *map(len, ratios)) if ratios else 9
    # Each choice: share of the cycles, acceptance by position, and that as a fraction too.
    for share, position, fractions in _COLUMNS:
        used = labels + counts + 4 + 5 * share + (8 + ratio_cells) * position + 7 * fractions
        if width - used >= LEAST_BAR:
            break
    cells = max(LEAST_BAR, min(MOST_BAR, width - used))
    head = f" {'depth':<{labels + 1 + cells}}{'cycles':>{counts + 1}}{'   %  ' if share else ' '}"
    if position:
        word = f"{'accepted/reached':>{ratio_cells + 7}}" if fractions else "accepted"
        head += f" draft  {word:>{ratio_cells}}"
    rows: list[Row] = [[(head.rstrip(), "dim")]]
    for at, (label, count) in enumerate(groups):
        drawn = bar(count, full, cells, marks.bar, marks.bar_half)
        percent = f" {100 * count / depths.cycles:3.0f}%" * share
        row: Row = [
            (f" {label:<{labels}} ", ""),
            (drawn.ljust(cells), "dspark"),
            (f" {count:>{counts}}{percent} ", ""),
        ]
        if position and at < len(ratios):
            got, reached = depths.by_position[at]
            value = f"  {fraction(got / reached) if reached else 'n/a':>5}" * fractions
            row.append((f"  {f'd{at + 1}':>4}  {ratios[at]:>{ratio_cells}}{value}", ""))
        rows.append(row)
    return [*rows, *_sums(depths, width)]


_COLUMNS = ((1, 1, 1), (0, 1, 1), (0, 1, 0), (1, 0, 0), (0, 0, 0))


def _sums(depths: Depths, width: int) -> list[Row]:
    none, rejected = depths.no_draft, depths.counts[0] - depths.no_draft
    average, rate = mean(depths.avg_accept), fraction(depths.accept_rate)
    accepted, proposed = depths.accepted, depths.proposed
    cycles, tokens, first = depths.cycles, depths.tokens, depths.prefilled
    whole = tokens + first
    lines = (
        (
            f"1 = bonus: {none} no draft + {rejected} first rejected",
            f"1: {none} no draft, {rejected} rejected",
        ),
        (
            f"accepted {accepted} of {proposed} proposed {rate}, {average} a cycle",
            f"accepted {accepted}/{proposed} {rate}, {average} a cycle",
            f"accepted {accepted}/{proposed} {rate}",
        ),
        (
            f"{cycles} cycles, {tokens} tokens + {first} from prefill = {whole}",
            f"{cycles} cycles, {tokens} + {first} prefill = {whole}",
            f"{cycles} cycles, {whole} tokens",
        )
        if first
        else (f"{cycles} cycles, {tokens} tokens, {tokens_per_s(depths.rate)} tok/s",),
    )
    fitting = [next((form for form in forms if len(form) < width), forms[-1]) for forms in lines]
    return [crop([(f" {line}", "dim")], width, "…") for line in fitting]


def table(depths: Depths, width: int, height: int, note: str = "") -> list[Row]:
    """Cycles by drafts proposed (rows) and accepted (columns); a note of what they are of."""
    block = len(depths.proposed_by_accepted) - 1
    step = max(4, min(6, (width - 12) // (block + 1)))
    columns = "".join(f"{column:>{step}}" for column in range(block + 1))
    rows: list[Row] = [[(" proposed", "dim"), (columns, "dim"), ("   accepted", "dim")]]
    for proposed, counts in enumerate(depths.proposed_by_accepted):
        row: Row = [(f"{proposed:>7}  ", "dim")]
        for accepted in range(proposed + 1):
            count = counts[accepted]
            role = "dspark" if accepted == proposed else ""
            row.append((f"{count or '-':>{step}}", role if count else "dim"))
        rows.append(row)
    notes = [
        note,
        "a row's last figure: all of its drafts accepted",
        "0 proposed: a decode, no draft passed the gate",
    ]
    notes = [text for text in notes if text]
    rows = rows[: max(1, height - len(notes))]
    return [*rows, *([(f" {text}", "dim")] for text in notes)]
