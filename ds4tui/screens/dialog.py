"""What every dialog is: a screen over the instruments that is left once."""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType


class Dialog(ModalScreen[ScreenResultType]):
    """A modal screen that takes only itself off the stack.

    Keys that came in one read are all handed to a dialog before it acts on the first of them. What
    the others ask of it comes when it has been left, and Textual would take off what lies below.
    """

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Leave and give back a result; nothing unless this screen is on top."""
        return super().dismiss(result) if self.is_active else AwaitComplete()
