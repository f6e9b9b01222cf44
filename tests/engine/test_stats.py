"""Figures as pure functions of the stream, on hand-made events and on scripted runs."""

from __future__ import annotations

import random
import struct
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import stats
from engine.events import CycleFinished, Diverged, StateDrift, TimeSplit, TokensCommitted
from engine.stats import ArmTally
from tests.engine.races import engine, run
from tests.engine.scripted import (
    ScriptedDrafter,
    ScriptedModel,
    continuation,
    random_script,
    spoiled,
)

MS = 1_000_000


def committed(index: int, count: int, ns: int, source: str = "draft") -> TokensCommitted:
    ids = tuple(range(index, index + count))
    top = (((0, 2.0), (1, 1.5)),) * count
    return TokensCommitted(
        "r", 1, 0, index, index, ids, (source,) * count, top, TimeSplit(verify=ns)
    )  # type: ignore[arg-type]


def cycle(
    index: int, drafted: int, proposed: int, accepted: int, depth: int | None = None
) -> CycleFinished:
    depth = accepted + 1 if depth is None else depth
    return CycleFinished(
        "r", 1, 0, 0, index, index, 0, (9,) * drafted, (9,) * drafted, (), proposed, (), (), (),
        accepted, 7, accepted + 1, 0, "", TimeSplit(),
    )  # fmt: skip


def tallied(*events: CycleFinished | TokensCommitted, block: int = 5) -> ArmTally:
    arm = ArmTally(block)
    for event in events:
        arm.feed(event)
    return arm


@pytest.mark.parametrize(("parted", "boundaries"), [(None, 4), (3, 2), (4, 3), (9, 3), (10, 4)])
@pytest.mark.parametrize("is_told_first", [True, False])
def test_states_can_be_compared_up_to_where_the_ids_part(
    parted: int | None, boundaries: int, is_told_first: bool
) -> None:
    """Before the first cycle, and at the last id of each; whatever slow motion tells first."""
    cycles = [cycle(1, 5, 2, 1), cycle(3, 5, 2, 1), cycle(5, 5, 5, 5)]
    assert [c.index + c.depth - 1 for c in cycles] == [2, 4, 10]
    arm = ArmTally(5)
    assert arm.boundaries == 1
    event = None if parted is None else Diverged(
        "r", 1, 0, parted, 1, 2, None, 0.1, 1.0, "F16", "near-tie", False, (), None
    )  # fmt: skip
    events = [*cycles, event] if not is_told_first else [event, *cycles]
    for each in events:
        if each is not None:
            arm.feed(each)
    assert arm.boundaries == boundaries
    for index in (0, 2):
        arm.feed(StateDrift("r", 1, 0, index, index, ((0, "raw", None), (-1, "logits", 1.0))))
    assert (arm.compared, arm.first_drift) == (2, None)


def test_ten_drafted_four_cut_six_verified_three_accepted() -> None:
    arm = tallied(cycle(1, 5, 3, 2), cycle(4, 5, 3, 1))
    assert (arm.counts.drafted, arm.counts.proposed, arm.counts.accepted) == (10, 6, 3)
    assert arm.counts.accept_rate == 0.5
    assert arm.counts.accept_of_drafted == 0.3


def test_nothing_ever_drafted_is_no_rate_and_no_crash() -> None:
    arm = tallied(*(cycle(i + 1, 0, 0, 0) for i in range(50)))
    assert arm.counts.accept_rate is None
    assert arm.counts.accept_of_drafted is None
    assert arm.counts.avg_accept == 0
    assert arm.counts.mean_depth == 1
    assert arm.counts.shallow() == (50, 0)
    assert arm.counts.accept_by_position() == [(0, 0)] * 5
    empty = tallied()
    assert (empty.counts.accept_rate, empty.counts.mean_depth, empty.tokens_per_s) == (
        None,
        None,
        None,
    )
    assert empty.counts.depth_hist() == {}
    assert stats.without_loops(empty).mean_depth is None


