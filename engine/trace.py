"""Trace files: a run's events as JSON lines, readable after a kill at any byte.

The first line says what the file is; every other line is one event, `{"event": "CycleFinished",
...}`, with bytes as hex and numbers that are not finite as strings. Knows no run and no front end.
"""

from __future__ import annotations

import json
import math
import os
import types
import typing
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from engine import events as ev
from engine.errors import Ds4Error

SCHEMA = "ds4tui.trace/1"
HEAD = json.dumps({"schema": SCHEMA})
"""The first line of every trace."""

EVENTS: dict[str, type[ev.Event]] = {
    name: value
    for name, value in vars(ev).items()
    if isinstance(value, type) and issubclass(value, ev.Event) and value is not ev.Event
}
"""Every kind of event by its name in a trace."""


class TraceWriter:
    """Appends events to a new file, flushed per batch.

    Raises:
        Ds4Error: when the file exists or cannot be written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._file = open(path, "x", encoding="utf-8", newline="\n")  # noqa: SIM115
        except FileExistsError:
            raise Ds4Error(
                "File exists", f"{path} exists; a trace overwrites nothing.", "Give another name."
            ) from None
        except OSError as error:
            raise _unusable(path, "written", error) from error
        self._write([HEAD])

    def write(self, events: Iterable[ev.Event]) -> None:
        """Append a batch of events."""
        self._write([line_of(event) for event in events])

    def _write(self, lines: list[str]) -> None:
        if not lines:
            return
        try:
            self._file.write("\n".join(lines) + "\n")
            self._file.flush()
        except OSError as error:
            raise _unusable(self.path, "written", error) from error

    def close(self) -> None:
        """End the file."""
        self._file.close()


def trace_text(events: Iterable[ev.Event]) -> str:
    """A whole trace file as text."""
    lines = [HEAD, *(line_of(event) for event in events)]
    return "\n".join(lines) + "\n"


def line_of(event: ev.Event) -> str:
    """One event as a line, without its end."""
    return json.dumps(encode(event), separators=(",", ":"))


def _unusable(path: str, what: str, error: OSError) -> Ds4Error:
    return Ds4Error("Trace file", f"{path} cannot be {what}: {error.strerror or error}.")


def encode(event: ev.Event) -> dict[str, Any]:
    """An event as what JSON can hold."""
    return {"event": type(event).__name__, **_encode(event)}


def _encode(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def decode(data: dict[str, Any]) -> ev.Event | None:
    """The event of one line; None for a kind that this version does not know.

    Raises:
        ValueError, TypeError, KeyError: when the line is no event.
    """
    kind = EVENTS.get(data["event"])
    return None if kind is None else _decode(kind, data)


@cache
def _types(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, value: Any) -> Any:
    if is_dataclass(kind):
        make: Any = kind
        known = _types(make)
        named = {name: _decode(known[name], item) for name, item in value.items() if name in known}
        return make(**named)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return _decode(next(a for a in arguments if a is not type(None)), value)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return tuple(_decode(arguments[0], item) for item in value)
        return tuple(_decode(a, item) for a, item in zip(arguments, value, strict=True))
    if kind is bytes:
        return bytes.fromhex(value)
    if kind is float:
        return float(value)
    if origin is typing.Literal:
        return value
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def read_trace(path: str) -> list[ev.Event]:
    """All events of a trace; a last line that was cut off is left out.

    Raises:
        Ds4Error: when the file is missing, no trace, of another version or damaged.
    """
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise _unusable(path, "read", error) from error
    _check_head(path, lines[0])
    events = []
    # What follows the last line feed was being written when the writer ended.
    for number, line in enumerate(lines[1:-1], start=2):
        try:
            event = decode(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Ds4Error(
                "Damaged trace", f"{path} line {number} is no event: {error}."
            ) from error
        if event is not None:
            events.append(event)
    return events


def _check_head(path: str, line: bytes) -> None:
    name = os.path.basename(path)
    try:
        schema = json.loads(line)["schema"]
    except (ValueError, TypeError, KeyError):
        raise Ds4Error(
            "Not a trace",
            f"{name} is no trace: its first line has no schema, expected {SCHEMA}.",
            "Traces are written by --trace.",
        ) from None
    if schema != SCHEMA:
        raise Ds4Error("Another trace version", f'{name} has schema "{schema}", expected {SCHEMA}.')
