"""Choosing a prompt set: one that comes with the program, or a file.

Owns the field, what is wrong with a file, and what the screens share that run over a set. What the
chooser gives back is the set with its name, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from ds4tui.options import BUILT_IN_SETS, read_set, set_name
from ds4tui.paint.panes import padded
from ds4tui.screens.boxed import Boxed
from ds4tui.screens.dialog import Dialog
from ds4tui.spans import Row
from ds4tui.visible import drawable_line
from ds4tui.widgets.fields import SafeInput
from ds4tui.widgets.rows_view import RowsView
from engine.errors import Ds4Error
from engine.prompt_set import PromptEntry

Chosen = tuple[tuple[PromptEntry, ...], str]
Reader = Callable[[str], tuple[PromptEntry, ...]]


class SetChooser(Dialog[Chosen | None]):
    """Asks for a set by name or path.

    Args:
        current: name of the set in use.
        read: reads a set by name or path.
    """

    DEFAULT_CSS = """
    SetChooser {
        align: left top;
        & #panel { margin-top: 1; width: 100%; height: auto; }
        & Input, & Input:focus {
            height: 1;
            border: none;
            padding: 0;
            background: $panel;
            color: $foreground;
        }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave", id="set_leave"),
        Binding("up", "step(-1)", "Set before", id="set_up"),
        Binding("down", "step(1)", "Next set", id="set_down"),
    ]

    def __init__(self, current: str, read: Reader) -> None:
        super().__init__()
        self._current = current
        self._read = read
        self._names = tuple(BUILT_IN_SETS)
        self._sets = {name: read(name) for name in self._names}
        self._error = ""

    def compose(self) -> ComposeResult:
        """The field, the sets, what is wrong."""
        with Vertical(id="panel") as panel:
            panel.border_title = "prompt set"
            panel.border_subtitle = "enter takes it · up down sets · escape leaves"
            yield SafeInput(
                self._current, placeholder="a name below, or a file", select_on_focus=True
            )
            yield RowsView(self._rows)

    def _rows(self, width: int) -> list[Row]:
        rows: list[Row] = [[("", "")]]
        for name, entries in self._sets.items():
            rows.append([(f" {name:<8}", "strong"), (_described(entries), "dim")])
        lines = ' one prompt a line, or {"text": ...} lines'
        rows.append([(f" {'a file':<8}", "strong"), (lines, "dim")])
        if self._error:
            rows += padded(self._error, width, "error")
        return rows

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the set, or say why not."""
        path = event.value.strip()
        try:
            entries = self._sets.get(path) or self._read(path)
        except Ds4Error as error:
            self._error = drawable_line(str(error))
            self.query_one(RowsView).reload()
            return
        self.dismiss((entries, set_name(path)))

    def action_step(self, step: int) -> None:
        """The next of the sets into the field."""
        field = self.query_one(Input)
        at = self._names.index(field.value) if field.value in self._names else -step % 2
        field.value = self._names[(at + step) % len(self._names)]
        field.cursor_position = len(field.value)

    def action_leave(self) -> None:
        """Keep the set in use."""
        self.dismiss(None)


class ChoosesSet(Boxed):
    """A screen whose runs go over a set of prompts: `o` takes another one."""

    def can_open(self) -> bool:
        """There is an engine to run it, and nothing runs."""
        return bool(self.controller.choices.numerics) and not self.controller.is_busy

    def open_it(self) -> None:
        """Ask for the set; its prompts are rendered as the command line said."""

        def chosen(found: Chosen | None) -> None:
            if found is not None:
                self.controller.take_set(*found)
                self.redraw()

        def read(path: str) -> tuple[PromptEntry, ...]:
            return read_set(path, self.ds4.rendering)

        self.app.push_screen(SetChooser(self.controller.set_name, read), chosen)


def _described(entries: Sequence[PromptEntry]) -> str:
    categories = list(dict.fromkeys(entry.category for entry in entries))
    return f" {len(entries)} prompts: {', '.join(categories)}"
