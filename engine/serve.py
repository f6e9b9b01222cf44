"""What the engine's process does: load, take commands, send events in batches.

Owns the command loop and pausing. Commands are looked for once per step, outside all clocks.
"""

from __future__ import annotations

import time
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection

from engine.decode import Control
from engine.errors import Ds4Error
from engine.events import Event, MeasuringFinished, Notice, RunFailed
from engine.process import (
    Cancel,
    Command,
    Measure,
    Pause,
    Quit,
    Render,
    Resume,
    Run,
    RunSuite,
    Stop,
    Turn,
)
from engine.session import Engine, load_engine
from engine.settings import EngineFiles, Prompt

BATCH_NS = 10_000_000
"""Events are sent at least this often while steps are short: well under a frame of the screen."""
DETAIL = 4000
"""Characters of a traceback that are kept."""


def failure(run_id: str, error: Exception) -> RunFailed:
    """A failure as an event: a Ds4Error's own words, else the error with its traceback."""
    now = time.perf_counter_ns()
    if isinstance(error, Ds4Error):
        return RunFailed(run_id, -1, now, error.title, error.message, error.hint)
    detail = "".join(traceback.format_exception(error))[-DETAIL:]
    text = f"{type(error).__name__}: {error}"
    return RunFailed(run_id, -1, now, "Engine failed", text, "", detail)


def serve(commands: Connection, events: Connection, files: EngineFiles) -> None:
    """Load the engine and serve it until `Quit` or the other end is gone."""
    host = Host(commands, events)
    try:
        engine = load_engine(files, host.report)
    except Exception as error:
        host.report(failure("", error))
        return
    host.serve(engine)


def _measured(costs: Iterator[Event]) -> Iterator[Event]:
    """Costs, and that they are over."""
    yield from costs
    yield MeasuringFinished("", -1, time.perf_counter_ns())


class Host:
    """One engine behind a pair of pipes."""

    def __init__(self, commands: Connection, events: Connection) -> None:
        self._commands = commands
        self._events = events
        self._waiting: deque[Command] = deque()
        self._batch: list[Event] = []
        self._sent_ns = 0
        self._control = Control(0)

    def report(self, event: Event) -> None:
        """Send an event at once, after those that wait."""
        self._batch.append(event)
        self._flush()

    def _flush(self) -> None:
        if self._batch:
            self._events.send(self._batch)
            self._batch = []
        self._sent_ns = time.perf_counter_ns()

    def serve(self, engine: Engine) -> None:
        """Answer commands until `Quit`."""
        self.report(engine.ready())
        while True:
            command = self._waiting.popleft() if self._waiting else self._commands.recv()
            match command:
                case Quit():
                    return
                case Run(run):
                    self._run(lambda control: engine.run(run, control, self.report))
                case RunSuite(suite):
                    self._run(lambda control: suite.events(engine, control, self.report))
                case Measure(costs):
                    self._run(lambda control: _measured(engine.costs(costs, self.report, control)))
                case Render():
                    self._render(engine, command.prompt)
                case _:
                    pass  # nothing runs, so there is nothing to stop or to turn

    def _render(self, engine: Engine, prompt: Prompt) -> None:
        try:
            events = engine.render(prompt)
        except Ds4Error as error:
            now = time.perf_counter_ns()
            events = [Notice("", -1, now, "warning", str(error))]
        self._batch += events
        self._flush()

    def _run(self, begin: Callable[[Control], Iterator[Event]]) -> None:
        """Send all events of what `begin` starts; an error ends it as a RunFailed."""
        self._control = Control(0, checkpoint=self._checkpoint)
        run_id = uuid.uuid4().hex[:8]
        try:
            for event in begin(self._control):
                run_id = event.run_id or run_id
                self._batch.append(event)
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            self._batch.append(failure(run_id, error))
        self._flush()

    def _checkpoint(self) -> None:
        """Take the commands that have come; stay here while paused."""
        if time.perf_counter_ns() - self._sent_ns > BATCH_NS:
            self._flush()
        paused = False
        while paused or self._commands.poll():
            if paused:
                self._flush()
            command = self._commands.recv()
            match command:
                case Pause():
                    paused = True
                case Resume():
                    paused = False
                case Stop():
                    self._control.stopped, paused = True, False
                case Cancel():
                    self._control.cancelled, paused = True, False
                case Turn() if command.arm in self._control.knobs:
                    drafter = self._control.knobs[command.arm].mtp
                    self._control.knobs[command.arm] = replace(command.knobs, mtp=drafter)
                case Run() | RunSuite() | Measure() | Quit():
                    self._control.cancelled, paused = True, False
                    self._waiting.append(command)
                case Render():
                    self._waiting.append(command)
                case _:
                    pass
