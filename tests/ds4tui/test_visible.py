"""Untrusted text in cells."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from ds4tui.marks import ASCII, UNICODE
from ds4tui.visible import ascii_only, drawable, drawable_line, token_label


@pytest.mark.parametrize("text", ["\x1b[2J", "a\x07b", "\x9b31m", "\u202eabc", "\u200b", "\r"])
def test_nothing_acts_on_the_terminal(text: str) -> None:
    shown = drawable(text) + drawable_line(text)
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert cell_len(shown) > 0


def test_markup_is_text() -> None:
    assert drawable("[/INST] a[i] [bold") == "[/INST] a[i] [bold"


def test_emoji_have_a_certain_width() -> None:
    assert drawable("\U0001f468\u200d\U0001f469") == "\U0001f468\U0001f469"
    assert cell_len(drawable("\u2764\ufe0f")) == 1


def test_one_row_has_no_line_feed() -> None:
    assert drawable_line("a\nb\tc") == "a⏎b␉c"


def test_labels() -> None:
    assert token_label(b" reply", 7) == '" reply"'
    assert token_label(b"\n", 7) == '"⏎"'
    assert token_label(b"", 7) == "id 7"


def test_every_glyph_is_one_cell() -> None:
    for marks in (UNICODE, ASCII):
        for name in marks.__slots__:
            glyph = getattr(marks, name)
            if isinstance(glyph, str) and name != "blocks":
                assert cell_len(glyph) == 1, name
    assert all(
        ascii_only(getattr(ASCII, name)) == getattr(ASCII, name) for name in ("parting", "bar")
    )
    assert len(UNICODE.blocks) == len(ASCII.blocks) == 9


def test_ascii_says_what_it_cannot_draw() -> None:
    assert ASCII.text("é · ≥") == "\\xe9 - >"
