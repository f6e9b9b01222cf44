"""The prompt and its switches: text, system prompt, chat, thinking, control tokens, rendered ids.

Owns the fields and the history's position. What it gives back is a `Prompt` to run, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from ds4tui.screens.dialog import Dialog
from ds4tui.visible import drawable_line
from ds4tui.widgets.fields import SafeInput, SafeTextArea
from ds4tui.widgets.toggle import Toggle
from engine.events import PromptRendered
from engine.settings import Prompt
from engine.text import decode_bytes


class PromptText(SafeTextArea):
    """The prompt: enter runs it, up on the first row goes back in history."""

    class Submitted(Message):
        """Enter was pressed, when the text was this: more may have been typed since."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class HistoryAsked(Message):
        """Up on the first row (-1) or down on the last (1)."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    async def _on_key(self, event: events.Key) -> None:
        row, rows = self._screen_row(), self.wrapped_document.height
        if event.key == "enter":
            self.post_message(self.Submitted(self.text))
        elif event.key == "ctrl+j":
            self.insert("\n")
        elif event.key == "up" and row == 0:
            self.post_message(self.HistoryAsked(-1))
        elif event.key == "down" and row == rows - 1:
            self.post_message(self.HistoryAsked(1))
        else:
            return  # to the text area
        event.stop()
        event.prevent_default()

    def _screen_row(self) -> int:
        return self.wrapped_document.location_to_offset(self.cursor_location).y


class PromptEditor(Dialog[Prompt | None]):
    """Edits one prompt.

    Args:
        prompt: what to start from.
        history: earlier prompts, the newest last.
        render: asks for the ids of a prompt; the answer comes by `show_rendered`. None for a
            further turn, whose ids depend on the conversation before it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave", id="editor_leave"),
    ]

    def __init__(
        self, prompt: Prompt, history: Sequence[str], render: Callable[[Prompt], None] | None
    ) -> None:
        super().__init__()
        self.start = prompt
        self.history = [*history]
        self.ask = render
        self._at = len(self.history)
        self._draft = prompt.text

    def compose(self) -> ComposeResult:
        """Prompt, system prompt, three switches, the ids."""
        with Vertical(id="panel"):
            yield PromptText(
                self.start.text, soft_wrap=True, tab_behavior="focus", id="text", compact=True
            )
            with Horizontal(id="system-row"):
                yield Static("system", classes="label", markup=False)
                yield SafeInput(self.start.system, id="system", compact=True)
            with Horizontal():
                yield Toggle("chat", self.start.chat, id="chat")
                yield Toggle("thinking", self.start.think, id="think")
                yield Toggle("control tokens", self.start.control_tokens, id="control")
            yield Static("", id="ids", markup=False)

    def on_mount(self) -> None:
        """Put the cursor behind the text and ask for its ids."""
        panel = self.query_one("#panel")
        panel.border_title = Content("prompt" if self.ask else "next turn of this conversation")
        self.query_one("#system-row").display = self.ask is not None  # the first turn's for all
        keys = "enter runs · escape leaves · up history · tab next field · ctrl+j new line"
        panel.border_subtitle = Content(keys)
        text = self.query_one(PromptText)
        text.move_cursor(text.document.end)
        text.focus()
        self._ask()

    @property
    def prompt(self) -> Prompt:
        """What the fields say now."""
        return Prompt(
            text=self.query_one(PromptText).text,
            system=self.query_one("#system", Input).value,
            chat=self.query_one("#chat", Toggle).value,
            think=self.query_one("#think", Toggle).value,
            control_tokens=self.query_one("#control", Toggle).value,
        )

    def show_rendered(self, rendered: PromptRendered, names: Mapping[int, bytes]) -> None:
        """Show the ids that the prompt becomes; an answer to an earlier text is left out."""
        if rendered.prompt != self.query_one(PromptText).text:
            return
        shown = []
        for token_id in rendered.prompt_ids:
            name = names.get(token_id)
            text = drawable_line(decode_bytes(name)) if name is not None else ""
            shown.append(f"{token_id}={text}" if text else str(token_id))
        ids = f"{len(rendered.prompt_ids)} ids: {' '.join(shown)}"
        self.query_one("#ids", Static).update(Content(ids))

    def _ask(self) -> None:
        prompt = self.prompt
        if prompt.text and self.ask is not None:
            self.ask(prompt)
        else:
            self.query_one("#ids", Static).update("")

    def on_text_area_changed(self) -> None:
        """Other text, other ids."""
        self._ask()

    def on_input_changed(self) -> None:
        """Another system prompt, other ids."""
        self._ask()

    def on_toggle_changed(self) -> None:
        """Another rendering, other ids."""
        self._ask()

    def on_input_submitted(self) -> None:
        """Enter runs from every field."""
        self._run(self.prompt)

    def on_prompt_text_submitted(self, event: PromptText.Submitted) -> None:
        """Enter runs."""
        self._run(replace(self.prompt, text=event.text))

    def on_key(self, event: events.Key) -> None:
        """Enter on a switch runs too."""
        if event.key == "enter":
            event.stop()
            self._run(self.prompt)

    def _run(self, prompt: Prompt) -> None:
        if prompt.text.strip() or not prompt.chat:
            self.dismiss(prompt)

    def action_leave(self) -> None:
        """Change nothing."""
        self.dismiss(None)

    def on_prompt_text_history_asked(self, event: PromptText.HistoryAsked) -> None:
        """Another prompt of the history; past its end what was being written."""
        text = self.query_one(PromptText)
        if self._at == len(self.history):
            self._draft = text.text
        self._at = max(0, min(len(self.history), self._at + event.step))
        chosen = self.history[self._at] if self._at < len(self.history) else self._draft
        text.text = chosen
        text.move_cursor(text.document.end)
