"""Ctrl+c outside of the interface: one line and exit code 130, wherever it comes.

While the program and the model are loaded there is nothing to keep, and it ends the process: native
code that loads kernels calls back into Python, and cannot take an exception there. Work that has
something to keep or to put in order gets Python's `KeyboardInterrupt`.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

INTERRUPTED = 130
"""Exit code after ctrl+c, as a shell gives it."""
AGAIN_SECONDS = 0.01
"""Until the callback has returned; should the next one swallow it, it comes once more."""


def leave() -> NoReturn:
    """End the process now: what was interrupted half-way cannot all be taken down in order."""
    with contextlib.suppress(ValueError):  # of another thread than the main one
        ignore()
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, full or not there
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        over_progress = b"\r\x1b[K" if os.isatty(2) else b""
        os.write(2, over_progress + b"ds4tui: interrupted\n")
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def ending_at_once(first: Callable[[], object] | None = None) -> Iterator[None]:
    """Inside, ctrl+c ends the process.

    Args:
        first: called before, to put in order what was begun.
    """

    def end(number: int, frame: object) -> NoReturn:
        if first is not None:
            first()
        leave()

    with _answered_by(end):
        yield


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Inside, ctrl+c is a `KeyboardInterrupt`."""
    with _answered_by(signal.default_int_handler):
        yield


@contextlib.contextmanager
def _answered_by(handler: Callable[[int, Any], object]) -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if before is signal.SIG_IGN or not is_main:  # of a shell's background; not ours to answer
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ignore() -> None:
    """Ctrl+c means nothing any more: the work is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def raise_again(ignored: sys.UnraisableHookArgs) -> None:
    """As `sys.unraisablehook`: a finaliser that ctrl+c hits only prints it, so it comes again."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        again = threading.Timer(AGAIN_SECONDS, _thread.interrupt_main)
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(ignored)
