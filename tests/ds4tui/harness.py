"""An interface on a scripted engine: no process, no model, no clock but the test's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from textual._context import active_app
from textual.pilot import Pilot

from ds4tui.app import Ds4App
from ds4tui.config import UiConfig
from ds4tui.controller import Controller
from ds4tui.knobs_now import NO_CHOICES, Choices
from ds4tui.link import ReplayLink
from ds4tui.run_record import RunRecord
from engine.events import EngineReady, Event, FileInfo
from engine.process import Command, Run
from engine.prompt_set import PromptEntry
from engine.settings import Prompt, Settings
from tests.ds4tui import streams

FILES = (
    FileInfo("target", "target.gguf", "ab" * 32, 25_000_000, "deepseek4", "tiny", 21_000_000, ()),
)
READY = EngineReady("", -1, 0, FILES, 5, 0.9, 8, 4096, 1)
ALL = Choices(("split", "invariant"), ("direct", "prefix", "replay", "strict"))
PROMPTS = tuple(
    PromptEntry(str(n), "open", Prompt(text))
    for n, text in enumerate((streams.PROMPT, "What is a mutex?", "Explain quicksort."))
)


def record_of(events: Iterable[Event]) -> RunRecord:
    """The run that some events tell."""
    record = RunRecord()
    for event in events:
        record.feed(event)
    return record


class FakeLink:
    """Gives out what a test puts in; remembers the commands.

    Args:
        greeting: events after the start.
        runs: events of the first, second, ... run.
    """

    def __init__(self, greeting: Sequence[Event] = (READY,), *runs: Sequence[Event]) -> None:
        self.greeting = list(greeting)
        self.runs = list(runs)
        self.commands: list[Command] = []
        self.waiting: list[Event] = []
        self.is_alive = False
        self.closed = False

    def start(self) -> None:
        self.is_alive = True
        self.waiting += self.greeting

    def send(self, command: Command) -> None:
        self.commands.append(command)
        if isinstance(command, Run) and self.runs:
            self.waiting += self.runs.pop(0)

    def poll(self) -> list[Event]:
        events, self.waiting = self.waiting, []
        return events

    def close(self) -> None:
        self.is_alive = False
        self.closed = True


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def make_controller(
    *runs: Sequence[Event],
    link: FakeLink | None = None,
    prompt: str | None = streams.PROMPT,
    prompts: Sequence[PromptEntry] = PROMPTS,
    clock: Callable[[], float] | None = None,
    settings: Settings | None = None,
) -> Controller:
    found = link or FakeLink((READY,), *runs)
    return Controller(
        lambda: found,
        prompt=None if prompt is None else Prompt(prompt),
        settings=settings,
        prompts=prompts,
        choices=ALL,
        clock=clock or Clock(),
    )


def replayed(events: Sequence[Event], speed: float = 1.0) -> tuple[Controller, Clock]:
    """A controller that plays recorded events, and the clock that it plays them by."""
    clock = Clock()
    controller = Controller(
        lambda: ReplayLink(events, clock, speed),
        prompt=Prompt(streams.PROMPT),
        choices=NO_CHOICES,
        clock=clock,
    )
    return controller, clock


def make_app(controller: Controller, **config: object) -> Ds4App:
    """The app, with a frame rate so low that only `settle` drains."""
    app = Ds4App(controller, UiConfig(fps=1, **config), "embedded")  # type: ignore[arg-type]
    return app


LONGEST_S = 30.0
"""Until a condition that does not hold is given up; nothing is measured by it."""


async def until_idle(*_: float) -> None:
    """Wait until nothing is left to be done at once: all messages are handled, all is drawn.

    In place of `textual._wait.wait_for_idle`, which sleeps and looks at the process's time.
    """
    loop, app = asyncio.get_running_loop(), active_app.get()
    idle_turns = 0
    while idle_turns < 3:
        await asyncio.sleep(0)
        if loop._ready:  # type: ignore[attr-defined]
            idle_turns = 0
            continue
        idle_turns += 1
        app.screen._on_timer_update()


async def settle(pilot: Pilot[int], until: Callable[[], bool] | None = None) -> None:
    """Let everything that waits happen, until a condition holds."""
    app = pilot.app
    assert isinstance(app, Ds4App)
    given_up = time.monotonic() + LONGEST_S
    while True:
        if app.playground.is_mounted:
            app.drain()
        await pilot.pause()
        if until is None or until():
            break
        assert time.monotonic() < given_up, "the condition never held"
        await asyncio.sleep(0.005)
    app.instrument.redraw()
    await pilot.pause()
