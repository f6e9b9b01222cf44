"""A panel with one field: asks for an index or a file."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input

from ds4tui.screens.dialog import Dialog
from ds4tui.widgets.fields import SafeInput


class AskText(Dialog[str | None]):
    """Gives back what was written, or None.

    Args:
        title: what is asked for.
        hint: what the empty field says.
        is_number: only digits can be written.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave", id="ask_leave"),
    ]
    DEFAULT_CSS = """
    AskText { align: center middle; }
    AskText #panel { width: 60; max-width: 96%; height: 3; }
    AskText Input { height: 1; border: none; padding: 0; background: $panel; color: $foreground; }
    """

    def __init__(self, title: str, hint: str, *, is_number: bool = False) -> None:
        super().__init__()
        self.what = title
        self.hint = hint
        self.is_number = is_number

    def compose(self) -> ComposeResult:
        """One field in a frame."""
        with Vertical(id="panel"):
            kind = r"[0-9]{0,7}" if self.is_number else None
            yield SafeInput(placeholder=self.hint, restrict=kind, compact=True)

    def on_mount(self) -> None:
        """Name the panel; the field has the focus."""
        panel = self.query_one("#panel")
        panel.border_title = Content(self.what)
        panel.border_subtitle = Content("enter takes it · escape leaves")
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Give it back."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """Nothing was asked for."""
        self.dismiss(None)
