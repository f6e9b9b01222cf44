"""The application: screens, themes, help and the wiring of controller and widgets."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, cast

from textual import constants
from textual.actions import parse
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.driver import Driver
from textual.filter import LineFilter
from textual.types import AnimationLevel

from ds4tui.ascii_lines import AsciiLines
from ds4tui.changes import Changes
from ds4tui.collecting import REST_SECONDS, Collecting
from ds4tui.commands import KeyCommands, Palette
from ds4tui.config import UiConfig
from ds4tui.controller import Controller
from ds4tui.exports import report_of, shown_path, why_no_report, write_export, write_run
from ds4tui.hangup import (
    HUNG_UP,
    LOOK_SECONDS,
    TERMINATED,
    on_signal,
    shell_can_resume,
    terminal_is_gone,
)
from ds4tui.keys import KeyTable
from ds4tui.knobs_now import NO_CHOICES
from ds4tui.link import EngineLink, TraceLink
from ds4tui.marks import choose
from ds4tui.options import Rendering, RunOptions
from ds4tui.pacing import Pacing
from ds4tui.run_actions import RunActions
from ds4tui.run_record import RunRecord
from ds4tui.run_state import RunState
from ds4tui.screens.cycle import CycleScreen
from ds4tui.screens.drift import DriftScreen
from ds4tui.screens.economics import EconomicsScreen
from ds4tui.screens.help import HelpScreen
from ds4tui.screens.instrument import Instrument
from ds4tui.screens.matrix import MatrixScreen
from ds4tui.screens.playground import Playground
from ds4tui.screens.prompt_editor import PromptEditor
from ds4tui.screens.runs import RunsScreen
from ds4tui.screens.sweep import SweepScreen
from ds4tui.suite_record import suite_of
from ds4tui.themes import THEMES, next_theme
from ds4tui.trace_store import TraceStore, traces_folder
from ds4tui.widgets.token_stream import TokenStream
from engine.errors import Ds4Error
from engine.process import EngineProcess
from engine.settings import Prompt
from engine.text import visible
from engine.trace import TraceWriter

INSTRUMENTS: tuple[type[Instrument], ...] = (
    Playground,
    CycleScreen,
    DriftScreen,
    MatrixScreen,
    EconomicsScreen,
    SweepScreen,
    RunsScreen,
)
"""The numbered screens."""

BROKEN = 2
"""Exit code after an error of the program's own, which Textual has printed."""

SEVERITIES = {"error": "error", "warning": "warning"}


