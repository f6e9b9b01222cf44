"""What the terminal sends, taken so that nothing it sends ends the interface.

Textual 8.2.8 reads the terminal as strict UTF-8, and its parser raises for some sequences of
numbers that no terminal has. One such byte or sequence, from a terminal of another encoding or a
file that was pasted, would be the end of a session.
"""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder
from collections.abc import Iterator

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

READ_BYTES = 4096
WAIT_SECONDS = 0.1
"""Between two looks at whether the driver is to end."""


class TerminalInput:
    """Messages from the bytes of a terminal."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._parser = XTermParser()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that some bytes complete.

        Invalid UTF-8 becomes U+FFFD, and a sequence that cannot be read is left out.
        """
        for character in self._decoder.decode(data):
            try:
                yield from self._parser.feed(character)
            except (ValueError, OverflowError):
                self._parser = XTermParser()

    def tick(self) -> Iterator[Message]:
        """What is complete because nothing followed it, as a lone escape."""
        yield from self._parser.tick()


class PosixDriver(LinuxDriver):
    """Textual's driver, which reads by `TerminalInput`."""

    def run_input_thread(self) -> None:
        """Hand on what comes until the driver is to end, then what is there: late answers."""
        terminal = TerminalInput()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if not self._hand_on(terminal, selector):
                    return  # the terminal has gone; `ds4tui.hangup` sees to the rest
            self._hand_on(terminal, selector)

    def _hand_on(self, terminal: TerminalInput, selector: selectors.BaseSelector) -> bool:
        """Hand on what one read gives; whether the terminal is still there."""
        data = os.read(self.fileno, READ_BYTES) if selector.select(WAIT_SECONDS) else None
        for message in terminal.feed(data or b""):
            self.process_message(message)
        for message in terminal.tick():
            self.process_message(message)
        return data != b""
