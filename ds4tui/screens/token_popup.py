"""The popup of a token: what each arm had at one index, and the cycle around it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from ds4tui.paint import token_card
from ds4tui.run_record import RunRecord
from ds4tui.screens.dialog import Dialog
from ds4tui.widgets.rows_view import RowsView


class TokenPopup(Dialog[int]):
    """Shows one index; moves along the run; gives back where it stood when closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "close", "Close", id="popup_close"),
        Binding("left,h", "move(-1)", "Token before", id="popup_left"),
        Binding("right,l", "move(1)", "Token after", id="popup_right"),
    ]

    def __init__(self, record: RunRecord, index: int) -> None:
        super().__init__()
        self.record = record
        self.index = index

    def compose(self) -> ComposeResult:
        """One panel with the rows of the card."""
        with VerticalScroll(id="panel"):
            yield RowsView(lambda width: token_card.rows(self.record, self.index, width))

    def on_mount(self) -> None:
        """Name the token in the border."""
        self._titles()

    def action_move(self, step: int) -> None:
        """The token before or after."""
        last = max((len(arm.ids) for arm in self.record.arms), default=1) - 1
        self.index = max(0, min(last, self.index + step))
        self._titles()
        self.query_one(RowsView).reload()

    def action_close(self) -> None:
        """Back to the panes, with the cursor on the token that was shown."""
        self.dismiss(self.index)

    def _titles(self) -> None:
        panel = self.query_one("#panel")
        panel.border_title = Content(token_card.title(self.record, self.index))
        panel.border_subtitle = Content("h l other token · escape closes")
