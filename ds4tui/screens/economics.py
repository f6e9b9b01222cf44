"""Screen 5: what drafting costs and gives on this machine, and from which depth on it pays."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ds4tui.changes import Changes
from ds4tui.controller import Controller
from ds4tui.economics_figures import Economics, View, economics_of
from ds4tui.economics_report import json_text, report_text
from ds4tui.paint import calibration as calibration_rows
from ds4tui.paint import economics as painted
from ds4tui.pair import PairRecord
from ds4tui.pooled_runs import Work, alike
from ds4tui.run_record import RunRecord
from ds4tui.run_state import RunState
from ds4tui.screens.boxed import Boxed, Boxes
from ds4tui.spans import Row
from ds4tui.status import PROMPTS
from ds4tui.visible import drawable_line
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
REST = 10
"""While tokens come, figures are made anew after so many times the time that making them took."""


class EconomicsScreen(Boxed):
    """Four boxes about the run shown; one at a time in a small terminal."""

    KEY: ClassVar[str] = "5"
    NAME: ClassVar[str] = "Econ"
    AUTO_FOCUS = "#economics-pays"

    DEFAULT_CSS = """
    EconomicsScreen Boxes { layout: grid; grid-size: 2 2; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "row(1)", "Next length of the verify", id="economics_down"),
        Binding("k,up", "row(-1)", "Length before", id="economics_up"),
        Binding(
            "f",
            "source",
            "Costs measured or of the run; this run, or all prompts",
            id="economics_source",
        ),
    ]

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self._view = View()
        self._cursor = 0
        self._found: Economics | None = None
        self._good_until = 0.0
        self._made_of: tuple[object, ...] = ()

    def compose_body(self) -> ComposeResult:
        """Costs and values above, what they come to below."""
        yield Boxes(
            Box(self._costs_title, self._costs, id="economics-costs"),
            Box(lambda: painted.value_title(self.found), self._values, id="economics-values"),
            Box(lambda: painted.pays_title(self.found), self._pays, id="economics-pays"),
            Box(
                lambda: calibration_rows.title(self.found.calibration),
                self._calibration,
                id="economics-calibration",
            ),
            one_when_small=True,
        )

    @property
    def found(self) -> Economics:
        """The figures as they stand."""
        if self._found is None:
            sweep = self.controller.suites.get("sweep")
            works = self._works if self._view.all_prompts else self._works[:1]
            began = time.monotonic()
            self._found = economics_of(works, self.controller.costs, self._view.source, sweep)
            ended = time.monotonic()
            self._good_until = ended + REST * (ended - began)
            self._made_of = self._sources
        return self._found

    @property
    def _sources(self) -> tuple[object, ...]:
        """What the figures depend on; other figures come only when it has changed."""
        controller, record = self.controller, self.controller.record
        arm = record.beside if record is not None else None
        newest = controller.newest
        return (
            record,
            record.shown_arm if record is not None else 0,
            len(arm.cycles) if arm is not None else 0,
            record is not None and record.finished is not None,
            newest is not None and newest.finished is not None,
            len(controller.runs),
            sum(len(suite.runs) for suite in controller.suites.values()),
            len(controller.costs),
            *controller.costs[-1:],
        )

    @property
    def _works(self) -> list[Work]:
        """The run shown, and those of other prompts with its settings."""
        controller, record = self.controller, self.controller.record
        if record is None or isinstance(record, PairRecord):
            return []
        of_suites = [run for suite in controller.suites.values() for run in suite.runs]
        return alike(record, [*of_suites, *controller.runs])

    @property
    def views(self) -> list[View]:
        """What `f` goes through."""
        scopes = (False, True) if len(self._works) > 1 else (False,)
        sources = self.found.sources or ("run",)
        return [View(source, scope) for scope in scopes for source in sources]

    @property
    def _next_view(self) -> View:
        views, table = self.views, self.found.table
        now = View(table.source if table is not None else "run", self.found.prompts > 1)
        return views[(views.index(now) + 1) % len(views)] if now in views else views[0]

    def sync(self, changes: Changes) -> None:
        """A measurement that has come is what is shown."""
        is_late = changes != Changes(tokens=True) or time.monotonic() > self._good_until
        if is_late and self._sources != self._made_of:
            self._found = None
        if changes.costs:
            self._view = replace(self._view, source="measured")

    def on_screen_resume(self) -> None:
        """Another arm may be shown by now."""
        if self._sources != self._made_of:
            self._found = None
            self.redraw()

    # The boxes

    def _costs_title(self) -> tuple[str, str]:
        return painted.costs_title(self.found, self._progress())

    def _progress(self) -> str:
        step = self.controller.steps.get("measuring")
        if not self.controller.is_measuring:
            return ""
        return f"measuring {step.done}/{step.total}" if step is not None else "measuring"

    def _costs(self, width: int, height: int) -> list[Row]:
        notes = self.notes(width) if self.found.table is None else []
        return notes or painted.cost_rows(
            self.found, self._cursor, width, height, self.ds4.marks, self._hints()
        )

    def _values(self, width: int, height: int) -> list[Row]:
        return painted.value_rows(self.found.ledger, width, self.ds4.marks)

    def _pays(self, width: int, height: int) -> list[Row]:
        notes = self.notes(width) if self.found.shape is None else []
        return notes or painted.pays_rows(self.found, width, self._hints())

    def _calibration(self, width: int, height: int) -> list[Row]:
        key = self.ds4.keys_by_id()["screen_6"]
        found = self.found.calibration
        return calibration_rows.rows(found, key, width, height, self.ds4.marks)

    def _hints(self) -> list[str]:
        controller, keys = self.controller, self.ds4.keys_by_id()
        if controller.is_measuring:
            return ["every step takes its turn, in a new order every time"]
        record = controller.record
        if isinstance(record, PairRecord):
            names = " and ".join(record.names)
            return [f"{names} are of two runs: {keys['screen_7']} opens one, for its economics"]
        if record is not None and record.started is not None:
            arm = record.beside
            if arm is None:
                return ["nothing was drafted in this run: it has no DSpark arm"]
            if not arm.info.is_compared:
                other = f"{keys['screen_1']} {keys['other_arm']} shows another arm"
                return [f"no economics of {drawable_line(arm.info.name)}", other]
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

    def footer_ids(self) -> Sequence[str]:
        """What can act."""
        rows = "economics_down economics_up"
        ids = ["run", "next_pane", rows, "economics_source", "policy", "confidence", "screen_6"]
        if self.controller.is_busy:
            ids = ["escape", "pause", "next_pane", rows, "economics_source", "policy"]
        return [*ids, PROMPTS, "export", "report", "copy", "help"]

    def labels(self) -> dict[str, str]:
        """What the keys do here."""
        then, scope = self._next_view, self.found.prompts > 1
        word = "Run's costs" if then.source == "run" else "Measured costs"
        if then.all_prompts is not scope:
            word = f"All {len(self._works)} prompts" if then.all_prompts else "This run"
        run = "Measure again" if self.controller.costs else "Measure"
        if self.controller.state is RunState.FAILED:
            run = "Retry"
        if not self.controller.choices.policies:
            run = "Play again"
        return {
            "run": run,
            "economics_up": "Row",
            "economics_source": word,
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
            case "source":
                return len(self.views) > 1
            case _:
                return super().check_action(action, parameters)

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
        request = CostRequest(settings.numerics)
        if wanted is not None:
            request = replace(request, commit=wanted.commit, mtp=wanted.mtp)
        position = DEFAULT_POSITION
        if record is not None and record.started is not None and record.plain is not None:
            request = replace(request, numerics=cast(Numerics, record.plain.info.numerics))
            info = record.beside.info if record.beside is not None else None
            if info is not None and info.commit is not None:
                request = replace(request, commit=cast(Policy, info.commit))
            files = controller.ready.files if controller.ready is not None else ()
            if info is not None and any(file.path == info.drafter for file in files):
                request = replace(request, mtp=info.drafter)
            position = len(record.started.prompt_ids) + len(record.plain.ids) // 2
        context = controller.ready.context if controller.ready is not None else position + ROOM
        position = max(1, min(position, context - ROOM))
        return replace(request, positions=(position,), repeat=REPEAT)

    def action_row(self, step: int) -> None:
        """The cursor to the next length of the verify, or the one before."""
        lengths = [row.rows for row in self.found.curve]
        at = lengths.index(self._cursor) if self._cursor in lengths else -1
        self._cursor = lengths[max(0, min(len(lengths) - 1, at + step))]
        self.query_one("#economics-costs", Box).repaint()

    def action_source(self) -> None:
        """Costs measured or of the runs' own steps; cycles of this run or of all prompts."""
        self._view, self._found = self._next_view, None
        self.redraw()

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
