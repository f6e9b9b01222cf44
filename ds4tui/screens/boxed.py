"""A screen of boxes, one of which can be maximised: the one that has or last had the focus.

Owns the classes `-chosen` and `-max`; the screen's style sheet says what they show.
"""

from __future__ import annotations

from ds4tui.screens.instrument import Instrument
from ds4tui.widgets.box import Box


class Boxed(Instrument):
    """Maximising for screens 5 and 6."""

    def choose_box(self, chosen: Box) -> None:
        """The box that is shown where there is room for one only."""
        for box in self.query(Box):
            box.set_class(box is chosen, "-chosen")

    def on_descendant_focus(self) -> None:
        """What has the focus is what is maximised."""
        if isinstance(self.focused, Box):
            self.choose_box(self.focused)

    def action_maximise(self) -> None:
        """The focused box over all of the middle, or back."""
        self.toggle_class("-max")
        self.call_after_refresh(self.redraw)

    def close_one(self) -> None:
        """Restore what is maximised, else back to the playground."""
        if self.has_class("-max"):
            self.action_maximise()
        else:
            super().close_one()
