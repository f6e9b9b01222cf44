"""Screen 7: every run of the session and the last ones on disk; opens them and compares two arms.

Owns the list's cursor and marks. What is in the list comes from the controller and the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ds4tui.controller import Changes, Controller
from ds4tui.paint import runs as paint
from ds4tui.paint.runs import ListedRun
from ds4tui.pair import PairRecord
from ds4tui.run_record import RunRecord
from ds4tui.runs_list import RunLine, lines_of
from ds4tui.screens.ask import AskText
from ds4tui.screens.instrument import Instrument
from ds4tui.spans import Row
from ds4tui.trace_store import StoredTrace, runs_of
from ds4tui.visible import drawable_line
from ds4tui.widgets.box import Box
from engine.errors import Ds4Error
from engine.trace import read_trace

Key = tuple[str, int]
"""Run id and arm."""
Act = Callable[[RunRecord | None], None]


class RunsScreen(Instrument):
    """Screen 7."""

    KEY: ClassVar[str] = "7"
    NAME: ClassVar[str] = "Runs"
    FOOTER: ClassVar[tuple[str, ...]] = (
        *("runs_open", "runs_mark", "runs_compare", "open", "export", "report"),
        *("runs_remove", "run", "help"),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Run below", id="runs_down"),
        Binding("k,up", "move(-1)", "Run above", id="runs_up"),
        Binding("g,home", "move(-100000)", "First of the list", id="runs_first"),
        Binding("G,end", "move(100000)", "Last of the list", id="runs_last"),
        Binding("enter", "open_run", "Open the run in screens 1 to 3", id="runs_open"),
        Binding("plus", "mark", "Mark an arm, two at most", id="runs_mark", key_display="+"),
        Binding("equals_sign", "compare", "Compare the two marked arms", id="runs_compare",
                key_display="="),
        Binding("delete,backspace", "remove", "Remove from the list and the disk", id="runs_remove",
                key_display="del"),
        Binding("y", "copy", "Copy the list", id="runs_copy"),
    ]  # fmt: skip

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.cursor = 0
        self.marked: list[Key] = []
        self.opened: list[RunRecord] = []
        self._stored: list[StoredTrace] = []
        self._lines: dict[str, list[RunLine]] = {}
        self._times: dict[str, str] = {}
        self._removed: set[str] = set()

    def compose_body(self) -> ComposeResult:
        """One list."""
        yield Box(self._title, self._rows, id="runs-box")

    def on_mount(self) -> None:
        """What earlier sessions left is in the list from the start."""
        self._stored = self.ds4.store.stored()
        super().on_mount()

    # The list

    def receive(self, changes: Changes) -> None:
        """Note when a run began and what became of it, whether the screen is shown or not."""
        newest = self.controller.newest
        started = newest.started if newest is not None else None
        if started is not None and changes.record:
            self._times.setdefault(started.run_id, self.ds4.store.now().strftime("%H:%M"))
        super().receive(changes)

    @property
    def records(self) -> dict[str, RunRecord]:
        """Runs that are in memory, by id: the session's and those that were opened."""
        found = [*self.opened, *self.controller.runs]
        found += [run for suite in self.controller.suites.values() for run in suite.runs]
        return {run.started.run_id: run for run in found if run.started is not None}

    def listed(self) -> list[ListedRun]:
        """All lines, the newest first: session, opened traces, disk."""
        records = self.records
        for run_id, record in records.items():
            ended = record.finished is not None or record.failed is not None
            if run_id not in self._lines or not ended or self._is_running(run_id):
                self._lines[run_id] = lines_of(record, self._times.get(run_id, ""))
        out = []
        for number, (run_id, lines) in enumerate(self._lines.items(), 1):
            if run_id not in self._removed:
                out += [self._listed(line, str(number)) for line in lines]
        out.reverse()
        for number, trace in enumerate(self._stored, 1):
            fresh = [line for line in trace.lines if line.run_id not in self._lines]
            out += [self._listed(line, f"d{number}") for line in fresh]
        return out

    def _is_running(self, run_id: str) -> bool:
        return any(line.verdict.startswith("running") for line in self._lines[run_id])

    def _listed(self, line: RunLine, number: str) -> ListedRun:
        key = (line.run_id, line.arm)
        mark = self.marked.index(key) + 1 if key in self.marked else 0
        return ListedRun(line, number, mark)

    @property
    def chosen(self) -> RunLine | None:
        """The line under the cursor."""
        listed = self.listed()
        return listed[min(self.cursor, len(listed) - 1)].line if listed else None

    def _title(self) -> tuple[str, str]:
        disk = sum(1 for trace in self._stored if trace.lines)
        return "runs, newest first", f"{len(self._lines) - len(self._removed)} here, {disk} on disk"

    def _rows(self, width: int, height: int) -> list[Row]:
        listed = self.listed()
        if not listed:
            keys = self.ds4.keys_by_id()
            return paint.empty(keys["run"], keys["open"])
        self.cursor = min(self.cursor, len(listed) - 1)
        return paint.rows(listed, self.cursor, width, height, self.ds4.marks)

    def draw_body(self) -> None:
        """Draw the list."""
        self.query_one(Box).repaint()

    def labels(self) -> dict[str, str]:
        """Words of the footer."""
        return {
            "runs_open": "Open",
            "runs_mark": "Mark two" if len(self.marked) < 2 else "Unmark",
            "runs_compare": "Compare",
            "runs_remove": "Remove",
            "open": "Open trace",
            "export": "Export trace",
            "report": "Report",
        }

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        match action:
            case "compare":
                return len(self.marked) == 2
            case "move" | "open_run" | "mark" | "copy":
                return self.chosen is not None
            case "remove":
                line = self.chosen
                return line is not None and not line.verdict.startswith("running")
            case _:
                return True

    def action_move(self, step: int) -> None:
        """The cursor up or down."""
        self.cursor = max(0, min(len(self.listed()) - 1, self.cursor + step))
        self.redraw()

    def action_mark(self) -> None:
        """Mark or unmark the arm; a third mark takes the place of the first."""
        line = self.chosen
        if line is None:
            return
        key = (line.run_id, line.arm)
        if key in self.marked:
            self.marked.remove(key)
        else:
            self.marked = [*self.marked[-1:], key]
        self.redraw()

    def action_open_run(self) -> None:
        """Show the run in the other screens."""
        if self.chosen is not None:
            self.run_worker(self._open((self.chosen.run_id, self.chosen.arm)), exclusive=True)

    async def _open(self, key: Key) -> None:
        record = await self._loaded(key)
        if record is not None:
            self.controller.open_run(record, key[1] or None)
            self._show_playground()

    def action_compare(self) -> None:
        """Put the two marked arms into the panes."""
        if len(self.marked) == 2:
            self.run_worker(self._compare(*self.marked), exclusive=True)

    async def _compare(self, left: Key, right: Key) -> None:
        runs = [await self._loaded(key) for key in (left, right)]
        if runs[0] is not None and runs[1] is not None:
            pair = PairRecord((runs[0], left[1]), (runs[1], right[1]))
            self.controller.open_run(pair)
            self._show_playground()

    def _show_playground(self) -> None:
        self.ds4.show(Changes(record=True, state=True))
        self.ds4.open_screen("1")

    async def _loaded(self, key: Key) -> RunRecord | None:
        """The run of a line; read from the disk when it is not in memory."""
        record = self.records.get(key[0])
        if record is not None:
            return record
        stored = (t.path for t in self._stored if any(line.run_id == key[0] for line in t.lines))
        path = self.ds4.store.paths.get(key[0]) or next(stored, None)
        if path is None:
            self.notify(
                "that run is kept neither in memory nor on disk", severity="warning", markup=False
            )
            return None
        await self._read(path)
        return self.records.get(key[0])

    async def _read(self, path: Path) -> list[RunRecord]:
        """Read a trace beside the interface and put its runs into the list."""
        try:
            runs = await asyncio.to_thread(lambda: runs_of(read_trace(str(path))))
        except Ds4Error as error:
            self.notify(drawable_line(str(error)), severity="error", markup=False)
            return []
        self.opened += runs
        return runs

    def open_it(self) -> None:
        """Ask for a trace file and put its runs on top of the list."""

        def asked(name: str | None) -> None:
            if name:
                self.run_worker(self._open_file(Path(name).expanduser()), exclusive=True)

        self.app.push_screen(AskText("open trace", "a file that --trace wrote"), asked)

    async def _open_file(self, path: Path) -> None:
        runs = await self._read(path)
        if runs:
            self.cursor = 0
            self.notify(f"{len(runs)} runs of {drawable_line(path.name)}", markup=False)
        self.redraw()

    def export(self) -> None:
        """Write the files of the run under the cursor."""
        self._with_chosen(self.ds4.export_run)

    def can_report(self) -> bool:
        """There is a line; whether its run has ended is said when it is asked for."""
        return self.chosen is not None

    def report(self) -> None:
        """Report the run under the cursor."""
        self._with_chosen(self.ds4.report_run)

    def _with_chosen(self, act: Act) -> None:
        line = self.chosen

        async def later() -> None:
            assert line is not None
            record = await self._loaded((line.run_id, line.arm))
            if record is not None:
                act(record)

        if line is not None:
            self.run_worker(later(), exclusive=True)

    def action_remove(self) -> None:
        """Take the run out of the list, and its trace off the disk."""
        line = self.chosen
        if line is None:
            return
        store = self.ds4.store
        path = store.paths.pop(line.run_id, None)
        for trace in self._stored:
            if any(each.run_id == line.run_id for each in trace.lines):
                path = trace.path
        if path is not None:
            store.remove(path)
        self._stored = [trace for trace in self._stored if trace.path != path]
        self._removed.add(line.run_id)
        self._lines.setdefault(line.run_id, [])
        self.marked = [key for key in self.marked if key[0] != line.run_id]
        self.redraw()

    def action_copy(self) -> None:
        """Copy the list."""
        self.ds4.copy(self.query_one(Box).text(), "runs.txt", f"{len(self.listed())} lines")
