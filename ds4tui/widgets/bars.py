"""Rows 1 to 3 and the footer, the same on every screen."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.message import Message

from ds4tui.paint.bars import Shown, footer_row, prompt_row, screens_row
from ds4tui.spans import Row, fit, width_of
from ds4tui.verdict_line import VerdictLine, verdict_row
from ds4tui.widgets.painted import Painted

NARROW = 100
"""Columns under which settings and keys take their short forms."""


class RunBar(Painted):
    """Row 1: the screens and the run's state."""

    screens: Sequence[tuple[str, str]] = ()
    active = ""
    state = ""

    def show(self, screens: Sequence[tuple[str, str]], active: str, state: str) -> None:
        """Draw when something differs."""
        if (screens, active, state) != (self.screens, self.active, self.state):
            self.screens, self.active, self.state = screens, active, state
            self.repaint()

    def paint(self, width: int, height: int) -> list[Row]:
        """One row."""
        return [screens_row(self.screens, self.active, self.state, width)]


class PromptBar(Painted):
    """Row 2: prompt and settings of the run shown, and the knobs turned since."""

    prompt = ""
    shown: Shown | None = None

    def show(self, prompt: str, shown: Shown) -> None:
        """Draw when something differs."""
        if (prompt, shown) != (self.prompt, self.shown):
            self.prompt, self.shown = prompt, shown
            self.repaint()

    def paint(self, width: int, height: int) -> list[Row]:
        """One row."""
        if self.shown is None:
            return []
        return [prompt_row(self.prompt, self.shown, width, width < NARROW, self.marks)]


class VerdictBar(Painted):
    """Row 3: the verdict, reversed over the full width when the ids part."""

    line: VerdictLine | None = None

    def show(self, line: VerdictLine) -> None:
        """Draw when something differs."""
        if line != self.line:
            self.line = line
            for level in ("same", "differ", "bug", "withheld", "failed"):
                self.set_class(line.level == level, f"-{level}")
            self.repaint()

    def paint(self, width: int, height: int) -> list[Row]:
        """One row."""
        if self.line is None:
            return []
        row = verdict_row(self.line, width, self.marks)
        role = row[0][1] if row else ""
        spans = fit(row, width)
        return [[(text, role) for text, _ in spans]]


class KeyFooter(Painted):
    """The keys that can act now, the most useful first."""

    class Chosen(Message):
        """The mouse chose a key."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    entries: Sequence[tuple[str, str, str]] = ()

    def show(self, entries: Sequence[tuple[str, str, str]]) -> None:
        """Draw when something differs.

        Args:
            entries: (key, label, action) by importance; the last one is always shown.
        """
        if entries != self.entries:
            self.entries = entries
            self.repaint()

    def paint(self, width: int, height: int) -> list[Row]:
        """One row."""
        row: Row = []
        for _, spans in self._fitting(width):
            row += [("  ", "")] * bool(row) + spans
        return [fit(row, width)]

    def _fitting(self, width: int) -> list[tuple[int, Row]]:
        return footer_row([(key, label) for key, label, _ in self.entries], width)

    def on_click(self, event: events.Click) -> None:
        """Act as the key under the mouse would."""
        left = 0
        for at, spans in self._fitting(self.content_size.width):
            right = left + width_of(spans)
            if left <= event.x < right:
                self.post_message(self.Chosen(self.entries[at][2]))
                return
            left = right + 2
