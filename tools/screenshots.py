"""Makes the pictures in `screenshots/` from recorded runs: SVG, and PNG where rsvg-convert is.

    python -m tools.screenshots            draw from the traces in screenshots/traces/
    python -m tools.screenshots --record   run the embedded pair first and record them anew

Every picture is what the interface shows after the keys named here; nothing is drawn by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ds4tui.app import Ds4App
from ds4tui.config import UiConfig
from ds4tui.controller import Controller
from ds4tui.knobs_now import CONFIDENCES, Choices
from ds4tui.options import DEMO_SET, DRAFTER_FILE, TARGET_FILE
from ds4tui.run_state import RunState
from ds4tui.status import state_text
from engine.costs import CostRequest
from engine.events import (
    EngineReady,
    Event,
    LoadProgress,
    MeasuringFinished,
    RunFailed,
    RunFinished,
    RunStarted,
    SuiteFinished,
    SuiteStarted,
    TokensCommitted,
)
from engine.process import Command, EngineProcess, Measure, Run, RunSuite
from engine.prompt_set import PromptEntry
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings
from engine.suite import MatrixRequest, matrix_arms, suite_prompts
from engine.sweep import SweepRequest
from engine.trace import read_trace, trace_text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "screenshots"
TRACES = FOLDER / "traces"
SMALL, LARGE = (80, 24), (120, 36)
CURE = Settings(numerics="invariant", dspark=(Knobs("prefix"),))
RUNS = {"diverged": Settings(), "cured": CURE, "matrix": Settings(), "sweep": CURE}
"""Recordings, and the settings that the knobs have when they are shown."""
SUITE_TOKENS, SUITE_PROMPTS = 300, 4
RECORD_SECONDS = 1200.0
DRAWS = 20
"""A screen that works through many figures does so over several draws."""


@dataclass(frozen=True)
class Shot:
    """One picture: which recordings, how far, which keys.

    Args:
        runs: recordings, the one shown last.
        share: of the events that have come; 1 = all.
        replay_s: seconds of slow motion after the keys.
    """

    name: str
    runs: tuple[str, ...]
    size: tuple[int, int]
    keys: tuple[str, ...] = ()
    theme: str = "dark"
    share: float = 1.0
    replay_s: float = 0.0


PARTED, CURED = ("diverged",), ("diverged", "cured")
SHOTS = (
    Shot("diverged-80x24", PARTED, SMALL),
    Shot("diverged-120x36", PARTED, LARGE),
    Shot("diverged-light", PARTED, LARGE, theme="light"),
    Shot("running-120x36", PARTED, LARGE, share=0.3),
    Shot("token-80x24", PARTED, SMALL, keys=("d", "enter")),
    Shot("cycle-120x36", PARTED, LARGE, keys=("2", "d")),
    Shot("drift-120x36", PARTED, LARGE, keys=("3", "d")),
    Shot("try-invariant-120x36", PARTED, LARGE, keys=("x", "n", "p")),
    Shot("cured-120x36", CURED, LARGE),
    Shot("matrix-120x36", ("matrix",), LARGE, keys=("4",)),
    Shot("economics-120x36", PARTED, LARGE, keys=("5",)),
    Shot("sweep-120x36", ("sweep",), LARGE, keys=("6",)),
    Shot("runs-80x24", CURED, SMALL, keys=("7", "plus", "j", "plus")),
    Shot("compared-120x36", CURED, LARGE, keys=("7", "plus", "j", "plus", "equals_sign")),
    Shot("slow-motion-120x36", CURED, LARGE, keys=("z",), replay_s=6.0),
    Shot("model-80x24", PARTED, SMALL, keys=("o",)),
    Shot("prompt-80x24", PARTED, SMALL, keys=("i",)),
    Shot("help-80x24", PARTED, SMALL, keys=("question_mark",)),
)


class Recorded:
    """An engine that has said everything already: its events come with the first run."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._greeting = [next(event for event in events if isinstance(event, EngineReady))]
        self._events = [event for event in events if not isinstance(event, EngineReady)]
        self.is_alive = False

    def start(self) -> None:
        """It is ready at once."""
        self.is_alive = True

    def send(self, command: Command) -> None:
        """A run is everything that was recorded."""
        if isinstance(command, Run):
            self._greeting = self._events

    def poll(self) -> list[Event]:
        """What has not been given out."""
        found, self._greeting = self._greeting, []
        return found

    def close(self) -> None:
        """There is nothing to free."""
        self.is_alive = False


