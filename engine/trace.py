"""Trace files: a run's events as JSON lines, readable after a kill at any byte.

The first line says what the file is; every other line is one event, `{"event": "CycleFinished",
...}`, with bytes as hex and numbers that are not finite as strings. Knows no run and no front end.
"""

from __future__ import annotations

import gc
import json
import math
import os
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from typing import Any, BinaryIO

from engine import events as ev
from engine.errors import Ds4Error
from engine.json_text import parse_json
from engine.text import one_line

SCHEMA = "ds4tui.trace/1"
HEAD = json.dumps({"schema": SCHEMA})
"""The first line of every trace."""

LARGEST = 2**63
"""Whole numbers of an event have 64 bits with their sign."""
LONGEST_HEAD = 4096
"""Bytes of a first line that are read: another file's may have no end."""
LINES_A_STEP = 256
"""Lines that are read before the progress is told again."""
MOST_IDS = 2**32
"""Ids are hashed as u32."""

EVENTS: dict[str, type[ev.Event]] = {
    name: value
    for name, value in vars(ev).items()
    if isinstance(value, type) and issubclass(value, ev.Event) and value is not ev.Event
}
"""Every kind of event by its name in a trace."""


class TraceWriter:
    """Appends events to a new file, flushed per batch.

    A file that tells of nothing but loading is taken away by `close`, so that a mistake found late
    does not keep the corrected command from the same name.

    Raises:
        Ds4Error: when the file exists or cannot be written.
    """

    def __init__(self, path: str) -> None:
        if path == "-":
            raise Ds4Error(
                "Trace file", "A trace cannot go to standard output (-).", "Give a file's name."
            )
        self.path = path
        self._only_loading = True
        try:
            self._file = open(path, "x", encoding="utf-8", newline="\n")  # noqa: SIM115
        except FileExistsError:
            raise Ds4Error(
                "File exists", f"{path} exists; a trace overwrites nothing.", "Give another name."
            ) from None
        except OSError as error:
            raise _unusable(path, "written", error) from error
        try:
            self._write([HEAD])
        except Ds4Error:
            self.close()
            raise

    def write(self, events: Iterable[ev.Event]) -> None:
        """Append a batch of events."""
        batch = list(events)
        if batch:
            self._only_loading &= not any(map(is_after_loading, batch))
            self._write([line_of(event) for event in batch])

    def _write(self, lines: list[str]) -> None:
        try:
            self._file.write("\n".join(lines) + "\n")
            self._file.flush()
        except OSError as error:
            raise _unusable(self.path, "written", error) from error

    def close(self) -> None:
        """End the file."""
        with suppress(OSError):  # every batch was flushed, and what could not be is told by then
            self._file.close()
        if self._only_loading:
            with suppress(OSError):
                os.unlink(self.path)


def is_after_loading(event: ev.Event) -> bool:
    """An event tells of a run or of a measurement, not only of an engine that loads or cannot."""
    if isinstance(event, ev.RunFailed):
        return bool(event.run_id)
    return not isinstance(event, ev.LoadProgress | ev.EngineReady)


def trace_text(events: Iterable[ev.Event]) -> str:
    """A whole trace file as text."""
    lines = [HEAD, *(line_of(event) for event in events)]
    return "\n".join(lines) + "\n"


def line_of(event: ev.Event) -> str:
    """One event as a line, without its end."""
    return json.dumps(encode(event), separators=(",", ":"))


def _unusable(path: str, what: str, error: OSError) -> Ds4Error:
    return Ds4Error(
        "Trace file", f"{path or 'An empty name'} cannot be {what}: {error.strerror or error}."
    )


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


class NoEvent(ValueError):
    """What is wrong with a line, in words for its reader."""


def decode(data: Any) -> ev.Event | None:
    """The event of one line; None for a kind that this version does not know.

    Raises:
        NoEvent: when the line is no event.
    """
    if not isinstance(data, dict) or not isinstance(data.get("event"), str):
        raise NoEvent("it has no field `event` with the event's name")
    kind: Any = EVENTS.get(data["event"])
    return None if kind is None else _reader(kind)(data)


def _check_tokens(event: ev.TokensCommitted) -> None:
    """Refuse what no arm commits: everything that is drawn or counted goes by these ids."""
    if not len(event.ids) == len(event.sources) == len(event.top):
        raise NoEvent("ids, sources and top are not of one length")
    if not all(0 <= token < MOST_IDS for token in event.ids):
        raise NoEvent(f"ids are not all from 0 to {MOST_IDS - 1}")


Reader = Callable[[Any], Any]


