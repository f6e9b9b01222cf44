"""The engine in a process of its own: commands, batches, pauses, deaths."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from engine.events import (
    ArmFinished,
    EngineReady,
    Event,
    Notice,
    PromptRendered,
    RunFailed,
    RunFinished,
    RunStarted,
    SettingsChanged,
    TokensCommitted,
)
from engine.process import (
    Cancel,
    EngineProcess,
    Pause,
    Quit,
    Render,
    Resume,
    Run,
    Serve,
    Stop,
    Turn,
    serve_engine,
)
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings
from tests.engine import fake_engine

FILES = EngineFiles("scripted.gguf")
PATIENCE_S = 60.0
"""Far more than a spawn takes; a test that waits so long has failed."""


class Watched:
    """A process whose events are gathered; `until` goes on behind what it found before."""

    def __init__(self, serve: Serve) -> None:
        self.process = EngineProcess(FILES, serve=serve)
        self.events: list[Event] = []
        self._seen = 0
        self.process.start()

    def until(self, done: Callable[[Event], bool]) -> Event:
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            while self._seen < len(self.events):
                self._seen += 1
                if done(self.events[self._seen - 1]):
                    return self.events[self._seen - 1]
            self.events += self.process.poll(wait_s=1.0)
        raise AssertionError(f"not seen; last: {self.events[-3:]}")

    def wait(self, kind: type[Event]) -> Any:
        return self.until(lambda event: isinstance(event, kind))


@pytest.fixture
def watch() -> Iterator[Callable[[Serve], Watched]]:
    made: list[Watched] = []

    def start(serve: Serve) -> Watched:
        made.append(Watched(serve))
        return made[-1]

    yield start
    for one in made:
        one.process.close()
        assert not one.process.is_alive


def request(tokens: int = 30, policy: str = "direct") -> RunRequest:
    return RunRequest(
        Prompt("abcdefghij"),
        Settings(max_tokens=tokens, dspark=(Knobs(commit=policy),)),  # type: ignore[arg-type]
    )


def test_a_run_and_what_may_be_asked_meanwhile(watch: Callable[[Serve], Watched]) -> None:
    one = watch(fake_engine.scripted)
    one.wait(EngineReady)
    one.process.send(Resume())
    one.process.send(Render(Prompt("ab")))
    assert one.wait(PromptRendered).prompt_ids == (0, 3, 27, 28, 4)
    one.process.send(Render(Prompt("")))
    assert "empty" in one.wait(Notice).text
    one.process.send(Run(request()))
    assert one.wait(RunFinished).identical
    # What cannot be run is a sentence, and the engine stays usable.
    one.process.send(Run(RunRequest(Prompt("a" * 5000))))
    failed = one.wait(RunFailed)
    assert "the context holds 4096" in failed.message
    assert failed.run_id
    # A long run is paused, turned, resumed and stopped.
    one.process.send(Run(request(4000)))
    one.until(lambda e: isinstance(e, TokensCommitted) and e.index > 50)
    one.process.send(Pause())
    one.process.send(Turn(1, Knobs("replay", 0.0, 2)))
    one.process.send(Resume())
    one.wait(SettingsChanged)
    one.process.send(Stop())
    stopped = one.wait(ArmFinished)
    assert stopped.reason == "stop"
    one.wait(RunFinished)
    # A run that is started during another one replaces it.
    one.process.send(Run(request(4000)))
    first = one.wait(RunStarted)
    one.process.send(Run(request(20)))
    end = one.until(lambda e: isinstance(e, RunFinished) and e.run_id != first.run_id)
    assert end.identical
    one.process.send(Run(request(4000)))
    one.wait(RunStarted)
    one.process.send(Cancel())
    assert one.wait(RunFinished).identical is None
    one.process.send(Quit())
    one.process.close()
    assert not one.process.is_alive


def test_an_error_in_a_run_leaves_the_engine_usable(watch: Callable[[Serve], Watched]) -> None:
    one = watch(fake_engine.failing)
    one.process.send(Run(request()))
    failed = one.wait(RunFailed)
    started = next(e for e in one.events if isinstance(e, RunStarted))
    assert failed.run_id == started.run_id
    assert (failed.title, failed.hint) == ("Broken", "Do not go there.")
    assert [e for e in one.events if isinstance(e, TokensCommitted)], "the text so far was sent"
    one.process.send(Run(request(5)))
    one.wait(RunFinished)


def test_a_killed_child_is_told_once_with_its_last_words(
    watch: Callable[[Serve], Watched],
) -> None:
    one = watch(fake_engine.killed)
    one.wait(Notice)
    one.process.send(Pause())
    failed = one.wait(RunFailed)
    assert isinstance(failed, RunFailed)
    assert failed.run_id == "r7"
    assert failed.title == "Engine process ended"
    assert "signal 9, perhaps out of memory" in failed.message
    assert "last words on stderr" in failed.detail
    assert "last words on stdout" in failed.detail
    assert not one.process.is_alive
    assert one.process.poll() == []
    one.process.send(Run(request()))
    one.process.start()
    one.wait(Notice)


def test_a_death_is_told_where_its_last_words_were_cleared_away(
    watch: Callable[[Serve], Watched],
) -> None:
    one = watch(fake_engine.killed)
    one.wait(Notice)
    assert one.process._link is not None
    os.unlink(one.process._link.stderr_path)
    one.process.send(Pause())
    failed = one.wait(RunFailed)
    assert (failed.title, failed.detail) == ("Engine process ended", "")


def test_a_child_that_cannot_be_started_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    process = EngineProcess(FILES, serve=fake_engine.scripted)
    process.start()
    assert not process.is_alive
    (failed,) = process.poll()
    assert isinstance(failed, RunFailed)
    assert "could not be started: No such file or directory" in failed.message
    assert process.poll() == []
    # Without room for the process itself nothing is left behind.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as full:
        error = OSError(errno.EAGAIN, "Resource temporarily unavailable")
        full.setattr(SpawnProcess, "start", Mock(side_effect=error))
        process.start()
    (failed,) = process.poll()
    assert isinstance(failed, RunFailed)
    assert "Resource temporarily unavailable" in failed.message
    assert list(tmp_path.iterdir()) == []
    process.start()
    assert isinstance(process.poll(PATIENCE_S)[0], EngineReady)
    process.close()


def test_a_crashed_child_shows_its_traceback(watch: Callable[[Serve], Watched]) -> None:
    failed = watch(fake_engine.crashing).wait(RunFailed)
    assert "exit code 1" in failed.message
    assert "RuntimeError: no more" in failed.detail


def test_closing_is_no_failure_and_starting_needs_no_engine() -> None:
    process = EngineProcess(FILES, serve=fake_engine.scripted)
    assert not process.is_alive
    assert process.poll() == []
    process.send(Stop())
    process.close()
    process.start()
    process.close()
    assert process.poll() == []


def test_a_failed_load_is_a_sentence(watch: Callable[[Serve], Watched]) -> None:
    one = watch(serve_engine)
    failed = one.wait(RunFailed)
    assert failed.run_id == ""
    assert "scripted.gguf" in failed.message
    assert one.process.poll(wait_s=PATIENCE_S) == [], "it is told once"