class Ds4App(RunActions):
    """The interface.

    Args:
        controller: not started yet.
        model_name: what row 2 calls the model; "" takes it from the files.
        store: keeps the last runs on disk; None keeps none.
        rendering: of the prompts of a set that is opened.

    `problem` is what closed the interface, to be told in its place.

    Raises:
        Ds4Error: when the configuration binds a key to an action that there is not.
    """

    CSS_PATH = "ds4tui.tcss"
    TITLE = "ds4tui"
    COMMANDS = {KeyCommands}  # noqa: RUF012  # declared so by Textual

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(kind.KEY, f"open('{kind.KEY}')", f"Screen {kind.NAME}", id=f"screen_{kind.KEY}")
            for kind in INSTRUMENTS
        ),
        Binding("e", "export", "Export: transcript, events, figures, picture", id="export"),
        Binding("Y", "report", "Report for a maintainer: file and clipboard", id="report"),
        Binding("o", "open_it", "Model files and settings, or open a file", id="open"),
        Binding("t", "theme", "Theme: dark, light, high contrast", id="theme"),
        Binding("question_mark", "help", "This help", id="help", key_display="?"),
        Binding("ctrl+z", "suspend_process", "Suspend; fg in the shell comes back", id="suspend"),
        Binding("q", "quit", "Quit", id="quit"),
    ]

    def __init__(
        self,
        controller: Controller,
        config: UiConfig | None = None,
        model_name: str = "",
        rendering: Rendering | None = None,
        store: TraceStore | None = None,
    ) -> None:
        super().__init__()
        self.store = store or TraceStore(None)
        self.controller = controller
        self.controller.session.now = self.store.now
        self.pacing = Pacing()
        self.collecting = Collecting()
        self.config = config or UiConfig()
        self.marks = choose(self.config.ascii)
        self.model_name = model_name
        self.rendering = rendering or Rendering()
        self.screen_names = tuple((kind.KEY, kind.NAME) for kind in INSTRUMENTS)
        self.table = key_table(self.config.keys)
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = self.config.theme
        self.animation_level = cast(AnimationLevel, self.config.animation)
        self.problem: Ds4Error | None = None
        self.instruments = {kind.KEY: kind(controller) for kind in INSTRUMENTS}

    def get_driver_class(self) -> type[Driver]:
        """Textual's own, except where there is one that takes whatever a terminal sends."""
        if os.name != "posix" or constants.DRIVER is not None:
            return super().get_driver_class()
        from ds4tui.posix_driver import PosixDriver  # what it imports is there on POSIX only

        return PosixDriver

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, and what keeps everything to ASCII where it must be."""
        filters = super().get_line_filters()
        return [*filters, AsciiLines()] if self.marks.ascii else filters

    @property
    def instrument(self) -> Instrument:
        """The screen that is shown, below whatever is open over it."""
        shown = (screen for screen in self.screen_stack if isinstance(screen, Instrument))
        return next(shown, self.instruments["1"])

    @property
    def playground(self) -> Playground:
        """Screen 1."""
        return cast(Playground, self.instruments["1"])

    def on_mount(self) -> None:
        """Show the playground at once; load the engine after the first paint."""
        self.collecting.begin()
        self.set_keymap(self.table.remapped)
        for instrument in self.instruments.values():
            self.install_screen(instrument, f"instrument-{instrument.KEY}")
        self.push_screen(self.playground)
        self.call_after_refresh(self._begin)
        if not self.is_headless:
            on_signal("SIGHUP", self._hung_up)
            on_signal("SIGTERM", lambda: self.exit(TERMINATED))
            self.set_interval(LOOK_SECONDS, self._look_at_terminal)

    def _begin(self) -> None:
        self.controller.start()
        self.instrument.draw_bars()
        self.set_interval(1 / self.config.fps, self._frame)

    def on_unmount(self) -> None:
        """End the engine with the interface; what came from it until now is still recorded."""
        self._leave()
        self.collecting.end()

    def _leave(self) -> None:
        self._drain()
        self.controller.close()
        self.store.close()

    def _look_at_terminal(self) -> None:
        if terminal_is_gone():
            self._hung_up()

    def _hung_up(self) -> None:
        """There is nobody left to draw for, and drawing could wait for ever."""
        self._leave()
        os._exit(HUNG_UP)

    def _frame(self) -> None:
        """Drain at the frame rate, or less often where a frame costs much beside the engine."""
        decodes = self.controller.state is RunState.DECODING and self.controller.player is None
        if not decodes or self.pacing.is_due():
            self.drain()

    def _drain(self) -> Changes:
        """Take over what the engine sent, and store the runs that ended with it."""
        try:
            changes = self.controller.drain()
        except Ds4Error as problem:  # the trace to be replayed is damaged
            self.problem = problem
            self.exit()
            return Changes()
        ended = self.controller.take_ended()
        if self.controller.player is None:
            for record in ended:
                self.store.save(record)
        return changes

    def drain(self) -> None:
        """Take over what the engine sent since the last frame."""
        changes = self._drain()
        problem = self.store.problem()
        if problem:
            changes.notices.append(("warning", problem))
        if changes:
            self.show(changes)
        if changes.ended:
            self.set_timer(REST_SECONDS, self._rest)

    def _rest(self) -> None:
        """Nothing happens: a good time for what makes a key wait."""
        if not self.controller.is_busy:
            self.collecting.collect()

    def show(self, changes: Changes) -> None:
        """Let the screens draw what changed."""
        for instrument in self.instruments.values():
            instrument.receive(changes)
        for level, text in changes.notices:
            severity = SEVERITIES.get(level, "information")
            self.notify(visible(text), severity=severity, markup=False)  # type: ignore[arg-type]
        rendered, top = self.controller.rendered, self.screen
        # An editor that is not mounted yet has asked for nothing.
        if changes.rendered and rendered and isinstance(top, PromptEditor) and top.is_mounted:
            top.show_rendered(rendered, self.controller.token_bytes)
        if changes.state or changes.record or changes.ended or changes.parted or changes.suite:
            self.refresh_bindings()

    # What keys, palette and mouse share

    def keys_by_id(self) -> dict[str, str]:
        """The key of each action as it is bound now."""
        return self.table.shown

    def _owner(self, name: str) -> DOMNode | None:
        """Who does an action: what has the focus, the screen shown or the app; None = nobody."""
        action = parse(self.table.action(name))[1]
        for node in (self.instrument.focused, self.instrument, self):
            if node is not None and hasattr(node, f"action_{action}"):
                return node
        return None

    def can(self, name: str) -> bool:
        """An action can act now."""
        _, action, parameters = parse(self.table.action(name))
        owner = self._owner(name)
        return owner is not None and bool(owner.check_action(action, parameters))

    def act(self, name: str) -> None:
        """Do what the key of an action does."""
        if self.can(name):
            self.call_later(self.run_action, self.table.action(name), self._owner(name))

    def _can_suspend(self) -> bool:
        """The terminal can be left to the shell and taken back."""
        return self._driver is not None and self._driver.can_suspend and shell_can_resume()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        hooks = {
            "export": self.instrument.can_export,
            "report": self.instrument.can_report,
            "open_it": self.instrument.can_open,
            "suspend_process": self._can_suspend,
        }
        hook = hooks.get(action)
        return hook() if hook is not None else self.can_run(action, parameters)

    def copy(self, text: str, name: str, what: str) -> None:
        """Put text on the clipboard and in a file, and say so."""
        text = visible(text)
        self.copy_to_clipboard(text)
        try:
            where = f"file {shown_path(write_export(name, text))}"
        except OSError as error:
            where = f"no file was written: {error.strerror}"
        self.notify(f"copied {what}, {len(text)} characters; {where}", markup=False)

    def export_run(self, record: RunRecord | None) -> None:
        """Write the files of a run and a picture of the screen, and say where."""
        picture = self.export_screenshot()
        name = self.instrument.NAME.lower()
        try:
            paths = write_run(record or RunRecord(), picture, name)
        except OSError as error:
            reason = error.strerror or str(error)
            self.notify(f"nothing exported: {reason}", severity="error", markup=False)
            return
        files = ", ".join(path.name for path in paths)
        self.notify(f"exported {files} to {shown_path(paths[0].parent)}", markup=False)

    def report_run(self, record: RunRecord | None) -> None:
        """Copy the report of a run, and write it to a file."""
        of_set = suite_of(self.controller.suites.values(), record)
        text = report_of(record, of_set) if record is not None else None
        if text is None or record is None or record.started is None:
            why = why_no_report(record, is_replay=self.controller.player is not None)
            self.notify(f"no report: {why}", severity="warning", markup=False)
            return
        self.copy(text, f"run-{record.started.run_id}-report.md", "the report")

    def open_screen(self, key: str) -> None:
        """Show a numbered screen."""
        if key != self.instrument.KEY:
            self.switch_screen(f"instrument-{key}")

    def action_open(self, key: str) -> None:
        """Show a numbered screen."""
        self.open_screen(key)

    def action_export(self) -> None:
        """Export what the screen shows."""
        self.instrument.export()

    def action_report(self) -> None:
        """Report what the screen shows."""
        self.instrument.report()

    def action_open_it(self) -> None:
        """Open what the screen opens."""
        self.instrument.open_it()

    def action_theme(self) -> None:
        """The next theme."""
        self.theme = next_theme(self.theme)
        self.show(Changes(state=True))

    def action_command_palette(self) -> None:
        """Everything by its name."""
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def action_help_quit(self) -> None:
        """ctrl+c: say which key leaves, of Textual's own and ours the one that the help names."""
        key = self.keys_by_id()["quit"]
        self.notify(f"Press {key} to quit", title="Do you want to quit?", markup=False)

    def action_help(self) -> None:
        """Keys, marks and words."""
        marks = self.marks
        self.push_screen(HelpScreen(self.table.help(), lambda name: getattr(marks, name)))


