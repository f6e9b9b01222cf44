"""The last step before an ASCII terminal: whatever is left of other characters, cell for cell.

What the interface draws by itself is ASCII already (`ds4tui.marks`). Frames, scroll bars and the
palette are Textual's own, and a field may hold any text.
"""

from __future__ import annotations

from rich.cells import get_character_cell_size
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_SHAPES = str.maketrans("─━▔▁│┃·…┌┐└┘├┤┬┴┼", "----||-~+++++++++")
_BLOCKS = range(0x2580, 0x25A0)


def ascii_cells(text: str) -> str:
    """The same text with an ASCII character for each cell of any other one."""
    if text.isascii():
        return text
    return "".join(map(_cells, text.translate(_SHAPES)))


def _cells(char: str) -> str:
    if char.isascii():
        return char
    return ("#" if ord(char) in _BLOCKS else "?") * get_character_cell_size(char)


class AsciiLines(LineFilter):
    """Makes every line of the screen ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments in ASCII, each as wide as it was."""
        return [Segment(ascii_cells(text), style, control) for text, style, control in segments]
