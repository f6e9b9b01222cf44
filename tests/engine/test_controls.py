"""Controls: whichever arm disagrees with itself, the verdict is withheld and the arm is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.races import Outcome, engine, run
from tests.engine.scripted import (
    ScriptedDrafter,
    ScriptedModel,
    continuation,
    random_script,
    seeded,
)

SCRIPT = random_script(7)


class FlakyPath(ScriptedModel):
    """Answers a little differently each time, on one path only."""

    flaky_path = "batch"

    def _row(self, state: Any, path: str) -> np.ndarray:
        row = super()._row(state, path)
        if path != self.flaky_path or state.position < 20:
            return row
        random = seeded("flaky", len(self.forwards))
        return row + random.normal(0, 6, row.size).astype(np.float32)


def controlled(path: str, *commits: str) -> Outcome:
    model = FlakyPath(SCRIPT)
    model.flaky_path = path
    made = engine(model, ScriptedDrafter(continuation(SCRIPT)))
    return run(made, *commits, controls=True, ignore_eos=True)


def test_a_dspark_arm_alone_can_disagree_with_itself() -> None:
    """Its verifies are not the same twice; plain and the arm that decodes everything again are."""
    found = controlled("batch", "prefix", "replay")
    end = found.events[-1]
    assert (end.identical, end.withheld.count("disagrees with itself")) == (None, 1)
    assert "prefix: this arm disagrees with itself at " in end.withheld
    assert found.arms[0].ids == found.arms[3].ids
    assert found.arms[2].ids == found.arms[5].ids == found.arms[0].ids


@pytest.mark.parametrize("commit", ["direct", "prefix", "reproject", "replay", "strict"])
def test_plain_that_disagrees_with_itself_withholds_every_policy(commit: str) -> None:
    end = controlled("vector", commit).events[-1]
    assert end.identical is None
    assert "plain: this arm disagrees with itself at " in end.withheld


def test_arms_that_agree_withhold_nothing() -> None:
    end = controlled("none", "direct", "prefix", "reproject", "replay", "strict").events[-1]
    assert (end.identical, end.withheld) == (True, "")
