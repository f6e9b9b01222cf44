"""The interface in a real terminal, on a recorded run."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.events import RunFinished
from engine.trace import TraceWriter, read_trace
from tests.ds4tui import streams
from tests.e2e.terminal import DEADLINE, POLL, Terminal
from tests.engine.random_pair import SMALL, write_pair

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


SCREENS = ("Cycle", "Drift", "Matrix", "Econ", "Sweep", "Runs")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path)
    yield found
    found.close()


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = str(tmp_path / "run.jsonl")
    writer = TraceWriter(path)
    writer.write(streams.diverged_run())
    writer.close()
    return path


def test_from_start_to_quit(terminal: Terminal, trace: str) -> None:
    terminal.run("replay", trace)
    terminal.wait_for("[1 Play]")
    rows = terminal.wait_for("DONE 1.9 s")
    rows = terminal.wait(lambda rows: sum(row.count("►") for row in rows) == 3, "the parting row")
    assert rows[2].startswith('≠ DIVERGED at 163  " reply" / " respond"')
    assert rows[23].startswith("r Play again")

    terminal.press("g")
    terminal.wait_for('#0 "TCP"')
    for key, name in zip("234567", SCREENS, strict=True):
        terminal.press(key)
        terminal.wait_for(f"[{key} {name}]")
        rows = terminal.rows()
        assert rows[2].startswith("≠ DIVERGED at 163") or key in "46"
    terminal.press("1")
    terminal.wait_for("[1 Play]")
    terminal.press("d")
    rows = terminal.wait_for('#163 " reply"')
    marked = next(row for row in terminal.rows(attributes=True) if " respond" in row and "│" in row)
    assert "\x1b[1m" in marked or "\x1b[1;" in marked
    assert "7m" in marked

    terminal.resize(120, 36)
    rows = terminal.wait_for("accepted/reached")
    assert rows[35].startswith("r Play again")
    assert "cause state: L2 frontier_kv from #3" in rows[2]
    terminal.resize(40, 10)
    terminal.wait(lambda rows: "ms per token" not in "".join(rows), "no charts")
    terminal.resize(80, 24)
    terminal.wait_for("ms per token")

    terminal.press("q")
    rows = terminal.wait_for("status=0")
    assert rows[0] == "before"
    assert rows[1] == "status=0"
    assert not "".join(rows[3:]).strip()


def test_help_palette_and_slow_motion(terminal: Terminal, trace: str) -> None:
    terminal.run("replay", trace)
    terminal.wait_for("DONE 1.9 s")
    terminal.press("?")
    terminal.wait_for("Pause or resume")
    terminal.press("Escape")
    terminal.wait(lambda rows: "Pause or resume" not in "".join(rows), "help closed")
    terminal.press("z")
    terminal.wait_for("REPLAY 0.05x")
    terminal.wait_for("identical so far")
    terminal.press("Escape")
    terminal.wait_for("DONE 1.9 s")
    terminal.press("C-p")
    terminal.wait_for("Search for commands")
    terminal.type("quit")
    terminal.wait_for("app: Quit")
    terminal.press("Enter")
    terminal.wait_for("status=0")


def test_suspended_and_taken_back(terminal: Terminal, trace: str) -> None:
    terminal.run("replay", trace)
    terminal.wait_for("DONE 1.9 s")
    terminal.press("C-z")
    rows = terminal.wait(lambda rows: "[1 Play]" not in "".join(rows), "the shell")
    assert rows[0] == "before"
    terminal.wait_for("status=")
    terminal.type("fg")
    terminal.press("Enter")
    terminal.wait_for("DONE 1.9 s")
    terminal.press("2")
    terminal.wait_for("[2 Cycle]")
    terminal.press("q")
    terminal.wait(lambda rows: "[2 Cycle]" not in "".join(rows), "the shell again")


def test_the_engine_in_its_own_process(terminal: Terminal, tmp_path: Path) -> None:
    target, drafter = write_pair(tmp_path, SMALL, types="F32")
    pair = ("-m", str(target), "--mtp", str(drafter), "--dspark-confidence", "0")
    terminal.run(*pair, "-p", "Hello", "-n", "60", "--numerics", "invariant", "--ignore-eos")
    # A first start compiles the kernels.
    rows = terminal.wait_for("DONE", seconds=180)
    assert rows[2].startswith("= IDENTICAL")

    terminal.press("p")
    terminal.wait_for("direct>prefix")
    terminal.press("r")
    rows = terminal.wait(
        lambda rows: "DONE" in rows[0] and "direct>" not in rows[1], "the second run"
    )
    assert rows[2].startswith("= IDENTICAL")

    terminal.press("i")
    terminal.wait_for("escape leaves")
    terminal.press("C-u")
    terminal.wait(lambda rows: "Hello" not in "".join(rows), "an empty field")
    terminal.type("Another prompt")
    terminal.wait_for("ids: 0=")
    terminal.press("Enter")
    terminal.wait(lambda rows: "DONE" in rows[0] and "Another" in rows[1], "the third run")

    terminal.press("7")
    terminal.wait_for("3 here")
    terminal.press("1")
    terminal.wait_for("[1 Play]")

    os.kill(terminal.engine_pid(), signal.SIGKILL)
    terminal.wait(lambda rows: "FAILED" in rows[0], "the engine's death")
    terminal.wait_for("ended by signal")
    terminal.press("r")
    terminal.wait(lambda rows: "DONE" in rows[0], "a new engine's run", seconds=60)
    terminal.press("q")
    terminal.wait_for("status=0")


def test_a_replay_is_stepped_and_gone_through(terminal: Terminal, trace: str) -> None:
    terminal.run("replay", trace)
    terminal.wait_for("DONE 1.9 s")
    terminal.press("#")
    terminal.wait_for("go to token")
    terminal.type("100")
    terminal.press("Enter")
    rows = terminal.wait_for("PAUSED REPLAY 1.0x")
    terminal.wait_for("identical so far")
    terminal.press("(")
    terminal.wait(lambda now: now[3:] != rows[3:], "another cycle")
    terminal.press(">", ">", ">", "Space")
    terminal.wait_for("DONE 1.9 s")
    terminal.press("q")
    terminal.wait_for("status=0")


BYTES = {
    "another encoding": b"\xe9",
    "no encoding": b"\xff\xfe\xc0\x80\xe2\x82x",
    "a number no terminal has": b"\x1b[120262026u",
}


@pytest.mark.parametrize("sent", BYTES.values(), ids=BYTES)
def test_no_byte_ends_the_interface(terminal: Terminal, trace: str, sent: bytes) -> None:
    terminal.run("replay", trace)
    terminal.wait_for("DONE 1.9 s")
    terminal.send(sent + b"?")
    terminal.wait_for("Pause or resume")
    terminal.send(sent + b"q")
    terminal.wait(lambda rows: "Pause or resume" not in "".join(rows), "help closed")
    terminal.press("q")
    terminal.wait_for("status=0")


def test_a_terminal_that_goes_away_leaves_the_trace_and_no_process(
    terminal: Terminal, tmp_path: Path
) -> None:
    target, drafter = write_pair(tmp_path, SMALL, types="F32")
    recorded = tmp_path / "recorded.jsonl"
    pair = ("-m", str(target), "--mtp", str(drafter), "--dspark-confidence", "0", "-p", "Hello")
    terminal.run(*pair, "-n", "40", "--ignore-eos", "--trace", str(recorded))
    terminal.wait_for("DONE", seconds=180)
    engine = terminal.engine_pid()
    terminal.close_window()
    wait_until(lambda: not is_running(engine), "the engine's end")
    events = read_trace(str(recorded))
    assert sum(isinstance(event, RunFinished) for event in events) == 1


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(POLL)


def test_mistakes_are_one_sentence(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("replay", str(tmp_path / "none.jsonl"))
    rows = terminal.wait_for("status=2")
    assert "none.jsonl" in "".join(rows)  # a long path goes over the row's end
    assert not any("Traceback" in row for row in rows)
