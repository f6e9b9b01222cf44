"""One suite of runs, gathered from its events: matrix, sweep or set. Knows no widgets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ds4tui.matrix_report import MatrixReport
from ds4tui.run_record import ArmRecord, RunRecord
from engine.events import Event, Notice, RunFailed, RunFinished, SuiteFinished, SuiteStarted

Place = tuple[RunRecord, int]
"""A run and one of its arms."""


@dataclass(slots=True)
class SuiteRecord:
    """What a suite has done so far.

    Args:
        started: its kind and cells.
        report: the figures of a matrix or set; they go on from those of the suite before it where
            that had the same prompts and settings.
        places: the run of every cell and prompt.
        runs: every run of it that has begun, in order; the last one may still go on.
        spent_ns: how long each finished run took, by the run's cell.
        now_ns: time of its newest event, by the engine's clock.
        failed: what ended it.
        is_over: it has ended, was stopped, or failed.
    """

    started: SuiteStarted
    report: MatrixReport = field(default_factory=MatrixReport)
    places: dict[tuple[str, int], Place] = field(default_factory=dict)
    runs: list[RunRecord] = field(default_factory=list)
    spent_ns: dict[str, list[int]] = field(default_factory=dict)
    now_ns: int = 0
    failed: RunFailed | None = None
    is_over: bool = False
    _said: set[str] = field(default_factory=set)

    @property
    def kind(self) -> str:
        """`matrix`, `sweep` or `set`."""
        return self.started.kind

    @property
    def has_report(self) -> bool:
        """Its runs fill a table of cells by prompts."""
        return self.kind != "sweep"

    def holds(self, suite_id: str) -> bool:
        """It has figures, and is this suite."""
        return self.has_report and self.started.suite_id == suite_id

    @property
    def elapsed_s(self) -> float:
        """From its start to its newest event."""
        return max(0, self.now_ns - self.started.t_ns) / 1e9

    @property
    def running(self) -> RunRecord | None:
        """The run that goes on."""
        if self.is_over or not self.runs:
            return None
        newest = self.runs[-1]
        return None if newest.finished or newest.failed else newest

    def feed(self, event: Event) -> None:
        """Take the next event from its start to its end."""
        self.now_ns = max(self.now_ns, event.t_ns)
        if self.has_report:
            self.report.feed(event)
        match event:
            case RunFinished():
                self._time(event)
            case RunFailed():
                self.failed = event
            case SuiteFinished():
                self.is_over = True
            case _:
                pass

    def _time(self, event: RunFinished) -> None:
        started = self.runs[-1].started if self.runs else None
        if started is not None and started.run_id == event.run_id:
            self.spent_ns.setdefault(started.cell, []).append(event.t_ns - started.t_ns)

    def is_news(self, notice: Notice) -> bool:
        """A warning that no run of it has given before; what is merely told of a run is none."""
        if notice.level != "warning" or notice.text in self._said:
            return False
        self._said.add(notice.text)
        return True

    def add(self, run: RunRecord) -> None:
        """Take a run that has begun."""
        self.runs.append(run)
        started = run.started
        if started is not None and self.has_report:
            for cell, arm in self.report.names_of(started).items():
                self.places[cell, started.prompt_index] = run, arm

    def forget_running(self) -> None:
        """The run that goes on comes again from its start."""
        if self.running is not None:
            self.runs.pop()
            self.report.forget_running()

    def place_of(self, cell: str, prompt_index: int) -> Place | None:
        """The run that a cell's figures on a prompt come from, or will come from."""
        place = self.places.get((cell, prompt_index))
        if place is None:
            return None
        is_ours = any(run is place[0] for run in self.runs)
        return place if is_ours or self.report.has(cell, prompt_index) else None

    def beside(self, run: RunRecord | None, step: int) -> Place | None:
        """The run of the same cell on the next or previous prompt that has one.

        Args:
            run: the one shown; None, or one of another suite, has none beside it.
            step: 1 or -1.
        """
        if run is None or run.started is None:
            return None
        arm, at = run.shown_arm, run.started.prompt_index
        mine = [cell for (cell, _), place in self.places.items() if place == (run, arm)]
        if not mine:
            return None
        indexes = sorted(i for cell, i in self.places if cell == mine[0])
        beyond = [i for i in indexes if (i > at if step > 0 else i < at)]
        around = beyond if beyond else [i for i in indexes if i != at]
        if not around:
            return None
        return self.place_of(mine[0], around[0] if step > 0 else around[-1])

    def arm_of(self, cell: str, prompt_index: int) -> ArmRecord | None:
        """The arm of that run."""
        place = self.place_of(cell, prompt_index)
        return None if place is None else place[0].arms[place[1]]


def neighbour(suites: Iterable[SuiteRecord], run: RunRecord | None, step: int) -> Place | None:
    """The run of the next or previous prompt in the suite that a run is of."""
    found = (suite.beside(run, step) for suite in suites if suite.has_report)
    return next((place for place in found if place is not None), None)


def suite_of(suites: Iterable[SuiteRecord], run: RunRecord | None) -> SuiteRecord | None:
    """The matrix or set that a run is of; None of any other run."""
    if run is None or run.started is None:
        return None
    own = run.started.suite_id
    return next((suite for suite in suites if own and suite.holds(own)), None)


def begin(started: SuiteStarted, before: SuiteRecord | None) -> SuiteRecord:
    """The record of a suite that begins, on top of the one of its kind before it."""
    record = SuiteRecord(started)
    if before is not None:
        record.report, record.places = before.report, before.places
    record.feed(started)
    return record
