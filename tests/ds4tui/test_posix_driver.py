"""What the terminal sends: whatever it is, reading it goes on."""

from __future__ import annotations

import random
import sys

import pytest
from textual.events import Key, Paste

if sys.platform == "win32":
    pytest.skip("needs termios", allow_module_level=True)

from ds4tui.posix_driver import TerminalInput

PIECES = tuple(
    b"\x1b[|\x1b[<|\x1b[200~|\x1b[201~|\x1bO|\x1b]|\x1b[?|;|:|M|u|R|~|$y|t|48|1".split(b"|")
)
NUMBERS = (b"0", b"1202620", b"999999999999", b"-1")
BYTES = (b"\x00", b"\x7f", b"\x80", b"\xc3\xa9", b"\xe2\x82", b"\xed\xa0\x80", b"\xff", b"r")


def keys(*reads: bytes) -> list[str | None]:
    terminal = TerminalInput()
    messages = [message for data in reads for message in terminal.feed(data)]
    return [message.character for message in messages if isinstance(message, Key)]


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        ((b"\xe9r",), "\ufffdr"),
        ((b"\xc3", b"\xa9r"), "ér"),
        ((b"\xff\xfer",), "\ufffd\ufffdr"),
        ((b"\x1b[120262026ur",), "r"),
        ((b"\x1b[999999999999ur",), "r"),
    ],
)
def test_what_is_invalid_takes_nothing_else_with_it(
    reads: tuple[bytes, ...], expected: str
) -> None:
    assert keys(*reads) == list(expected)


def test_a_paste_of_another_encoding() -> None:
    (message,) = TerminalInput().feed(b"\x1b[200~caf\xe9\x1b[201~")
    assert isinstance(message, Paste)
    assert message.text == "caf\ufffd"


def test_reading_goes_on_after_anything() -> None:
    draw = random.Random(1)
    for _ in range(3000):
        terminal = TerminalInput()
        sent = b"".join(draw.choices(PIECES + NUMBERS + BYTES, k=draw.randint(1, 12)))
        list(terminal.feed(sent))
        list(terminal.tick())
        rest = terminal.feed(b"\x1b[201~" + b"r" * 64)
        assert any(isinstance(message, Key) and message.key == "r" for message in rest), sent
