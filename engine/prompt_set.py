"""Prompt sets: a text file with a prompt per line, and the sentences for lines that are none.

A line is a JSON object with `text` (or `prompt`), and maybe `id`, `category`, `system` and `chat`,
or it is the prompt itself. Owns the format; knows neither files nor runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.errors import Ds4Error
from engine.json_text import parse_json
from engine.settings import Prompt
from engine.text import one_line

TEXT_FIELDS = ("text", "prompt")
"""Names of the field that holds the prompt: ours, and the one that other sets use."""


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """One prompt of a set; `id` is its line number where the set gives none."""

    id: str
    category: str
    prompt: Prompt


def parse_prompt_set(text: str, name: str) -> tuple[PromptEntry, ...]:
    """The prompts of a set, in order; empty lines are left out.

    Args:
        text: of the whole file.
        name: of the file, for the sentences.
    Raises:
        Ds4Error: for an empty set, and for a line that is no prompt, with its number.
    """
    entries: list[PromptEntry] = []
    lines: dict[str, int] = {}
    for number, line in _lines(text):
        entry = _entry(line, number, f"{one_line(name)} line {number}")
        if entry.id in lines:
            raise _damaged(
                f'{one_line(name)} line {number} has id "{one_line(entry.id, 40)}", as line '
                f"{lines[entry.id]} has; expected every id once."
            )
        lines[entry.id] = number
        entries.append(entry)
    if not entries:
        raise Ds4Error(
            "Empty prompt set", f"{one_line(name)} holds no prompt; expected one per line."
        )
    return tuple(entries)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines that hold something; only line feeds end one."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if line.strip():
            yield number, line.removesuffix("\r")


def _damaged(message: str) -> Ds4Error:
    return Ds4Error(
        "Damaged prompt set",
        message,
        'A line is {"id": "...", "category": "...", "text": "..."} or plain text.',
    )


def _entry(line: str, number: int, where: str) -> PromptEntry:
    if not line.lstrip().startswith("{"):
        if _is_list(line):
            raise _damaged(f"{where} is a JSON list; expected an object, or the prompt's text.")
        return PromptEntry(str(number), "", Prompt(line))
    try:
        data = parse_json(line)
    except ValueError as error:
        raise _damaged(f"{where} is no JSON: {error}.") from None
    text = _field(data, where, str, *TEXT_FIELDS)
    if text is None:
        found = ", ".join(one_line(key, 20) for key in data) or "nothing"
        raise _damaged(f'{where} has no "text"; found {found}.')
    if not text.strip():
        raise _damaged(f'{where} has an empty "text"; expected a prompt.')
    chat, system = _field(data, where, bool, "chat"), _field(data, where, str, "system")
    prompt = Prompt(text, system=system or "", chat=True if chat is None else chat)
    category = _field(data, where, str, "category")
    return PromptEntry(_id(data, number), category or "", prompt)


def _is_list(line: str) -> bool:
    if not line.lstrip().startswith("["):
        return False
    try:
        return isinstance(parse_json(line), list)
    except ValueError:
        return False  # a prompt that begins with a bracket


def _id(data: dict[str, Any], number: int) -> str:
    found = data.get("id")
    return str(number) if found is None else str(found)


_KINDS = {str: "a text", bool: "true or false"}


def _field(data: dict[str, Any], where: str, kind: type, *names: str) -> Any:
    """The first of some fields that is there; None when there is none."""
    for name in names:
        value = data.get(name)
        if value is None:
            continue
        if not isinstance(value, kind):
            shown = one_line(json.dumps(value), 30)
            raise _damaged(f'{where} has "{name}" {shown}; expected {_KINDS[kind]}.')
        return value
    return None
