"""One arm's mutable decode: state, generated ids, processed rows, clock, pending taps.

Owns how rows are evaluated and what is remembered of them. Knows neither drafts nor policies nor
other arms: `engine.decode` drives it, `engine.commit` settles it, `engine.ab` compares it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.arrays import copy_of, joined
from engine.clock import Clock
from engine.errors import Ds4Error
from engine.events import ArmInfo, FinishReason
from engine.greedy import Logits, Rules, choose
from engine.paths import DECODE, Numerics, Plan
from engine.roles import Drafter, Model, Rows, State


@dataclass(frozen=True, slots=True)
class Target:
    """What all arms of a run share.

    Args:
        verify: plan of a forward of two or more rows.
        eos_id: token that ends the text; None when it is ignored.
        new_choices: makes an empty record of discrete choices; None = do not record.
        pin: choices that verifies take over.
    """

    model: Model
    numerics: Numerics
    verify: Plan
    eos_id: int | None
    new_choices: Any = None
    pin: Any = None


@dataclass(frozen=True, slots=True)
class Row:
    """One evaluated row: raw and processed logits, their argmax, where and how it was made."""

    position: int
    logits: Logits
    processed: Logits
    choice: int
    choices: Any = None


@dataclass(slots=True)
class Timeline:
    """One arm between two steps.

    The state covers the prompt and every id but the last, the anchor. `row` is the row at the
    state's last position, `sources` the rows that the ids of the last step came from. `start` is
    the position of the first id, `gate` the drafter's own confidence threshold.
    """

    info: ArmInfo
    target: Target
    state: State
    start: int
    rules: Rules
    clock: Clock = field(default_factory=Clock)
    ids: list[int] = field(default_factory=list)
    row: Row = field(init=False)
    sources: tuple[Row, ...] = ()
    drafter: Drafter | None = None
    drafter_context: Any = None
    gate: float = 0.0
    taps: list[tuple[int, Any]] = field(default_factory=list)
    reason: FinishReason | None = None

    @property
    def boundary(self) -> int:
        """Generated tokens that the state covers."""
        return self.state.position - self.start

    @property
    def free(self) -> int:
        """Positions that can still be evaluated."""
        return self.state.context - self.state.position

    def begin(self, logits: Logits) -> None:
        """Take the logits of the prompt's last row, from which the first id is chosen."""
        self.row = self.process(self.state.position - 1, logits, (), None)

    def evaluate(self, tokens: Sequence[int], plan: Plan) -> tuple[list[Row], Any]:
        """Forward over `tokens`, each row with its own history; the caller holds the clock.

        Row i's history is the ids, the last of which is tokens[0], and then tokens[1:i + 1].
        Returns:
            The rows and their taps, copied from the model's buffers.
        """
        position = self.state.position
        record = self.target.new_choices() if self.target.new_choices else None
        pin = self.target.pin if len(tokens) > 1 else None
        rows = self.target.model.forward(self.state, tokens, plan, record=record, pin=pin)
        ahead = tokens[1:]
        made = self._rows(position, rows, [ahead[:i] for i in range(len(tokens))], record)
        return made, copy_of(rows.taps)

    def decode(self, token: int, ahead: Sequence[int] = ()) -> tuple[Row, Any]:
        """Evaluate one token by the decode path.

        Args:
            ahead: tokens after the ids up to and including `token`, when it is a draft.
        """
        position = self.state.position
        record = self.target.new_choices() if self.target.new_choices else None
        plan = DECODE[self.target.numerics]
        rows = self.target.model.forward(self.state, [token], plan, record=record)
        return self._rows(position, rows, [ahead], record)[0], copy_of(rows.taps)

    def _rows(
        self, position: int, rows: Rows, ahead: Sequence[Sequence[int]], record: Any
    ) -> list[Row]:
        """The rows of a forward from `position` on, each after the history and its own `ahead`."""
        if hasattr(rows, "processed"):  # they stay on their device
            excluded = [self.rules.excluded(tokens) for tokens in ahead]
            return [
                self._row(position + i, logits, processed, record)
                for i, (logits, processed) in enumerate(rows.processed(excluded))
            ]
        return [
            self.process(position + i, logits, tokens, record)
            for i, (logits, tokens) in enumerate(zip(np.array(rows.logits), ahead, strict=True))
        ]

    def process(self, position: int, logits: Logits, ahead: Sequence[int], record: Any) -> Row:
        """The row at a position, ready to choose from."""
        return self._row(position, logits, self.rules.process(logits, ahead), record)

    def _row(self, position: int, logits: Logits, processed: Logits, record: Any) -> Row:
        try:
            choice = choose(processed)
        except ValueError as error:
            raise Ds4Error(
                "No token to choose",
                f"At position {position} of arm {self.info.name}, {error}.",
            ) from error
        return Row(position, logits, processed, choice, record)

    def commit(self, ids: Sequence[int], sources: Sequence[Row], last: Row) -> None:
        """Take over ids whose state is installed.

        Args:
            sources: per id, the row that it came from.
            last: the row at the state's last position.
        """
        assert self.state.position == last.position + 1
        self.ids.extend(ids)
        for token in ids:
            self.rules.push(token)
        self.sources, self.row = tuple(sources), last

    def keep_taps(self, position: int, taps: Any) -> None:
        """Remember the taps of committed rows until the drafter takes them."""
        if self.drafter is not None:
            self.taps.append((position, taps))

    def carry(self) -> None:
        """Give the pending taps to the drafter's context."""
        if self.drafter is None:
            return
        while self.taps:  # one piece, but for pauses and the start of a later turn
            position, taps = self.taps.pop(0)
            parts = [taps]
            while self.taps and self.taps[0][0] == position + sum(map(len, parts)):
                parts.append(self.taps.pop(0)[1])
            rows = joined(parts) if len(parts) > 1 else taps
            self.drafter.extend(self.drafter_context, rows, position)
