"""What the screens about one run share: its cursor, the ways along it, and what they say without.

Owns the keys that move the cursor of the run shown; the playground takes them over, since the
cursor is the run's. What a screen draws at the cursor is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from ds4tui.arm_names import name_of
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.run_state import RunState
from ds4tui.screens.boxed import Boxed
from ds4tui.status import PROMPTS
from ds4tui.verdict_line import plain_only


class AlongRun(Boxed):
    """A screen that shows one place of the run shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "divergence", "Go to the divergence", id="divergence"),
        Binding("D", "drift", "Go to the first drift", id="drift"),
        Binding("comma", "cycle(-1)", "Cycle before", id="cycle_before", key_display=","),
        Binding("full_stop", "cycle(1)", "Cycle after", id="cycle_after", key_display="."),
        Binding("w", "other_arm", "Show another arm in the right pane", id="other_arm"),
    ]

    @property
    def record(self) -> RunRecord | None:
        """The run shown."""
        return self.controller.record

    @property
    def arm(self) -> ArmRecord | None:
        """The arm shown beside plain."""
        return self.record.beside if self.record is not None else None

    def why_nothing(self) -> str:
        """What the screen says when there is no cycle to show; "" when there is."""
        record, keys = self.record, self.ds4.keys_by_id()
        if self.arm is not None and self.arm.cycles:
            return ""
        if record is not None and record.started is not None and record.beside is None:
            return plain_only(record)
        if self.arm is not None and self.arm.info.kind != "dspark":
            return f"{name_of(self.arm)} drafts nothing, so it has no cycles."
        if self.arm is not None and self.arm.finished is not None:
            return "The run ended at its first token, which is the prefill's: it has no cycle."
        if self.controller.state in (RunState.PREFILL, RunState.DECODING, RunState.PAUSED):
            return "The run has no cycle yet."
        return f"No run yet. {keys['run']} runs the prompt, {keys['prompt']} edits it."

    def footer_ids(self) -> Sequence[str]:
        """Keys of the screen; without a cycle those that lead to one."""
        if self.arm is not None and self.arm.cycles:
            return super().footer_ids()
        keys = ("prompt", PROMPTS, "numerics", "policy", "pause", "escape", "help")
        return ["run", "other_arm", *keys]

    def on_screen_resume(self) -> None:
        """Another screen may have moved the run's cursor."""
        self.redraw()

    def look_at(self, index: int) -> None:
        """Put the run's cursor on a token."""
        if self.record is not None and self.arm is not None:
            self.record.cursor = max(0, min(len(self.arm.ids) - 1, index))
            self.redraw()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can act now."""
        arm, record = self.arm, self.record
        match action:
            case "divergence":
                return record is not None and record.parts_at is not None
            case "drift":
                return arm is not None and arm.first_drift is not None
            case "cycle":
                return arm is not None and bool(arm.cycles)
            case "other_arm":
                return record is not None and len(record.arms) > 2
            case _:
                return super().check_action(action, parameters)

    def action_divergence(self) -> None:
        """To where the ids part."""
        if self.record is not None and self.record.parts_at is not None:
            self.look_at(self.record.parts_at)

    def action_drift(self) -> None:
        """To the first boundary at which the states differed."""
        if self.arm is not None and self.arm.first_drift is not None:
            self.look_at(self.arm.first_drift.position)

    def action_cycle(self, step: int) -> None:
        """To the first token of the cycle before or after."""
        if self.arm is None or self.record is None or not self.arm.cycles:
            return
        at = self.arm.cycle_at(self.record.place)
        at = max(0, min(len(self.arm.cycles) - 1, at + step))
        self.look_at(self.arm.cycles[at].index)

    def action_other_arm(self) -> None:
        """The next arm that is not plain."""
        record = self.record
        if record is not None and len(record.arms) > 2:
            record.choose(record.shown_arm % (len(record.arms) - 1) + 1)
            self.redraw()
