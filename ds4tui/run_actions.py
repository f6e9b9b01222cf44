"""Keys that act on a run, on every screen: run, pause, knobs, prompts, slow motion.

Owns the bindings and when they can act; what they do is the controller's. `ds4tui.app` adds the
screens.
"""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from ds4tui.controller import Changes, Controller
from ds4tui.screens.playground import Playground
from ds4tui.screens.prompt_editor import PromptEditor
from engine.settings import Prompt


class RunActions(App[int]):
    """An app with a controller whose run the keys act on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "run", "Run the prompt, or try again", id="run"),
        Binding("space", "pause", "Pause or resume", id="pause"),
        Binding("escape", "escape", "Stop the run, else drop the cursor", id="escape"),
        Binding("i", "prompt", "Edit the prompt and its switches", id="prompt"),
        Binding("right_square_bracket", "choose(1)", "Run the next prompt", id="next_prompt"),
        Binding("left_square_bracket", "choose(-1)", "Run the one before", id="previous_prompt"),
        Binding("p", "turn('policy', 1)", "Commit policy, also of a run", id="policy"),
        Binding("P", "turn('policy', -1)", "Commit policy, the other way", id="policy_back"),
        Binding("n", "turn('numerics', 1)", "Numerics, from the next run on", id="numerics"),
        Binding("c", "turn('confidence', 1)", "Confidence threshold up", id="confidence"),
        Binding("C", "turn('confidence', -1)", "Confidence threshold down", id="confidence_down"),
        Binding("b", "turn('block', 1)", "Block length up", id="block"),
        Binding("B", "turn('block', -1)", "Block length down", id="block_down"),
        Binding("z", "slow", "Slow motion: the run again, by the arms' own clocks", id="slow"),
        Binding("less_than_sign", "speed(0.5)", "Slower", id="slower", key_display="<"),
        Binding("greater_than_sign", "speed(2.0)", "Faster", id="faster", key_display=">"),
    ]

    controller: Controller
    playground: Playground

    def show(self, changes: Changes) -> None:
        """Let the screens draw what changed."""
        raise NotImplementedError

    def can_run(self, action: str, parameters: tuple[object, ...]) -> bool:
        """An action on the run can act now."""
        controller = self.controller
        busy, plays = controller.state.is_busy, controller.playback is not None
        match action:
            case "pause":
                return busy or plays
            case "run":
                return bool(controller.prompt.text) and not busy
            case "prompt":
                return bool(controller.choices.numerics)
            case "choose":
                return bool(controller.prompts) and not busy
            case "turn":
                return controller.can_turn(str(parameters[0]))
            case "escape":
                return busy or plays or self.playground.has_to_close
            case "slow":
                return controller.can_slow and not plays
            case "speed":
                return plays
            case _:
                return True

    def _after(self, record: bool = False) -> None:
        self.show(Changes(record=record, state=True))

    def action_run(self) -> None:
        """Run the prompt with the knobs as they stand."""
        replayed = self.controller.playback is not None
        self.controller.run()
        self._after(record=replayed)

    def action_pause(self) -> None:
        """Pause or resume."""
        self.controller.pause()
        self._after()

    def action_escape(self) -> None:
        """Stop what runs; else restore what is maximised; else drop the cursor."""
        replayed = self.controller.playback is not None
        if self.controller.state.is_busy or replayed:
            self.controller.stop()
            self._after(record=replayed)
        else:
            self.playground.close_one()

    def action_prompt(self) -> None:
        """Edit the prompt."""
        controller = self.controller

        def edited(prompt: Prompt | None) -> None:
            if prompt is not None:
                controller.run(prompt)
                self._after()

        editor = PromptEditor(controller.prompt, controller.history, controller.render)
        self.push_screen(editor, edited)

    def action_choose(self, step: int) -> None:
        """Run another prompt of the set."""
        if self.controller.choose_prompt(step):
            self.action_run()

    def action_turn(self, knob: str, step: int) -> None:
        """Turn a knob."""
        self.controller.turn(knob, step)
        self._after()

    def action_slow(self) -> None:
        """Play the finished run again."""
        if self.controller.slow_motion():
            self._after(record=True)

    def action_speed(self, factor: float) -> None:
        """Slower or faster."""
        if self.controller.playback is not None:
            self.controller.playback.faster(factor)
            self._after()
