"""The application: screens, themes, help and the wiring of controller and widgets."""

from __future__ import annotations

import time
from typing import ClassVar, cast

from textual.actions import parse
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.types import AnimationLevel

from ds4tui.commands import KeyCommands
from ds4tui.config import UiConfig
from ds4tui.controller import NO_CHOICES, Changes, Controller
from ds4tui.exports import write_export
from ds4tui.keys import KeyTable
from ds4tui.link import EngineLink, ReplayLink
from ds4tui.marks import choose
from ds4tui.options import RunOptions
from ds4tui.run_actions import RunActions
from ds4tui.screens.help import HelpScreen
from ds4tui.screens.playground import Playground
from ds4tui.screens.prompt_editor import PromptEditor
from ds4tui.themes import THEMES, next_theme
from ds4tui.widgets.token_stream import TokenStream
from engine.events import RunStarted
from engine.process import EngineProcess
from engine.settings import Prompt
from engine.text import visible
from engine.trace import TraceWriter, read_trace

SCREENS: tuple[tuple[str, str], ...] = (("1", "Play"),)
"""(key, name) of the screens that there are, for row 1."""

SEVERITIES = {"error": "error", "warning": "warning"}


class Ds4App(RunActions):
    """The interface.

    Args:
        controller: not started yet.
        model_name: what row 2 calls the model; "" takes it from the files.
    Raises:
        Ds4Error: when the configuration binds a key to an action that there is not.
    """

    CSS_PATH = "ds4tui.tcss"
    TITLE = "ds4tui"
    COMMANDS = {KeyCommands}  # noqa: RUF012  # declared so by Textual

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "theme", "Theme: dark, light, high contrast", id="theme"),
        Binding("question_mark", "help", "This help", id="help", key_display="?"),
        Binding("q", "quit", "Quit", id="quit"),
    ]

    def __init__(
        self, controller: Controller, config: UiConfig | None = None, model_name: str = ""
    ) -> None:
        super().__init__()
        self.controller = controller
        self.config = config or UiConfig()
        self.marks = choose(self.config.ascii)
        self.model_name = model_name
        self.screen_names = SCREENS
        lists = (TokenStream.BINDINGS, Playground.BINDINGS, RunActions.BINDINGS, self.BINDINGS)
        self.table = KeyTable(lists, self.config.keys)
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = self.config.theme
        self.animation_level = cast(AnimationLevel, self.config.animation)
        self.playground = Playground(controller)

    def on_mount(self) -> None:
        """Show the playground at once; load the engine after the first paint."""
        self.set_keymap(self.table.remapped)
        self.push_screen(self.playground)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self.controller.start()
        self.playground.draw_bars()
        self.set_interval(1 / self.config.fps, self.drain)

    def on_unmount(self) -> None:
        """End the engine with the interface."""
        self.controller.close()

    def drain(self) -> None:
        """Take over what the engine sent since the last frame."""
        changes = self.controller.drain()
        if changes:
            self.show(changes)

    def show(self, changes: Changes) -> None:
        """Let the screens draw what changed."""
        if not self.playground.is_mounted:
            return
        self.playground.sync(changes)
        for level, text in changes.notices:
            severity = SEVERITIES.get(level, "information")
            self.notify(visible(text), severity=severity, markup=False)  # type: ignore[arg-type]
        rendered = self.controller.rendered
        if changes.rendered and rendered is not None and isinstance(self.screen, PromptEditor):
            self.screen.show_rendered(rendered, self.controller.token_bytes)
        if changes.state or changes.record or changes.ended or changes.parted:
            self.refresh_bindings()

    # What keys, palette and mouse share

    def keys_by_id(self) -> dict[str, str]:
        """The key of each action as it is bound now."""
        return self.table.shown

    def _owner(self, name: str) -> DOMNode:
        """Who does an action: the pane with the focus, the playground or the app."""
        action = parse(self.table.action(name))[1]
        for node in (self.playground.focused, self.playground):
            if node is not None and hasattr(node, f"action_{action}"):
                return node
        return self

    def can(self, name: str) -> bool:
        """An action can act now."""
        _, action, parameters = parse(self.table.action(name))
        return bool(self._owner(name).check_action(action, parameters))

    def act(self, name: str) -> None:
        """Do what the key of an action does."""
        if self.can(name):
            self.call_later(self.run_action, self.table.action(name), self._owner(name))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        return self.can_run(action, parameters)

    def copy(self, text: str, name: str, what: str) -> None:
        """Put text on the clipboard and in a file, and say so."""
        text = visible(text)
        self.copy_to_clipboard(text)
        try:
            where = f"also in {write_export(name, text)}"
        except OSError as error:
            where = f"no file was written: {error.strerror}"
        self.notify(f"copied {what}, {len(text)} characters; {where}", markup=False)

    def action_theme(self) -> None:
        """The next theme."""
        self.theme = next_theme(self.theme)
        self.show(Changes(state=True))

    def action_help(self) -> None:
        """Keys, marks and words."""
        marks = self.marks
        self.push_screen(HelpScreen(self.table.help(), lambda name: getattr(marks, name)))


def controller_for(options: RunOptions) -> Controller:
    """The controller of an engine's process, or of a trace.

    Raises:
        Ds4Error: when a trace cannot be read or written.
    """
    if options.replay is not None:
        events = read_trace(options.replay)
        prompts = [event.prompt for event in events if isinstance(event, RunStarted)]
        return Controller(
            lambda: ReplayLink(events, time.monotonic),
            prompt=Prompt(prompts[0] if prompts else "trace"),
            choices=NO_CHOICES,
        )
    files = options.files

    def connect() -> EngineLink:
        return EngineProcess(files)

    return Controller(
        connect,
        prompt=options.prompt,
        settings=options.settings,
        prompts=options.prompts,
        recorder=TraceWriter(options.trace).write if options.trace else None,
    )


def run_app(options: RunOptions) -> int:
    """Run the interface until it is quit; returns the exit code.

    Raises:
        Ds4Error: before anything is drawn.
    """
    name = "embedded" if options.embedded else ""
    app = Ds4App(controller_for(options), options.config, name)
    app.run()
    return app.return_code or 0
