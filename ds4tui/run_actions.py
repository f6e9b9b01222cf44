"""Keys that act on a run, on every screen: run, pause, knobs, prompts, slow motion.

Owns the bindings and when they can act; what they do is the controller's. `ds4tui.app` adds the
screens.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from ds4tui.changes import Changes
from ds4tui.controller import Controller
from ds4tui.screens.ask import AskText
from ds4tui.screens.instrument import Instrument
from ds4tui.screens.prompt_editor import PromptEditor
from ds4tui.suite_requests import matrix_of_prompt
from engine.settings import Prompt


class RunActions(App[int]):
    """An app with a controller whose run the keys act on."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "run", "Run what the screen is about, or try again", id="run"),
        Binding("R", "run_all", "Run the whole set, on screen 4 the whole matrix", id="run_all"),
        Binding("a", "all_cells", "All numerics and policies on this prompt", id="all_cells"),
        Binding("space", "pause", "Pause or resume", id="pause"),
        Binding("escape", "escape", "Stop, else close, else go to screen 1", id="escape"),
        Binding("i", "prompt", "Edit the prompt and its switches", id="prompt"),
        Binding("I", "follow_up", "Next turn of the conversation", id="follow_up"),
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
        Binding("left_parenthesis", "step(-1)", "Replay: a cycle back", id="step_back",
                key_display="("),
        Binding("right_parenthesis", "step(1)", "Replay: a cycle on", id="step", key_display=")"),
        Binding("number_sign", "seek", "Replay: go to a token's index", id="seek",
                key_display="#"),
    ]  # fmt: skip

    controller: Controller

    @property
    def instrument(self) -> Instrument:
        """The screen that is shown, below whatever is open over it."""
        raise NotImplementedError

    def open_screen(self, key: str) -> None:
        """Show a numbered screen."""
        raise NotImplementedError

    def show(self, changes: Changes) -> None:
        """Let the screens draw what changed."""
        raise NotImplementedError

    def can_run(self, action: str, parameters: tuple[object, ...]) -> bool:
        """An action on the run can act now."""
        controller = self.controller
        busy, plays = controller.is_busy, controller.playback is not None
        player = controller.player
        match action:
            case "pause":
                return controller.state.is_busy or plays or bool(player and not player.is_over)
            case "run":
                return self.instrument.can_run()
            case "run_all":
                return controller.can_run_suite and bool(controller.prompts)
            case "all_cells":
                return controller.can_run_suite and self._can_draft and bool(controller.prompt.text)
            case "prompt":
                return bool(controller.choices.numerics)
            case "follow_up":
                return bool(controller.choices.numerics) and controller.can_follow_up
            case "choose":
                return self.instrument.can_choose()
            case "turn":
                return controller.can_turn(str(parameters[0]))
            case "escape":
                return busy or plays or self.instrument.has_to_close
            case "slow":
                return controller.can_slow and not plays
            case "speed" | "step" | "seek":
                return player is not None
            case _:
                return True

    def _after(self, record: bool = False) -> None:
        self.show(Changes(record=record, state=True))

    def action_run(self) -> None:
        """Run what the screen is about: the prompt, a suite, a measurement."""
        replayed = self.controller.playback is not None
        self.instrument.run_it()
        self._after(record=replayed)

    @property
    def _can_draft(self) -> bool:
        """The engine has a drafter, as far as is known."""
        ready = self.controller.ready
        return bool(self.controller.settings.dspark) and (ready is None or ready.block_size > 0)

    def action_run_all(self) -> None:
        """Run everything that the screen is about: the set, the matrix."""
        self.instrument.run_all()
        self._after()

    def action_all_cells(self) -> None:
        """Fill the matrix for this prompt, on its screen."""
        request = matrix_of_prompt(self.controller)
        if request is not None:
            self.controller.run_suite(request)
            self.open_screen("4")
            self._after()

    def action_pause(self) -> None:
        """Pause or resume."""
        self.controller.pause()
        self._after()

    def action_escape(self) -> None:
        """Stop what runs; else close what is open on the screen; else back to the playground."""
        replayed = self.controller.playback is not None
        if self.controller.is_busy or replayed:
            self.controller.stop()
            self._after(record=replayed)
        else:
            self.instrument.close_one()

    def action_prompt(self) -> None:
        """Edit the prompt."""
        controller = self.controller

        def edited(prompt: Prompt | None) -> None:
            if prompt is not None:
                controller.run(prompt)
                self._after()

        editor = PromptEditor(controller.prompt, controller.history, controller.render)
        self.push_screen(editor, edited)

    def action_follow_up(self) -> None:
        """Write the next turn of the conversation; every arm evaluates only what is new."""
        controller = self.controller

        def edited(prompt: Prompt | None) -> None:
            if prompt is not None:
                controller.follow_up(prompt)
                self._after()

        blank = replace(controller.prompt, text="", system="")
        self.push_screen(PromptEditor(blank, controller.history, None), edited)

    def action_choose(self, step: int) -> None:
        """Run another prompt of the set."""
        self.instrument.choose(step)
        self._after(record=True)

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
        if self.controller.player is not None:
            self.controller.player.faster(factor)
            self._after()

    def action_step(self, cycles: int) -> None:
        """A cycle back or on, and stay there."""
        if self.controller.player is not None:
            self.controller.player.step(cycles)
            self._after()

    def action_seek(self) -> None:
        """Ask for an index and go there."""
        player = self.controller.player

        def asked(text: str | None) -> None:
            if player is not None and text:
                player.seek(int(text))
                self._after()

        self.push_screen(AskText("go to token", "index from 0", is_number=True), asked)
