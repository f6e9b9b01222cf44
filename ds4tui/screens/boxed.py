"""A screen of boxes: one of them is chosen, can be maximised and copied.

Owns the keys for that and the classes `-chosen` and `-max`. The chosen box is the one that has or
last had the focus. A screen puts its boxes into `Boxes`; how they lie there is its own style sheet.
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container

from ds4tui.paint import panes as pane_text
from ds4tui.run_state import RunState
from ds4tui.screens.instrument import Instrument
from ds4tui.spans import Row
from ds4tui.status import load_steps
from ds4tui.widgets.box import Box


class Boxes(Container):
    """Holds the boxes of a screen.

    Args:
        one_when_small: a terminal that is not both wide and tall shows the chosen box only.
    """

    def __init__(self, *boxes: Box, one_when_small: bool = False) -> None:
        super().__init__(*boxes, classes="-one-when-small" if one_when_small else "")
        self.one_when_small = one_when_small


class Boxed(Instrument):
    """What screens of boxes share."""

    DEFAULT_CSS = """
    Boxed {
        & Boxes { height: 1fr; }
        &.-max Boxes { layout: vertical; }
        &.-max Boxes > Box { display: none; }
        &.-max Boxes > Box.-chosen { display: block !important; height: 1fr !important; }
        &.-tiny, &.-narrow, &.-short, &.-medium {
            & .-one-when-small { layout: vertical; }
            & .-one-when-small > Box { display: none; }
            & .-one-when-small > Box.-chosen { display: block !important; height: 1fr !important; }
        }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "next_pane(1)", "Next pane or box", id="next_pane"),
        Binding("shift+tab", "next_pane(-1)", "Pane or box before", id="pane_before"),
        Binding("m", "maximise", "Maximise the pane or box, or restore it", id="maximise"),
        Binding("y", "copy", "Copy what has the focus, and write it to a file", id="copy"),
    ]

    @property
    def boxes(self) -> list[Box]:
        """All boxes, in the order of `tab`."""
        return list(self.query_one(Boxes).query(Box))

    @property
    def box(self) -> Box:
        """The chosen one; at first the one that gets the focus."""
        first = self.query_one(str(self.AUTO_FOCUS), Box)
        return next((box for box in self.boxes if box.has_class("-chosen")), first)

    @property
    def shows_one(self) -> bool:
        """Only the chosen box is shown."""
        is_large = self.has_class("-wide") and self.has_class("-tall")
        small = self.query_one(Boxes).one_when_small and not is_large
        return small or self.has_class("-max")

    @property
    def subject(self) -> str:
        """What the boxes are about, for the names of files; "" when there is nothing to copy."""
        record = self.controller.record
        return record.started.run_id if record is not None and record.started is not None else ""

    def on_mount(self) -> None:
        """One box is chosen from the beginning."""
        self._mark(self.box)

    def on_descendant_focus(self) -> None:
        """What has the focus is what is maximised and copied."""
        if isinstance(self.focused, Box):
            self._mark(self.focused)

    def draw_body(self) -> None:
        """Draw the boxes."""
        for box in self.boxes:
            box.repaint()

    def notes(self, width: int) -> list[Row]:
        """What a box says that has nothing to show: what failed, or how far loading is."""
        controller, failure = self.controller, self.failure
        if failure is not None:
            return pane_text.failure_rows(failure, self.ds4.keys_by_id()["run"], width)
        if controller.state is RunState.LOADING:
            return pane_text.loading_rows(load_steps(controller), width, self.ds4.marks)
        return []

    def _mark(self, chosen: Box) -> None:
        for box in self.boxes:
            box.set_class(box is chosen, "-chosen")

    def choose_box(self, chosen: Box) -> None:
        """Show a box where only one is shown, and give it the focus."""
        self._mark(chosen)
        self.call_after_refresh(chosen.focus)

    def footer(self) -> list[tuple[str, str, str]]:
        """The way back from a maximised box goes first."""
        entries = super().footer()
        if not self.has_class("-max"):
            return entries
        back = (self.ds4.keys_by_id()["maximise"], "Restore", "maximise")
        return [back, *(entry for entry in entries if entry[2] != "maximise")]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        match action:
            case "maximise":
                return self.has_class("-max") or not self.shows_one
            case "copy":
                return bool(self.subject)
            case _:
                return super().check_action(action, parameters)

    def action_next_pane(self, step: int) -> None:
        """To the next box that is or can be shown."""
        boxes = [box for box in self.boxes if self.shows_one or box.display]
        at = boxes.index(self.box)
        self.choose_box(boxes[(at + step) % len(boxes)])

    def action_maximise(self) -> None:
        """The chosen box over all of the middle, or back."""
        self.toggle_class("-max")
        self.call_after_refresh(self.redraw)

    def action_copy(self) -> None:
        """Copy the chosen box as text."""
        box = self.box
        title = box.titles(False)[0]
        self.ds4.copy(box.text(), f"{self.subject}-{box.id}.txt", f"the box {title!r}")

    def close_one(self) -> None:
        """Restore what is maximised, else back to the playground."""
        if self.has_class("-max"):
            self.action_maximise()
        else:
            super().close_one()
