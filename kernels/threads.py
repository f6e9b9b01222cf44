"""Threads that compute CPU kernels together: how many there are, and when they are awake.

`kernels.cpu.threads` is what they do. Worker threads look for work as long as steps follow each
other, and sleep when none has come for a few milliseconds. A kernel never waits for a worker that
sleeps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

_LINE = 8
TICKET, DONE, AWAKE, THREADS, JOB = (_LINE * line for line in range(5))
"""Words that threads share, each on a cache line of its own: see `kernels.cpu.threads`; the number
of workers that look for work; of threads in all; then a job's function, arguments and pieces."""

_words = np.zeros(6 * _LINE, np.int64)
SHARED = _words[-_words.ctypes.data // 8 % _LINE :]
"""These words, from the beginning of a cache line."""
SHARED[THREADS] = 1

_view = SHARED.data  # faster to read than the array
_calls: list[threading.Event] = []


def set_threads(threads: int) -> None:
    """Compute CPU kernels on so many threads from now on, the caller's own among them.

    Results do not depend on it.

    Raises:
        ValueError: for less than one.
    """
    if threads < 1:
        raise ValueError(f"{threads} threads, expected 1 or more")
    SHARED[THREADS] = threads
    while len(_calls) < threads - 1:
        from kernels.cpu.threads import work

        _calls.append(threading.Event())
        arguments = work, len(_calls), _calls[-1]
        threading.Thread(target=_worker, args=arguments, name="kernels", daemon=True).start()
    wake()


def wake() -> None:
    """Wake workers that sleep; until they are awake, kernels run without them."""
    if _view[AWAKE] < _view[THREADS] - 1:
        for call in _calls[: _view[THREADS] - 1]:
            call.set()


def _worker(work: Callable[[int], None], number: int, call: threading.Event) -> None:
    while True:
        call.wait()
        call.clear()
        work(number)
