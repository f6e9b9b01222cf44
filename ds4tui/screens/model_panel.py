"""The model panel: both files with quantisation mix and hashes, settings and machine."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content

from ds4tui.controller import Controller
from ds4tui.paint.model import file_rows, pair_rows
from ds4tui.screens.dialog import Dialog
from ds4tui.spans import Row
from ds4tui.widgets.rows_view import RowsView

LOOKS_HZ = 4


class ModelPanel(Dialog[None]):
    """What is loaded, and what the run shown was started with."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,o", "close", "Close", id="model_close"),
        Binding("j,down", "scroll(1)", "Down", id="model_down"),
        Binding("k,up", "scroll(-1)", "Up", id="model_up"),
        Binding("pagedown,space", "scroll(10)", "Page down", id="model_page_down"),
        Binding("pageup", "scroll(-10)", "Page up", id="model_page_up"),
        Binding("g,home", "scroll(-10000)", "Top", id="model_top"),
        Binding("G,end", "scroll(10000)", "End", id="model_end"),
    ]
    DEFAULT_CSS = """
    ModelPanel { align: center middle; }
    ModelPanel #panel { width: 92%; max-width: 100; height: 90%; }
    """

    def __init__(self, controller: Controller) -> None:
        super().__init__()
        self.controller = controller
        self._known = self._seen()

    def compose(self) -> ComposeResult:
        """One scrolling panel."""
        with VerticalScroll(id="panel", can_focus=False):
            yield RowsView(self.rows, id="text")

    def on_mount(self) -> None:
        """Name the panel."""
        panel = self.query_one("#panel")
        panel.border_title = Content("model and settings")
        panel.border_subtitle = Content("j k scroll · escape closes")
        self.set_interval(1 / LOOKS_HZ, self.look)

    def look(self) -> None:
        """What is loaded may become known, and a run may start, while the panel is open."""
        if self._known != self._seen():
            self._known = self._seen()
            self.query_one(RowsView).reload()

    def _seen(self) -> tuple[object, object]:
        record = self.controller.record
        return self.controller.ready, record.started if record is not None else None

    def rows(self, width: int) -> list[Row]:
        """Files, settings of the run shown, prompt ids, machine."""
        record, ready = self.controller.record, self.controller.ready
        started = record.started if record is not None else None
        files = started.files if started is not None else ready.files if ready is not None else ()
        rows = file_rows(files, width)
        if started is None:
            return [*rows, [("settings and machine are known once a run has started", "dim")]]
        rows += pair_rows("settings of the run shown", started.settings, width)
        block = (("block size", str(started.block_size)), ("noise id", str(started.noise_id)))
        window = (("window", str(started.window)), ("end token", str(started.eos_id)))
        kinds = ("layer kinds", " ".join(map(str, started.layer_kinds)))
        rows += pair_rows("model", (*block, *window, kinds), width)
        ids = " ".join(map(str, started.prompt_ids))
        rows += pair_rows("prompt", ((f"{len(started.prompt_ids)} ids", ids),), width)
        return rows + pair_rows("machine", started.environment, width)

    def action_scroll(self, rows: int) -> None:
        """Scroll by rows."""
        self.query_one("#panel").scroll_relative(y=rows, animate=False)

    def action_close(self) -> None:
        """Back to what was there."""
        self.dismiss(None)
