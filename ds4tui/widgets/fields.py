"""Fields that are edited and may hold untrusted text: what they draw cannot act on the terminal.

Whatever a keyboard or an input method sends as text is taken, not only what Textual calls
printable: joiners of emoji and of Persian words, spaces of other widths, characters newer than this
Python.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from rich.highlighter import Highlighter
from rich.text import Text
from textual import events
from textual.widgets import Input, TextArea

from ds4tui.visible import drawable_field

NO_TEXT = ("Cc", "Cs")
"""Unicode categories of what is no text when a key sends it: controls, halves of a character."""


class FieldGlyphs(Highlighter):
    """Draws control characters of an `Input` as glyphs; its value keeps them."""

    def highlight(self, text: Text) -> None:
        """Replace them, one for one."""
        text.plain = drawable_field(text.plain)


def text_besides(event: events.Key) -> str:
    """The text of a key that Textual takes for none because it is not printable; else ""."""
    char = event.character or ""
    is_text = len(char) == 1 and unicodedata.category(char) not in NO_TEXT
    return char if is_text and not event.is_printable else ""


class SafeInput(Input):
    """An `Input` that draws control characters as glyphs; its value keeps them."""

    def __init__(self, value: str = "", **options: Any) -> None:
        super().__init__(value, highlighter=FieldGlyphs(), **options)

    async def _on_key(self, event: events.Key) -> None:
        text = text_besides(event)
        if text:
            event.stop()
            event.prevent_default()
            self.replace(text, *self.selection)


class SafeTextArea(TextArea):
    """A text area that draws control characters as glyphs; its text keeps them."""

    def get_line(self, line_index: int) -> Text:
        """A line as it is drawn, one character for each of the document's."""
        line = self.document.get_line(line_index)
        return Text(drawable_field(line), end="", no_wrap=True)

    async def _on_key(self, event: events.Key) -> None:
        text = text_besides(event)
        if text:
            event.stop()
            event.prevent_default()
            self.replace(text, *self.selection, maintain_selection_offset=False)
