"""Screen 7: every run of the session and the last ones on disk; opens them and compares two arms.

Owns the list's cursor and marks. What is in the list comes from the controller and the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ds4tui.changes import Changes
from ds4tui.controller import Controller
from ds4tui.paint import runs as paint
from ds4tui.paint.runs import ListedRun
from ds4tui.pair import PairRecord
from ds4tui.run_record import RunRecord
from ds4tui.runs_list import RunLine
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
        Binding("pageup", "page(-1)", "Page up", id="runs_page_up"),
        Binding("pagedown", "page(1)", "Page down", id="runs_page_down"),
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
        self._stored: dict[str, StoredTrace] = {}
        self._so_far: list[int] | None = None

    def compose_body(self) -> ComposeResult:
        """One list."""
        yield Box(self._title, self._rows, id="runs-box")

    def on_mount(self) -> None:
        """What earlier sessions left; this one's runs are in the list already."""
        session, found = self.controller.session, self.ds4.store.stored()
        traces = [t for t in found if any(line.run_id not in session for line in t.lines)]
        self._stored = {f"d{n}": trace for n, trace in enumerate(traces, 1)}

    # The list

    @property
    def records(self) -> dict[str, RunRecord]:
        """Runs that are in memory, by id: the session's and those that were opened."""
        found = [*self.opened, *self.controller.runs]
        found += [run for suite in self.controller.suites.values() for run in suite.runs]
        return {run.started.run_id: run for run in found if run.started is not None}

    def listed(self) -> list[ListedRun]:
        """All lines, the newest first: the session with opened traces, then the disk."""
        session = self.controller.session
        out = []
        for run in session.newest_first():
            out += [self._listed(line, str(run.number)) for line in run.lines]
        for number, trace in self._on_disk().items():
            out += [
                self._listed(line, number) for line in trace.lines if line.run_id not in session
            ]
        return out

    def _on_disk(self) -> dict[str, StoredTrace]:
        """What earlier sessions left and is still there, by its number in the list."""
        gone = self.ds4.store.gone
        return {n: trace for n, trace in self._stored.items() if trace.path not in gone}

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
        here, disk = len(self.controller.session), len(self._on_disk())
        return "runs, newest first", f"{here} here, {disk} on disk"

    def _rows(self, width: int, height: int) -> list[Row]:
        listed = self.listed()
        if not listed:
            keys = self.ds4.keys_by_id()
            return paint.empty(keys["run"], keys["open"])
        self.cursor = min(self.cursor, len(listed) - 1)
        return paint.rows(listed, self.cursor, width, height, self.ds4.marks)

    def draw(self) -> None:
        """Draw, also how far a trace is read while one is."""
        self._dirty |= self._so_far is not None
        super().draw()

    def draw_body(self) -> None:
        """Draw the list."""
        self.query_one(Box).repaint()

    def state_text(self) -> str:
        """`READ 42%` while a trace is read."""
        if self._so_far is None:
            return super().state_text()
        done, total = self._so_far
        return f"READ {100 * done // max(1, total)}%"

    def footer_ids(self) -> Sequence[str]:
        """Comparing is offered once two arms are marked."""
        return [each for each in self.FOOTER if each != "runs_compare" or len(self.marked) == 2]

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
            case "move" | "page" | "open_run" | "mark" | "compare" | "copy":
                return self.chosen is not None
            case "remove":
                line = self.chosen
                return line is not None and not line.goes_on
            case _:
                return True

    def action_move(self, step: int) -> None:
        """The cursor up or down."""
        self.cursor = max(0, min(len(self.listed()) - 1, self.cursor + step))
        self.redraw()

    def action_page(self, step: int) -> None:
        """A screenful up or down."""
        self.action_move(step * max(1, self.query_one(Box).content_size.height - 2))

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
        """Put the two marked arms into the panes, or say what is missing."""
        if len(self.marked) == 2:
            self.run_worker(self._compare(*self.marked), exclusive=True)
            return
        key, lacks = self.ds4.keys_by_id()["runs_mark"], 2 - len(self.marked)
        text = f"a comparison takes two arms: {key} marks the one under the cursor, {lacks} to go"
        self.notify(text, severity="warning", markup=False)

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
        path = self._path_of(key[0])
        if path is None:
            self.notify(
                "that run is kept neither in memory nor on disk", severity="warning", markup=False
            )
            return None
        await self._read(path)
        return self.records.get(key[0])

    def _path_of(self, run_id: str) -> Path | None:
        """Its trace on disk: of this session, or of an earlier one."""
        traces = self._on_disk().values()
        earlier = (t.path for t in traces if any(line.run_id == run_id for line in t.lines))
        return self.ds4.store.path_of(run_id) or next(earlier, None)

    async def _read(self, path: Path) -> list[RunRecord]:
        """Read a trace beside the interface and keep its runs in memory."""

        so_far = self._so_far = [0, 0]  # of this one: what was asked for before may still be read

        def progress(*now: int) -> None:
            so_far[:] = now

        try:
            runs = await asyncio.to_thread(lambda: runs_of(read_trace(str(path), progress)))
        except Ds4Error as error:
            self.notify(drawable_line(str(error)), severity="error", markup=False)
            return []
        finally:
            if self._so_far is so_far:
                self._so_far = None
            self.redraw()
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
        for record in runs:
            self.controller.session.open(record)
        if runs:
            self.cursor = 0
            count = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
            self.notify(f"{count} of {drawable_line(path.name)}", markup=False)
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
        path = self._path_of(line.run_id)
        if path is not None:
            self.ds4.store.remove(path)
        self.controller.session.remove(line.run_id)
        self.marked = [key for key in self.marked if key[0] != line.run_id]
        self.redraw()

    def action_copy(self) -> None:
        """Copy the list."""
        self.ds4.copy(self.query_one(Box).text(), "runs.txt", f"{len(self.listed())} lines")
