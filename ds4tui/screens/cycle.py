"""Screen 2: one speculative cycle from its block's input to what it cost.

Owns layout and keys. The run's cursor says which cycle and which of its rows is shown.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ds4tui.paint import cycle as paint
from ds4tui.paint import cycle_beside as beside
from ds4tui.paint.panes import wrapped
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.screens.along_run import AlongRun
from ds4tui.screens.boxed import Boxes
from ds4tui.screens.token_popup import TokenPopup
from ds4tui.spans import Row
from ds4tui.widgets.box import Box
from engine.events import CycleFinished

PAGE = 8
"""Rows that a page goes up or down."""


class CycleScreen(AlongRun):
    """Screen 2."""

    KEY: ClassVar[str] = "2"
    NAME: ClassVar[str] = "Cycle"
    AUTO_FOCUS = "#cycle-box"
    FOOTER: ClassVar[tuple[str, ...]] = (
        "cycle_before cycle_after",
        "cycle_row_down cycle_row_up",
        "token",
        "divergence",
        "other_arm",
        "cycle_rejected",
        "drift",
        "maximise",
        "next_pane",
        "copy",
        "help",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "row(1)", "Row of the batch below", id="cycle_row_down"),
        Binding("k,up", "row(-1)", "Row of the batch above", id="cycle_row_up"),
        Binding("pagedown", f"below({PAGE})", "What is below the batch", id="cycle_below"),
        Binding("pageup", f"below(-{PAGE})", "Back up to the batch", id="cycle_above"),
        Binding("h,left", "cycle(-1)", "Cycle before", id="cycle_left"),
        Binding("l,right", "cycle(1)", "Cycle after", id="cycle_right"),
        Binding("g,home", "end(False)", "First cycle", id="cycle_first"),
        Binding("G,end", "end(True)", "Last cycle", id="cycle_last"),
        Binding("slash", "rejected_draft", "Next rejected draft", id="cycle_rejected"),
        Binding("enter", "token", "Token under the cursor: top 5 of both arms", id="token"),
    ]
    DEFAULT_CSS = """
    CycleScreen {
        & Boxes { layout: grid; grid-size: 2 2; grid-columns: 55fr 45fr; grid-rows: 1fr 9; }
        & #cycle-box, & #cycle-text { column-span: 2; }
        & #cycle-list { row-span: 3; }
        &.-wide.-tall Boxes { grid-size: 3 3; grid-columns: 34 55fr 45fr; grid-rows: 1fr 9 5; }
        &.-tiny, &.-narrow, &.-short, &.-medium {
            & #cycle-list, & #cycle-text { display: none; }
        }
        &.-short Boxes { grid-size: 1 1; grid-columns: 1fr; grid-rows: 1fr; }
        &.-short #cycle-top, &.-short #cycle-time { display: none; }
        &.-short #cycle-box { column-span: 1; }
    }
    """

    _below = 0

    def compose_body(self) -> ComposeResult:
        """The list, the batch, top 5 and time, the text around."""
        yield Boxes(
            Box(self._list_title, self._list, id="cycle-list"),
            Box(self._title, self._rows, id="cycle-box"),
            Box(self._top_title, self._top, id="cycle-top"),
            Box(self._time_title, self._time, id="cycle-time"),
            Box(lambda: ("text around it, both arms", ""), self._text, id="cycle-text"),
        )

    def labels(self) -> dict[str, str]:
        """Words of the footer."""
        return {
            "cycle_after": "Cycle",
            "cycle_row_up": "Row",
            "token": "Top 5",
            "cycle_rejected": "Find rejected",
        }

    def look_at(self, index: int) -> None:
        """Put the run's cursor on a token, and show the rows around it."""
        self._below = 0
        super().look_at(index)

    # What is shown

    @property
    def shown(self) -> tuple[RunRecord, ArmRecord, CycleFinished, int] | None:
        """Run, arm, cycle and index under the cursor; the first token counts to cycle 0."""
        record, arm = self.record, self.arm
        if record is None or record.started is None or arm is None or not arm.cycles:
            return None
        place = min(record.place, len(arm.ids) - 1)
        cycle = arm.cycle_of(place) or arm.cycles[0]
        last = cycle.index + cycle.depth - 1
        return record, arm, cycle, max(cycle.index, min(place, last))

    def _list_title(self) -> tuple[str, str]:
        return "cycles", str(len(self.arm.cycles)) if self.arm is not None else ""

    def _list(self, width: int, height: int) -> list[Row]:
        if self.shown is None:
            return []
        record, arm, cycle, _ = self.shown
        chosen = arm.cycle_at(cycle.index)
        return paint.list_rows(record, arm, chosen, height, self.ds4.marks)

    def _title(self) -> tuple[str, str]:
        if self.shown is None:
            return "cycle", ""
        alone = not self.query_one("#cycle-list").display
        return paint.cycle_title(*self.shown[1:3], alone, self.ds4.marks)

    def _rows(self, width: int, height: int) -> list[Row]:
        if self.shown is None:
            return self.notes(width) or wrapped(self.why_nothing(), width, "dim")
        keys = self.ds4.keys_by_id()
        hint = f"{keys['cycle_above' if self._below else 'cycle_below']} goes there"
        if not self.has_class("-max"):
            hint = f"{keys['maximise']} shows all"
        below, marks = self._below, self.ds4.marks
        return paint.cycle_rows(*self.shown, width, height, marks, below=below, hint=hint)

    def _top_title(self) -> tuple[str, str]:
        if self.shown is None:
            return "top 5, logits", ""
        record, arm, _, place = self.shown
        return beside.top_title(record, arm, place)

    def _top(self, width: int, height: int) -> list[Row]:
        if self.shown is None:
            return []
        record, arm, _, place = self.shown
        return beside.top_rows(record, arm, place, width, self.ds4.marks)

    def _time_title(self) -> tuple[str, str]:
        if self.shown is None:
            return "time of this cycle", ""
        return beside.time_title(self.shown[0], self.shown[2])

    def _time(self, width: int, height: int) -> list[Row]:
        if self.shown is None:
            return []
        return beside.time_rows(self.shown[0], self.shown[2], width, self.ds4.marks)

    def _text(self, width: int, height: int) -> list[Row]:
        return beside.text_rows(*self.shown, width, self.ds4.marks) if self.shown else []

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        if action in ("row", "below", "end", "token"):
            return self.shown is not None
        if action == "rejected_draft":
            return self.arm is not None and bool(self.arm.rejected)
        return super().check_action(action, parameters)

    def action_row(self, step: int) -> None:
        """Another token of the same cycle."""
        if self.shown is not None:
            _, _, cycle, place = self.shown
            last = cycle.index + cycle.depth - 1
            self.look_at(max(cycle.index, min(last, place + step)))

    def action_below(self, rows: int) -> None:
        """Move the rows that are shown, where not all fit."""
        if self.shown is not None:
            last = self.shown[2].proposed + PAGE
            self._below = max(0, min(self._below + rows, last))
            self.redraw()

    def action_end(self, last: bool) -> None:
        """The first or the last cycle."""
        if self.arm is not None and self.arm.cycles:
            self.look_at(self.arm.cycles[-1 if last else 0].index)

    def action_rejected_draft(self) -> None:
        """The next token that replaced a rejected draft, from the start again after the last."""
        if self.shown is None or self.arm is None or not self.arm.rejected:
            return
        found, place = list(self.arm.rejected), self.shown[3]
        self.look_at(next((index for index in found if index > place), found[0]))

    def action_token(self) -> None:
        """The popup of the cursor's token."""
        if self.shown is None:
            return

        def back(index: int | None) -> None:
            if index is not None:
                self.look_at(index)

        self.app.push_screen(TokenPopup(self.shown[0], self.shown[3]), back)
