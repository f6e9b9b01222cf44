"""A panel of rows to read: scrolled and closed by keys. Knows nothing of what they say."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from ds4tui.screens.dialog import Dialog
from ds4tui.spans import Row
from ds4tui.widgets.rows_view import RowsView


class RowsPanel(Dialog[None]):
    """Most of the screen. Subclasses name it and give its rows."""

    PANEL_TITLE: ClassVar[str]
    HINT: ClassVar[str] = "j k scroll · escape closes"
    """In the lower border."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "close", "Close"),
        Binding("j,down", "scroll(1)", "Down"),
        Binding("k,up", "scroll(-1)", "Up"),
        Binding("pagedown,space", "scroll(10)", "Page down"),
        Binding("pageup", "scroll(-10)", "Page up"),
        Binding("g,home", "scroll(-10000)", "Top"),
        Binding("G,end", "scroll(10000)", "End"),
    ]
    DEFAULT_CSS = """
    RowsPanel { align: center middle; }
    RowsPanel #panel { width: 92%; max-width: 100; height: 90%; }
    """

    def compose(self) -> ComposeResult:
        """One scrolling panel."""
        with VerticalScroll(id="panel", can_focus=False):
            yield RowsView(self.rows, id="text")

    def on_mount(self) -> None:
        """Name the panel."""
        panel = self.query_one("#panel")
        panel.border_title = Content(self.PANEL_TITLE)
        panel.border_subtitle = Content(self.HINT)

    def rows(self, width: int) -> list[Row]:
        """What there is to read, for a width."""
        raise NotImplementedError

    def action_scroll(self, rows: int) -> None:
        """Scroll by rows."""
        self.query_one("#panel").scroll_relative(y=rows, animate=False)

    def action_close(self) -> None:
        """Back to what was there."""
        self.dismiss(None)
