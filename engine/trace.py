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
from dataclasses import fields, is_dataclass
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


def decode(data: dict[str, Any]) -> ev.Event | None:
    """The event of one line; None for a kind that this version does not know.

    Raises:
        ValueError, TypeError, KeyError: when the line is no event.
    """
    kind: Any = EVENTS.get(data["event"])
    return None if kind is None else _reader(kind)(data)


def _check_tokens(event: ev.TokensCommitted) -> None:
    """Refuse what no arm commits: everything that is drawn or counted goes by these ids."""
    if not len(event.ids) == len(event.sources) == len(event.top):
        raise ValueError("ids, sources and top are not of one length")
    if not all(0 <= token < MOST_IDS for token in event.ids):
        raise ValueError(f"ids are not all from 0 to {MOST_IDS - 1}")


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

    def read(value: dict[str, Any]) -> Any:
        return kind(**{name: readers[name](v) for name, v in value.items() if name in readers})

    return read


def _checked(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    if isinstance(value, int) and not -LARGEST <= value < LARGEST:
        raise ValueError(f"{value} is beyond 64 bits")
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
    for number, line in enumerate(lines, start=2):
        try:
            event = decode(parse_json(line))
            if isinstance(event, ev.TokensCommitted):
                _check_tokens(event)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            what = one_line(str(error))
            raise Ds4Error("Damaged trace", f"{path} line {number} is no event: {what}.") from error
        if event is not None:
            yield event


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
