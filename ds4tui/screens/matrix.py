"""The matrix: every numerics and policy over a set, or the set alone, filling in live.

Owns layout, the cell cursor and the prompt cursor. The figures are `ds4tui.matrix_report`'s, which
`ds4tui matrix` prints too; what is where in the table is `ds4tui.matrix_view`'s.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ds4tui import matrix_text, suite_requests
from ds4tui import matrix_words as words
from ds4tui.changes import Changes
from ds4tui.controller import Controller
from ds4tui.exports import shown_path, write_export
from ds4tui.matrix_verdict import suite_verdict
from ds4tui.matrix_view import MatrixView, planned, view_of
from ds4tui.paint import matrix as paint
from ds4tui.paint.bars import Shown
from ds4tui.paint.panes import padded
from ds4tui.run_state import RunState
from ds4tui.screens.boxed import Boxes
from ds4tui.screens.set_chooser import ChoosesSet
from ds4tui.spans import Row
from ds4tui.suite_record import SuiteRecord
from ds4tui.verdict_line import VerdictLine
from ds4tui.widgets.box import Box
from engine.errors import Ds4Error

if TYPE_CHECKING:
    from engine.suite import MatrixRequest

KINDS = ("matrix", "set")
REFRESH_S = 0.04
"""Time for figures in one drawing, well under what a key may wait."""


class MatrixScreen(ChoosesSet):
    """Screen 4."""

    KEY: ClassVar[str] = "4"
    NAME: ClassVar[str] = "Matrix"
    AUTO_FOCUS = "#matrix-cells"
    DEFAULT_CSS = """
    MatrixScreen {
        & #matrix-cells { height: 11fr; }
        & #matrix-prompts { height: 21fr; }
    }
    """
    # A numerics' five policies with heads and legend take 11 of the 32 rows between the bars.

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open_cell", "Open the cell's run in screens 1 to 3", id="matrix_open"),
        Binding("j,down", "move(1, 0)", "Cell or prompt below", id="matrix_down"),
        Binding("k,up", "move(-1, 0)", "Cell or prompt above", id="matrix_up"),
        Binding("h,left", "move(0, -1)", "Cell to the left", id="matrix_left"),
        Binding("l,right", "move(0, 1)", "Cell to the right", id="matrix_right"),
        Binding("f", "by_category", "Prompts, or categories", id="matrix_categories"),
        Binding("v", "other_suite", "Matrix, or set", id="matrix_or_set"),
    ]

    kind = "matrix"
    _cursor = (0, 0)
    _prompt = 0
    _view: MatrixView | None = None
    _has_plan: tuple[object, ...] = ()
    _plan: MatrixRequest | None = None

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self._begun: dict[str, SuiteRecord] = {}

    def compose_body(self) -> ComposeResult:
        """Cells above prompts; one of them where there is little room."""
        yield Boxes(
            Box(self._cells_title, self._cell_rows, id="matrix-cells"),
            Box(
                self._prompts_title,
                self._prompt_rows,
                id="matrix-prompts",
                other_side=self._category_rows,
            ),
            one_when_small=True,
        )

    @property
    def subject(self) -> str:
        """The suite shown."""
        record = self.record
        return record.started.suite_id if record is not None else "planned"

    # What is shown

    @property
    def record(self) -> SuiteRecord | None:
        """The suite shown."""
        return self.controller.suites.get(self.kind)

    @property
    def prompts_box(self) -> Box:
        """The table of prompts, or of categories."""
        return self.query_one("#matrix-prompts", Box)

    @property
    def on_prompts(self) -> bool:
        """The cursor is in the table of prompts."""
        return self.focused is not None and self.focused.id == "matrix-prompts"

    @property
    def plan(self) -> MatrixRequest | None:
        """What `R` would run."""
        controller = self.controller
        block = controller.ready.block_size if controller.ready else None
        key = (self.kind, controller.prompts, controller.set_name, controller.settings, block)
        if key != self._has_plan:
            self._has_plan, self._plan = key, self._planned()
        return self._plan

    def _planned(self) -> MatrixRequest | None:
        ask = suite_requests.matrix_of if self.kind == "matrix" else suite_requests.set_of
        try:
            return ask(self.controller)
        except Ds4Error:
            return None  # options that one of the numerics cannot have

    @property
    def view(self) -> MatrixView | None:
        """The table; before the first run the one that `R` fills."""
        record, plan = self.record, self.plan
        if record is not None and (record.report.order or record.report.labels):
            return view_of(record)
        if plan is None:
            return None
        prompts = [(entry.name, entry.category) for entry in plan.prompts]
        return planned(self.kind, plan.cells(), prompts, plan.name, plan.settings.max_tokens)

    @property
    def chosen(self) -> str | None:
        """The cell under the cursor."""
        view = self._view
        if view is None or not view.rows or not view.numerics:
            return None
        row, column = self._place_in(view)
        name = f"{view.numerics[column]} {view.rows[row]}"
        return name if name in view.cells else None

    def _place_in(self, view: MatrixView) -> tuple[int, int]:
        """The cursor, inside the table."""
        row, column = self._cursor
        return min(row, len(view.rows) - 1), min(column, len(view.numerics) - 1)

    def sync(self, changes: Changes) -> None:
        """Turn to the suite that has begun."""
        for kind in KINDS if changes.suite else ():
            record = self.controller.suites.get(kind)
            if record is not None and record is not self._begun.get(kind):
                self._begun[kind] = record
                self._turn_to(kind)

    def _turn_to(self, kind: str) -> None:
        if kind != self.kind:
            self.kind = kind
            self._cursor, self._prompt = (0, 0), 0
            if kind == "set" and not self.prompts_box.flipped:
                self.prompts_box.flip()  # by category: what a set is run for

    def draw_bars(self) -> None:
        """Rows 1 to 3 and the footer, from the figures that the tables show."""
        self._take_figures()
        super().draw_bars()

    def _take_figures(self) -> None:
        """The figures of a few more cells: an interval takes its time, and keys must not wait."""
        record = self.record
        if record is not None and record.report.is_stale:
            record.report.refresh(REFRESH_S)
            self._dirty |= record.report.is_stale
        self._view = self.view

    def _cells_title(self) -> tuple[str, str]:
        if self.kind == "set":
            return "set", "identical prompts, first divergence, speed-up over plain"
        return "numerics x policy", (
            "each cell: identical prompts, first divergence, speed-up over plain of the same "
            "numerics"
        )

    def _cell_rows(self, width: int, height: int) -> list[Row]:
        view = self._view
        if view is None:
            return self._note_rows(width)
        cursor = self._place_in(view) if view.rows and not self.on_prompts else None
        rows = paint.grid_rows(view, cursor, width, height, self.ds4.marks)
        return self._with_notes(rows, width, height)

    def _with_notes(self, rows: list[Row], width: int, height: int) -> list[Row]:
        """The rows, and below them what to press while nothing has run."""
        if self.record is not None:
            return rows
        notes: list[Row] = [[], *self._note_rows(width)]
        return [*rows, *notes] if len(rows) + len(notes) <= height else rows

    def _notes(self) -> list[str]:
        return words.notes(self.kind, self.controller, self.plan, self.ds4.keys_by_id())

    def _note_rows(self, width: int) -> list[Row]:
        return [row for note in self._notes() for row in padded(note, width, "dim")]

    def _prompts_title(self) -> tuple[str, str]:
        if self.prompts_box.flipped:
            return "by category", f"{self.ds4.keys_by_id()['matrix_categories']} prompts"
        letters = "s split  i invariant" if self.kind == "matrix" else ""
        return "by prompt: first divergent index, = identical", letters

    def _prompt_rows(self, width: int, height: int) -> list[Row]:
        view = self._view
        if view is None:
            return []
        cursor = self._prompt if self.on_prompts else None
        rows = paint.prompt_rows(view, self.chosen, cursor, width, height, self.ds4.marks)
        return self._with_notes(rows, width, height)

    def _category_rows(self, width: int, height: int) -> list[Row]:
        record, chosen = self.record, self.chosen
        found = record.report.categories(chosen) if record and chosen else []
        rows = paint.category_rows(found, chosen, width, height, self.ds4.marks)
        return self._with_notes(rows, width, height)

    # Rows 1 to 3 and the footer

    @property
    def _is_running(self) -> bool:
        return self.record is not None and self.controller.running_suite is self.record

    def state_text(self) -> str:
        """`RUNNING 84/100 95 s`; without a suite the run's state."""
        record, controller = self.record, self.controller
        if record is None or (controller.is_busy and not self._is_running):
            return super().state_text()
        view = self._view or view_of(record)
        return words.state_words(record, view, controller.state, self._is_running)

    def prompt_row(self) -> tuple[str, Shown]:
        """Row 2: the set, the prompt in work, and what is left."""
        view, running = self._view, self._is_running
        if view is None:
            return self.controller.set_name, super().prompt_row()[1]
        shown = words.left_words(view) if running else words.settings_words(view, self.controller)
        return words.set_words(view, running), shown

    def verdict(self) -> VerdictLine:
        """Row 3: what must be identical, and whether it is."""
        record, controller, keys = self.record, self.controller, self.ds4.keys_by_id()
        if record is not None:
            return suite_verdict(record, keys["run_all"])
        if self.failure is not None:
            return super().verdict()
        head = f"· no {self.kind} yet"
        if controller.state is RunState.LOADING:
            then = ", and then it begins" if controller.suite_waits else ""
            return VerdictLine("idle", head, (f"{controller.loads}{then}",))
        notes = self._notes()
        bodies = tuple("   ".join(notes[:count]) for count in range(min(2, len(notes)), 0, -1))
        return VerdictLine("idle", head, bodies)

    def footer_ids(self) -> Sequence[str]:
        """Keys by importance; only what can act."""
        ids = ["run", "run_all", "matrix_open", "matrix_categories", "next_pane", "matrix_or_set"]
        if self.controller.is_busy:
            ids = ["pause", "escape", "matrix_open", "next_pane", "matrix_categories"]
        return [*ids, "open", "export", "report", "copy", "help"]

    def labels(self) -> dict[str, str]:
        """What the keys mean here."""
        both = {"matrix": "Run cell", "set": "Run set"}
        plays = not self.controller.choices.numerics
        run = "Run prompt" if self.on_prompts and self.kind == "matrix" else both[self.kind]
        return {
            "run": "Play again" if plays else run,
            "run_all": "Run all",
            "matrix_open": "Open run",
            "next_pane": "Other table",
            "matrix_categories": "By prompt" if self.prompts_box.flipped else "By category",
            "matrix_or_set": "Set" if self.kind == "matrix" else "Matrix",
            "open": "Other set",
            "export": "Export",
            "report": "Report",
        }

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        match action:
            case "open_cell":
                return self._open_place() is not None
            case "other_suite":
                return self._other_kind() is not None
            case _:
                return super().check_action(action, parameters)

    def can_run(self) -> bool:
        """`r` can act: a cell or a prompt is chosen, and nothing else of a suite runs."""
        controller = self.controller
        if not controller.choices.numerics:
            return super().can_run()
        return controller.can_run_suite and self.plan is not None

    def run_it(self) -> None:
        """The cell under the cursor over all prompts, or all cells of the chosen prompt."""
        if not self.controller.choices.numerics:
            super().run_it()
        elif self.kind == "set":
            self.run_all()
        elif self.on_prompts:
            self._run(indexes=(self._prompt,))
        elif self.chosen is not None:
            self._run(only=(self.chosen,))

    def run_all(self) -> None:
        """The whole matrix, or the whole set."""
        self._run()

    def _run(self, only: tuple[str, ...] = (), indexes: tuple[int, ...] = ()) -> None:
        plan = self.plan
        if plan is None:
            return
        if only or indexes:
            known = not only or only[0] in plan.cells()
            inside = all(index < len(plan.prompts) for index in indexes)
            plan = suite_requests.matrix_of(self.controller, only if known else (),
                                            indexes if inside else ())  # fmt: skip
        if plan is not None:
            self.controller.run_suite(plan)

    def action_move(self, down: int, right: int) -> None:
        """Move the cursor."""
        view = self._view
        if view is None or not view.rows:
            return
        row, column = self._cursor
        if self.on_prompts and down:
            self._prompt = max(0, min(len(view.prompts) - 1, self._prompt + down))
        elif self.on_prompts:
            # The columns of that table are the cells, numerics by numerics.
            at = column * len(view.rows) + row + right
            at = max(0, min(len(view.rows) * len(view.numerics) - 1, at))
            self._cursor = at % len(view.rows), at // len(view.rows)
        else:
            self._cursor = (
                max(0, min(len(view.rows) - 1, row + down)),
                max(0, min(len(view.numerics) - 1, column + right)),
            )
        self.redraw()

    def can_choose(self) -> bool:
        """`[` and `]` move between the prompts here."""
        return self._view is not None and bool(self._view.prompts)

    def choose(self, step: int) -> None:
        """The next or previous prompt, in the table of prompts."""
        view = self._view
        if view is not None and view.prompts:
            if self.on_prompts:
                self._prompt = (self._prompt + step) % len(view.prompts)
            else:
                self.choose_box(self.prompts_box)

    def on_descendant_focus(self) -> None:
        """The cursor is where the focus is."""
        self.refresh_bindings()
        self.redraw()

    def action_by_category(self) -> None:
        """The other side of the lower table."""
        self.prompts_box.flip()
        self.choose_box(self.prompts_box)
        self.redraw()

    def _other_kind(self) -> str | None:
        other = KINDS[1 - KINDS.index(self.kind)]
        running = self.controller.running_suite
        return None if running is not None and running.kind != other else other

    def action_other_suite(self) -> None:
        """The matrix, or the set."""
        other = self._other_kind()
        if other is not None:
            self._turn_to(other)
            self.redraw()

    def _open_place(self) -> tuple[int, str] | None:
        """The prompt and cell whose run `enter` opens: the chosen prompt, else where ids part."""
        record, chosen = self.record, self.chosen
        if record is None or chosen is None:
            return None
        if self.on_prompts:
            return (self._prompt, chosen) if record.place_of(chosen, self._prompt) else None
        figures = record.report.latest(chosen)
        found = figures["first_divergence"] if figures else None
        if found:
            return found["prompt_index"], chosen
        indexes = [i for cell, i in record.places if cell == chosen and record.place_of(cell, i)]
        return (max(indexes), chosen) if indexes else None

    def action_open_cell(self) -> None:
        """Show the run in screens 1 to 3."""
        place, record = self._open_place(), self.record
        if place is None or record is None:
            return
        found = record.place_of(place[1], place[0])
        if found is not None:
            self.controller.open_run(*found)
            self.ds4.show(Changes(record=True, state=True))
            self.ds4.open_screen("1")

    # Files

    def _document(self) -> dict[str, object] | None:
        record = self.record
        return None if record is None else record.report.document(wall_s=record.elapsed_s)

    def can_export(self) -> bool:
        """There is something to write."""
        return self.record is not None and bool(self.record.report.numerics)

    def can_report(self) -> bool:
        """There is something to report."""
        return self.can_export()

    def export(self) -> None:
        """Write the figures as JSON, as `ds4tui matrix --json` does."""
        record, document = self.record, self._document()
        if record is None or document is None:
            return
        name = f"{record.kind}-{record.started.suite_id}.json"
        try:
            path = write_export(name, json.dumps(document, allow_nan=False) + "\n")
        except OSError as error:
            self.notify(f"no file was written: {error.strerror}", severity="error", markup=False)
            return
        self.notify(f"the figures are in {shown_path(path)}", markup=False)

    def report(self) -> None:
        """Write the figures as Markdown, as `ds4tui matrix --report` does, and copy them."""
        record, document = self.record, self._document()
        if record is not None and document is not None:
            name = f"{record.kind}-{record.started.suite_id}.md"
            self.ds4.copy(matrix_text.markdown(document), name, f"the report on the {record.kind}")
