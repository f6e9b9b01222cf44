"""The accepted-depth histogram as rows of text: strip, box and proposed x accepted table."""

from __future__ import annotations

from ds4tui.figures import Depths
from ds4tui.marks import Marks
from ds4tui.paint.numbers import bar, fraction, mean
from ds4tui.spans import Row

STRIP_BAR_ROWS = 3


def title(depths: Depths | None, narrow: bool, table: bool) -> tuple[str, str]:
    """Left and right part of the box's title."""
    right = f"mean {mean(depths.mean if depths else None)}"
    if table:
        return "cycles by proposed and accepted", right
    if narrow:
        return "depth, 1=bonus only", right
    if depths and depths.lengths_vary:
        return "depth, lengths vary: f for table", right
    return "depth = tokens a cycle commits", right


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


def box(depths: Depths, width: int, height: int, marks: Marks) -> list[Row]:
    """One row per depth with its share, acceptance by draft position beside it, and the sums."""
    right_cells = 24
    bar_cells = max(4, min(24, width - 2 - 12 - right_cells - 1))
    groups = _group(depths, max(1, height - 4))
    full = max(1, *(count for _, count in groups))
    label_cells = max(len(label) for label, _ in groups)
    head = f" {'depth':<{label_cells + 1 + bar_cells}}{'cycles':>6}{'%':>4}"
    rows: list[Row] = [[(f"{head}   draft  accepted/reached", "dim")]]
    for at, (label, count) in enumerate(groups):
        share = f"{100 * count / depths.cycles:3.0f}%" if depths.cycles else "   -"
        drawn = bar(count, full, bar_cells, marks.bar, marks.bar_half)
        row: Row = [
            (f" {label:<{label_cells}} ", ""),
            (drawn.ljust(bar_cells), "dspark"),
            (f" {count:>5} {share} ", ""),
        ]
        if at < len(depths.by_position) and len(groups) == len(depths.counts):
            got, reached = depths.by_position[at]
            ratio = fraction(got / reached) if reached else "n/a"
            row.append((f"  {f'd{at + 1}':>4}  {f'{got}/{reached}':>9}  {ratio:>5}", ""))
        rows.append(row)
    return [*rows, *_sums(depths, width)]


def _sums(depths: Depths, width: int) -> list[Row]:
    rejected_first = depths.counts[0] - depths.no_draft
    average = mean(depths.avg_accept)
    rate = fraction(depths.accept_rate)
    tokens = f"{depths.cycles} cycles, {depths.tokens} tokens + 1 from prefill"
    total = f" = {depths.tokens + 1}" if depths.cycles else ""
    lines = [
        f"1 = bonus: {depths.no_draft} no draft + {rejected_first} first rejected",
        f"accepted {depths.accepted} of {depths.proposed} proposed {rate}, {average} a cycle",
        tokens + total,
    ]
    return [[(f" {line}"[:width], "dim")] for line in lines]


def table(depths: Depths, width: int, height: int) -> list[Row]:
    """Cycles by drafts proposed (rows) and accepted (columns)."""
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
    rows = rows[: max(1, height - 2)]
    rows.append([(" a row's last figure: all of its drafts accepted", "dim")])
    rows.append([(" 0 proposed: a decode, no draft passed the gate", "dim")])
    return rows
