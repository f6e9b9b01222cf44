"""Untrusted text and tables as Markdown that shows them literally. Knows nothing of their words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from engine.text import one_line

_MARKUP = re.compile(
    r"""[`*~|\[\]]                  # code, emphasis, strikes, cells, links
    | \\(?=[!-/:-@\[-`{-~]|\Z)      # an escape, a hard line break
    | (?<!\w)_+ | _+(?!\w)          # emphasis, which never begins or ends within a word
    | <(?=[A-Za-z/!?])              # tags and addresses
    | &(?=\#?\w+;)                  # entities
    | (?<!\S)(?:\#+(?!\S) | >)      # headings with their closing signs, quotes
    """,
    re.VERBOSE,
)
"""What CommonMark and GitHub read as markup in a line; nothing else is escaped, for who reads the
file as it is."""


def escaped(text: Any) -> str:
    """Untrusted text as Markdown that shows it literally."""
    line = one_line(str(text), 2000)
    return _MARKUP.sub(lambda found: "".join(f"\\{char}" for char in found[0]), line)


def _line(cells: Sequence[str]) -> str:
    """One row of a Markdown table."""
    return f"| {' | '.join(escaped(cell) for cell in cells)} |"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table and the empty line behind it."""
    return [_line(columns), f"|{' --- |' * len(columns)}", *map(_line, rows), ""]
