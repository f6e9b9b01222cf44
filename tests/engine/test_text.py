"""Characters split over tokens are shown once; nothing shown can act on a terminal or hide."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.text import IncrementalText, decode_bytes, one_line, visible

SETTINGS = settings(max_examples=200, deadline=None, derandomize=True)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def test_characters_split_over_tokens_come_out_once_and_whole() -> None:
    decoder = IncrementalText()
    text = "é漢👍"
    shown = [decoder.feed(bytes([byte])) for byte in text.encode()]
    assert shown == ["", "é", "", "", "漢", "", "", "", "👍"]
    assert decoder.flush() == ""


@SETTINGS
@given(st.text(), st.lists(st.integers(0, 1000)))
def test_any_cut_of_a_text_gives_the_text(text: str, cuts: list[int]) -> None:
    decoder = IncrementalText()
    parts = [decoder.feed(part) for part in cut(text.encode(), cuts)]
    assert "".join(parts) == text
    assert decoder.flush() == ""


@SETTINGS
@given(st.binary(), st.lists(st.integers(0, 1000)))
def test_any_cut_of_any_bytes_gives_the_same(data: bytes, cuts: list[int]) -> None:
    decoder = IncrementalText()
    parts = [decoder.feed(part) for part in cut(data, cuts)]
    assert "".join(parts) + decoder.flush() == decode_bytes(data)
    assert decoder.flush() == ""


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"a\xe2b", "a<0xE2>b"),
        (b"\xff\xfe", "<0xFF><0xFE>"),
        (b"\xe2\x82", "<0xE2><0x82>"),
        (b"\xed\xa0\x80", "<0xED><0xA0><0x80>"),  # a surrogate
        (b"\xc0\x80", "<0xC0><0x80>"),  # overlong
        (b"\xf0\x9f\x91\x8d\xf0", "👍<0xF0>"),
    ],
)
def test_bytes_that_are_no_text(data: bytes, shown: str) -> None:
    assert decode_bytes(data) == shown


def test_invalid_bytes_take_time_in_proportion() -> None:
    assert len(decode_bytes(b"\xff" * 1_000_000)) == 6_000_000


def test_escape_and_its_sequence_as_two_tokens() -> None:
    decoder = IncrementalText()
    assert visible(decoder.feed(b"\x1b")) + visible(decoder.feed(b"[2J")) == "␛[2J"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x00\x07\x08\r\x7f", "␀␇␈␍␡"),
        ("\x9b31m", "<U+009B>31m"),
        ("a\u202eb\u2066c", "a<U+202E>b<U+2066>c"),
        ("a\u200bb\u200db\ufeff", "a<U+200B>b<U+200D>b<U+FEFF>"),
        ("a\u2028b\u2029c\x85d", "a<U+2028>b<U+2029>c<U+0085>d"),
        ("\U000e0041", "<U+E0041>"),
        ("\udce2", "<0xE2>"),
        ("\ud800", "<U+D800>"),
        ("tab\tline\n", "tab\tline\n"),
        ("[/INST] [bold a[i] \\[x]", "[/INST] [bold a[i] \\[x]"),
        ("❤️ 1️⃣ 👩‍👧 नी‍त", "❤️ 1️⃣ 👩‍👧 नी‍त"),
        ("\ufe0f", "<U+FE0F>"),
        ("a\ufe0f", "a<U+FE0F>"),
        ("日本 é 한", "日本 é 한"),
    ],
)
def test_glyphs(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_the_caller_chooses_what_stays() -> None:
    assert visible("a\tb\nc", keep="") == "a␉b␊c"
    assert visible("a\tb\nc", keep="\n") == "a␉b\nc"


@SETTINGS
@given(st.text(st.characters(), max_size=200))
def test_nothing_that_acts_or_hides_is_left(text: str) -> None:
    shown = visible(text, keep="")
    assert visible(shown, keep="") == shown
    shown.encode()
    for char in shown:
        kind = unicodedata.category(char)
        assert kind not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(char) not in (
            *("LRE", "RLE", "LRO", "RLO", "PDF"),
            *("LRI", "RLI", "FSI", "PDI"),
        )


def test_one_line_shortens_in_the_middle() -> None:
    assert one_line("a\nb") == "a␊b"
    short = one_line("x" * 500 + "END", limit=30)
    assert short.startswith("xxx")
    assert short.endswith("xEND")
    assert len(short) <= 31