@cache
def _reader(kind: Any) -> Reader:
    """What makes a value of a type from what JSON holds; worked out once per type."""
    if is_dataclass(kind):
        return _record_reader(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        some = _reader(next(a for a in arguments if a is not type(None)))
        return lambda value: None if value is None else some(value)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            item = _reader(arguments[0])
            return lambda value: tuple(map(item, value))
        items = [_reader(argument) for argument in arguments]
        return lambda value: tuple(read(item) for read, item in zip(items, value, strict=True))
    if kind is bytes:
        return bytes.fromhex
    if kind is float:
        return float
    if origin is typing.Literal:
        return lambda value: value
    return partial(_checked, kind)


def _record_reader(kind: Any) -> Reader:
    readers = {name: _reader(known) for name, known in typing.get_type_hints(kind).items()}

    required = [
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    ]

    def read(value: dict[str, Any]) -> Any:
        known = {}
        for name, item in value.items():
            if name in readers:
                try:
                    known[name] = readers[name](item)
                except NoEvent:
                    raise
                except (ValueError, TypeError, AttributeError):
                    what = f"field `{name}` of {kind.__name__} holds another kind of value"
                    raise NoEvent(what) from None
        lacking = next((name for name in required if name not in known), None)
        if lacking is not None:
            raise NoEvent(f"{kind.__name__} lacks field `{lacking}`")
        return kind(**known)

    return read


def _checked(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    if isinstance(value, int) and not -LARGEST <= value < LARGEST:
        raise NoEvent(f"{value} is beyond 64 bits")
    return value


def check_trace(path: str) -> None:
    """Look at the first line only.

    Raises:
        Ds4Error: when the file is missing, no trace or of another version.
    """
    try:
        with open(path, "rb") as file:
            _check_head(path, file.readline(LONGEST_HEAD))
    except OSError as error:
        raise _unusable(path, "read", error) from error


def read_trace(path: str, progress: Callable[[int, int], object] | None = None) -> list[ev.Event]:
    """All events of a trace; a last line that was cut off is left out.

    Args:
        progress: called with (bytes read, bytes in all) now and then.
    Raises:
        Ds4Error: when the file is missing, no trace, of another version or damaged.
    """
    try:
        with open(path, "rb") as file, _without_collector():
            _check_head(path, file.readline(LONGEST_HEAD))
            return list(_events(path, _whole_lines(file, progress)))
    except OSError as error:
        raise _unusable(path, "read", error) from error


def _whole_lines(file: BinaryIO, progress: Callable[[int, int], object] | None) -> Iterator[bytes]:
    """The lines of a file from here on, up to the first that does not end: it is being written."""
    total, done = os.fstat(file.fileno()).st_size, file.tell() if file.seekable() else 0
    for number, line in enumerate(file):
        if progress is not None and number % LINES_A_STEP == 0:
            progress(done, total)
        done += len(line)
        if not line.endswith(b"\n"):  # what is added to it meanwhile is no line of its own
            return
        yield line[:-1]


def _events(path: str, lines: Iterable[bytes]) -> Iterator[ev.Event]:
    order = _Order()
    for number, line in enumerate(lines, start=2):
        try:
            event = _event_of(line)
            wrong = "" if event is None else order.feed(event)
        except NoEvent as error:
            wrong = f"is no event: {one_line(str(error))}"
        if wrong:
            hint = "Record the run again, or take another copy of the file."
            raise Ds4Error("Damaged trace", f"{path} line {number} {wrong}.", hint)
        if event is not None:
            yield event


def _event_of(line: bytes) -> ev.Event | None:
    try:
        data = parse_json(line)
    except UnicodeDecodeError:
        raise NoEvent("it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise NoEvent(f"it is no JSON from column {error.colno} on") from None
    except ValueError as error:
        raise NoEvent(str(error)) from None
    event = decode(data)
    if isinstance(event, ev.TokensCommitted):
        _check_tokens(event)
    return event


class _Order:
    """Sees that no tokens and no cycles of an arm are lost, doubled or moved."""

    def __init__(self) -> None:
        self._tokens: dict[tuple[str, int], int] = {}
        self._cycles: dict[tuple[str, int], int] = {}

    def feed(self, event: ev.Event) -> str:
        """What is wrong with an event after those before it, empty when nothing is."""
        lane = event.run_id, event.arm
        found, expected, what = 0, 0, ""
        match event:
            case ev.TokensCommitted():
                found, expected = event.index, self._tokens.get(lane, 0)
                what = f"begins at token {found}"
                self._tokens[lane] = found + len(event.ids)
            case ev.CycleFinished():
                found, expected = event.cycle, self._cycles.get(lane, 0)
                what = f"is cycle {found}"
                self._cycles[lane] = found + 1
            case ev.ArmFinished():
                found, expected = event.tokens, self._tokens.get(lane, 0)
                what = f"ends after {found} tokens"
        if found == expected:
            return ""
        why = "lines before it are missing, doubled or moved"
        return f"{what} of arm {event.arm}, expected {expected}: {why}"


@contextmanager
def _without_collector() -> Iterator[None]:
    """Events hold no cycles, and looking for some takes a quarter of the time to read them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _check_head(path: str, line: bytes) -> None:
    name = os.path.basename(path)
    try:
        schema = parse_json(line)["schema"]
    except (ValueError, TypeError, KeyError):
        raise Ds4Error(
            "Not a trace",
            f"{name} is no trace: its first line has no schema, expected {SCHEMA}.",
            "Traces are written by --trace.",
        ) from None
    if schema != SCHEMA:
        raise Ds4Error("Another trace version", f'{name} has schema "{schema}", expected {SCHEMA}.')
