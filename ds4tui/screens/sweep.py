"""Screen 6: which confidence threshold, or which block length, pays on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ds4tui.changes import Changes
from ds4tui.controller import Controller
from ds4tui.paint import sweep as painted
from ds4tui.paint import sweep_chart
from ds4tui.paint.bars import Shown
from ds4tui.run_state import RunState
from ds4tui.screens.boxed import Boxes
from ds4tui.screens.set_chooser import ChoosesSet
from ds4tui.spans import Row
from ds4tui.status import PROMPTS
from ds4tui.sweep_report import csv_text, report_text
from ds4tui.sweep_sheet import SweepSheet
from ds4tui.verdict_line import VerdictLine
from ds4tui.widgets.box import Box
from engine.errors import Ds4Error
from engine.prompt_set import PromptEntry

REPEATS_OF_SET = 3
OTHER_AXIS = {"confidence": "Thresholds", "block": "Lengths"}
"""In the footer, by what would be swept."""
ENDED = (RunState.IDLE, RunState.DONE, RunState.CANCELLED)
"""States in which row 1 tells of the sweep that has ended."""
NO_SWEEP = "This trace holds no sweep."


class SweepScreen(ChoosesSet):
    """Chart and table of a sweep; both are drawn from its events alone."""

    KEY: ClassVar[str] = "6"
    NAME: ClassVar[str] = "Sweep"
    AUTO_FOCUS = "#sweep-table"

    DEFAULT_CSS = """
    SweepScreen #sweep-table { height: 16; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "row(1)", "Next row", id="sweep_down"),
        Binding("k,up", "row(-1)", "Row before", id="sweep_up"),
        Binding("enter", "use", "Make this value the playground's", id="sweep_use"),
        Binding("x", "axis", "Sweep the other knob: threshold, block length", id="sweep_axis"),
        Binding("plus", "add", "Add a value beside this one", id="sweep_add", key_display="+"),
    ]

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self.sheet = SweepSheet(controller)

    def compose_body(self) -> ComposeResult:
        """Chart above, table below."""
        yield Boxes(
            Box(lambda: sweep_chart.title(self.sheet.table), self._chart, id="sweep-chart"),
            Box(self._table_title, self._rows, id="sweep-table"),
            one_when_small=True,
        )

    @property
    def subject(self) -> str:
        """The sweep, or the next one."""
        suite = self.sheet.suite
        return suite.started.suite_id if suite is not None else "planned"

    def sync(self, changes: Changes) -> None:
        """Take over a new sweep."""
        suite = self.controller.suites.get("sweep")
        if suite is not None:
            self.sheet.take(suite)

    @property
    def _runs_now(self) -> bool:
        running = self.controller.running_suite
        return running is not None and running.kind == "sweep"

    # Drawing

    def draw(self) -> None:
        """Draw, from figures made anew."""
        if self._dirty:
            self.sheet.renew()
        super().draw()

    def _table_title(self) -> tuple[str, str]:
        return painted.table_title(self.sheet.table, self.size.width)

    def _chart(self, width: int, height: int) -> list[Row]:
        rows = sweep_chart.rows(self.sheet.table, width, height, self.ds4.marks, self._cure())
        return rows or self._notes(width)

    def _rows(self, width: int, height: int) -> list[Row]:
        sheet, notes = self.sheet, list[Row]()
        if self.shows_one and not sheet.table.runs_done and not self._runs_now:
            notes = self._notes(width)
        under = sheet.cursor
        name = under.name if under is not None else ""
        room, marks = height - len(notes), self.ds4.marks
        return [
            *notes,
            *painted.table_rows(sheet.table, name, sheet.chosen, width, room, marks, self._cure()),
        ]

    def _notes(self, width: int) -> list[Row]:
        """What an empty chart says: what failed, how far loading is, or what to press."""
        if self._runs_now and self.failure is None:
            return [[(" the prompt is being evaluated", "dim")]]
        return self.notes(width) or [[(f" {text}", "dim")] for text in self._hints()]

    def _hints(self) -> Iterable[str]:
        keys = self.ds4.keys_by_id()
        controller, wanted = self.controller, self.controller.wanted
        if not controller.choices.policies:
            yield NO_SWEEP
            return
        if wanted is None:
            yield "nothing is drafted: a sweep needs a drafter (--mtp)"
            return
        count, swept = len(self.sheet.values()), painted.SWEPT[self.sheet.axis]
        yield f"{keys['run']} sweeps {count} values of the {swept} over this prompt,"
        yield "  each beside plain decode in the same run; the coarse ones come first"
        if controller.prompts:
            total = len(controller.prompts)
            yield f"{keys['run_all']} takes all {total} prompts, {REPEATS_OF_SET} times"
        if not self.sheet.exact:
            numerics = controller.settings.numerics
            yield f"{numerics} + {wanted.commit} may give other ids than plain: such rows get no "
            cure = self._cure()
            yield "  speed-up" + (f"; {cure}" if cure else "")

    # Rows 1 to 3 and the footer

    def state_text(self) -> str:
        """How many runs of the sweep are done, and how long all of it took."""
        suite, state = self.sheet.suite, self.controller.state
        if suite is None or not (self._runs_now or state in ENDED):
            return super().state_text()
        done = sum(run.finished is not None for run in suite.runs)
        count = f"{done}/{suite.started.runs}"
        if self._runs_now:
            return f"{'PAUSED' if state is RunState.PAUSED else 'SWEEP'} {count}"
        is_whole = done >= suite.started.runs and all(run.is_whole for run in suite.runs)
        return f"DONE {suite.elapsed_s:.0f} s" if is_whole else f"STOPPED {count}"

    def prompt_row(self) -> tuple[str, Shown]:
        """The prompt in work, and the settings that are not swept."""
        text, shown = super().prompt_row()
        none: tuple[None, None] = (None, None)
        by_thresholds = self.sheet.axis == "confidence"
        shown = replace(shown, confidence=none) if by_thresholds else replace(shown, block=none)
        suite = self.sheet.suite
        if suite is not None and len(suite.started.prompts) > 1:
            of = len(suite.started.prompts)
            newest = next((run.started for run in reversed(suite.runs) if run.started), None)
            at = newest.prompt_index + 1 if newest is not None else 1
            text = f"{of} prompts" if suite.is_over else f"{at}/{of} {text}"
        return text, shown

    def verdict(self) -> VerdictLine:
        """Whether all rows did the same work."""
        controller, keys = self.controller, self.ds4.keys_by_id()
        if self.failure is not None or controller.state is RunState.LOADING:
            return super().verdict()
        hint = f"{keys['run']} sweeps the {painted.SWEPT[self.sheet.axis]} over this prompt"
        hint = hint if controller.choices.policies else NO_SWEEP
        exact = self.sheet.exact
        cure = f"{keys['run']} sweeps again: all rows alike" if exact else self._cure()
        return painted.verdict(self.sheet.table, cure=cure, hint=hint)

    def _cure(self) -> str:
        key = self.ds4.keys_by_id()["numerics"]
        return f"{key} takes invariant: all rows alike" if self.sheet.could_be_exact else ""

    def footer_ids(self) -> Sequence[str]:
        """What can act; the knob that makes all rows alike when they are not."""
        rows = "sweep_down sweep_up"
        ids = ["run", rows, "sweep_use", "run_all", "sweep_axis", "sweep_add"]
        ids += ["open", "policy", "numerics"]
        if self.sheet.table.different and not self.sheet.exact:
            ids.remove("numerics")
            ids.insert(2, "numerics")
        if self.controller.is_busy:
            ids = ["escape", rows, "pause", "sweep_use", "open"]
        if not self._can_sweep:
            ids = [name for name in ids if name != "run_all"]
        ids += ["next_pane"] if self.shows_one else []
        return [*ids, PROMPTS, "export", "report", "copy", "help"]

    def labels(self) -> dict[str, str]:
        """What the keys do here."""
        sheet, controller = self.sheet, self.controller
        under = sheet.cursor
        value = painted.value_text(sheet.axis, under.value) if under is not None else ""
        _, shown = super().prompt_row()
        turned = [pair[1] for pair in (shown.numerics, shown.policy) if pair[1] is not None]
        word = "Sweep again" if sheet.suite is not None else "Sweep"
        if controller.state is RunState.FAILED:
            word = "Retry"
        if not controller.choices.policies:
            word = "Play again"
        return {
            "run": " ".join([word, *turned]),
            "sweep_use": f"Use {value}",
            "run_all": f"Set x{REPEATS_OF_SET}",
            "sweep_axis": OTHER_AXIS[sheet.other_axis],
            "sweep_add": f"Add {painted.value_text(sheet.axis, sheet.next_value)}",
            "sweep_up": "Row",
            "export": "Export csv",
            "report": "Report",
            "open": "Other set",
        }

    # What keys can do

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        sheet = self.sheet
        match action:
            case "row":
                return len(sheet.table.values) > 1
            case "use":
                can = sheet.knobs is not None and bool(self.controller.choices.policies)
                return can and sheet.offers_value
            case "axis":
                can = self._can_sweep and self.controller.block_size > 1
                return can or (sheet.other_axis in sheet.seen and not self._runs_now)
            case "add":
                return sheet.next_value is not None and self._can_sweep
            case _:
                return super().check_action(action, parameters)

    @property
    def _can_sweep(self) -> bool:
        controller = self.controller
        return (
            controller.can_run_suite
            and controller.wanted is not None
            and controller.state is not RunState.LOADING
            and bool(self.sheet.values())
        )

    def can_run(self) -> bool:
        """A sweep can start, or a trace be played again."""
        return super().can_run() and (self._can_sweep or not self.controller.choices.policies)

    def run_it(self) -> None:
        """Sweep over the prompt; play a trace again."""
        controller = self.controller
        if not self._can_sweep:
            controller.run()
            return
        own = PromptEntry("", "", controller.prompt)
        of_set = (entry for entry in controller.prompts if entry.prompt == controller.prompt)
        self._sweep([next(of_set, own)], 1)

    def run_all(self) -> None:
        """Sweep over all prompts of the set, three times."""
        if self._can_sweep:
            self._sweep(self.controller.prompts, REPEATS_OF_SET, self.controller.set_name)
        elif self.controller.wanted is None:
            self.notify("nothing is drafted: a sweep needs a drafter (--mtp)", markup=False)

    def _sweep(self, entries: Sequence[PromptEntry], repeats: int, name: str = "") -> None:
        try:
            request = self.sheet.request(entries, repeats, name)
        except Ds4Error as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self.controller.run_suite(request)

    def action_row(self, step: int) -> None:
        """The cursor to the next value or the one before."""
        self.sheet.move(step)
        self.redraw()
        self.refresh_bindings()

    def action_use(self) -> None:
        """The playground's knob to the value under the cursor."""
        under, knobs = self.sheet.cursor, self.sheet.knobs
        if under is None or knobs is None:
            return
        self.controller.take_knobs(knobs)
        text, swept = painted.value_text(self.sheet.axis, under.value), self.sheet.axis
        self.notify(f"{text} is the playground's {painted.SWEPT[swept]}", markup=False)
        self.redraw()

    def action_axis(self) -> None:
        """Thresholds or block lengths."""
        self.sheet.turn()
        self.redraw()
        self.refresh_bindings()

    def action_add(self) -> None:
        """One more value for the next sweep."""
        self.sheet.add()
        self.redraw()

    # Files

    def can_export(self) -> bool:
        """There is a sweep."""
        return self.sheet.suite is not None

    def can_report(self) -> bool:
        """There is a sweep with a run that has ended."""
        return self.sheet.table.runs_done > 0

    def export(self) -> None:
        """The table as CSV."""
        suite = self.sheet.suite
        if suite is not None:
            name = f"sweep-{suite.started.suite_id}.csv"
            self.ds4.copy(csv_text(self.sheet.table), name, "the sweep's table")

    def report(self) -> None:
        """The sweep as text, with what repeats it."""
        suite = self.sheet.suite
        if suite is not None:
            text = report_text(suite, self.sheet.table)
            self.ds4.copy(text, f"sweep-{suite.started.suite_id}.md", "the sweep's report")
