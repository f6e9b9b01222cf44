"""A terminal that goes away, and a polite request to end: the interface must not outlive either.

Owns signals, and the looks at the terminal and at who could resume us. What is done then is the
app's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable

LOOK_SECONDS = 1.0
"""How often the terminal is looked at: where hang-up signals are ignored, nothing else tells."""
HUNG_UP = 128 + 1
TERMINATED = 128 + 15
"""Exit codes as a shell gives them."""


def on_signal(name: str, act: Callable[[], None]) -> None:
    """Call `act` from the running event loop when a signal comes that the platform has."""
    number = getattr(signal, name, None)
    if number is None or signal.getsignal(number) is signal.SIG_IGN:
        return
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        asyncio.get_running_loop().add_signal_handler(number, act)


def shell_can_resume() -> bool:
    """Our parent is a shell that would notice a stop: it has put us into a group of our own.

    Started by a script or as a terminal's only program nothing would ever wake us again.
    """
    parent = os.getppid()
    try:
        return os.getsid(parent) == os.getsid(0) and os.getpgid(parent) != os.getpgrp()
    except OSError:
        return False


def terminal_is_gone() -> bool:
    """Standard input was a terminal and is hung up."""
    try:
        os.get_terminal_size(sys.__stdin__.fileno() if sys.__stdin__ is not None else 0)
    except (OSError, ValueError):
        return True
    return False
