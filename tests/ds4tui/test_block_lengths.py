"""Block lengths 1 to 5 in one run: a row each, and numeric drift told from a rollback bug."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ds4tui import ab_text, report
from engine.settings import Knobs
from engine.verdict import length_pattern
from tests.engine.races import Outcome, engine, run
from tests.engine.scripted import (
    ScriptedDrafter,
    ScriptedModel,
    ScriptedState,
    continuation,
    random_script,
    spoiled,
)
from tests.engine.test_ab import tilted

LENGTHS = (1, 2, 3, 4, 5)
ARMS = tuple(Knobs("prefix", draft_max=length) for length in LENGTHS)


def shown(found: Outcome) -> str:
    console = Console(file=io.StringIO(), width=400, markup=False, highlight=False)
    ab_text.print_document(console, report.ab_document([report.RunEvents.of(found.events)]))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_near_tie_that_rounding_flips_stays_in_place() -> None:
    text = shown(tilted(*ARMS, index=20))
    assert all(f"prefix draft-max {length} parts from plain at 20" in text for length in LENGTHS)
    assert "block lengths 1, 2, 3, 4, 5 part at the same index 20: numeric drift" in text


def test_a_rollback_that_keeps_a_rejected_row_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """`install_prefix` with the last row's token taken from the row after it."""

    def wrong(self: ScriptedState, snapshot: int, rows: int) -> None:
        self.position = snapshot + rows
        if rows and self.position < len(self.tokens):
            self.tokens[self.position - 1] = self.tokens[self.position]

    monkeypatch.setattr(ScriptedState, "install_prefix", wrong)
    script = random_script(3)
    drafter = ScriptedDrafter(spoiled(continuation(script), lambda tokens: len(tokens) % 5))
    text = shown(
        run(engine(ScriptedModel(script), drafter), *ARMS, numerics="invariant", ignore_eos=True)
    )
    assert "the first divergence moves with the block length (" in text
    assert "look for a rollback bug" in text


@pytest.mark.parametrize(
    ("first", "pattern"),
    [
        ({1: 140, 2: 287, 3: 287, 4: 287, 5: 287}, "2, 3, 4, 5 part at the same index 287"),
        ({1: 140, 2: 287, 3: 287, 4: 287, 5: 287}, "numeric drift (1 at 140)"),
        ({1: None, 2: 40, 3: 40, 4: 40}, "2, 3, 4 part at the same index 40: numeric drift"),
        ({1: 7, 2: 12, 3: 30}, "(1 at 7, 2 at 12, 3 at 30): look for a rollback bug"),
        ({1: 7, 2: 7, 3: 12, 4: 30}, "rollback bug"),
        ({1: 7, 2: 12}, "rollback bug"),
        ({1: None, 2: 9}, "only block length 2 parts: no pattern"),
        ({1: None, 2: None}, "identical at every block length"),
    ],
)
def test_most_lengths_decide(first: dict[int, int | None], pattern: str) -> None:
    assert pattern in length_pattern(first)
