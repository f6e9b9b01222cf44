"""Two compared arms on the screens about one run: their names, and what is not known of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4tui.arm_names import told_apart
from ds4tui.pair import PairRecord, pair_verdict
from ds4tui.run_record import ArmRecord
from ds4tui.run_state import RunState
from ds4tui.widgets.box import Box
from tests.ds4tui import streams
from tests.ds4tui.harness import make_app, make_controller, record_of, settle

DIRECT = record_of(streams.diverged_run())
PREFIX = record_of(streams.run(streams.Script(run_id="run-4", policy="prefix", diverges=False)))


def arm(**knobs: object) -> ArmRecord:
    """The `direct` arm with other knobs."""
    own = DIRECT.arms[1]
    return replace(own, info=replace(own.info, **knobs))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("left", "right", "names"),
    [
        (arm(), arm(commit="prefix"), ("direct", "prefix")),
        (arm(), arm(numerics="invariant"), ("direct split", "direct invariant")),
        (arm(), arm(confidence=0.5), ("direct 0.90", "direct 0.50")),
        (arm(), arm(draft_max=3), ("direct block 5", "direct block 3")),
        (arm(drafter="a/x.gguf"), arm(drafter="b/y.gguf"), ("direct x", "direct y")),
        (arm(), arm(), ("left direct", "right direct")),
        (DIRECT.arms[0], arm(), ("plain", "direct")),
    ],
)
def test_arms_are_told_apart(left: ArmRecord, right: ArmRecord, names: tuple[str, str]) -> None:
    assert told_apart(left, right) == names


def test_a_run_calls_its_arms_plain_and_dspark() -> None:
    assert DIRECT.names == ("plain", "DSpark")
    pair = PairRecord((DIRECT, 1), (PREFIX, 1))
    assert pair.names == ("direct", "prefix")
    assert pair_verdict(pair).bodies[0].startswith('direct " respond"  prefix " reply"')


def test_the_states_of_two_runs_were_not_compared() -> None:
    assert DIRECT.arms[1].drift.boundaries
    pair = PairRecord((DIRECT, 1), (PREFIX, 1))
    assert not pair.arms[1].drift.boundaries
    assert pair.arms[1].first_drift is None


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_no_screen_about_a_pair_of_policies_speaks_of_plain(size: tuple[int, int]) -> None:
    prefix = streams.run(streams.Script(run_id="run-4", policy="prefix", diverges=False))
    app = make_app(make_controller(prefix, streams.diverged_run()))
    async with app.run_test(size=size) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        await pilot.press("r")
        await settle(pilot, lambda: len(app.controller.runs) == 2)
        for key in ("7", "plus", "j", "plus", "equals_sign"):
            await pilot.press(key)
            await settle(pilot)
        assert isinstance(app.controller.record, PairRecord)
        for key in ("2", "3", "5"):
            await pilot.press(key)
            await settle(pilot)
            boxes = app.instrument.query(Box)
            text = " ".join(" ".join(box.text() for box in boxes if box.display).split())
            assert "direct" in text
            assert "prefix" in text
            if key == "2":
                assert "plain" not in text
                assert "DSpark" not in text
            if key == "3":
                assert "their states were not" in text
            if key == "5":
                assert "direct and prefix are of two runs" in text
