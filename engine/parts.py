"""What an engine is made of, whoever made it: `engine.load` from files, tests from scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.arrays import HOST, Arrays
from engine.events import FileInfo
from engine.roles import Drafter, Model, State
from engine.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Parts:
    """A loaded target and its drafters.

    Args:
        context: capacity of a state in tokens.
        longest_context: the largest one that the target was made for.
        drafters: by path, the default one first.
        gates: the drafters' own confidence thresholds, by path.
        no_repeat: N of the target file's no-repeat rule, 0 = off.
        warnings: sentences about the files that a user should see with every run.
        new_choices: makes an empty record of discrete choices of the given kinds.
        rows_differ: tests `invariant`: nothing, or what differs; None = it needs no test.
        arrays: where models and states are.
        settle: waits for the device; None where nothing is asynchronous.
        rehearse: takes every step of the timelines once or twice and undoes it, outside all clocks,
            so that nothing is compiled or captured within them; None where nothing is.
    """

    model: Model
    tokenizer: Tokenizer
    files: tuple[FileInfo, ...]
    vocab_size: int
    context: int
    longest_context: int
    window: int
    layer_kinds: tuple[int, ...]
    eos_id: int
    no_repeat: int
    drafters: Mapping[str, Drafter]
    gates: Mapping[str, float]
    new_state: Callable[[], State]
    warnings: tuple[str, ...] = ()
    new_choices: Callable[[Sequence[str]], Any] | None = None
    rows_differ: Callable[[], str] | None = None
    arrays: Arrays = HOST
    settle: Callable[[], None] | None = None
    rehearse: Callable[[Sequence[Any], Callable[[int, int], None]], None] | None = None
    load_ns: int = 0

    @property
    def block_size(self) -> int:
        """Drafts of a block of the default drafter, 0 without one."""
        return next((drafter.block_size for drafter in self.drafters.values()), 0)

    def room_hint(self, needed: int, less: str) -> str:
        """What to do where the context is too short: ask for less, or for more of it if that helps.

        Args:
            needed: tokens.
            less: how to need fewer.
        """
        if self.longest_context < needed:
            return f"{less}: the target was made for at most {self.longest_context} tokens."
        return f"{less}, or give --ctx {needed} or more, up to {self.longest_context}."

    @property
    def noise_id(self) -> int:
        """The default drafter's, -1 without one."""
        return next((drafter.noise_id for drafter in self.drafters.values()), -1)

    @property
    def drafter_window(self) -> int:
        """Context rows that the drafter which sees the most of them sees."""
        return max((drafter.window for drafter in self.drafters.values()), default=self.window)
