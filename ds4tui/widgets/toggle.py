"""A switch of one row: `[x] chat`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class Toggle(Widget, can_focus=True):
    """A named switch; space or the mouse turns it.

    Args:
        label: what is switched.
        value: on or off at first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "switch", "Switch", id="toggle", show=False)
    ]

    value = reactive(False, init=False, layout=False)

    @dataclass
    class Changed(Message):
        """The switch was turned."""

        toggle: Toggle
        value: bool

    def __init__(self, label: str, value: bool, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.label = label
        self.set_reactive(Toggle.value, value)

    def render(self) -> Content:
        """Box and label."""
        return Content(f"[{'x' if self.value else ' '}] {self.label}")

    def watch_value(self, value: bool) -> None:
        """Tell who listens."""
        self.post_message(self.Changed(self, value))

    def action_switch(self) -> None:
        """Turn the switch."""
        self.value = not self.value

    def on_click(self) -> None:
        """Turn the switch."""
        self.action_switch()
