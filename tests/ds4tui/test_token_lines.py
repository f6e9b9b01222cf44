"""Wrapping of tokens to rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ds4tui.widgets.token_lines import Token, TokenLines

TEXT = st.text(alphabet=" ab\n\u6f22\u0301-😀", max_size=6)


def lines_of(width: int, *texts: str, show_rejected: bool = False) -> TokenLines:
    lines = TokenLines(width, show_rejected)
    lines.append([Token(text, "plain") for text in texts])
    return lines


def drawn(lines: TokenLines) -> list[str]:
    return [lines.row_text(row) for row in range(len(lines.lines))]


def test_a_word_of_several_tokens_is_kept_together() -> None:
    assert drawn(lines_of(10, "the", " hand", "shake", " is")) == ["the", "handshake", "is"]


def test_spaces_at_a_soft_row_start_are_not_drawn_but_copied() -> None:
    lines = lines_of(5, "abcde", " ", " fgh")
    assert drawn(lines) == ["abcde", "fgh"]
    assert lines.text() == "abcde  fgh"


def test_indentation_after_a_line_feed_is_kept() -> None:
    assert drawn(lines_of(20, "if x:", "\n", "    y")) == ["if x:", "    y"]


def test_a_word_wider_than_the_row_is_cut_at_its_end() -> None:
    assert drawn(lines_of(4, "ab", " cdefghij")) == ["ab", "cdef", "ghij"]


def test_wide_characters_break_anywhere_and_never_overrun() -> None:
    lines = lines_of(5, "\u6f22\u5b57\u6f22\u5b57")
    assert drawn(lines) == ["\u6f22\u5b57", "\u6f22\u5b57"]


def test_a_control_token_is_not_cut() -> None:
    end = "<\uff5cend\u2581of\u2581sentence\uff5c>"
    assert drawn(lines_of(30, "It ends here.", end)) == ["It ends", f"here.{end}"]


def test_rejected_drafts_stand_in_brackets_before_what_replaced_them() -> None:
    lines = TokenLines(40, show_rejected=True)
    lines.append([Token("not", "draft"), Token(",", "bonus", rejected=" within")])
    assert drawn(lines) == ["not[ within],"]
    lines.rewrap(show_rejected=False)
    assert drawn(lines) == ["not,"]


def test_ways_between_tokens_and_rows() -> None:
    lines = lines_of(10, "one", " two", " three", "\n\n", "four")
    assert drawn(lines) == ["one two", "three", "", "four"]
    assert [lines.row_of(index) for index in range(5)] == [0, 0, 1, 1, 3]
    assert lines.token_at(1, 0) == 2
    assert lines.token_at(0, 5) == 1
    assert lines.column_of(1) == 4


def test_a_token_without_ink_gets_some_when_it_matters() -> None:
    lines = lines_of(10, "a", "\n", "b")
    lines.give_ink(1, "⏎")
    assert drawn(lines) == ["a⏎", "b"]


@given(st.lists(TEXT, max_size=20), st.integers(1, 12))
def test_appending_equals_wrapping_at_once(texts: list[str], width: int) -> None:
    one_by_one = TokenLines(width)
    for text in texts:
        one_by_one.append([Token(text, "plain")])
    at_once = lines_of(width, *texts)
    again = lines_of(40, *texts)
    again.rewrap(width)
    assert list(one_by_one.lines) == list(at_once.lines) == list(again.lines)
    assert one_by_one.starts == at_once.starts


@given(st.lists(TEXT, min_size=1, max_size=20), st.integers(2, 12))
def test_every_row_fits_and_every_ink_is_drawn_once(texts: list[str], width: int) -> None:
    lines = lines_of(width, *texts)
    assert all(cell_len(row) <= width for row in drawn(lines))
    ink = "".join("".join(texts).split())
    assert "".join("".join(drawn(lines)).split()) == ink
    assert lines.starts == sorted(lines.starts)
    for index, text in enumerate(texts):
        row = lines.row_of(index)
        if text.strip():
            assert any(at == index and part for at, part, _ in lines.lines[row])


@given(st.lists(TEXT, min_size=1, max_size=20), st.integers(1, 12), st.data())
def test_what_is_copied_is_the_tokens_text_between_two_cells(
    texts: list[str], width: int, data: st.DataObject
) -> None:
    lines = lines_of(width, *texts)
    whole = "".join(texts)
    assert lines.between(None, None) == whole
    rows = range(len(lines.lines))
    places = [(row, column) for row in rows for column in range(len(lines.row_text(row)))]
    if not places:
        return
    cuts = st.integers(0, len(places) - 1)
    first, last = sorted((data.draw(cuts), data.draw(cuts)))
    start, end = places[first], places[last]
    parts = lines.between(None, start), lines.between(start, end), lines.between(end, None)
    assert "".join(parts) == whole
    drawn = "".join(lines.row_text(row)[column] for row, column in places[first:last])
    assert "".join(parts[1].split()) == "".join(drawn.split())