def key_table(remapped: Mapping[str, str]) -> KeyTable:
    """Every key of the interface.

    Args:
        remapped: other keys by the id of their action.
    Raises:
        Ds4Error: for an id that no action has.
    """
    lists = {"tokens": TokenStream.BINDINGS, "run": RunActions.BINDINGS, "": Ds4App.BINDINGS}
    lists |= {kind.NAME.lower(): kind.BINDINGS for kind in INSTRUMENTS}
    return KeyTable(lists, remapped)


def controller_for(options: RunOptions, trace: TraceWriter | None = None) -> Controller:
    """The controller of an engine's process, or of a trace to be replayed.

    Args:
        trace: takes every event.
    Raises:
        Ds4Error: when the trace to be replayed is missing or none.
    """
    if options.replay is not None:
        link = TraceLink(options.replay, time.monotonic)
        name = Path(options.replay).name
        return Controller(lambda: link, prompt=Prompt(name), choices=NO_CHOICES)
    files = options.files

    def connect() -> EngineLink:
        return EngineProcess(files)

    return Controller(
        connect,
        prompt=options.prompt,
        settings=options.settings,
        prompts=options.prompts,
        recorder=None if trace is None else trace.write,
        set_name=options.set_name,
    )


def run_app(options: RunOptions) -> int:
    """Run the interface until it is quit; returns the exit code, `BROKEN` when a bug ended it.

    Raises:
        Ds4Error: before anything is drawn, or after the interface has closed because of it.
    """
    name = "embedded" if options.embedded else ""
    store = TraceStore(traces_folder())
    trace = TraceWriter(options.trace) if options.trace else None
    try:
        controller = controller_for(options, trace)
        app = Ds4App(controller, options.config, name, options.rendering, store)
        app.run()
    finally:
        if trace is not None:
            trace.close()
    if app.problem is not None:
        raise app.problem
    if app.return_code != 0:  # 1, or None after what another thread raised: nothing left it
        return BROKEN
    return app.return_value or 0
