"""Fields that are edited and may hold untrusted text: what they draw cannot act on the terminal."""

from __future__ import annotations

from rich.highlighter import Highlighter
from rich.text import Text
from textual.widgets import TextArea

from ds4tui.visible import drawable_field


class FieldGlyphs(Highlighter):
    """Draws control characters of an `Input` as glyphs; its value keeps them."""

    def highlight(self, text: Text) -> None:
        """Replace them, one for one."""
        text.plain = drawable_field(text.plain)


class SafeTextArea(TextArea):
    """A text area that draws control characters as glyphs; its text keeps them."""

    def get_line(self, line_index: int) -> Text:
        """A line as it is drawn, one character for each of the document's."""
        line = self.document.get_line(line_index)
        return Text(drawable_field(line), end="", no_wrap=True)
