"""A user's text files: read whole, but never more than a limit, with a sentence for mistakes.

Owns the limit. A pipe or a device is read like a file, as `<(command)` and `--config /dev/null`
need; one without an end is refused at the limit. Imports nothing heavy.
"""

from __future__ import annotations

import io

from engine.errors import Ds4Error
from engine.text import one_line

MAX_MIB = 64
"""Longest text that is read: many times what any context holds."""


class MissingFile(Ds4Error):
    """There is no such file."""


def read_text(path: str, what: str) -> str:
    """A text file, in UTF-8 with or without a signature at its start.

    Args:
        what: the sentences call it.
    Raises:
        Ds4Error: when it is unreadable, too long or no UTF-8; `MissingFile` when there is none.
    """
    name = one_line(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_MIB * 2**20 + 1)
    except FileNotFoundError:
        raise MissingFile("File not found", f"The {what} {name} does not exist.") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise Ds4Error("Unreadable file", f"The {what} {name}: {reason}.") from error
    if len(data) > MAX_MIB * 2**20:
        raise Ds4Error(
            "File too long",
            f"The {what} {name} holds more than {MAX_MIB} MiB; expected a text of at most that.",
            "Give a shorter text file.",
        )
    try:
        return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise Ds4Error(
            "Not text", f"The {what} {name} is no UTF-8 text: byte {error.start} is invalid."
        ) from error
