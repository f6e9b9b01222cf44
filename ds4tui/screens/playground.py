"""The playground: two token panes, the verdict, depths, rates and the ledger.

Owns layout and focus. What happens to the engine is the controller's; keys that act on a run are
the app's.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget

from ds4tui.changes import Changes
from ds4tui.chart_sides import depth_sides, ledger_sides, rate_sides
from ds4tui.controller import Controller
from ds4tui.paint import panes as pane_text
from ds4tui.pair import PairRecord
from ds4tui.run_state import RunState
from ds4tui.screens.along_run import AlongRun
from ds4tui.screens.boxed import Boxed
from ds4tui.screens.instrument import Instrument
from ds4tui.screens.token_popup import TokenPopup
from ds4tui.spans import Row
from ds4tui.status import load_steps
from ds4tui.verdict_line import plain_only
from ds4tui.widgets.charts import SidedBox
from ds4tui.widgets.pane_pair import PanePair
from ds4tui.widgets.rows_view import RowsView
from ds4tui.widgets.token_stream import TokenStream
from engine.events import RunFailed


class Playground(Instrument):
    """Screen 1."""

    KEY: ClassVar[str] = "1"
    NAME: ClassVar[str] = "Play"
    AUTO_FOCUS = "#left"

    BINDINGS: ClassVar[list[BindingType]] = [
        *AlongRun.BINDINGS,
        *Boxed.BINDINGS,
        Binding("enter", "token", "Token under the cursor: top 5 of both arms", id="token"),
        Binding("x", "rejected", "Show or hide rejected drafts", id="rejected"),
        Binding("v", "sources", "Marks: all, or the divergence only", id="sources"),
        Binding("s", "together", "Scroll both panes together, or apart", id="together"),
        Binding("f", "flip", "Other side of the box: table, segments, all prompts", id="flip"),
    ]

    def __init__(self, controller: Controller) -> None:
        super().__init__(controller)
        self._failure: RunFailed | None = None
        self.add_class("-left")

    @property
    def panes(self) -> PanePair:
        """The two token panes."""
        return self.query_one(PanePair)

    @property
    def left(self) -> TokenStream:
        """The plain pane."""
        return self.panes.left

    @property
    def right(self) -> TokenStream:
        """The DSpark pane."""
        return self.panes.right

    @property
    def _is_small(self) -> bool:
        return self.has_class("-tiny") or self.has_class("-short")

    def compose_body(self) -> ComposeResult:
        """Panes and charts."""
        yield RowsView(self._failure_rows, id="failure")
        yield PanePair(id="panes")
        with Horizontal(id="charts"):
            yield SidedBox("depth")
            yield SidedBox("rates")
            yield SidedBox("ledger", is_last=True)

    def sync(self, changes: Changes) -> None:
        """Show what a drain changed."""
        panes = self.panes
        if changes.record:
            panes.start(self.controller.record)
        if changes.tokens or changes.parted or changes.record:
            panes.feed()
        if changes.ended or (changes.record and self.controller.playback is None):
            panes.show_parting()
        if changes.record:
            panes.take_cursor()

    def on_screen_resume(self) -> None:
        """The cursor is the run's: another screen may have moved it, or chosen another arm."""
        record, panes = self.controller.record, self.panes
        if record is not None and record is panes.record and panes.right_arm != record.shown_arm:
            panes.show_chosen()
            self.redraw()
        panes.take_cursor()

    # Drawing

    def draw_bars(self) -> None:
        """Rows 1 to 3, pane titles and footer."""
        super().draw_bars()
        failure = self.failure
        self.set_class(failure is not None, "-failed")
        if failure is not self._failure:
            self._failure = failure
            self.query_one("#failure", RowsView).reload()
        self.panes.draw_titles(one_at_a_time=self._is_small)
        self._draw_notes()

    def footer(self) -> list[tuple[str, str, str]]:
        """The run's keys, what the focused box can do, and the way back from a maximised one or
        from a comparison."""
        entries, keys = super().footer(), self.ds4.keys_by_id()
        if self._compares_two and not self.controller.is_busy:
            entries.insert(0, (keys["escape"], "Back to runs", "escape"))
        if isinstance(self.focused, SidedBox) and self.focused.has_two_sides:
            entries.insert(0, (keys["flip"], "Other side", "flip"))
        if self.has_class("-max"):
            entries.insert(0, (keys["maximise"], "Restore", "maximise"))
        return entries

    def _failure_rows(self, width: int) -> list[Row]:
        if self._failure is None:
            return []
        return pane_text.failure_rows(self._failure, self.ds4.keys_by_id()["run"], width)

    def _draw_notes(self) -> None:
        """What the panes say while they have no tokens."""
        controller, panes, keys = self.controller, self.panes, self.ds4.keys_by_id()
        record, width = controller.record, panes.note_width()
        if record is not None and record.started is not None and len(record.arms) < 2:
            why = pane_text.wrapped(plain_only(record), width, "dim")
            panes.show_notes(panes.right, why)
            return
        rows: list[Row] = []
        if controller.state in (RunState.LOADING, RunState.PREFILL):
            rows = pane_text.loading_rows(load_steps(controller), width, self.ds4.marks)
            rows = rows or [[("starting the engine", "dim")]]
        elif controller.prompt.text:
            rows = [[(f"{keys['run']} runs the prompt", "dim")]]
        panes.show_notes(panes.left, rows)
        hints: list[Row] = []
        if controller.choices.numerics:
            hints = [[(f"{keys['prompt']} edits the prompt", "dim")]]
        if controller.prompts:
            pair = f"{keys['previous_prompt']} {keys['next_prompt']}"
            hints.append([(f"{pair} take one of the set", "dim")])
        panes.show_notes(panes.right, hints)

    def draw_body(self) -> None:
        """The charts."""
        record, arm = self.controller.record, self.panes.compared
        if arm is not None and arm.info.kind != "dspark" and not self._compares_two:
            arm = None  # the charts are of drafting
        over = self.controller.over_prompts.counts(record, arm) if record and arm else None
        for name, sides in (
            ("depth", depth_sides(record, arm, over)),
            ("rates", rate_sides(record, arm)),
            ("ledger", ledger_sides(record, arm)),
        ):
            self.query_one(f"#{name}", SidedBox).show(sides)

    # Messages

    def on_pane_pair_moved(self) -> None:
        """The borders name the cursor's token and what is new below."""
        self.panes.draw_titles(one_at_a_time=self._is_small)

    def on_descendant_focus(self) -> None:
        """One pane at a time in a small terminal: the one that has the focus."""
        right = self.focused is self.right
        self.set_class(right, "-right")
        self.set_class(not right, "-left")
        self.refresh_bindings()
        self.draw_bars()

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        record, arm = self.controller.record, self.panes.compared
        match action:
            case "divergence":
                return record is not None and record.parts_at is not None
            case "drift":
                return arm is not None and arm.first_drift is not None
            case "rejected":
                return arm is not None and bool(arm.rejected)
            case "cycle" | "token" | "copy":
                return record is not None and any(each.ids for each in record.arms)
            case "flip":
                return self._box_to_flip is not None
            case "other_arm":
                return record is not None and len(record.arms) > 2
            case _:
                return True

    @property
    def has_to_close(self) -> bool:
        """Something is maximised, there is a cursor, or two arms are compared."""
        return self.has_class("-max") or self.panes.cursor is not None or self._compares_two

    @property
    def _compares_two(self) -> bool:
        """The panes show two arms that screen 7 put together."""
        return isinstance(self.controller.record, PairRecord)

    def close_one(self) -> None:
        """Restore what is maximised, else take the cursor away, else go back to the list."""
        if self.has_class("-max"):
            self.action_maximise()
        elif self.panes.cursor is not None:
            self.panes.move(None)
        elif self._compares_two:
            self.controller.show_newest()
            self.ds4.show(Changes(record=True, state=True))
            self.ds4.open_screen("7")

    def action_divergence(self) -> None:
        """The cursor to the token at which the ids part."""
        record = self.controller.record
        if record is not None and record.parts_at is not None:
            self.panes.move(record.parts_at, at_third=True)

    def action_drift(self) -> None:
        """The cursor to the first boundary at which the states differed."""
        arm = self.panes.compared
        if arm is not None and arm.first_drift is not None:
            self.panes.move(arm.first_drift.position, at_third=True)

    def _cursor(self) -> int | None:
        """Where the cursor is, else where the ids part."""
        record = self.controller.record
        if self.panes.cursor is not None or record is None:
            return self.panes.cursor
        return record.parts_at

    def action_cycle(self, step: int) -> None:
        """The cursor to the first token of the cycle before or after."""
        arm = self.panes.compared
        if arm is None:
            return
        cursor = self._cursor()
        at = len(arm.ids) if cursor is None else cursor
        beyond = [start for start in arm.cycle_starts if (start > at if step > 0 else start < at)]
        if beyond:
            self.panes.move(beyond[0] if step > 0 else beyond[-1])

    def action_token(self) -> None:
        """The popup of the cursor's token."""
        record = self.controller.record
        if record is None:
            return

        def back(index: int | None) -> None:
            if index is not None:
                self.panes.move(index)

        cursor = self._cursor()
        index = self.left.start_index() if cursor is None else cursor
        self.app.push_screen(TokenPopup(record, index), back)

    def action_rejected(self) -> None:
        """Rejected drafts in the right pane, on or off."""
        self.panes.rejected_shown = not self.panes.rejected_shown
        self.right.show_rejected(self.panes.rejected_shown)

    def action_sources(self) -> None:
        """Marks on drafts and bonus tokens, on or off."""
        self.panes.sources_shown = not self.panes.sources_shown
        self.right.show_sources(self.panes.sources_shown)

    def action_together(self) -> None:
        """Tie the panes' scrolling, or untie it."""
        self.panes.tie(self.right if self.right.has_focus else self.left)
        word = "together" if self.panes.together else "apart"
        self.notify(f"panes scroll {word}", markup=False)

    def action_other_arm(self) -> None:
        """The next arm that is not plain, in the right pane."""
        self.panes.next_arm()
        self.redraw()

    def action_maximise(self) -> None:
        """The focused pane or box over all of the middle, or back."""
        chosen = self.focused
        is_max = self.has_class("-max")
        for node in self.query(".-chosen, .-holds"):
            node.remove_class("-chosen", "-holds")
        self.set_class(not is_max and chosen is not None, "-max")
        if not is_max and chosen is not None and isinstance(chosen.parent, Widget):
            chosen.add_class("-chosen")
            chosen.parent.add_class("-holds")
        self.call_after_refresh(self._redraw)

    def _redraw(self) -> None:
        for box in self.query(SidedBox):
            box.repaint()
        self.draw_bars()

    def action_flip(self) -> None:
        """The other side of the focused box, else of the first one that has another."""
        box = self._box_to_flip
        if box is not None:
            box.flip()

    @property
    def _box_to_flip(self) -> SidedBox | None:
        """The box that has the focus; the first one with another side while none has it."""
        focused = self.focused
        boxes = [focused] if isinstance(focused, SidedBox) else list(self.query(SidedBox))
        return next((box for box in boxes if box.has_two_sides), None)

    def action_next_pane(self, step: int) -> None:
        """Move the focus; in a small terminal to the pane that is not shown."""
        if self._is_small:
            other = self.left if self.has_class("-right") else self.right
            self.set_class(other is self.right, "-right")
            self.set_class(other is self.left, "-left")
            self.call_after_refresh(other.focus)
        elif step > 0:
            self.focus_next()
        else:
            self.focus_previous()

    def action_copy(self) -> None:
        """Copy what the mouse has selected, else the focused pane's text or box; the same goes to
        a file."""
        record, focused = self.controller.record, self.focused
        if record is None or record.started is None:
            return
        run_id = record.started.run_id
        selected = self.get_selected_text()
        if selected:
            self.ds4.copy(selected, f"{run_id}-selection.txt", "the selection")
            self.clear_selection()
            return
        if isinstance(focused, SidedBox):
            self.ds4.copy(focused.text(), f"{run_id}-{focused.id}.txt", f"the {focused.id} box")
            return
        arm = self.panes.arm_of(self.right if focused is self.right else self.left)
        if arm is not None:
            what = f"{len(arm.ids)} tokens of {arm.info.name}"
            self.ds4.copy("".join(arm.texts), f"{run_id}-{arm.info.name}.txt", what)