class Clock:
    """Seconds that pass when the tool says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def commands(name: str, entries: Sequence[PromptEntry]) -> list[Command]:
    """What a recording asks the engine for, one after the other."""
    some = suite_prompts(entries[:SUITE_PROMPTS])
    short = replace(RUNS[name], max_tokens=SUITE_TOKENS, ignore_eos=True)
    if name == "matrix":
        return [RunSuite(MatrixRequest(some, replace(short, dspark=matrix_arms()), name="demo"))]
    if name == "sweep":
        return [RunSuite(SweepRequest(some[:1], replace(short, max_tokens=400), CONFIDENCES))]
    run = Run(RunRequest(entries[0].prompt, RUNS[name]))
    return [run, Measure(CostRequest())] if name == "diverged" else [run]


def record(files: EngineFiles, entries: Sequence[PromptEntry], only: str | None) -> None:
    """Run what is shown and write the traces.

    Raises:
        SystemExit: when the engine fails.
    """
    TRACES.mkdir(parents=True, exist_ok=True)
    for name in RUNS:
        if only and only != name:
            continue
        link = EngineProcess(files)
        link.start()
        kept = [e for e in events_of(link, commands(name, entries)) if not is_progress(e)]
        link.close()
        path = path_of(name)
        # A fixed time in the file's head, so that the same events are the same bytes.
        path.write_bytes(gzip.compress(trace_text(kept).encode("utf-8"), 9, mtime=0))
        print(f"recorded {path.relative_to(ROOT)}")


def path_of(name: str) -> Path:
    """Where a recording is."""
    return TRACES / f"{name}.jsonl.gz"


def read(name: str) -> list[Event]:
    """A recording's events."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / f"{name}.jsonl"
        plain.write_bytes(gzip.decompress(path_of(name).read_bytes()))
        return read_trace(str(plain))


def is_progress(event: Event) -> bool:
    """Tells how far something is, and nothing of what came out."""
    return isinstance(event, LoadProgress)


def events_of(link: EngineProcess, asked: Sequence[Command]) -> list[Event]:
    """All events of some commands, loading included."""
    events: list[Event] = []
    left = list(asked)
    end = time.monotonic() + RECORD_SECONDS
    in_suite = False
    while time.monotonic() < end:
        for event in link.poll(0.1):
            events.append(event)
            if isinstance(event, RunFailed):
                raise SystemExit(f"{event.title}: {event.message} {event.hint}\n{event.detail}")
            in_suite = isinstance(event, SuiteStarted) or in_suite
            over = isinstance(event, EngineReady | SuiteFinished | MeasuringFinished)
            if over or (isinstance(event, RunFinished) and not in_suite):
                if not left:
                    return events
                link.send(left.pop(0))
    raise SystemExit("the recording did not end")


def cut(events: Sequence[Event], share: float) -> list[Event]:
    """The beginning of a run that ends with a step's tokens."""
    if share >= 1:
        return list(events)
    steps = [at for at, event in enumerate(events) if isinstance(event, TokensCommitted)]
    return list(events[: steps[int(len(steps) * share)] + 1])


