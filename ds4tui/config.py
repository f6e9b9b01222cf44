"""The user's configuration file: how the interface looks and which keys it has.

Owns the keys, their defaults and the precedence flag > environment > file > default. Knows no
widgets; imports nothing heavy.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ds4tui.text_file import MissingFile, read_text
from engine.errors import Ds4Error
from engine.text import one_line

THEMES = ("dark", "light", "contrast")
_WORDS = {"theme": THEMES, "animation": ("none", "basic", "full")}
_VARIABLE = "DS4TUI_"


@dataclass(frozen=True, slots=True)
class UiConfig:
    """Settings of the interface; `DS4TUI_THEME` and the like override the file."""

    theme: str = "dark"
    """`dark`, `light` or `contrast`."""
    fps: int = 30
    """Frames a second at most; 10 is enough over ssh."""
    animation: str = "none"
    """`none`, `basic` or `full`."""
    ascii: bool = False
    """Only ASCII glyphs; switched on by itself in a locale without UTF-8."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Other keys for actions: id of the action = key."""

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for name in ("theme", "fps", "animation"):
            check_value(name, getattr(self, name))


def check_value(name: str, value: object, where: str | None = None) -> None:
    """Refuse a value out of its range.

    Args:
        where: what the sentence names, such as a variable; None = the key itself.
    """
    if name == "fps":
        _check(value in range(1, 61), where or name, value, "1 to 60")
    elif name in _WORDS:
        _check(value in _WORDS[name], where or name, value, ", ".join(_WORDS[name]))


def _check(holds: bool, key: str, found: object, expected: str) -> None:
    if not holds:
        raise Ds4Error("Configuration", f"{key} is {one_line(str(found))}; expected {expected}.")


def config_path(given: str | None = None, environment: Mapping[str, str] = os.environ) -> Path:
    """The file that is read: `--config`, else `DS4TUI_CONFIG`, else the platform's place."""
    chosen = given or environment.get(f"{_VARIABLE}CONFIG")
    if chosen:
        return Path(chosen)
    # Only the default needs it.
    import platformdirs

    return platformdirs.user_config_path("ds4tui") / "config.toml"


def load_config(
    given: str | None = None,
    *,
    ascii: bool = False,  # noqa: A002  # the flag's name
    environment: Mapping[str, str] = os.environ,
) -> UiConfig:
    """The configuration in force.

    Args:
        given: `--config`; a file that was named must exist.
        ascii: `--ascii`.
    Raises:
        Ds4Error: names the file, the key and the nearest key that there is.
    """
    path = config_path(given, environment)
    named = given is not None or bool(environment.get(f"{_VARIABLE}CONFIG"))
    values = _read(path, named)
    config = UiConfig(**_typed(values, str(path)))
    for name, kind in _SCALARS.items():
        text = environment.get(f"{_VARIABLE}{name.upper()}")
        if text:
            config = replace(config, **{name: _parse(name, kind, text)})
    return replace(config, ascii=True) if ascii else config


def _read(path: Path, named: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(str(path), "configuration file"))
    except MissingFile:
        if named:
            raise
        return {}
    except (ValueError, RecursionError) as error:
        what = f"{one_line(str(path))} is no TOML: {one_line(str(error))}."
        raise Ds4Error("Configuration", what) from error


_SCALARS: dict[str, type] = {"theme": str, "fps": int, "animation": str, "ascii": bool}


def _typed(values: dict[str, Any], path: str) -> dict[str, Any]:
    known = [f.name for f in fields(UiConfig)]
    for name, value in values.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(known)}."
            what = f'{one_line(path)} has an unknown key "{one_line(name)}".'
            raise Ds4Error("Configuration", what, hint)
        kind = _SCALARS.get(name, dict)
        if type(value) is not kind:
            what = f"{one_line(path)}: {name} is {one_line(repr(value))}"
            raise Ds4Error("Configuration", f"{what}; expected a {_KINDS[kind]}.")
    for action, key in values.get("keys", {}).items():
        if not isinstance(key, str) or not key:
            what = f"{one_line(path)}: keys.{one_line(action)} is {one_line(repr(key))}"
            raise Ds4Error("Configuration", f"{what}; expected a key's name.")
    return values


_KINDS = {str: "text", int: "whole number", bool: "true or false", dict: "table"}
_SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _parse(name: str, kind: type, text: str) -> Any:
    """The value of a variable, which its sentences name."""
    variable = f"{_VARIABLE}{name.upper()}"
    if kind is bool:
        _check(text.lower() in _SWITCH, variable, text, "1 or 0")
        return _SWITCH[text.lower()]
    if kind is int:
        _check(text.isdecimal(), variable, text, "a whole number")
    value = int(text) if kind is int else text
    check_value(name, value, variable)
    return value


def show(config: UiConfig) -> str:
    """The configuration in force, as a file that would give it."""
    lines = [
        f'theme = "{config.theme}"',
        f"fps = {config.fps}",
        f'animation = "{config.animation}"',
        f"ascii = {str(config.ascii).lower()}",
        "",
        "[keys]",
    ]
    lines += [f"{action} = {_quoted(key)}" for action, key in sorted(config.keys.items())]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return '"' + one_line(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
