"""The runs of a session as lines that stay: numbered as they came, longer-lived than their records.

Owns the numbers and the lines of runs that have ended. Knows no widgets and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from ds4tui.run_record import RunRecord
from ds4tui.runs_list import RunLine, lines_of


@dataclass(slots=True)
class SessionRun:
    """One run of the session.

    Args:
        number: from 1, in the order in which the runs came; it never changes.
        time: of day, when the run began; "" for one from a file.
        record: while the run goes on; None once its lines are final.
    """

    number: int
    time: str
    record: RunRecord | None
    final: list[RunLine] = field(default_factory=list)
    is_removed: bool = False

    @property
    def lines(self) -> list[RunLine]:
        """A line per arm, as it stands now."""
        if self.record is None:
            return self.final
        return lines_of(self.record, self.time, goes_on=True)

    def end(self) -> None:
        """The lines are final."""
        if self.record is not None:
            self.final, self.record = lines_of(self.record, self.time), None


class SessionRuns:
    """Every run since the interface was started, those of suites included.

    Args:
        now: local time.
    """

    def __init__(self, now: Callable[[], datetime] = datetime.now) -> None:
        self.now = now
        self._runs: dict[str, SessionRun] = {}

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def __len__(self) -> int:
        return sum(not run.is_removed for run in self._runs.values())

    def newest_first(self) -> Iterator[SessionRun]:
        """The runs that were not removed."""
        return (run for run in reversed(self._runs.values()) if not run.is_removed)

    def begin(self, record: RunRecord) -> None:
        """A run has begun; one that a trace plays again keeps its number."""
        self._add(record, self.now().strftime("%H:%M")).record = record

    def end(self, record: RunRecord) -> None:
        """A run has ended, or will not go on."""
        run = self._of(record)
        if run is not None and run.record is record:
            run.end()

    def open(self, record: RunRecord) -> None:
        """A run was read from a file: the newest of the list."""
        if self._of(record) is None:
            self._add(record, "").end()

    def remove(self, run_id: str) -> None:
        """Take a run out of the list for good."""
        if run_id in self._runs:
            self._runs[run_id].is_removed = True

    def _of(self, record: RunRecord) -> SessionRun | None:
        return None if record.started is None else self._runs.get(record.started.run_id)

    def _add(self, record: RunRecord, time: str) -> SessionRun:
        assert record.started is not None
        new = SessionRun(len(self._runs) + 1, time, record)
        return self._runs.setdefault(record.started.run_id, new)
