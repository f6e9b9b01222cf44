"""A run cancelled inside a block, then the next turn: it goes on from plain's shown text."""

from __future__ import annotations

import pytest

from engine.events import ArmFinished, RunStarted, StateDrift
from tests.engine.races import run
from tests.engine.scripted import continuation, path_script
from tests.engine.test_ab import IDS, PROMPT, stopped

POLICIES = ("direct", "prefix", "reproject", "replay", "strict")


@pytest.mark.parametrize("after", [3, 7, 10, 23])
def test_the_next_turn_after_a_cancelled_run(after: int) -> None:
    """Arms were left at different lengths; all go on from plain's ids, with equal states."""
    found, made = stopped(after, "cancelled", *POLICIES)
    assert {end.reason for end in found.of(ArmFinished)} == {"cancelled"}
    shown = found.arms[0].ids
    assert shown == IDS[: len(shown)]
    longer = path_script(IDS, PROMPT + len(shown) + 6)
    made._parts.model.script = longer
    next(iter(made._parts.drafters.values())).propose = continuation(longer)
    again = run(
        made,
        *POLICIES,
        prompt="xyz",
        request={"follow_up": True},
        max_tokens=30,
        numerics="invariant",
    )
    started = again.of(RunStarted)[0]
    assert started.cached == PROMPT + len(shown)
    assert started.prompt_ids[PROMPT : started.cached] == tuple(shown)
    assert [arm.ids for arm in again.arms] == [IDS[:30]] * (1 + len(POLICIES))
    assert all(value is None for d in again.of(StateDrift) for *_, value in d.tensors)
    for timeline in made._conversation.timelines.values():
        assert timeline.state.position == len(started.prompt_ids) + 29, "all but the last"
