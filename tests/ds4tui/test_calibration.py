"""Reliability of the confidence head, computed by hand from a few cycles."""

from __future__ import annotations

import pytest

from ds4tui.calibration import calibration, gated_cycles, samples_of
from ds4tui.run_record import ArmRecord
from engine.events import ArmInfo, CycleFinished, SettingsChanged, TimeSplit


def cycle(
    confidences: tuple[float, ...], proposed: int, accepted: int, number: int = 0
) -> CycleFinished:
    drafts = tuple(range(proposed))
    rest = (drafts, drafts, confidences, proposed, (), (), (), accepted, 9, accepted + 1, 0, "")
    return CycleFinished("r", 1, 0, number, 1, 1, 5, *rest, TimeSplit())


def arm(
    *cycles: CycleFinished,
    gate: float | None = 0.0,
    commit: str = "prefix",
    changes: tuple[SettingsChanged, ...] = (),
) -> ArmRecord:
    info = ArmInfo("a", "arm", "dspark", "split", commit, gate, None)
    found = ArmRecord.of(info, 5)
    found.cycles.extend(cycles)
    found.changes.extend(changes)
    return found


def test_a_draft_counts_when_all_before_it_were_accepted() -> None:
    # Of three proposed the first is accepted: the second was reached, the third was not.
    assert samples_of([cycle((0.9, 0.8, 0.7), 3, 1)]) == [(0.9, True), (0.8, False)]
    # The gate cut the third confidence: it was never proposed.
    assert samples_of([cycle((0.9, 0.8, 0.1), 2, 2)]) == [(0.9, True), (0.8, True)]
    assert samples_of([cycle((0.1,), 0, 0)]) == []


def test_a_nan_says_nothing() -> None:
    nan = float("nan")
    assert samples_of([cycle((0.9, nan, 0.7), 3, 3)]) == [(0.9, True), (0.7, True)]
    assert calibration([arm(cycle((nan, nan), 2, 2))]) is None


def test_bins_and_error_by_hand() -> None:
    found = calibration([arm(cycle((0.95, 0.85), 2, 1), cycle((0.91,), 1, 1), cycle((0.2,), 1, 0))])
    assert found is not None
    assert [(b.low, b.accepted, b.reached) for b in found.bins] == [
        (pytest.approx(0.2), 0, 1),
        (pytest.approx(0.8), 0, 1),
        (pytest.approx(0.9), 2, 2),
    ]
    assert found.bins[2].said == pytest.approx(0.93)
    # |0 - .2| * 1 + |0 - .85| * 1 + |1 - .93| * 2, over 4
    assert found.ece == pytest.approx((0.2 + 0.85 + 0.14) / 4)
    assert (found.n, found.gate, found.width) == (4, 0.0, 0.1)
    assert found.said == pytest.approx((0.95 + 0.85 + 0.91 + 0.2) / 4)
    assert found.accepted == 0.5


def test_a_perfect_head_has_no_error_and_a_confidence_of_one_has_a_bin() -> None:
    found = calibration([arm(cycle((1.0,), 1, 1), cycle((0.0,), 1, 0))])
    assert found is not None
    assert found.ece == 0
    assert [(b.low, b.reached) for b in found.bins] == [(0, 1), (pytest.approx(0.9), 1)]


@pytest.mark.parametrize(("gate", "width"), [(0.0, 0.1), (0.5, 0.05), (0.8, 0.02), (0.99, 0.02)])
def test_behind_a_gate_the_bins_are_finer(gate: float, width: float) -> None:
    found = calibration([arm(cycle((0.995,), 1, 1), gate=gate)])
    assert found is not None
    assert (found.gate, found.width) == (gate, width)


def test_a_value_on_an_edge_belongs_to_the_bin_above() -> None:
    found = calibration([arm(cycle((0.94,), 1, 1), cycle((0.96,), 1, 1), gate=0.9)])
    assert found is not None
    assert [b.low for b in found.bins] == [pytest.approx(0.94), pytest.approx(0.96)]


def test_open_cycles_go_before_gated_ones_of_any_arm() -> None:
    gated = arm(cycle((0.95,), 1, 1), cycle((0.97,), 1, 1), gate=0.9)
    open_ = arm(cycle((0.3,), 1, 0))
    found = calibration([gated, open_, open_])
    assert found is not None
    assert (found.gate, found.n, found.runs) == (0.0, 2, 2)


def test_a_threshold_that_was_turned_splits_the_cycles() -> None:
    turned = SettingsChanged("r", 1, 0, 1, (("confidence", "0.0"),))
    found = arm(cycle((0.95,), 1, 1, 0), cycle((0.4,), 1, 0, 1), gate=0.9, changes=(turned,))
    assert {gate: len(cycles) for gate, cycles in gated_cycles(found).items()} == {0.9: 1, 0.0: 1}


def test_nothing_reached_gives_nothing() -> None:
    assert calibration([arm(cycle((0.1,), 0, 0), gate=0.9)]) is None
    assert calibration([arm(cycle((), 0, 0), gate=None, commit="strict")]) is None
    assert calibration([]) is None
