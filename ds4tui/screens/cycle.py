"""Screen 2: one speculative cycle from its block's input to what it cost.

Owns layout and keys. The run's cursor says which cycle and which of its rows is shown.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from ds4tui.paint import cycle as paint
from ds4tui.paint.panes import wrapped
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.screens.along_run import AlongRun
from ds4tui.screens.token_popup import TokenPopup
from ds4tui.spans import Row
from ds4tui.widgets.box import Box
from ds4tui.widgets.rows_view import RowsView
from engine.events import CycleFinished


class CycleScreen(AlongRun):
    """Screen 2."""

    KEY: ClassVar[str] = "2"
    NAME: ClassVar[str] = "Cycle"
    AUTO_FOCUS = "#cycle-box"
    FOOTER: ClassVar[tuple[str, ...]] = (
        "cycle_before",
        "cycle_after",
        "cycle_row_down",
        "token",
        "divergence",
        "cycle_rejected",
        "drift",
        "other_arm",
        "copy",
        "help",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "row(1)", "Row of the batch below", id="cycle_row_down"),
        Binding("k,up", "row(-1)", "Row of the batch above", id="cycle_row_up"),
        Binding("h,left", "cycle(-1)", "Cycle before", id="cycle_left"),
        Binding("l,right", "cycle(1)", "Cycle after", id="cycle_right"),
        Binding("g,home", "end(False)", "First cycle", id="cycle_first"),
        Binding("G,end", "end(True)", "Last cycle", id="cycle_last"),
        Binding("slash", "rejected_draft", "Next rejected draft", id="cycle_rejected"),
        Binding("enter", "token", "Token under the cursor: top 5 of both arms", id="token"),
    ]
    DEFAULT_CSS = """
    CycleScreen {
        & #cycle-body { height: 1fr; }
        & #cycle-left { width: 34; height: 100%; display: none; }
        & #cycle-right { width: 1fr; height: 100%; }
        & #cycle-line { height: 1; }
        & #cycle-upper { height: 1fr; }
        & #cycle-lower { height: 9; }
        & #cycle-around { height: 5; display: none; }
        & #cycle-tops { width: 55fr; }
        & #cycle-times { width: 45fr; }
        &.-wide.-tall #cycle-left { display: block; }
        &.-wide.-tall #cycle-line { display: none; }
        &.-wide.-tall #cycle-around { display: block; }
        &.-short #cycle-lower { display: none; }
    }
    """

    def compose_body(self) -> ComposeResult:
        """The list, the batch, top 5 and time, the text around."""
        with Horizontal(id="cycle-body"):
            with Vertical(id="cycle-left"):
                yield Box(self._list_title, self._list, id="cycle-list")
            with Vertical(id="cycle-right"):
                yield RowsView(self._line, id="cycle-line")
                with Vertical(id="cycle-upper"):
                    yield Box(self._title, self._rows, id="cycle-box")
                with Horizontal(id="cycle-lower"):
                    with Vertical(id="cycle-tops"):
                        yield Box(self._top_title, self._top, id="cycle-top")
                    with Vertical(id="cycle-times"):
                        yield Box(self._time_title, self._time, id="cycle-time")
                with Vertical(id="cycle-around"):
                    yield Box(
                        lambda: ("text around it, both arms", ""), self._text, id="cycle-text"
                    )

    def draw_body(self) -> None:
        """Draw the boxes."""
        self.query_one("#cycle-line", RowsView).reload()
        for box in self.query(Box):
            box.repaint()

    def labels(self) -> dict[str, str]:
        """Words of the footer."""
        return {
            "cycle_before": "Cycle before",
            "cycle_after": "Cycle after",
            "cycle_row_down": "Row",
            "token": "Top 5",
            "cycle_rejected": "Find rejected",
            "other_arm": "Other arm",
        }

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
        chosen = arm.cycles.index(cycle)
        return paint.list_rows(record, arm, chosen, width, height, self.ds4.marks)

    def _line(self, width: int) -> list[Row]:
        if self.shown is None:
            return [[("no cycle", "dim")]]
        _, arm, cycle, _ = self.shown
        return [paint.line_row(arm, cycle, width, self.ds4.marks)]

    def _title(self) -> tuple[str, str]:
        return paint.cycle_title(*self.shown[1:3]) if self.shown is not None else ("cycle", "")

    def _rows(self, width: int, height: int) -> list[Row]:
        if self.shown is None:
            return wrapped(self.why_nothing(), width, "dim")
        return paint.cycle_rows(*self.shown, width, height, self.ds4.marks)

    def _top_title(self) -> tuple[str, str]:
        if self.shown is None:
            return "top 5, logits", ""
        record, arm, _, place = self.shown
        return paint.top_title(record, arm, place)

    def _top(self, width: int, height: int) -> list[Row]:
        return paint.top_rows(*self.shown, width) if self.shown is not None else []

    def _time_title(self) -> tuple[str, str]:
        if self.shown is None:
            return "time of this cycle", ""
        return paint.time_title(self.shown[0], self.shown[2])

    def _time(self, width: int, height: int) -> list[Row]:
        if self.shown is None:
            return []
        return paint.time_rows(self.shown[0], self.shown[2], width, self.ds4.marks)

    def _text(self, width: int, height: int) -> list[Row]:
        return paint.text_rows(*self.shown, width, self.ds4.marks) if self.shown else []

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        if action in ("row", "end", "token"):
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

    def action_end(self, last: bool) -> None:
        """The first or the last cycle."""
        if self.arm is not None and self.arm.cycles:
            self.look_at(self.arm.cycles[-1 if last else 0].index)

    def action_rejected_draft(self) -> None:
        """The next token that replaced a rejected draft, from the start again after the last."""
        if self.shown is None or self.arm is None or not self.arm.rejected:
            return
        found = sorted(self.arm.rejected)
        place = self.shown[3]
        self.look_at(next((index for index in found if index > place), found[0]))

    def action_token(self) -> None:
        """The popup of the cursor's token."""
        if self.shown is None:
            return

        def back(index: int | None) -> None:
            if index is not None:
                self.look_at(index)

        self.app.push_screen(TokenPopup(self.shown[0], self.shown[3]), back)
