"""Prompt sets: objects and plain lines, and what is said of a line that is neither."""

from __future__ import annotations

import pytest

from engine.errors import Ds4Error
from engine.prompt_set import parse_prompt_set
from engine.settings import Prompt


def test_objects_and_plain_lines() -> None:
    text = (
        '\ufeff{"id": "a", "category": "facts", "text": "Why?", "chat": false, "system": "s"}\r\n'
        "\n"
        "  [bold] a prompt as it is\n"
        '{"prompt": "two\\nlines", "id": 7, "source": "elsewhere"}\n'
    )
    entries = parse_prompt_set(text, "mixed.txt")
    assert [entry.id for entry in entries] == ["a", "3", "7"]
    assert [entry.category for entry in entries] == ["facts", "", ""]
    assert entries[0].prompt == Prompt("Why?", system="s", chat=False)
    assert entries[1].prompt == Prompt("  [bold] a prompt as it is")
    assert entries[2].prompt.text == "two\nlines"


def test_a_line_ends_at_a_line_feed_only() -> None:
    (entry,) = parse_prompt_set("one\u2028still one\x0cstill", "a.txt")
    assert entry.prompt.text == "one\u2028still one\x0cstill"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "set.txt line 2 is no JSON: Expecting property name"),
        ('{"chat": true}', 'set.txt line 2 has no "text"; found chat'),
        ("{}", 'set.txt line 2 has no "text"; found nothing'),
        ('{"text": 3}', 'set.txt line 2 has "text" 3; expected a text'),
        ('{"text": " "}', 'set.txt line 2 has an empty "text"'),
        ('{"text": "a", "chat": "no"}', 'has "chat" "no"; expected true or false'),
        ('{"text": "a", "category": ["x"]}', 'has "category" \\["x"\\]; expected a text'),
        ('{"text": "a", "id": "1"}', 'set.txt line 2 has id "1", as line 1 has'),
    ],
)
def test_a_damaged_line_is_named(line: str, sentence: str) -> None:
    with pytest.raises(Ds4Error, match=sentence):
        parse_prompt_set(f"fine\n{line}\n", "set.txt")


def test_a_list_is_no_prompt_and_a_bracket_is_one() -> None:
    with pytest.raises(Ds4Error, match=r"set.jsonl line 2 is a JSON list"):
        parse_prompt_set('{"text": "a"}\n["text", "b"]\n', "set.jsonl")
    (entry,) = parse_prompt_set("[/INST] a[i]", "set.jsonl")
    assert entry.prompt.text == "[/INST] a[i]"


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff"])
def test_an_empty_set_is_refused(text: str) -> None:
    with pytest.raises(Ds4Error, match="holds no prompt"):
        parse_prompt_set(text, "empty.txt")


def test_escapes_in_names_are_shown() -> None:
    with pytest.raises(Ds4Error) as found:
        parse_prompt_set('{"\x1b[2J": 1}', "a\x1b.txt")
    assert "\x1b" not in str(found.value)
