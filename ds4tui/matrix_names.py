"""Names of a matrix's cells: `split prefix confidence 0.9`, and their short forms for tables."""

from __future__ import annotations

from pathlib import PurePath

from engine.text import visible

SHORT_POLICY = {
    "direct": "dir", "prefix": "pre", "reproject": "rep", "replay": "rpl", "strict": "str",
}  # fmt: skip


def numerics_of(cell: str) -> str:
    """The numerics that a cell's name begins with."""
    return cell.partition(" ")[0]


def row_of(cell: str) -> str:
    """The rest of it: policy, threshold, drafter."""
    return cell.partition(" ")[2]


def short_row(row: str) -> str:
    """A row's name for a table: `direct @0.9 other`, a drafter by its file's name."""
    row, _, drafter = row.partition(" mtp ")
    row = row.replace(" confidence ", " @").replace(" draft-max ", " max ")
    own = drafter and drafter != "default"
    return visible(f"{row} {PurePath(drafter).stem}" if own else row)


def column_of(cell: str) -> str:
    """A column's name for a cell: `s.dir`, `i.pre @0.9`."""
    policy, _, rest = short_row(row_of(cell)).partition(" ")
    word = SHORT_POLICY.get(policy, policy[:3])
    return f"{numerics_of(cell)[:1]}.{word} {rest}".strip()
