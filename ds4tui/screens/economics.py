"""Screen 5: what drafting costs and gives on this machine, and from which depth on it pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container

from ds4tui.controller import Changes, Controller
from ds4tui.economics_figures import Economics, Source, economics_of
from ds4tui.economics_report import json_text, report_text
from ds4tui.paint import calibration as calibration_rows
from ds4tui.paint import economics as painted
from ds4tui.paint import panes as pane_text
from ds4tui.run_record import RunRecord
from ds4tui.run_state import RunState
from ds4tui.screens.boxed import Boxed
from ds4tui.spans import Row
from ds4tui.status import entries_of, load_steps
from ds4tui.widgets.box import Box
from engine.paths import Numerics, Policy

if TYPE_CHECKING:
    from engine.costs import CostRequest

REPEAT = 31
"""Turns of a measurement: an odd number, so that the median is one of them."""
DEFAULT_POSITION = 256
"""Where costs are measured before there is a run."""
ROOM = 32
"""Positions that a measurement leaves free at the end of the context."""


class EconomicsScreen(Boxed):
    """Four boxes about the run shown; one at a time in a small terminal."""

    KEY: ClassVar[str] = "5"
    NAME: ClassVar[str] = "Econ"
    AUTO_FOCUS = "#economics-pays"

    DEFAULT_CSS = """
    EconomicsScreen {
        & #economics-boxes {
            layout: grid;
            grid-size: 2 2;
            height: 1fr;
        }
        & #economics-boxes Box { height: 100%; }
        &.-narrow #economics-boxes, &.-tiny #economics-boxes { grid-size: 1 1; }
        &.-short #economics-boxes, &.-medium #economics-boxes { grid-size: 1 1; }
        &.-narrow #economics-boxes Box, &.-tiny #economics-boxes Box { display: none; }
        &.-short #economics-boxes Box, &.-medium #economics-boxes Box { display: none; }
        &.-max #economics-boxes { grid-size: 1 1; }
        &.-max #economics-boxes Box { display: none; }
        & #economics-boxes Box.-chosen { display: block; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "box(1)", "Next box", id="economics_next"),
        Binding("shift+tab", "box(-1)", "Box before", id="economics_before"),
        Binding("j,down", "row(1)", "Next length of the verify", id="economics_down"),
        Binding("k,up", "row(-1)", "Length before", id="economics_up"),
        Binding("f", "source", "Costs: measured, or of this run", id="economics_source"),
        Binding("m", "maximise", "This box only, or all", id="economics_maximise"),
        Binding("y", "copy_box", "Copy the box, and write it to a file", id="economics_copy"),
    ]

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self._wanted: Source | None = None
        self._cursor = 0
        self._found: Economics | None = None

    def compose_body(self) -> ComposeResult:
        """Costs and values above, what they come to below."""
        with Container(id="economics-boxes"):
            yield Box(self._costs_title, self._costs, id="economics-costs")
            yield Box(lambda: painted.value_title(self.found), self._values, id="economics-values")
            yield Box(lambda: painted.pays_title(self.found), self._pays, id="economics-pays")
            yield Box(
                lambda: calibration_rows.title(self.found.calibration),
                self._calibration,
                id="economics-calibration",
            )

    @property
    def found(self) -> Economics:
        """The figures as they stand."""
        if self._found is None:
            controller = self.controller
            sweep = controller.suites.get("sweep")
            self._found = economics_of(controller.record, controller.costs, self._wanted, sweep)
        return self._found

    def sync(self, changes: Changes) -> None:
        """A measurement that has come is what is shown."""
        if changes.costs:
            self._wanted = None

    def draw(self) -> None:
        """Draw, from figures made anew."""
        if self._dirty:
            self._found = None
        super().draw()

    def draw_body(self) -> None:
        """Draw the boxes that are seen."""
        for box in self.query(Box):
            box.repaint()

    # The boxes

    def _costs_title(self) -> tuple[str, str]:
        return painted.costs_title(self.found, self._progress())

    def _progress(self) -> str:
        step = self.controller.steps.get("measuring")
        if not self.controller.is_measuring:
            return ""
        return f"measuring {step.done}/{step.total}" if step is not None else "measuring"

    def _costs(self, width: int, height: int) -> list[Row]:
        return painted.cost_rows(
            self.found, self._cursor, width, height, self.ds4.marks, self._hints()
        ) or self._notes(width)

    def _values(self, width: int, height: int) -> list[Row]:
        return painted.value_rows(self.found.ledger, width, self.ds4.marks)

    def _pays(self, width: int, height: int) -> list[Row]:
        if self.found.shape is None and (self.failure or self._is_loading):
            return self._notes(width)
        return painted.pays_rows(self.found, width, self._hints())

    def _calibration(self, width: int, height: int) -> list[Row]:
        key = self.ds4.keys_by_id()["screen_6"]
        found = self.found.calibration
        return calibration_rows.rows(found, key, width, height, self.ds4.marks)

    @property
    def _is_loading(self) -> bool:
        return self.controller.state is RunState.LOADING

    def _notes(self, width: int) -> list[Row]:
        failure, marks = self.failure, self.ds4.marks
        if failure is not None:
            return pane_text.failure_rows(failure, self.ds4.keys_by_id()["run"], width)
        return pane_text.loading_rows(load_steps(self.controller), width, marks)

    def _hints(self) -> list[str]:
        controller, keys = self.controller, self.ds4.keys_by_id()
        if controller.is_measuring:
            return ["every step takes its turn, in a new order every time"]
        record = controller.record
        if record is not None and record.started is not None and record.dspark is None:
            return ["nothing was drafted in this run: it has no DSpark arm"]
        if controller.is_busy:
            return ["no cycle yet"]
        return [
            f"{keys['run']} measures what steps cost on this machine",
            f"{keys['screen_1']} {keys['run']} runs the prompt, for its cycles",
        ]

    # Rows 1 to 3 and the footer

    def state_text(self) -> str:
        """How far the measurement is, while there is one."""
        return self._progress().upper() or super().state_text()

    def footer(self) -> list[tuple[str, str, str]]:
        """What can act."""
        names = ["run", "economics_next", "economics_source", "policy", "confidence", "screen_6"]
        if self.controller.is_busy:
            names = ["escape", "pause", "economics_next", "economics_source", "policy"]
        names += ["prompts", "export", "report", "economics_copy", "help"]
        keys, can = self.ds4.keys_by_id(), self.ds4.can
        entries = entries_of(names, self.controller, keys, can, self.labels())
        if self.has_class("-max"):
            entries.insert(0, (keys["economics_maximise"], "Restore", "economics_maximise"))
        if can("economics_down"):
            pair = f"{keys['economics_down']} {keys['economics_up']}"
            entries.insert(2, (pair, "Row", "economics_down"))
        return entries

    def labels(self) -> dict[str, str]:
        """What the keys do here."""
        table = self.found.table
        shows_run = table is not None and table.source == "run"
        run = "Measure again" if self.controller.costs else "Measure"
        if self.controller.state is RunState.FAILED:
            run = "Retry"
        if not self.controller.choices.policies:
            run = "Play again"
        return {
            "run": run,
            "economics_next": "Box",
            "economics_source": "Measured costs" if shows_run else "Run's costs",
            "economics_copy": "Copy",
            "economics_maximise": "Maximise",
            "screen_6": "Sweep",
            "export": "Export",
            "report": "Report",
        }

    # What keys do

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        match action:
            case "row":
                return len(self.found.curve) > 1
            case "maximise":
                return self.has_class("-max") or (
                    self.has_class("-wide") and self.has_class("-tall")
                )
            case "source":
                return len(self.found.sources) > 1
            case _:
                return True

    def can_run(self) -> bool:
        """A measurement can start, a trace be played again, or the engine be loaded again."""
        controller = self.controller
        again = not controller.choices.policies or controller.state is RunState.FAILED
        return not controller.is_busy and (controller.can_begin or again)

    def run_it(self) -> None:
        """Measure; else what `r` does in the playground."""
        if self.controller.can_begin and self.controller.choices.policies:
            self.controller.measure(self._request())
        else:
            self.controller.run()

    def _request(self) -> CostRequest:
        # Brings in the engine's own modules, which only a measurement needs.
        from engine.costs import CostRequest

        controller, record = self.controller, self.controller.record
        settings, wanted = controller.settings, controller.wanted
        request = CostRequest(settings.numerics, wanted.commit if wanted else "direct")
        position = DEFAULT_POSITION
        if record is not None and record.started is not None and record.plain is not None:
            request = replace(request, numerics=cast(Numerics, record.plain.info.numerics))
            if record.dspark is not None and record.dspark.info.commit is not None:
                request = replace(request, commit=cast(Policy, record.dspark.info.commit))
            position = len(record.started.prompt_ids) + len(record.plain.ids) // 2
        context = controller.ready.context if controller.ready is not None else position + ROOM
        position = max(1, min(position, context - ROOM))
        return replace(request, positions=(position,), repeat=REPEAT)

    def action_box(self, step: int) -> None:
        """The focus to the next box; a small terminal shows the one that has it."""
        boxes = list(self.query(Box))
        at = next((n for n, box in enumerate(boxes) if box is self._box()), 0)
        self._choose(boxes[(at + step) % len(boxes)])

    def _box(self) -> Box:
        return next(
            (box for box in self.query(Box) if box.has_class("-chosen")),
            self.query_one("#economics-pays", Box),
        )

    def _choose(self, chosen: Box) -> None:
        self.choose_box(chosen)
        self.call_after_refresh(chosen.focus)

    def on_mount(self) -> None:
        """A small terminal begins with the answer."""
        super().on_mount()
        self._choose(self.query_one("#economics-pays", Box))

    def action_row(self, step: int) -> None:
        """The cursor to the next length of the verify, or the one before."""
        lengths = [row.rows for row in self.found.curve]
        at = lengths.index(self._cursor) if self._cursor in lengths else -1
        self._cursor = lengths[max(0, min(len(lengths) - 1, at + step))]
        self.query_one("#economics-costs", Box).repaint()

    def action_source(self) -> None:
        """Costs from the measurement, or from the run's own steps."""
        table = self.found.table
        if table is not None:
            self._wanted = "measured" if table.source == "run" else "run"
            self.redraw()

    def action_copy_box(self) -> None:
        """Copy the box as text."""
        box = self._box()
        name = box.titles(False)[0]
        self._with_run(lambda record: self.ds4.copy(box.text(), f"{box.id}.txt", f"{name!r}"))

    def can_export(self) -> bool:
        """There is a run."""
        record = self.controller.record
        return record is not None and record.started is not None

    def can_report(self) -> bool:
        """There is a run."""
        return self.can_export()

    def export(self) -> None:
        """All figures as JSON."""
        self._with_run(
            lambda record: self.ds4.copy(
                json_text(self.found, record), self._file(record, "json"), "the figures"
            )
        )

    def report(self) -> None:
        """The four boxes as text, with what they were measured on."""
        self._with_run(
            lambda record: self.ds4.copy(
                report_text(self.found, record), self._file(record, "md"), "the report"
            )
        )

    def _with_run(self, act: Callable[[RunRecord], None]) -> None:
        record = self.controller.record
        if record is not None and record.started is not None:
            act(record)

    def _file(self, record: RunRecord, ending: str) -> str:
        return f"economics-{record.started.run_id if record.started else 'run'}.{ending}"
