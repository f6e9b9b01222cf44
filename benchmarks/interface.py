"""Whether the interface keeps up and stays out of the way, measured on this machine.

    python -m benchmarks.interface keys      a key's answer under 2 x 500 tokens/s, 10k-token panes
    python -m benchmarks.interface memory    100k tokens in consecutive runs, and in one
    python -m benchmarks.interface engine    tokens/s of the engine with and without the interface
    python -m benchmarks.interface busy      the same while other work takes all cores but one

`--write` puts the figures into `benchmarks/interface.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import random
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from textual import events as keys

from benchmarks.long_stream import long_run
from benchmarks.page import head, machine, row, write
from ds4tui.app import Ds4App
from ds4tui.config import UiConfig
from ds4tui.controller import Controller
from ds4tui.options import DRAFTER_FILE, TARGET_FILE
from ds4tui.run_state import RunState
from engine.events import EngineReady, Event, RunFinished, TokensCommitted
from engine.process import Command, EngineProcess, Run
from engine.settings import EngineFiles, Prompt, RunRequest, Settings

PAGE = Path(__file__).parent / "interface.md"
SIZE = (120, 40)
AIM_MS = 100
"""A key is answered within."""
READY = EngineReady("", -1, 0, (), 5, 0.9, 0, 10**6, 1)
PROMPT = Prompt("Explain the TCP three-way handshake.")


class Paced:
    """A link whose run comes from a thread, at so many tokens a second and arm.

    Args:
        tokens: of each arm.
        at_once: tokens that come before the clock starts.
        rate: tokens a second of each arm; infinity waits for nothing.
    """

    def __init__(self, tokens: int, at_once: int, rate: float) -> None:
        self.steps = list(long_run("paced", tokens))
        self.at_once, self.rate = at_once, rate
        self.is_alive = False
        self.waiting: list[Event] = [READY]
        self.lock = threading.Lock()

    def start(self) -> None:
        self.is_alive = True

    def send(self, command: Command) -> None:
        if isinstance(command, Run):
            threading.Thread(target=self.feed, daemon=True).start()

    def feed(self) -> None:
        """Hand over step after step, each at its time."""
        begin = time.perf_counter()
        for number, step in enumerate(self.steps):
            if number == self.at_once:
                begin = time.perf_counter()
            due = begin + max(0, number - self.at_once) / self.rate
            time.sleep(max(0.0, due - time.perf_counter()))
            with self.lock:
                self.waiting += step

    def poll(self) -> list[Event]:
        with self.lock:
            found, self.waiting = self.waiting, []
        return found

    def close(self) -> None:
        self.is_alive = False


async def until(holds: Callable[[], bool], seconds: float, every: float = 0.002) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise SystemExit("it never came to that")
        await asyncio.sleep(every)


async def key_latency(tokens: int, at_once: int, rate: float, seconds: float) -> list[float]:
    """Milliseconds from a key to the end of the paint that shows its effect.

    Returns:
        One per key; raises when a token is missing at the end.
    """
    link = Paced(tokens, at_once, rate)
    controller = Controller(lambda: link, PROMPT)
    app = Ds4App(controller, UiConfig())
    taken: list[float] = []
    async with app.run_test(size=SIZE) as pilot:
        left = app.playground.left
        await until(lambda: len(left.lines) >= at_once, 120)
        await pilot.press("g")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            before, painted = left.cursor, asyncio.Event()
            start = time.perf_counter()
            app.post_message(keys.Key("l", "l"))
            while left.cursor == before:
                await asyncio.sleep(0.001)
            app.call_after_refresh(painted.set)
            await painted.wait()
            taken.append((time.perf_counter() - start) * 1e3)
            await asyncio.sleep(0.09)
        await until(lambda: controller.state is RunState.DONE, 120)
        await pilot.pause()
        record = controller.record
        assert record is not None
        wanted = [tokens, tokens, tokens, tokens]
        panes = (app.playground.left, app.playground.right)
        found = [len(arm.ids) for arm in record.arms] + [len(pane.lines) for pane in panes]
        if found != wanted:
            raise SystemExit(f"tokens were lost: {found}, expected {wanted}")
    return taken


def rss_mb() -> float:
    """Resident memory now where /proc says so, else the most so far."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


class Fed:
    """A link that a measurement fills."""

    def __init__(self) -> None:
        self.waiting: list[Event] = [READY]
        self.is_alive = True

    def start(self) -> None:
        pass

    def send(self, command: Command) -> None:
        pass

    def poll(self) -> list[Event]:
        found, self.waiting = self.waiting, []
        return found

    def close(self) -> None:
        pass


