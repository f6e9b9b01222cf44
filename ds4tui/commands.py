"""The command palette: every key as `area: Verb object`, offered only when it can act."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import on
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.message import Message
from textual.widgets import Input

from ds4tui.screens.dialog import Dialog

if TYPE_CHECKING:
    from ds4tui.app import Ds4App

COMMANDS = (
    ("run", "run: Run the prompt"),
    ("pause", "run: Pause or resume"),
    ("escape", "run: Stop, or end slow motion"),
    ("slow", "run: Play in slow motion"),
    ("slower", "run: Play slower"),
    ("faster", "run: Play faster"),
    ("step", "replay: Step a cycle on"),
    ("step_back", "replay: Step a cycle back"),
    ("seek", "replay: Go to index"),
    ("prompt", "prompt: Edit prompt and switches"),
    ("follow_up", "prompt: Write next turn of conversation"),
    ("next_prompt", "prompt: Run next of the set"),
    ("previous_prompt", "prompt: Run previous of the set"),
    ("run_all", "run: Run the whole set"),
    ("all_cells", "run: Run all numerics and policies on this prompt"),
    ("policy", "knobs: Turn commit policy"),
    ("policy_back", "knobs: Turn commit policy back"),
    ("numerics", "knobs: Turn numerics of the next run"),
    ("confidence", "knobs: Raise confidence threshold"),
    ("confidence_down", "knobs: Lower confidence threshold"),
    ("block", "knobs: Lengthen block"),
    ("block_down", "knobs: Shorten block"),
    ("divergence", "tokens: Go to divergence"),
    ("drift", "tokens: Go to first drift"),
    ("cycle_before", "tokens: Go to cycle before"),
    ("cycle_after", "tokens: Go to cycle after"),
    ("token", "tokens: Show token under cursor"),
    ("rejected", "tokens: Show or hide rejected drafts"),
    ("sources", "tokens: Switch marks"),
    ("together", "tokens: Tie or untie scrolling"),
    ("other_arm", "tokens: Show other arm"),
    ("maximise", "view: Maximise pane or box"),
    ("flip", "view: Flip box"),
    ("screen_1", "screen: Open playground"),
    ("screen_2", "screen: Open cycle inspector"),
    ("screen_3", "screen: Open drift"),
    ("screen_4", "screen: Open matrix"),
    ("screen_5", "screen: Open economics"),
    ("screen_6", "screen: Open sweep"),
    ("screen_7", "screen: Open runs"),
    ("theme", "view: Change theme"),
    ("copy", "export: Copy pane or box"),
    ("export", "export: Write transcript, events, figures, picture"),
    ("report", "export: Write report for a maintainer"),
    ("open", "app: Open model files and settings, or a file"),
    ("help", "help: Show keys, marks and words"),
    ("suspend", "app: Suspend"),
    ("quit", "app: Quit"),
)
"""(binding id, palette entry); a screen's own keys are added with their descriptions."""


class Palette(CommandPalette, Dialog[None]):
    """Textual's palette, left once; no key acts on a list without room to be laid out."""

    @on(Input.Submitted)
    @on(CommandList.OptionSelected)
    def _choose_once(self, event: Message) -> None:
        """A second enter finds the palette left, and must not do the command again."""
        if not self.is_active:
            event.prevent_default()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Textual 8.2.8 fails on a page of such a list."""
        if action == "command_list" and not self.query_one(CommandList).size.area:
            return False
        return super().check_action(action, parameters)


class KeyCommands(Provider):
    """Palette entries for what the keys do."""

    def _entries(self) -> list[tuple[str, str]]:
        app = cast("Ds4App", self.app)
        table, named = app.table, dict(COMMANDS)
        area = app.instrument.NAME.lower()
        for name in table.by_area[area]:
            named.setdefault(name, f"{area}: {table.binding(name).description}")
        return [(name, text) for name, text in named.items() if app.can(name)]

    async def discover(self) -> Hits:
        """Everything that can act."""
        app = cast("Ds4App", self.app)
        for name, text in self._entries():
            yield DiscoveryHit(text, lambda name=name: app.act(name))

    async def search(self, query: str) -> Hits:
        """What matches."""
        app = cast("Ds4App", self.app)
        matcher = self.matcher(query)
        for name, text in self._entries():
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, matcher.highlight(text), lambda name=name: app.act(name))
