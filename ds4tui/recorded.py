"""Reads `--against`: ids of another engine or an earlier run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ds4tui.text_file import read_text
from engine.errors import Ds4Error
from engine.json_text import parse_json
from engine.settings import Recorded
from engine.text import one_line


def read_recorded(path: str) -> Recorded:
    """Ids from a JSON list, from {"prompt": {"ids"}, "ids"}, or from an ab JSON's arm 0.

    A prompt that is a list is one of ids; one that is text tells nothing of them.

    Raises:
        Ds4Error: when the file holds none of these.
    """
    name = one_line(Path(path).name)
    try:
        data = parse_json(read_text(path, "recorded ids"))
    except ValueError as error:
        raise Ds4Error("Not JSON", f"{name} is no JSON: {error}.") from error
    prompt, ids = _parts(data)
    if not _is_ids(ids) or not (prompt is None or _is_ids(prompt)):
        raise Ds4Error(
            "No recorded ids",
            f"{name} holds no token ids; expected a list of ids, "
            '{"prompt": {"ids": [...]}, "ids": [...]}, or the JSON of ds4tui ab.',
        )
    if not ids:
        raise Ds4Error(
            "No recorded ids",
            f"{name} holds an empty list of ids, which compares nothing; expected one id or more.",
        )
    return Recorded(name, tuple(ids), None if prompt is None else tuple(prompt))


def _parts(data: Any) -> tuple[Any, Any]:
    """(prompt ids or None, ids), not yet checked."""
    if not isinstance(data, dict):
        return None, data
    prompt = data.get("prompt")
    prompt_ids = prompt.get("ids") if isinstance(prompt, dict) else None
    if isinstance(prompt, list):
        prompt_ids = prompt
    arms = data.get("arms")
    if isinstance(arms, list) and arms and isinstance(arms[0], dict):
        return prompt_ids, arms[0].get("ids")
    return prompt_ids, data.get("ids")


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)