async def memory(runs: int, tokens: int, marks: int) -> list[tuple[int, float]]:
    """(tokens so far of each arm, resident MB) while runs follow each other in the interface."""
    link = Fed()
    controller = Controller(lambda: link, None)
    app = Ds4App(controller, UiConfig(fps=1))
    found: list[tuple[int, float]] = []
    every = runs * tokens // marks
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        seen = 0
        for number in range(runs):
            for at, step in enumerate(long_run(f"run-{number}", tokens, number)):
                link.waiting += step
                if at % 200 == 0:
                    app.drain()
                    await pilot.pause(0)
                if (seen + at) % every == 0 and at < tokens and seen + at:
                    gc.collect()
                    found.append((seen + at, rss_mb()))
            seen += tokens
            app.drain()
            await pilot.pause(0)
        gc.collect()
        found.append((seen, rss_mb()))
        left = app.playground.left
        assert len(left.lines) == tokens
        await pilot.press("g")
        assert left.cursor == 0, "the first token can be reached"
    return found


class Lent:
    """A loaded engine's link that outlives the interface it is lent to.

    Args:
        link: of an engine that has said that it is ready.
        ready: what it said.
    """

    def __init__(self, link: EngineProcess, ready: EngineReady) -> None:
        self.link = link
        self.is_alive = True
        self.events: list[Event] = []
        self._greeting: list[Event] = [ready]

    def start(self) -> None:
        pass

    def send(self, command: Command) -> None:
        if isinstance(command, Run):
            self.link.send(command)

    def poll(self) -> list[Event]:
        found = self._greeting + self.link.poll()
        self._greeting = []
        self.events += found
        return found

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Round:
    """One run: tokens of both arms per second of wall time and of the arms' own clocks, and the
    processor time of this process per second meanwhile."""

    wall: float
    clocks: float
    cpu: float


def of_run(events: Sequence[Event], cpu_s: float) -> Round:
    """The figures of a finished run, between its first and its last commit."""
    commits = [event for event in events if isinstance(event, TokensCommitted)]
    tokens = sum(len(event.ids) for event in commits)
    wall_ns = commits[-1].t_ns - commits[0].t_ns
    spent = sum(event.time.total - event.time.prefill for event in commits)
    return Round(tokens * 1e9 / wall_ns, tokens * 1e9 / spent, cpu_s * 1e9 / wall_ns)


def headless_round(link: EngineProcess, settings: Settings) -> Round:
    """The same run with nobody looking: its events are read and kept."""
    events: list[Event] = []
    begin = time.process_time()
    link.send(Run(RunRequest(PROMPT, settings)))
    while not any(isinstance(event, RunFinished) for event in events[-50:]):
        events += link.poll(0.05)
    return of_run(events, time.process_time() - begin)


async def shown_round(link: EngineProcess, ready: EngineReady, settings: Settings) -> Round:
    """A run in the interface, drawn at its frame rate."""
    lent = Lent(link, ready)
    controller = Controller(lambda: lent, PROMPT, settings)
    app = Ds4App(controller, UiConfig())
    async with app.run_test(size=SIZE):
        # Looked at rarely: this waiting is not the interface's.
        await until(lambda: controller.state is RunState.DECODING, 60, every=0.05)
        begin = time.process_time()
        await until(lambda: controller.state in (RunState.DONE, RunState.FAILED), 120, every=0.05)
        return of_run(lent.events, time.process_time() - begin)


