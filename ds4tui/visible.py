"""What untrusted text looks like in cells: `engine.text`'s glyphs, and widths that are certain.

Owns tabs, joined emoji and terminals without UTF-8. Knows nothing of widgets.
"""

from __future__ import annotations

from engine.text import decode_bytes, visible

_WIDTHS = {ord(char): None for char in "\u200c\u200d\ufe0e\ufe0f"}
# Terminals disagree about the width of what joiners and selectors make, so they are not drawn.
_BLOCK = {**_WIDTHS, ord("\t"): "\u2409   "}
_LINE = {**_WIDTHS, ord("\t"): "\u2409", ord("\n"): "\u23ce", 0x240A: "\u23ce"}


def drawable(text: str) -> str:
    """Text for a pane: line feeds stay, a tab takes four cells, other controls are glyphs."""
    return visible(text).translate(_BLOCK)


def drawable_line(text: str) -> str:
    """Text for one row: a line feed is `⏎`, a tab one glyph."""
    return visible(text).translate(_LINE)


def drawable_field(text: str) -> str:
    """Text of a field that is edited: a glyph per character, so that the cursor stays in place."""
    return "".join(map(_field_glyph, text))


def _field_glyph(char: str) -> str:
    shown = char if ord(char) in _WIDTHS else visible(char)
    return shown if len(shown) == 1 else "\ufffd"


def ascii_only(text: str) -> str:
    """The same text for a terminal without UTF-8: other characters as `\\xNN` or `\\uNNNN`."""
    if text.isascii():
        return text
    return text.encode("ascii", "backslashreplace").decode("ascii")


def token_label(data: bytes, token_id: int) -> str:
    """One token in quotes for a sentence, as `" reply"`; its id when it has no text of its own."""
    return f'"{drawable_line(decode_bytes(data))}"' if data else f"id {token_id}"
