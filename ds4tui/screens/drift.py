"""Screen 3: since when, where and how far the arm's state is from plain's.

Owns the grouping and the row under the cursor; the position is the run's cursor.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ds4tui.drift_data import GROUPS, Group
from ds4tui.paint import drift as paint
from ds4tui.paint.panes import wrapped
from ds4tui.pair import PairRecord
from ds4tui.run_record import RunRecord
from ds4tui.screens.along_run import AlongRun
from ds4tui.screens.boxed import Boxes
from ds4tui.spans import Row
from ds4tui.visible import drawable_line
from ds4tui.widgets.box import Box


class DriftScreen(AlongRun):
    """Screen 3."""

    KEY: ClassVar[str] = "3"
    NAME: ClassVar[str] = "Drift"
    AUTO_FOCUS = "#drift-box"
    FOOTER: ClassVar[tuple[str, ...]] = (
        "drift_left drift_right",
        "drift_down drift_up",
        "drift",
        "divergence",
        "other_arm",
        "drift_group",
        "drift_cycle",
        "maximise",
        "copy",
        "help",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h,left", "sample(-1)", "Boundary before", id="drift_left"),
        Binding("l,right", "sample(1)", "Boundary after", id="drift_right"),
        Binding("pageup", "sample(-10)", "Ten boundaries back", id="drift_page_up"),
        Binding("pagedown", "sample(10)", "Ten boundaries on", id="drift_page_down"),
        Binding("k,up", "row(-1)", "Tensor above", id="drift_up"),
        Binding("j,down", "row(1)", "Tensor below", id="drift_down"),
        Binding("g", "group", "Group rows: kinds, layers, all", id="drift_group"),
        Binding("enter", "inspect", "Cycle after which the state was so", id="drift_cycle"),
    ]

    _row: int | None = None
    _group: Group | None = None

    def compose_body(self) -> ComposeResult:
        """One box; maximised it holds the chart alone."""
        yield Boxes(Box(self._title, self._rows, id="drift-box"))

    def labels(self) -> dict[str, str]:
        """Words of the footer."""
        return {
            "drift_right": "Position",
            "drift_up": "Tensor",
            "drift_group": "Group",
            "drift_cycle": "Cycle",
            "maximise": "Chart only",
        }

    @property
    def _has_samples(self) -> bool:
        return self.arm is not None and bool(self.arm.drift.boundaries)

    @property
    def group(self) -> Group:
        """As chosen; at first the finest whose rows all fit."""
        if self._group is not None or self.arm is None:
            return self._group or "kinds"
        return paint.finest(self.arm.drift, self.box.content_size.height)

    @property
    def row(self) -> int:
        """The row under the cursor; at first the one that drifted first."""
        if self._row is not None or self.arm is None:
            return self._row or 0
        began = [row.first() for row in self.arm.drift.rows(self.group)]
        found = [(index, at) for at, index in enumerate(began) if index is not None]
        return min(found)[1] if found else 0

    def why_no_drift(self) -> str:
        """What the screen says without a comparison."""
        record = self.record
        if isinstance(record, PairRecord):
            names, key = " and ".join(record.names), self.ds4.keys_by_id()["screen_7"]
            return (
                f"{names} are of two runs: their ids are compared, their states were not. "
                f"{key} Runs opens one of them, with its drift from its own plain arm."
            )
        if record is not None and record.settings.get("digest_every") == "0":
            return "No comparison: the states of this run are not compared (--digests 0)."
        if self.arm is not None and self.arm.info.role == "control":
            name = drawable_line(self.arm.info.name)
            return f"No comparison: {name} is a control, whose ids alone are compared."
        if self.arm is not None and self.arm.cycles:
            return "No comparison yet: no boundary at which both arms stood."
        return self.why_nothing()

    def _title(self) -> tuple[str, str]:
        names = (self.record or RunRecord()).names
        return paint.title(self.group, names)

    def _rows(self, width: int, height: int) -> list[Row]:
        record, arm = self.record, self.arm
        if record is None or record.started is None or arm is None or not self._has_samples:
            return self.notes(width) or wrapped(self.why_no_drift(), width, "dim")
        view = paint.DriftView(self.group, self.row, width, height, self.has_class("-max"))
        return paint.rows(record, arm, view, self.ds4.marks)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        if action in ("sample", "row", "group", "inspect"):
            return self._has_samples
        if action == "maximise" and not self._has_samples:
            return self.has_class("-max")
        return super().check_action(action, parameters)

    def action_sample(self, step: int) -> None:
        """To another boundary at which the states were compared."""
        if self.arm is None or self.record is None or not self._has_samples:
            return
        boundaries = self.arm.drift.boundaries
        at = self.arm.drift.at(self.record.place)
        at = max(0, min(len(boundaries) - 1, (0 if at is None else at) + step))
        self.look_at(boundaries[at])

    def action_row(self, step: int) -> None:
        """To another row of the chart."""
        if self.arm is not None:
            last = len(self.arm.drift.rows(self.group)) - 1
            self._row = max(0, min(last, self.row + step))
            self.redraw()

    def action_group(self) -> None:
        """The next grouping."""
        self._group = GROUPS[(GROUPS.index(self.group) + 1) % len(GROUPS)]
        self._row = None
        self.redraw()

    def action_inspect(self) -> None:
        """The cycle after which the states were as under the cursor."""
        if self.record is not None:
            self.record.cursor = self.record.place
            self.ds4.open_screen("2")
