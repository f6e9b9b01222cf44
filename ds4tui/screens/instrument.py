"""What all screens share: rows 1 to 3, the footer, and when they are drawn.

Owns layout classes and the wiring to app and controller. A screen says what stands between row 3
and the footer, and may say more exactly what its rows 2 and 3 and its keys are. A screen that is
not shown draws nothing: what changed meanwhile is kept and drawn when it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from ds4tui.changes import Changes
from ds4tui.controller import Controller
from ds4tui.paint.bars import Shown
from ds4tui.pair import PairRecord, pair_verdict
from ds4tui.run_state import RunState
from ds4tui.screens.model_panel import ModelPanel
from ds4tui.status import entries_of, footer_entries, prompt_text, shown_settings, state_text
from ds4tui.suite_record import Place, neighbour
from ds4tui.suite_requests import set_of
from ds4tui.verdict_line import VerdictLine, verdict_line
from ds4tui.widgets.bars import KeyFooter, PromptBar, RunBar, VerdictBar
from engine.events import RunFailed

if TYPE_CHECKING:
    from ds4tui.app import Ds4App

DRAWS_HZ = 4
"""Charts, tables and status lines are drawn this often; tokens at the frame rate."""


class Instrument(Screen[None]):
    """One of the numbered screens. Subclasses name KEY and NAME, and compose their body."""

    KEY: ClassVar[str]
    NAME: ClassVar[str]
    """Number and name in row 1."""
    FOOTER: ClassVar[tuple[str, ...]] = ()
    """Binding ids of the footer by importance, for a screen whose footer is always the same."""

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012  # declared so by Textual
        (0, "-tiny"),
        (60, "-narrow"),
        (100, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-short"),
        (16, "-medium"),
        (30, "-tall"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, controller: Controller) -> None:
        super().__init__(id=self.NAME.lower())
        self.controller = controller
        self.pending = Changes(record=True, state=True, suite=True, costs=True)
        self._dirty = True

    @property
    def ds4(self) -> Ds4App:
        """The app, by its own type."""
        return cast("Ds4App", self.app)

    @property
    def failure(self) -> RunFailed | None:
        """What ended the engine or kept the last run from starting."""
        return self.controller.failure if self.controller.shown_state is RunState.FAILED else None

    def compose(self) -> ComposeResult:
        """Rows 1 to 3, the body, the footer."""
        yield RunBar()
        yield PromptBar()
        yield VerdictBar()
        yield from self.compose_body()
        yield KeyFooter()

    def compose_body(self) -> ComposeResult:
        """What stands between row 3 and the footer."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Draw what there is, and what changed a few times a second."""
        self.set_class(self.ds4.marks.ascii, "-ascii")
        self.set_interval(1 / DRAWS_HZ, self.draw)
        self._take_pending()

    def on_screen_resume(self) -> None:
        """Catch up with what happened while another screen was shown."""
        self._take_pending()

    def receive(self, changes: Changes) -> None:
        """Take what a drain changed: at once when shown, else later."""
        self.pending.add(changes)
        if self.is_mounted and self.is_current:
            self._take_pending()

    def _take_pending(self) -> None:
        changes, self.pending = self.pending, Changes()
        if not changes:
            return
        self._dirty = True
        self.sync(changes)
        if changes.state or changes.record or changes.ended or changes.parted or changes.suite:
            self.draw()

    def sync(self, changes: Changes) -> None:
        """Take over changes that cannot wait for the next `draw`."""

    def draw(self) -> None:
        """Bars and body, when something has come since the last time."""
        if self._dirty and self.is_mounted and self.is_current:
            self._dirty = False
            self.draw_bars()
            self.draw_body()

    def redraw(self) -> None:
        """Draw now, whether anything came or not."""
        self._dirty = True
        self.draw()

    def draw_body(self) -> None:
        """Hand the widgets of the body what they show."""
        raise NotImplementedError

    # Rows 1 to 3 and the footer

    def draw_bars(self) -> None:
        """Rows 1 to 3 and the footer."""
        self.query_one(RunBar).show(self.ds4.screen_names, self.KEY, self.state_text())
        self.query_one(PromptBar).show(*self.prompt_row())
        self.query_one(VerdictBar).show(self.verdict())
        self.query_one(KeyFooter).show(self.footer())

    def state_text(self) -> str:
        """The state at the right end of row 1."""
        return state_text(self.controller)

    def prompt_row(self) -> tuple[str, Shown]:
        """Row 2: the prompt and the settings of the run shown."""
        controller = self.controller
        return prompt_text(controller), shown_settings(controller, self.ds4.model_name)

    def verdict(self) -> VerdictLine:
        """Row 3: the verdict on the run shown."""
        controller = self.controller
        if isinstance(controller.record, PairRecord):
            return pair_verdict(controller.record)
        has_prompt = bool(controller.prompt.text)
        keys = self.ds4.keys_by_id()
        return verdict_line(
            controller.record, controller.state, self.failure, keys, has_prompt, controller.loads
        )

    def footer(self) -> list[tuple[str, str, str]]:
        """(key, label, binding id) by importance; only what can act."""
        keys, can, ids = self.ds4.keys_by_id(), self.ds4.can, self.footer_ids()
        if not ids:
            return footer_entries(self.controller, keys, can)
        return entries_of(ids, self.controller, keys, can, self.labels())

    def footer_ids(self) -> Sequence[str]:
        """What the footer offers, by importance; empty = the keys of the run's state."""
        return self.FOOTER

    def labels(self) -> dict[str, str]:
        """Labels in the footer by binding id, where they are not those of the run's keys."""
        return {}

    def on_key_footer_chosen(self, event: KeyFooter.Chosen) -> None:
        """The mouse on the footer acts as the key does."""
        self.ds4.act(event.action)

    def on_resize(self) -> None:
        """Long or short forms depend on the size."""
        self.call_after_refresh(self.redraw)

    # What `r` and `escape` mean here

    def can_run(self) -> bool:
        """`r` can act: there is a prompt to run, or an engine that has ended to load again."""
        controller = self.controller
        has_ended = controller.state is RunState.FAILED and controller.ready is None
        if controller.state is RunState.LOADING and not controller.choices.numerics:
            return False  # a trace that is being read plays by itself
        return (bool(controller.prompt.text) or has_ended) and not controller.is_busy

    def run_it(self) -> None:
        """What `r` runs: the prompt with the knobs as they stand."""
        self.controller.run()

    def run_all(self) -> None:
        """What `R` runs: the set, with the knobs as they stand."""
        request = set_of(self.controller)
        if request is not None:
            self.controller.run_suite(request)

    # What `[` and `]` mean here

    def can_choose(self) -> bool:
        """`[` and `]` can act: there is another run of the suite to show, or a set to run."""
        controller = self.controller
        has_set = bool(controller.prompts) and not controller.is_busy
        return has_set or self._neighbour(1) is not None

    def _neighbour(self, step: int) -> Place | None:
        controller = self.controller
        return neighbour(controller.suites.values(), controller.kept, step)

    def choose(self, step: int) -> None:
        """Show the next or previous prompt's run of the suite shown; else run another prompt."""
        controller = self.controller
        place = self._neighbour(step)
        if place is not None:
            controller.open_run(*place)
        elif controller.choose_prompt(step):
            controller.run()

    # What `e`, `Y` and `o` mean here

    def can_export(self) -> bool:
        """`e` can act."""
        return True

    def export(self) -> None:
        """Write everything about the run shown, and a picture of the screen."""
        self.ds4.export_run(self.controller.record)

    def can_report(self) -> bool:
        """`Y` can act."""
        return self.controller.kept is not None

    def report(self) -> None:
        """Write what a maintainer needs to know of the run shown, or say why not."""
        self.ds4.report_run(self.controller.kept)

    def can_open(self) -> bool:
        """`o` can act."""
        return True

    def open_it(self) -> None:
        """Show the model files, the settings and the machine."""
        self.ds4.push_screen(ModelPanel(self.controller))

    @property
    def has_to_close(self) -> bool:
        """`escape` has something to undo here when nothing runs."""
        return True

    def close_one(self) -> None:
        """Undo it: back to the playground."""
        self.ds4.open_screen("1")
