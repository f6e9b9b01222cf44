"""A widget that shows rows of styled text from a painting function.

Owns the way from roles to the theme's styles, and to ASCII. Subclasses say what the rows are.
"""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from ds4tui.marks import UNICODE, Marks
from ds4tui.spans import ROLES, Row


class Painted(Widget):
    """Rows of text with roles, painted anew when asked for and when the size changes."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"painted--{role}" for role in ROLES}

    _rows: list[Row] | None = None
    _painted_size = Size(0, 0)

    @property
    def marks(self) -> Marks:
        """The glyphs of this terminal."""
        marks: Marks = getattr(self.app, "marks", UNICODE)
        return marks

    def paint(self, width: int, height: int) -> list[Row]:
        """The rows that fill the content area."""
        raise NotImplementedError

    def repaint(self) -> None:
        """Something that the rows show has changed."""
        self._rows = None
        self.refresh()

    def rows(self) -> list[Row]:
        """The rows as they are on the screen."""
        size = self.content_size
        if self._rows is None or self._painted_size != size:
            self._rows = [self.safe(row) for row in self.paint(size.width, size.height)]
            self._painted_size = size
        return self._rows

    def safe(self, row: Row) -> Row:
        """A row in characters that this terminal can draw."""
        if not self.marks.ascii:
            return row
        return [(self.marks.text(text), role) for text, role in row]

    def style_of(self, role: str) -> Style:
        """The theme's style for a role."""
        return self.get_component_rich_style(f"painted--{role}") if role else self.rich_style

    def render_line(self, y: int) -> Strip:
        """One row as a strip of exactly the widget's width."""
        rows = self.rows()
        width = self.content_size.width
        if y >= len(rows):
            return Strip.blank(width, self.rich_style)
        segments = [Segment(text, self.style_of(role)) for text, role in rows[y] if text]
        return Strip(segments).adjust_cell_length(width, self.rich_style)
