"""Help: the keys that are bound now, the marks, and the words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from ds4tui.paint.panes import wrapped
from ds4tui.screens.rows_panel import RowsPanel
from ds4tui.spans import Row, spread

Keys = Sequence[tuple[str, Sequence[tuple[str, str, str]]]]
"""Groups of (key, what it does, id for the configuration)."""

WITH_IDS = 76
"""Cells from which on the ids stand behind the keys."""

MARKS = (
    ("draft", "drafted and accepted"),
    ("bonus", "bonus token: the target's own, the last one of a cycle"),
    ("reverse", "where the ids part, in both panes"),
    ("dim", "after it, in the right pane"),
    ("rejected", "draft that the verify rejected (key x)"),
)
GUTTER = (
    ("parting", "row where the ids part"),
    ("after", "rows after it"),
    ("drift", "first boundary at which the states differed"),
    ("cursor", "row of the cursor, same index in both panes"),
)
WORDS = (
    ("plain", "greedy decode of the target alone, one row a step; arm 0"),
    ("DSpark", "the drafter proposes a block, the target verifies it in one batch"),
    ("depth", "tokens a cycle commits: accepted drafts + the bonus token"),
    ("split", "decode by one set of kernels, verify by another, as ds4 does: may diverge"),
    ("invariant", "rows give the same bits however many share a batch: identical"),
    ("direct", "keep the verify's state when all drafts are accepted, else re-decode"),
    ("prefix", "keep the state after the accepted rows; never re-decode"),
    ("reproject", "run the compressors again for the committed rows; keep their raw rows"),
    ("replay", "always re-decode the committed rows: identical, at a cost"),
    ("strict", "carry the drafter's state, draft nothing: the cost of carrying"),
    ("drift", "the states differ in bits while the ids still agree"),
    ("near-tie", "plain's logits of the two tokens were closer than rounding"),
    (
        "N prompts",
        "in a box: of this session, each as it last ran whole with these settings; "
        "in the tables of 4 and 6: of the set, as it ran there",
    ),
    ("different work", "the ids differ, so the speeds do not compare"),
)


def _entry(head: str, role: str, what: str, width: int) -> list[Row]:
    """A key, mark or word with what it means, in as many rows as that needs."""
    indent = 2 + len(head)
    first, *more = wrapped(what, width - indent, "")
    return [[("  ", ""), (head, role), *first], *([(" " * indent, ""), *row] for row in more)]


class HelpScreen(RowsPanel):
    """Everything a key can do here, read from the bindings themselves."""

    PANEL_TITLE: ClassVar[str] = "help"
    HINT: ClassVar[str] = f"{RowsPanel.HINT} · ids are for [keys] in the config"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "close", "Close")]

    def __init__(self, keys: Keys, glyph: Callable[[str], str]) -> None:
        super().__init__()
        self.keys = keys
        self.glyph = glyph

    def rows(self, width: int) -> list[Row]:
        """Keys by group, marks, words."""
        out: list[Row] = []
        for group, entries in self.keys:
            out += [[(group, "strong")]]
            for key, what, name in entries:
                first, *more = _entry(f"{key:<12}", "key", what, width)
                out.append(spread(first, [(name, "dim")] if width >= WITH_IDS else [], width))
                out += more
            out.append([])
        out.append([("marks", "strong")])
        for role, what in MARKS:
            out += _entry("token".ljust(12), role, what, width)
        for name, what in GUTTER:
            out += _entry(f"{self.glyph(name):<12}", "", what, width)
        out += [[], [("words", "strong")]]
        for word, what in WORDS:
            out += _entry(f"{word:<15}", "key", what, width)
        return out
