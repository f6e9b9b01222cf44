"""Rows of text with a role per span: what the painting functions return.

Owns cropping and padding by cells. A role is a word (`dim`, `plain`, `dspark`, ...) that a widget
maps to a style of the theme; the empty role is normal text. Knows nothing of colours.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]
Row = list[Span]

ROLES = (
    "dim",
    "strong",
    "reverse",
    "plain",
    "dspark",
    "same",
    "warn",
    "error",
    "frame",
    "key",
    "pending",
    "saved",
    "lost",
    "brand",
    "draft",
    "bonus",
    "rejected",
)
"""Every role that the painting functions use; the style sheet has one rule for each."""


def width_of(row: Iterable[Span]) -> int:
    """Width of a row in cells."""
    return sum(cell_len(text) for text, _ in row)


def crop(row: Iterable[Span], width: int, ellipsis: str = "") -> Row:
    """At most `width` cells of a row; what is cut ends in the ellipsis."""
    spans = list(row)
    if width_of(spans) <= width:
        return spans
    room = max(0, width - cell_len(ellipsis))
    out: Row = []
    role = ""
    for text, role in spans:
        cells = cell_len(text)
        if cells > room:
            out.append((set_cell_size(text, room), role))
            break
        out.append((text, role))
        room -= cells
    out.append((ellipsis[:width], role))
    return out


def fit(row: Iterable[Span], width: int, ellipsis: str = "") -> Row:
    """A row of exactly `width` cells: cropped, or filled with spaces on the right."""
    spans = crop(row, width, ellipsis)
    missing = width - width_of(spans)
    return [*spans, (" " * missing, "")] if missing > 0 else spans


def spread(
    left: Iterable[Span], right: Iterable[Span], width: int, fill: str = " ", role: str = ""
) -> Row:
    """Left and right parts on one row with fill between; the right part goes first when narrow."""
    left, right = list(left), list(right)
    gap = width - width_of(left) - width_of(right)
    if gap < 1:
        return fit(left, width)
    return [*left, (fill * gap, role), *right]


def text_of(row: Iterable[Span]) -> str:
    """The characters of a row."""
    return "".join(text for text, _ in row)
