"""Parts of an arm's run between turns of a knob: what each of them counted and cost.

A run whose knobs were left alone is one segment. Knows the events and no widgets.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.cycle_counts import CycleCounts
from engine.events import CycleFinished, SettingsChanged, TimeSplit, TokensCommitted

Turned = tuple[tuple[str, str], ...]
"""(name, value) of the knobs that were turned, as `SettingsChanged` has them."""


@dataclass(slots=True)
class Segment:
    """Cycles under one setting of the knobs.

    Args:
        turned: what was turned where it begins; nothing for the first one.
        counts: its cycles.
        first: index of its first token; None before its first cycle.
        tokens: committed by its cycles.
        time: what they spent.
    """

    turned: Turned
    counts: CycleCounts
    first: int | None = None
    tokens: int = 0
    time: TimeSplit = field(default_factory=TimeSplit)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens of its cycles over their time; None before the first."""
        return self.tokens * 1e9 / self.time.total if self.time.total else None


class Segments:
    """The segments of one arm, the newest last; never empty.

    Args:
        block_size: drafts of a whole block.
    """

    def __init__(self, block_size: int) -> None:
        self._block = block_size
        self.all = [Segment((), CycleCounts(block_size))]

    def turn(self, event: SettingsChanged) -> None:
        """A knob is turned from the next cycle on."""
        newest = self.all[-1]
        if newest.first is None:
            newest.turned = tuple((dict(newest.turned) | dict(event.settings)).items())
        else:
            self.all.append(Segment(event.settings, CycleCounts(self._block)))

    def count(self, event: CycleFinished) -> None:
        """Count a cycle."""
        newest = self.all[-1]
        newest.counts.add(event)
        if newest.first is None:
            newest.first = event.index

    def spend(self, event: TokensCommitted) -> None:
        """Count the tokens of a cycle and their time; prefill and its token are none of it."""
        newest = self.all[-1]
        newest.tokens += sum(source != "prefill" for source in event.sources)
        newest.time += replace(event.time, prefill=0)

    @property
    def turns(self) -> list[int]:
        """Indexes of the tokens from which on a knob stood differently."""
        return [each.first for each in self.all[1:] if each.first is not None]
