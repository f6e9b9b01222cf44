"""Makes the pictures in `screenshots/` from recorded runs: SVG, and PNG where rsvg-convert is.

    python -m tools.screenshots            draw from the traces in screenshots/traces/
    python -m tools.screenshots --record   run the embedded pair first and record them anew

Every picture is what the interface shows after the keys named here; nothing is drawn by hand.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ds4tui.app import Ds4App
from ds4tui.config import UiConfig
from ds4tui.controller import Choices, Controller
from ds4tui.link import ReplayLink
from ds4tui.options import DEMO_SET, DRAFTER_FILE, TARGET_FILE
from ds4tui.run_state import RunState
from ds4tui.status import state_text
from engine.events import (
    EngineReady,
    Event,
    LoadProgress,
    RunFailed,
    RunFinished,
    RunStarted,
    TokensCommitted,
)
from engine.process import EngineProcess, Run
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings
from engine.trace import TraceWriter, read_trace

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "screenshots"
TRACES = FOLDER / "traces"
SMALL, LARGE = (80, 24), (120, 36)
CURE = Settings(numerics="invariant", dspark=(Knobs("prefix"),))
RUNS = {"diverged": Settings(), "cured": CURE}
RECORD_SECONDS = 600.0


@dataclass(frozen=True)
class Shot:
    """One picture: which run, how far, which keys.

    Args:
        share: of the run's events that have come; 1 = the run has ended.
        replay_s: seconds of slow motion after the keys.
    """

    name: str
    run: str
    size: tuple[int, int]
    keys: tuple[str, ...] = ()
    theme: str = "dark"
    share: float = 1.0
    replay_s: float = 0.0


SHOTS = (
    Shot("diverged-80x24", "diverged", SMALL),
    Shot("diverged-120x36", "diverged", LARGE),
    Shot("diverged-light", "diverged", LARGE, theme="light"),
    Shot("running-120x36", "diverged", LARGE, share=0.3),
    Shot("token-80x24", "diverged", SMALL, keys=("d", "enter")),
    Shot("try-invariant-120x36", "diverged", LARGE, keys=("x", "n", "p")),
    Shot("cured-120x36", "cured", LARGE),
    Shot("slow-motion-120x36", "cured", LARGE, keys=("z",), replay_s=6.0),
    Shot("prompt-80x24", "diverged", SMALL, keys=("i",)),
    Shot("help-80x24", "diverged", SMALL, keys=("question_mark",)),
)


class Clock:
    """Seconds that pass when the tool says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def record(files: EngineFiles, prompt: Prompt) -> None:
    """Run the prompt under both settings and write the traces.

    Raises:
        SystemExit: when the engine fails.
    """
    TRACES.mkdir(parents=True, exist_ok=True)
    for name, settings in RUNS.items():
        path = TRACES / f"{name}.jsonl"
        path.unlink(missing_ok=True)
        link = EngineProcess(files)
        link.start()
        writer = TraceWriter(str(path))
        for event in events_of(link, RunRequest(prompt, settings)):
            if not isinstance(event, LoadProgress):
                writer.write([event])
        writer.close()
        link.close()
        print(f"recorded {path.relative_to(ROOT)}")


def events_of(link: EngineProcess, request: RunRequest) -> list[Event]:
    """All events of one run, loading included."""
    events: list[Event] = []
    end = time.monotonic() + RECORD_SECONDS
    while time.monotonic() < end:
        for event in link.poll(0.1):
            events.append(event)
            if isinstance(event, EngineReady):
                link.send(Run(request))
            if isinstance(event, RunFailed):
                raise SystemExit(f"{event.title}: {event.message} {event.hint}\n{event.detail}")
            if isinstance(event, RunFinished):
                return events
    raise SystemExit("the run did not end")


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
    prompt = next(event.prompt for event in events if isinstance(event, RunStarted))
    controller = Controller(
        lambda: ReplayLink(shown, clock, float("inf")),
        prompt=Prompt(prompt),
        settings=RUNS[shot.run],
        choices=Choices(),
        clock=clock,
    )
    app = Ds4App(controller, UiConfig(theme=shot.theme, fps=1), "embedded")
    async with app.run_test(size=shot.size) as pilot:
        wanted = RunState.DONE if shot.share >= 1 else RunState.DECODING
        await settle(app, pilot.pause, lambda: controller.state is wanted)
        await pilot.press(*shot.keys)
        clock.now += shot.replay_s
        await settle(app, pilot.pause, lambda: True)
        print(f"{shot.name}: {state_text(controller)}")
        return app.export_screenshot()


async def settle(
    app: Ds4App, pause: Callable[[], Awaitable[None]], holds: Callable[[], bool], most: int = 100
) -> None:
    """Let everything that waits happen until a condition holds."""
    for _ in range(most):
        await pause()
        app.drain()
        if holds():
            break
    app.playground.draw_charts()
    await pause()


def for_renderers(svg: str) -> str:
    """The same picture for renderers that drop leading spaces or cut the end of full rows."""
    return svg.replace("<text ", '<text xml:space="preserve" ').replace(
        "font-size: 20px", "font-size: 19.8px"
    )


def what_to_record(prompt_id: str | None) -> tuple[EngineFiles, Prompt]:
    """The embedded pair, and a prompt of the demo set: the first one unless its id is given.

    Raises:
        SystemExit: when there is no prompt of that id.
    """
    os.chdir(ROOT)  # so that the traces name the files without a machine's folders
    package = Path("ds4tui")
    files = EngineFiles(
        str(package / "models" / TARGET_FILE), (str(package / "models" / DRAFTER_FILE),)
    )
    demo = (package / "prompts" / DEMO_SET).read_text(encoding="utf-8")
    entries = [json.loads(line) for line in demo.splitlines() if line.strip()]
    ids = [entry["id"] for entry in entries]
    if prompt_id is not None and prompt_id not in ids:
        raise SystemExit(f"no prompt {prompt_id}; there are {', '.join(ids)}")
    chosen = entries[ids.index(prompt_id) if prompt_id is not None else 0]
    return files, Prompt(chosen["text"], chat=chosen["chat"])


def main() -> int:
    """Draw all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true", help="record the runs anew first")
    parser.add_argument("--prompt-id", help="prompt of the demo set to record (default: the first)")
    parser.add_argument("--only", help="draw only pictures whose name contains this")
    args = parser.parse_args()
    if args.record:
        record(*what_to_record(args.prompt_id))
    traces = {name: read_trace(str(TRACES / f"{name}.jsonl")) for name in RUNS}
    converter = shutil.which("rsvg-convert")
    if converter is None:
        print("rsvg-convert is not installed: no PNG is made", file=sys.stderr)
    for shot in SHOTS:
        if args.only and args.only not in shot.name:
            continue
        svg = for_renderers(asyncio.run(picture(shot, traces[shot.run])))
        path = FOLDER / f"{shot.name}.svg"
        path.write_text(svg, encoding="utf-8")
        if converter is not None:
            subprocess.run([converter, str(path), "-o", str(path.with_suffix(".png"))], check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