def test_events_of_1_6_and_3_tokens_count_10_tokens() -> None:
    prefill = TokensCommitted(
        "r", 1, 0, 0, 0, (5,), ("prefill",), (((5, 1.0),),), TimeSplit(prefill=999 * MS)
    )
    arm = tallied(
        prefill, committed(1, 1, 2 * MS), committed(2, 6, 6 * MS), committed(8, 3, 2 * MS)
    )
    assert arm.tokens_per_s == pytest.approx(1000), "10 tokens in 10 ms; prefill does not count"
    assert len(arm.ids) == 11


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 50)), min_size=1, max_size=60))
def test_the_peak_is_never_below_the_average(steps: list[tuple[int, int]]) -> None:
    arm = tallied(committed(0, 1, 0, "prefill"))
    for count, ms in steps:
        arm.feed(committed(len(arm.ids), count, ms * MS))
    peak = stats.peak_rate(arm.token_ns)
    assert peak is not None
    assert arm.tokens_per_s is not None
    assert peak >= arm.tokens_per_s * (1 - 1e-12)


def test_varying_lengths_have_a_table_and_say_that_the_depths_are_incomplete() -> None:
    arm = tallied(cycle(1, 5, 5, 5), cycle(7, 2, 2, 1), cycle(9, 0, 0, 0))
    table = arm.counts.proposed_by_accepted()
    assert table[5][5] == table[2][1] == table[0][0] == 1
    assert sum(map(sum, table)) == 3
    assert arm.counts.lengths_vary()
    assert not tallied(
        cycle(1, 5, 5, 5), cycle(7, 5, 5, 1), cycle(9, 0, 0, 0)
    ).counts.lengths_vary()


def test_accept_by_position_has_its_own_denominators() -> None:
    arm = tallied(cycle(1, 5, 5, 2), cycle(4, 5, 1, 1), cycle(6, 5, 3, 0))
    assert arm.counts.accept_by_position() == [(2, 3), (1, 1), (0, 1), (0, 0), (0, 0)]


def test_ids_are_hashed_as_little_endian_u32() -> None:
    assert stats.ids_sha256([1, 8191]) == sha256(struct.pack("<II", 1, 8191)).hexdigest()


def test_an_infinite_gap_is_never_the_smallest() -> None:
    arm = ArmTally(5)
    top = (((3, 1.0),), ((3, 5.0), (4, 4.5)), ((3, 5.0), (4, 4.5)))
    arm.feed(TokensCommitted("r", 1, 0, 0, 0, (3, 3, 3), ("plain",) * 3, top, TimeSplit()))
    assert arm.smallest_gap() == 1
    assert arm.smallest_gap(among=2) == 1
    assert arm.smallest_gap(among=1) is None
    assert ArmTally(5).smallest_gap() is None


def steps(seed: int, tokens: int, per_token: float) -> list[float]:
    """Cycles of 2 to 4 tokens whose cost per token varies; 2 % noise of the machine."""
    chance = random.Random(seed)
    out = [0.0]
    while len(out) <= tokens:
        depth = chance.choice([2, 3, 4])
        cost = per_token * 3 * chance.gauss(1, 0.02)
        out += [cost / depth] * depth
    return out[: tokens + 1]


def plain_steps(seed: int, tokens: int) -> list[float]:
    chance = random.Random(seed + 1000)
    return [0.0, *(chance.gauss(1, 0.02) for _ in range(tokens))]


def test_a_small_slowdown_is_resolved_by_more_tokens() -> None:
    """True ratio 0.93: "not resolved" at 100 tokens, "slower" at 500."""
    # A cycle costs the same whatever its depth, so a token costs 1 / mean depth on average.
    per_token = 1 / 0.93
    short = [stats.speedup([plain_steps(s, 100)], [steps(s, 100, per_token)]) for s in range(40)]
    long = [stats.speedup([plain_steps(s, 500)], [steps(s, 500, per_token)]) for s in range(40)]
    assert all(found is not None for found in (*short, *long))
    slower = [f for f in long if f and f.resolved and f.value < 1]
    assert sum(f is not None and not f.resolved for f in short) >= 20
    assert len(slower) >= 36
    assert not any(f and f.resolved and f.value > 1 for f in (*short, *long))


