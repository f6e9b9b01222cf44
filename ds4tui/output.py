"""Where headless commands write: files whole or not at all, standard output, tables, progress.

Owns atomic writing and the progress line on standard error. Knows nothing of what is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from engine.errors import Ds4Error
from engine.events import Event, LoadProgress
from engine.text import one_line

if TYPE_CHECKING:
    from rich.console import Console

_REFRESH_S = 0.1


def check_outputs(places: Mapping[str, str | None], inputs: Iterable[str | None] = ()) -> None:
    """Refuse places of several results that could not be written, or that are one and the same.

    Args:
        places: by option; None = not asked for.
        inputs: text files that the command reads; None = not given.
    """
    options: dict[str | Path, str] = {}
    read = [path for path in inputs if path is not None]
    for option, path in places.items():
        check_writable(path, read)
        if path is None or _is_stream(path):
            continue
        place = path if path == "-" else Path(path).resolve()
        if place in options:
            raise Ds4Error(
                "Contradictory options",
                f"{options[place]} and {option} both name {one_line(path)}.",
                "Give each a file of its own.",
            )
        options[place] = option


def check_writable(path: str | None, inputs: Iterable[str] = ()) -> None:
    """Refuse a file that could not be written, before the work whose result it should hold.

    Args:
        inputs: text files that the command reads, which are not replaced either.
    """
    if path is None:
        return
    if path == "-":
        if sys.stdout is None:
            raise Ds4Error("Cannot write", "Standard output is closed.", "Give a file.")
        return
    if not path:
        raise Ds4Error("Cannot write", "An empty name is no file.", "Give a file's name.")
    folder = Path(path).resolve().parent
    problem = ""
    if Path(path).is_dir():
        problem = "is a folder"
    elif _is_stream(path):
        problem = "" if os.access(path, os.W_OK) else "cannot be written to"
    elif not folder.is_dir():
        problem = "lies in a folder that does not exist"
    elif not os.access(folder, os.W_OK):
        problem = "lies in a folder that cannot be written to"
    elif _is_model(path):
        problem = "is a model file, which no result replaces"
    elif any(_is_same(path, other) for other in inputs):
        problem = "is read by this command, so no result replaces it"
    if problem:
        raise Ds4Error("Cannot write", f"{one_line(path)} {problem}.", "Give another file.")


def _is_model(path: str) -> bool:
    from engine.gguf_header import MAGIC  # brings in numpy

    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _is_same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them does not exist
        return False


def write_output(path: str, text: str) -> None:
    """Write to a file, whole or not at all, to a pipe or a device, or to standard output for `-`.

    Raises:
        Ds4Error: it cannot be written; a file that was there is as it was.
    """
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        if _is_stream(path):
            Path(path).write_text(text, encoding="utf-8", newline="\n")
        else:
            _replace(Path(path).resolve(), text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise Ds4Error("Cannot write", f"{one_line(path)}: {reason}.") from error


def write_json(path: str | None, document: Mapping[str, Any]) -> None:
    """A command's result as one line of JSON, where it was asked for.

    Args:
        path: as `write_output` takes it; None = not asked for.
    """
    if path is not None:
        write_output(path, json.dumps(document, allow_nan=False) + "\n")


def tables(json_path: str | None) -> Console:
    """Where a command's tables go: standard output, or error output where its JSON goes there.

    Nothing in them is read as markup.
    """
    from rich.console import Console  # only tables need it

    return Console(stderr=json_path == "-", markup=False, highlight=False, emoji=False)


def _is_stream(path: str) -> bool:
    """Whether a path names a pipe, a device or the like: written to as it is, never replaced."""
    return Path(path).exists() and not Path(path).is_file()


def _replace(target: Path, text: str) -> None:
    part = target.with_name(f"{target.name}.part{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        os.replace(part, target)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def can_draw(stream: TextIO) -> bool:
    """A terminal, and one that does not call itself dumb: escape sequences are text to that."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class Progress:
    """One line on standard error that is written over; nothing where that cannot be drawn on."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown = can_draw(self._stream)
        self._due = 0.0
        self._dirty = False

    def show(self, text: str, *, now: bool = False) -> None:
        """Replace the line, at most ten times a second."""
        if not self._shown or (time.monotonic() < self._due and not now):
            return
        self._due = time.monotonic() + _REFRESH_S
        self._stream.write(f"\r\x1b[K{one_line(text)}")
        self._stream.flush()
        self._dirty = True

    def load(self, event: Event) -> None:
        """Show a step of loading; other events say nothing of it."""
        if isinstance(event, LoadProgress):
            self.show(f"{event.stage} {event.done}/{event.total}", now=not event.done)

    def clear(self) -> None:
        """Take the line away."""
        if self._dirty:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._dirty = False