async def picture(shot: Shot, events: Sequence[Event]) -> str:
    """The SVG of one shot."""
    clock = Clock()
    shown = cut(events, shot.share)
    prompt = [event.prompt for event in events if isinstance(event, RunStarted)][-1]
    controller = Controller(
        lambda: Recorded(shown),
        prompt=Prompt(prompt),
        settings=RUNS[shot.runs[-1]],
        choices=Choices(),
        clock=clock,
    )
    app = Ds4App(controller, UiConfig(theme=shot.theme, fps=1), "embedded")
    async with app.run_test(size=shot.size) as pilot:
        if shot.share >= 1:  # the recording has come to its end
            await settle(app, pilot.pause, lambda: not controller.is_busy and has_run(controller))
        else:
            await settle(app, pilot.pause, lambda: controller.state is RunState.DECODING)
        for key in shot.keys:
            await pilot.press(key)
            await settle(app, pilot.pause, lambda: True)
        clock.now += shot.replay_s
        for _ in range(DRAWS):
            await settle(app, pilot.pause, lambda: True)
        print(f"{shot.name}: {state_text(controller)}")
        return app.export_screenshot()


def has_run(controller: Controller) -> bool:
    """All runs of the recording are there."""
    return controller.record is not None and controller.record.finished is not None


async def settle(
    app: Ds4App, pause: Callable[[], Awaitable[None]], holds: Callable[[], bool], most: int = 100
) -> None:
    """Let everything that waits happen until a condition holds."""
    for _ in range(most):
        await pause()
        app.drain()
        if holds():
            break
    app.instrument.redraw()
    await pause()


def for_renderers(svg: str) -> str:
    """The same picture for renderers that drop leading spaces or cut the end of full rows."""
    return svg.replace("<text ", '<text xml:space="preserve" ').replace(
        "font-size: 20px", "font-size: 19.8px"
    )


def what_to_record(prompt_id: str | None) -> tuple[EngineFiles, list[PromptEntry]]:
    """The embedded pair, and the demo set, first the prompt that is shown alone.

    Raises:
        SystemExit: when there is no prompt of that id.
    """
    os.chdir(ROOT)  # so that the traces name the files without a machine's folders
    package = Path("ds4tui")
    files = EngineFiles(
        str(package / "models" / TARGET_FILE), (str(package / "models" / DRAFTER_FILE),)
    )
    demo = (package / "prompts" / DEMO_SET).read_text(encoding="utf-8")
    lines = [json.loads(line) for line in demo.splitlines() if line.strip()]
    ids = [line["id"] for line in lines]
    if prompt_id is not None and prompt_id not in ids:
        raise SystemExit(f"no prompt {prompt_id}; there are {', '.join(ids)}")
    entries = [
        PromptEntry(line["id"], line["category"], Prompt(line["text"], chat=line.get("chat", True)))
        for line in lines
    ]
    first = ids.index(prompt_id) if prompt_id is not None else 0
    return files, [entries[first], *entries[:first], *entries[first + 1 :]]


def main() -> int:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true", help="record the runs anew first")
    parser.add_argument("--prompt-id", help="prompt of the demo set to record (default: the first)")
    parser.add_argument("--recording", help="record only this one", choices=[*RUNS])
    parser.add_argument("--only", help="draw only pictures whose name contains this")
    args = parser.parse_args()
    if args.record:
        record(*what_to_record(args.prompt_id), args.recording)
    traces = {name: read(name) for name in RUNS}
    converter = shutil.which("rsvg-convert")
    if converter is None:
        print("rsvg-convert is not installed: no PNG is made", file=sys.stderr)
    for shot in SHOTS:
        if args.only and args.only not in shot.name:
            continue
        events = [event for name in shot.runs for event in traces[name]]
        svg = for_renderers(asyncio.run(picture(shot, events)))
        path = FOLDER / f"{shot.name}.svg"
        path.write_text(svg, encoding="utf-8")
        if converter is not None:
            subprocess.run([converter, str(path), "-o", str(path.with_suffix(".png"))], check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
