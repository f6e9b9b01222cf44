"""Where the self-test of `invariant` looks, and that it sees what goes wrong only there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ds4tui
from engine.config import ModelConfig
from engine.gguf import open_gguf
from engine.model import Model
from engine.paths import Plan
from engine.self_test import MOST_BEFORE, TOKENS, first_position, rows_differ
from engine.state import MAX_ROWS
from engine.weights import load_target

EMBEDDED = Path(ds4tui.__file__).parent / "models" / "tiny-v4.gguf"


@pytest.fixture(scope="module")
def model() -> Model:
    file = open_gguf(EMBEDDED)
    return Model(load_target(file), ModelConfig.from_gguf(file))


def test_the_embedded_target_is_tested_where_everything_happens(model: Model) -> None:
    c = model.config
    first = first_position(c, c.window + MAX_ROWS, model.context)
    positions = range(first, first + TOKENS)
    assert any((p + 1) // 4 > c.index_top_k for p in positions)
    assert any((p + 1) % 128 == 0 for p in positions)
    assert any(p % (c.window + MAX_ROWS) == 0 for p in positions)
    assert not any((p + 1) // 4 > c.index_top_k for p in positions[:4]), "and before it"


@pytest.mark.parametrize("context", [1, 60, 100, 300, 4096])
def test_the_first_position_leaves_room(model: Model, context: int) -> None:
    first = first_position(model.config, 160, context)
    assert 0 <= first <= max(0, min(MOST_BEFORE, context - TOKENS))


@pytest.mark.parametrize(("wrong", "seen"), [(255, True), (259, True), (320, True), (100, False)])
def test_a_row_that_differs_at_one_position_is_seen(model: Model, wrong: int, seen: bool) -> None:
    class Biased:
        """A target whose batches are a little off at one position."""

        def forward(self, state: Any, ids: Sequence[int], plan: Plan, **more: Any) -> Any:
            position = state.position
            rows = model.forward(state, ids, plan, **more)
            if len(ids) > 1 and position <= wrong < position + len(ids):
                rows.logits[(wrong - position) % len(rows.logits)] += 1e-3
            return rows

    c = model.config
    first = first_position(c, c.window + MAX_ROWS, model.context)
    found = rows_differ(Biased(), model.new_state, 6, c.vocab_size, first)  # type: ignore[arg-type]
    assert bool(found) == seen
