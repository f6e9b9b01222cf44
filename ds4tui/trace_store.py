"""The last runs as trace files in the user's state folder, written behind the interface's back.

Owns the folder, its bound of `KEPT` files and one writing thread. Never in the way: what cannot be
written is told once, and the runs go on.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import platformdirs

from ds4tui.run_record import RunRecord
from ds4tui.runs_list import RunLine, lines_as_json, lines_from_json, lines_of
from engine.events import Event
from engine.json_text import parse_json
from engine.text import one_line
from engine.trace import SCHEMA, line_of

KEPT = 20
"""Trace files that stay."""
CLOSE_SECONDS = 3.0
"""How long quitting waits for a trace that is being written."""
PIECE = 64
"""Events that are written before the interface may draw again."""


def traces_folder() -> Path:
    """Where the traces of finished runs go."""
    return platformdirs.user_state_path("ds4tui") / "traces"


@dataclass(frozen=True, slots=True)
class StoredTrace:
    """A trace in the folder, by its first line alone."""

    path: Path
    lines: tuple[RunLine, ...]


class TraceStore:
    """Writes finished runs and lists those that are there.

    Args:
        folder: None stores nothing.
        now: local time, for names and lines.

    `gone` is what was deleted: by hand, or since `KEPT` newer ones came.
    """

    def __init__(self, folder: Path | None, now: Callable[[], datetime] = datetime.now) -> None:
        self.folder = folder
        self.now = now
        self.gone: set[Path] = set()
        self._paths: dict[str, Path] = {}
        self._jobs: queue.SimpleQueue[tuple[RunRecord, datetime] | None] = queue.SimpleQueue()
        self._problems: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._has_failed = False
        self._thread: threading.Thread | None = None

    def save(self, record: RunRecord) -> None:
        """Write a finished run soon; returns at once."""
        if self.folder is None or self._has_failed or not record.events:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ds4tui-traces", daemon=True)
            self._thread.start()
        self._jobs.put((record, self.now()))

    def problem(self) -> str:
        """What kept a trace from being written, told once; "" when nothing did."""
        with contextlib.suppress(queue.Empty):
            return self._problems.get_nowait()
        return ""

    def close(self) -> None:
        """Finish what is being written, within a few seconds."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(CLOSE_SECONDS)
            self._thread = None

    def stored(self) -> list[StoredTrace]:
        """The traces in the folder, the newest first; what is none is left out."""
        found = []
        for path in self._files():
            with contextlib.suppress(OSError, ValueError):
                with path.open(encoding="utf-8") as file:
                    head = parse_json(file.readline())
                if isinstance(head, dict) and head.get("schema") == SCHEMA:
                    found.append(StoredTrace(path, tuple(lines_from_json(head.get("lines")))))
        return found

    def path_of(self, run_id: str) -> Path | None:
        """The trace of a run of this session; None when there is none, or none any more."""
        path = self._paths.get(run_id)
        return None if path in self.gone else path

    def remove(self, path: Path) -> None:
        """Delete a trace of the folder."""
        self.gone.add(path)
        with contextlib.suppress(OSError):
            path.unlink()

    def _files(self) -> list[Path]:
        """Newest first: names begin with the time."""
        if self.folder is None:
            return []
        with contextlib.suppress(OSError):
            return sorted(self.folder.glob("*.jsonl"), reverse=True)
        return []

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            try:
                self._write(*job)
            except OSError as error:
                self._has_failed = True
                reason = error.strerror or str(error)
                where = one_line(str(self.folder))
                self._problems.put(f"Runs are no longer stored in {where}: {reason}.")
                return

    def _write(self, record: RunRecord, at: datetime) -> None:
        assert self.folder is not None
        assert record.started is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = lines_as_json(lines_of(record, at.strftime("%H:%M")))
        run = "".join(char for char in record.started.run_id if char.isalnum() or char in "-_")
        path = self.folder / f"{at:%Y%m%d-%H%M%S-%f}-{run}.jsonl"
        part = path.with_suffix(".part")
        try:
            with part.open("w", encoding="utf-8", newline="\n") as file:
                file.write(json.dumps({"schema": SCHEMA, "lines": lines}) + "\n")
                for number, event in enumerate(record.events):
                    file.write(line_of(event) + "\n")
                    if number % PIECE == 0:
                        time.sleep(0)
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        self._paths[record.started.run_id] = path
        for old in self._files()[KEPT:]:
            self.remove(old)


def runs_of(events: Iterable[Event]) -> list[RunRecord]:
    """The runs of a trace, in order."""
    records: dict[str, RunRecord] = {}
    for event in events:
        if event.run_id:
            records.setdefault(event.run_id, RunRecord()).feed(event)
    return [record for record in records.values() if record.started is not None]
