"""The engine in a process of its own: commands go in, events come out, a crash stays outside.

Owns the pipes, the child's stderr and how its death is told. What the child does is
`engine.serve`'s, and everything heavy is imported there. Works by spawn on every platform; nothing
here blocks the caller but `close`, briefly.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import queue
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import TYPE_CHECKING

from engine.events import Event, RunFailed
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, check_knobs

if TYPE_CHECKING:
    from engine.costs import CostRequest
    from engine.suite import SuiteRequest

STDERR_TAIL = 4000
"""Characters of a dead child's stderr that are kept."""
CLOSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Command:
    """What a front end may ask of the engine's process."""


@dataclass(frozen=True, slots=True)
class Run(Command):
    """Start a run; a run in progress is cancelled first."""

    request: RunRequest


@dataclass(frozen=True, slots=True)
class RunSuite(Command):
    """Start a suite of runs; what is in progress is cancelled first. `Stop` ends all of it."""

    request: SuiteRequest


@dataclass(frozen=True, slots=True)
class Measure(Command):
    """Measure what steps cost; a run in progress is cancelled first. Answered by `CostMeasured`."""

    request: CostRequest


@dataclass(frozen=True, slots=True)
class Pause(Command):
    """Take no further step until `Resume`, `Stop`, `Cancel`, `Run` or `Quit`."""


@dataclass(frozen=True, slots=True)
class Resume(Command):
    """Go on."""


@dataclass(frozen=True, slots=True)
class Stop(Command):
    """End the run once all arms show the same number of tokens."""


@dataclass(frozen=True, slots=True)
class Cancel(Command):
    """End the run at once."""


@dataclass(frozen=True, slots=True)
class Turn(Command):
    """Turn a DSpark arm's knobs, from its next cycle on; the drafter stays."""

    arm: int
    knobs: Knobs

    def __post_init__(self) -> None:
        """Refuse what no run could take."""
        check_knobs(self.knobs)


@dataclass(frozen=True, slots=True)
class Render(Command):
    """Ask for the ids of a prompt."""

    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Quit(Command):
    """End the process."""


Serve = Callable[[Connection, Connection, EngineFiles], None]
"""What the child does with the commands' end and the events' end of its pipes."""


def serve_engine(commands: Connection, events: Connection, files: EngineFiles) -> None:
    """Load the engine and serve it; the child's own work."""
    # Only the child needs what this brings in.
    from engine.serve import serve

    serve(commands, events, files)


def _child(
    commands: Connection, events: Connection, files: EngineFiles, serve: Serve, stderr_path: str
) -> None:
    """First function of the child: nothing that native code prints may reach the terminal."""
    log = os.open(stderr_path, os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = sys.stderr = os.fdopen(log, "w", buffering=1, errors="backslashreplace")
    faulthandler.enable()  # a crash of native code leaves its traceback in the log
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the front end decides what ctrl+c means
    with contextlib.suppress(EOFError, ConnectionError):  # the front end is gone
        serve(commands, events, files)
    events.close()


class _Link:
    """One child with its pipes, reader thread and stderr file."""

    def __init__(self, files: EngineFiles, serve: Serve) -> None:
        context = multiprocessing.get_context("spawn")
        handle, self.stderr_path = tempfile.mkstemp(prefix="ds4tui-engine-", suffix=".log")
        os.close(handle)
        try:
            self._start(context, files, serve)
        except OSError:
            os.unlink(self.stderr_path)
            raise

    def _start(self, context: SpawnContext, files: EngineFiles, serve: Serve) -> None:
        command_end, self.commands = context.Pipe(duplex=False)
        self._events, event_end = context.Pipe(duplex=False)
        self.told = False  # that the child has ended
        self.batches: queue.SimpleQueue[list[Event] | None] = queue.SimpleQueue()
        self.process: SpawnProcess = context.Process(
            target=_child,
            args=(command_end, event_end, files, serve, self.stderr_path),
            name="ds4tui-engine",
            daemon=True,
        )
        self.process.start()
        command_end.close()
        event_end.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Empty the pipe as it fills, so that the engine never waits for the screen."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.batches.put(self._events.recv())
        self.batches.put(None)

    def close(self) -> None:
        """End the child: wait, then kill; remove what it leaves."""
        self.process.join(CLOSE_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._reader.join()
        self.process.close()
        self.commands.close()
        self._events.close()
        with contextlib.suppress(OSError):
            os.unlink(self.stderr_path)


class EngineProcess:
    """A handle on the engine's process, for an interface.

    Args:
        serve: what runs in the child; a module-level function.
    """

    def __init__(self, files: EngineFiles, *, serve: Serve = serve_engine) -> None:
        self._files = files
        self._serve = serve
        self._link: _Link | None = None
        self._run_id = ""
        self._not_started: list[Event] = []

    def start(self) -> None:
        """Start a child, after ending the previous one; its loading is reported by events.

        So is a child that the system did not let start.
        """
        self.close()
        self._run_id = ""
        try:
            self._link = _Link(self._files, self._serve)
        except OSError as error:
            failed = RunFailed(
                "",
                -1,
                time.perf_counter_ns(),
                "Engine process not started",
                f"The engine's process could not be started: {error.strerror or error}.",
                "See to free space and memory, then run again.",
            )
            self._not_started = [failed]

    @property
    def is_alive(self) -> bool:
        """The child runs."""
        return self._link is not None and self._link.process.is_alive()

    def send(self, command: Command) -> None:
        """Give a command to the child; one that it can no longer take is dropped."""
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.commands.send(command)

    def poll(self, wait_s: float = 0.0) -> list[Event]:
        """Events since the last call; after an unexpected end of the child, one `RunFailed`.

        Args:
            wait_s: how long to wait for the first one; an interface never waits.
        """
        found: list[Event] = []
        if self._link is None:
            found, self._not_started = self._not_started, []
            return found
        with contextlib.suppress(queue.Empty):
            waits = wait_s > 0 and not self._link.told
            batch = self._link.batches.get(waits, wait_s or None)
            while batch is not None:
                found.extend(batch)
                self._run_id = batch[-1].run_id
                batch = self._link.batches.get_nowait()
            self._link.told = True
            found += self._death(self._link)
        return found

    def _death(self, link: _Link) -> list[Event]:
        link.process.join(CLOSE_SECONDS)
        code = link.process.exitcode
        if code == 0:  # it was asked to end, or has said why it cannot go on
            return []
        how = f"with exit code {code}"
        if code is not None and code < 0:
            how = f"by signal {-code}"
            if code == -9:
                how += ", perhaps out of memory"
        tail = ""
        with (
            contextlib.suppress(OSError),  # cleared away by who keeps such folders clean
            open(link.stderr_path, encoding="utf-8", errors="backslashreplace") as log,
        ):
            tail = log.read()[-STDERR_TAIL:].strip()
        failed = RunFailed(
            self._run_id,
            -1,
            time.perf_counter_ns(),
            "Engine process ended",
            f"The engine's process ended {how}.",
            "Run again to start a new engine.",
            tail,
        )
        return [failed]

    def close(self) -> None:
        """End the child if there is one; events not yet polled are lost."""
        if self._link is not None:
            self.send(Quit())
            self._link.close()
            self._link = None