def test_the_interval_holds_the_value_and_is_always_the_same() -> None:
    plain, arm = [plain_steps(1, 300)], [steps(1, 300, 0.8)]
    found = stats.speedup(plain, arm)
    assert found is not None
    assert found == stats.speedup(plain, arm)
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx(sum(plain[0]) / sum(arm[0]))


def test_arms_of_different_lengths_compare_time_per_token() -> None:
    found = stats.speedup([[0.0] + [2.0] * 400], [[0.0] + [1.0] * 100])
    assert found is not None
    assert found.value == 2


def test_too_few_tokens_or_no_time_give_no_speedup() -> None:
    assert stats.speedup([[0.0, 1.0, 1.0]], [[0.0, 1.0, 1.0]]) is None
    assert stats.speedup([[]], [[]]) is None
    assert stats.speedup([[0.0] * 100], [[0.0] * 100]) is None


def test_several_repeats_are_pooled() -> None:
    found = stats.speedup([[0.0] + [2.0] * 40] * 3, [[0.0] + [1.0] * 40] * 3)
    assert found is not None
    assert (found.low, found.value, found.high) == (2, 2, 2)


def brute_force(ids: list[int], n: int) -> list[bool]:
    inside = [False] * len(ids)
    for end in range(n, len(ids) + 1):
        gram = ids[end - n : end]
        if any(ids[i : i + n] == gram for i in range(end - n)):
            inside[end - n : end] = [True] * n
    return inside


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 4))
def test_repeated_equals_its_definition(ids: list[int], n: int) -> None:
    assert stats.repeated(ids, n) == brute_force(ids, n)


def test_loops_do_not_flatter_acceptance() -> None:
    arm = ArmTally(5)
    ids = [*range(12), *([50] * 30)]
    arm.feed(TokensCommitted("r", 1, 0, 0, 0, tuple(ids), ("draft",) * 42, ((),) * 42, TimeSplit()))
    for index in range(1, 12):
        arm.feed(cycle(index, 5, 5, 0))
    for index in range(12, 42, 6):
        arm.feed(cycle(index, 5, 5, 5))
    assert arm.counts.mean_depth is not None
    assert arm.counts.mean_depth > 2.5
    honest = stats.without_loops(arm)
    assert honest.mean_depth is not None
    assert honest.mean_depth < arm.counts.mean_depth
    assert honest.share == pytest.approx(29 / 42)


def test_counts_of_a_real_run_add_up() -> None:
    script = random_script(4)
    drafter = ScriptedDrafter(
        spoiled(continuation(script), lambda t: len(t) % 7),
        confidences=lambda t: [0.99, 0.95, 0.9, 0.5 + len(t) % 2 * 0.45, 0.9],
    )
    found = run(
        engine(ScriptedModel(script), drafter, gate=0.9),
        "direct",
        "prefix",
        "replay",
        ignore_eos=True,
        max_tokens=120,
    )
    for arm in found.arms[1:]:
        hist = arm.counts.depth_hist()
        assert sum(depth * count for depth, count in hist.items()) == len(arm.ids) - 1 == 119
        assert sum(hist.values()) == len(arm.cycles)
        assert sum(arm.counts.shallow()) == hist[1]
        table = arm.counts.proposed_by_accepted()
        assert sum(map(sum, table)) == len(arm.cycles)
        assert sum(p * n for p, row in enumerate(table) for n in row) == arm.counts.proposed
        assert sum(a * n for row in table for a, n in enumerate(row)) == arm.counts.accepted
        by_position = arm.counts.accept_by_position()
        assert sum(accepted for accepted, _ in by_position) == arm.counts.accepted
        assert arm.counts.drafted >= arm.counts.proposed >= arm.counts.accepted
