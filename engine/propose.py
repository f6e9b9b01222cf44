"""What a DSpark arm sends to the verify: budgets, the Markov chain, the confidence prefix.

A draft is asked for only when its confidence has passed the gate. Knows neither states nor
policies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.errors import Ds4Error
from engine.greedy import Rules, choose
from engine.roles import Block


@dataclass(frozen=True, slots=True)
class Limit:
    """Most drafts that may be proposed, and what says so (`` = the block itself)."""

    drafts: int
    reason: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafts of one block; the first `proposed` of them go to the verify.

    `most` is how many could have been proposed; 0 where nothing was drafted.
    """

    drafts: tuple[int, ...] = ()
    unbiased: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    proposed: int = 0
    clip: str = ""
    most: int = 0


def limit_of(block_size: int, draft_max: int | None, remaining: int, free: int) -> Limit:
    """The tightest of the block, `--draft-max` and the budgets.

    Args:
        remaining: tokens that may still be generated; a cycle of n drafts may give n + 1.
        free: positions that can still be evaluated; a verify of n drafts takes n + 1.
    """
    limits = [
        Limit(block_size, ""),
        Limit(block_size if draft_max is None else draft_max, "draft_max"),
        Limit(remaining - 1, "budget"),
        Limit(free - 1, "context"),
    ]
    tightest = min(limits, key=lambda limit: limit.drafts)
    return Limit(max(0, tightest.drafts), tightest.reason)


FIRST_PAUSE, LONGEST_PAUSE = 2, 16
"""Steps that are not drafted for after one cycle that lost, and at most after many in a row."""

PAYS_FROM = 2
"""Accepted drafts below which no cycle pays: two tokens cost more than two decodes."""


class Pause:
    """Steps without drafting where drafting loses, so that a gated arm is hardly slower than plain.

    To know the first confidence costs most of a block, so no threshold makes bad drafts free. After
    a drafted cycle that accepted fewer than PAYS_FROM drafts, FIRST_PAUSE steps are taken without
    drafting; after each further such cycle in a row twice as many, at most LONGEST_PAUSE. It
    follows from the arm's own confidences and committed tokens alone, so a run can be repeated.
    Without a gate (threshold 0) there are no pauses.
    """

    def __init__(self) -> None:
        self._next = FIRST_PAUSE
        self._left = 0

    def applies(self, gate: float) -> bool:
        """Whether the step that begins now is one without drafting."""
        if not self._left or gate == 0:
            return False
        self._left -= 1
        return True

    def settle(self, accepted: int, most: int) -> None:
        """Take over how a drafted cycle ended.

        Args:
            most: drafts that it could propose; fewer than PAYS_FROM need only all be accepted.
        """
        lost = accepted < min(PAYS_FROM, most)
        self._left = self._next if lost else 0
        self._next = min(2 * self._next, LONGEST_PAUSE) if lost else FIRST_PAUSE


class Chain:
    """The Markov chain over one block's rows.

    Args:
        gate: confidence threshold; 0 = no gate.
        eos_id: a draft that ends the chain; None when EOS is ignored.
    """

    def __init__(
        self,
        block: Block,
        rules: Rules,
        anchor: int,
        *,
        markov: bool,
        gate: float,
        eos_id: int | None,
    ) -> None:
        self._block = block
        self._rules = rules
        self._markov = markov
        self._gate = gate
        self._eos_id = eos_id
        self._last = anchor
        self._drafts: list[int] = []
        self._confidences: list[float] = []
        self._clip = ""
        self._most = 0

    def run(self, limit: Limit) -> None:
        """Draft up to the limit, the gate, an EOS or the last token that is not excluded."""
        self._most = limit.drafts
        for row in range(limit.drafts):
            confidence = float(self._block.confidence(row, self._last))
            self._confidences.append(confidence)
            if self._gate > 0 and not confidence >= self._gate:  # a NaN passes no gate
                self._clip = "confidence"
                return
            draft = self._draft(row, self._last, self._drafts)
            if draft < 0:
                self._clip = "excluded"
                return
            self._drafts.append(draft)
            self._last = draft
            if draft == self._eos_id:
                self._clip = "eos" if row + 1 < limit.drafts else limit.reason
                return
        self._clip = limit.reason

    def _draft(self, row: int, previous: int | None, ahead: list[int]) -> int:
        """-1 when the rules exclude all that the drafter can draft."""
        if not self._markov:
            previous = None
        best = self._block.best(row, previous)
        if best is not None and best not in self._rules.excluded(ahead):
            return best
        if previous is not None:
            logits = self._block.scores(row, previous)
        else:
            logits = self._block.logits(row)
        left = self._rules.process(logits, ahead)
        if left.max() == -np.inf:
            return -1
        try:
            return choose(left)
        except ValueError as error:
            raise Ds4Error(
                "No draft to choose", f"In row {row} of the drafter's block, {error}."
            ) from error

    def record(self) -> Proposal:
        """What `run` found, with what only a reader needs: the cut draft, drafts without bias."""
        proposed = len(self._drafts)
        drafts = list(self._drafts)
        if self._clip == "confidence" and drafts:
            cut = self._draft(proposed, self._last, drafts)
            if cut >= 0:
                drafts.append(cut)
        unbiased = tuple(drafts)
        if self._markov:
            unbiased = tuple(self._draft(row, None, drafts[:row]) for row in range(len(drafts)))
        confidences = tuple(self._confidences)
        return Proposal(tuple(drafts), unbiased, confidences, proposed, self._clip, self._most)

    @property
    def proposed(self) -> tuple[int, ...]:
        """Drafts for the verify."""
        return tuple(self._drafts)