def rounds(repeats: int, max_tokens: int) -> list[tuple[Round, Round]]:
    """(headless, shown) runs on one loaded engine, in turns and in turned order.

    One pair more is run first and not counted: it warms both sides.
    """
    package = Path(__file__).parent.parent / "ds4tui" / "models"
    link = EngineProcess(EngineFiles(str(package / TARGET_FILE), (str(package / DRAFTER_FILE),)))
    settings = Settings(max_tokens=max_tokens, ignore_eos=True)
    link.start()
    try:
        ready = None
        while ready is None:
            ready = next((e for e in link.poll(0.1) if isinstance(e, EngineReady)), None)
        pairs = []
        for number in range(repeats + 1):
            if number % 2:
                shown = asyncio.run(shown_round(link, ready, settings))
                pairs.append((headless_round(link, settings), shown))
            else:
                headless = headless_round(link, settings)
                pairs.append((headless, asyncio.run(shown_round(link, ready, settings))))
        return pairs[1:]
    finally:
        link.close()


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def keys_lines() -> list[str]:
    taken = asyncio.run(key_latency(20_000, 10_000, 500.0, 20.0))
    cells = [f"{percentile(taken, share):.0f}" for share in (0.5, 0.95, 0.99, 1.0)]
    return [
        "2 x 500 tokens/s for 20 s behind 10,000 tokens in each pane, 30 frames/s, 120 x 40; a key",
        "is answered when the paint that shows its effect is done. Every token arrived.",
        f"The aim is that every key is answered within {AIM_MS} ms.",
        "",
        *head("keys", f"within {AIM_MS} ms", "median ms", "95 % ms", "99 % ms", "longest ms"),
        row(len(taken), sum(ms <= AIM_MS for ms in taken), *cells),
    ]


def memory_lines() -> list[str]:
    many = asyncio.run(memory(20, 5_000, 5))
    one = asyncio.run(memory(1, 100_000, 5))
    lines = ["Resident MB of the interface's process after so many tokens of each of two arms.", ""]
    lines += head("", *(f"{tokens:,}" for tokens, _ in many))
    lines.append(row("20 runs of 5,000", *(f"{mb:.0f}" for _, mb in many)))
    lines.append(row("one run, after those", *(f"{mb:.0f}" for _, mb in one)))
    return lines


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """95 % of the medians of as many ratios drawn anew, with a fixed seed."""
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def spin() -> None:
    """Take a core."""
    while True:
        pass


@contextmanager
def no_spare_core() -> Iterator[None]:
    """Other processes take all cores but one."""
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=spin, daemon=True) for _ in range((os.cpu_count() or 2) - 1)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def busy_lines(repeats: int, max_tokens: int) -> list[str]:
    with no_spare_core():
        lines = engine_lines(repeats, max_tokens)
    return [f"With {(os.cpu_count() or 2) - 1} other processes that never wait.", *lines]


def engine_lines(repeats: int, max_tokens: int) -> list[str]:
    before = os.getloadavg()[0]
    pairs = rounds(repeats, max_tokens)
    lines = [
        f"One loaded engine, {repeats} pairs of runs in turns, {max_tokens} tokens of each arm: "
        "tokens/s of both arms with",
        "the interface drawing them at 30 frames/s in 120 x 40, and with nobody looking.",
        "",
        *head("tokens/s", "headless", "interface on", "ratio, median", "95 %", "ratios"),
    ]
    for name, of in (("wall time", "wall"), ("the arms' clocks", "clocks")):
        sides = [[getattr(pair[side], of) for pair in pairs] for side in (0, 1)]
        ratios = [shown / headless for headless, shown in zip(*sides, strict=True)]
        low, high = interval(ratios)
        first, second = (statistics.median(side) for side in sides)
        median = f"{statistics.median(ratios):.3f}"
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        between = f"{low:.3f} to {high:.3f}"
        lines.append(row(name, f"{first:.0f}", f"{second:.0f}", median, between, spread))
    cpu = statistics.median(shown.cpu for _, shown in pairs)
    reading = statistics.median(headless.cpu for headless, _ in pairs)
    return [
        *lines,
        "",
        f"The interface's process took {100 * cpu:.0f} % of a core meanwhile, reading the events "
        f"alone {100 * reading:.0f} %.",
        f"Load of the machine when it began: {before:.1f} on {os.cpu_count()} cores.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("keys", "memory", "engine", "busy"))
    parser.add_argument("--repeats", type=int, default=12, help="pairs of runs of the last two")
    parser.add_argument("--tokens", type=int, default=1500, help="of each arm in the last two")
    parser.add_argument("--write", action="store_true", help="put it into benchmarks/interface.md")
    args = parser.parse_args()
    made: dict[str, Callable[[], list[str]]] = {
        "keys": keys_lines,
        "memory": memory_lines,
        "engine": lambda: engine_lines(args.repeats, args.tokens),
        "busy": lambda: busy_lines(args.repeats, args.tokens),
    }
    lines = made[args.what]()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines += ["", f"{machine()}; load of the machine {load} over 1, 5, 15 minutes.",
              f"`python -m benchmarks.interface {args.what}`"]  # fmt: skip
    print("\n".join(lines))
    if args.write:
        write(PAGE, args.what, lines)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
