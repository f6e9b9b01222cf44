"""The model panel: both files with quantisation mix and hashes, settings and machine."""

from __future__ import annotations

from pathlib import PurePath
from typing import ClassVar

from textual.binding import Binding, BindingType

from ds4tui.controller import Controller
from ds4tui.paint.model import file_rows, pair_rows
from ds4tui.screens.rows_panel import RowsPanel
from ds4tui.spans import Row
from ds4tui.visible import drawable_line
from ds4tui.widgets.rows_view import RowsView
from engine.events import ArmInfo, RunStarted
from engine.settings import OF_ARMS

LOOKS_HZ = 4


class ModelPanel(RowsPanel):
    """What is loaded, and what the run shown was started with."""

    PANEL_TITLE: ClassVar[str] = "model and settings"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("o", "close", "Close")]

    def __init__(self, controller: Controller) -> None:
        super().__init__()
        self.controller = controller
        self._known = self._seen()

    def on_mount(self) -> None:
        """Look from time to time."""
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
        own = [pair for pair in started.settings if pair[0] not in OF_ARMS]
        rows += pair_rows("settings of the run shown", own, width)
        rows += [row for arm in started.arms if arm.is_compared for row in _arm_rows(arm, width)]
        rows += _model_rows(started, width)
        ids = " ".join(map(str, started.prompt_ids))
        rows += pair_rows("prompt", ((f"{len(started.prompt_ids)} ids", ids),), width)
        return rows + pair_rows("machine", started.environment, width)


def _arm_rows(arm: ArmInfo, width: int) -> list[Row]:
    """What a DSpark arm has for itself."""
    found = [(name, getattr(arm, name)) for name in OF_ARMS]
    pairs = [(name, "none" if value is None else str(value)) for name, value in found]
    return pair_rows(f"arm {drawable_line(arm.name)}", pairs, width)


def _model_rows(started: RunStarted, width: int) -> list[Row]:
    """What the files say of the target, and of every drafter that an arm has."""
    window = (("window", str(started.window)), ("end token", str(started.eos_id)))
    kinds = ("layer kinds", " ".join(map(str, started.layer_kinds)))
    rows = pair_rows("model", (*window, kinds), width)
    drafters = {arm.drafter: arm for arm in started.arms if arm.kind == "dspark"}
    for path, arm in drafters.items():
        pairs = (
            ("block size", str(started.block_of(arm))),
            ("noise id", str(started.noise_of(arm))),
            ("window", str(started.window_of(arm))),
        )
        rows += pair_rows(f"drafter {drawable_line(PurePath(path).name)}".rstrip(), pairs, width)
    return rows
