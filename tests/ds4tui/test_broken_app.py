"""The exit code of the interface: what ended it, and 2 with a traceback when that was a bug."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from rich.traceback import Traceback
from textual.pilot import Pilot

from ds4tui import app as application
from ds4tui.app import BROKEN, Ds4App, run_app
from ds4tui.config import UiConfig
from ds4tui.hangup import TERMINATED
from ds4tui.options import RunOptions
from engine.settings import EngineFiles, Settings
from engine.trace import TraceWriter
from tests.ds4tui import streams

Ending = Callable[[Ds4App], object]


def broken(app: Ds4App) -> NoReturn:
    raise RuntimeError("something impossible")


def broken_elsewhere(app: Ds4App) -> None:
    """As Textual's drivers do with what is raised in the thread that reads the terminal."""
    try:
        broken(app)
    except RuntimeError:
        app.panic(Traceback())


@pytest.fixture
def run_until(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Ending], int]:
    """Run the interface on a recorded run, without a terminal, until something ends it."""
    path = str(tmp_path / "run.jsonl")
    writer = TraceWriter(path)
    writer.write(streams.diverged_run())
    writer.close()
    files = EngineFiles("none")
    options = RunOptions(files, False, None, Settings(), (), UiConfig(), replay=path)
    monkeypatch.setattr(application, "traces_folder", lambda: None)
    whole = Ds4App.run

    def run(ending: Ending) -> int:
        async def end(pilot: Pilot[int]) -> None:
            assert isinstance(pilot.app, Ds4App)
            pilot.app.call_later(ending, pilot.app)

        monkeypatch.setattr(Ds4App, "run", lambda self: whole(self, headless=True, auto_pilot=end))
        return run_app(options)

    return run


@pytest.mark.parametrize("ending", [broken, broken_elsewhere])
def test_a_bug_is_told_and_is_no_success(
    run_until: Callable[[Ending], int], ending: Ending, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_until(ending) == BROKEN
    assert "RuntimeError: something impossible" in capsys.readouterr().err


def test_what_is_no_bug(run_until: Callable[[Ending], int]) -> None:
    assert run_until(lambda app: app.exit()) == 0
    assert run_until(lambda app: app.exit(TERMINATED)) == TERMINATED
