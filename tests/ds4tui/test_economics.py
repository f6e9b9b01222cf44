"""What drafting is worth, computed by hand from a few cycles and a table of round costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ds4tui.economics import (
    curve,
    mean_of,
    predict,
    predictions,
    replayed_rows,
    shape_of,
    value_ledger,
)
from ds4tui.economics_costs import (
    Cost,
    CostTable,
    along,
    line_through,
    measured_costs,
    run_costs,
)
from ds4tui.figures import ledger
from ds4tui.run_record import RunRecord
from engine.events import CostKind, CostMeasured, CycleFinished, Source, TimeSplit, TokensCommitted
from engine.stats import ArmTally
from tests.ds4tui import streams

MS = 1_000_000


def exactly(value: float, n: int = 5) -> Cost:
    return Cost(value, value, value, n)


TABLE = CostTable(
    "measured",
    decode=exactly(2.0),
    verify={2: exactly(2.5), 3: exactly(3.0)},
    draft={0: exactly(0.5), 2: exactly(0.9)},
    commit=exactly(0.1),
    reproject=exactly(0.4),
    replay=exactly(2.0),
    carry=exactly(0.2),
)


def cycle(proposed: int, accepted: int, ends: bool = False, **ms: float) -> CycleFinished:
    drafts = tuple(range(proposed))
    replayed = (1,) * (accepted + 1) if "replay" in ms else ()
    depth = accepted + (not ends)
    rest = (drafts, drafts, (), proposed, (), (), replayed, accepted, 1, depth, 0, "")
    time = TimeSplit(**{kind: round(value * MS) for kind, value in ms.items()})
    return CycleFinished("r", 1, 0, 0, 1, 1, 5, *rest, time)


def dspark(cycles: Sequence[CycleFinished], block: int = 2) -> ArmTally:
    """The tally of an arm that made these cycles after a first token."""
    tally = ArmTally(block)
    tally.feed(TokensCommitted("r", 1, 0, 0, 5, (7,), ("prefill",), ((),), TimeSplit(prefill=9)))
    for each in cycles:
        sources: tuple[Source, ...] = ("draft",) * each.depth
        ids, tops = (7,) * each.depth, ((),) * each.depth
        tally.feed(each)
        tally.feed(TokensCommitted("r", 1, 0, 1, 6, ids, sources, tops, each.time))
    return tally


def plain(tokens: int, step_ms: float = 2.0) -> ArmTally:
    tally = ArmTally()
    tally.feed(TokensCommitted("r", 0, 0, 0, 5, (7,), ("prefill",), ((),), TimeSplit(prefill=9)))
    for _ in range(tokens - 1):
        time = TimeSplit(decode=round(step_ms * MS))
        tally.feed(TokensCommitted("r", 0, 0, 1, 6, (7,), ("plain",), ((),), time))
    return tally


CYCLES = (
    cycle(2, 2, draft=0.9, verify=3.0, commit=0.1),
    cycle(2, 0, draft=0.9, verify=3.0, commit=0.1, replay=2.0),
    cycle(1, 1, draft=0.7, verify=2.5, commit=0.1),
    cycle(0, 0, draft=0.5, decode=2.1, commit=0.1),
)


# The ledger


def test_the_value_of_each_position_by_hand() -> None:
    found = value_ledger(plain(8), dspark(CYCLES))
    assert found is not None
    first, second = found.positions
    # Three cycles proposed a first draft, two of them kept it; a verify of two rows is .5 longer
    # than a decode. Two proposed a second, one kept it; three rows are .5 longer than two.
    assert (first.proposed, first.accepted, first.gain) == (3, 2, 4.0)
    assert first.row_cost == pytest.approx(-1.5)
    assert (second.proposed, second.accepted, second.gain) == (2, 1, 2.0)
    assert second.row_cost == pytest.approx(-1.0)
    assert found.net == pytest.approx(2.5 + 1.0)
    assert found.draft == pytest.approx(-3.0)
    assert (found.replay, found.replay_rows) == (-2.0, 1)
    assert found.commit == pytest.approx(-0.4)
    assert found.rest == pytest.approx(-0.1)
    # Seven tokens in 3.5 + ... : 14 ms of plain decode against 16.0 spent.
    assert found.plain_ms == 14.0
    assert found.saved == pytest.approx(14.0 - 16.0)
    assert (found.no_draft, found.no_draft_ms) == (1, pytest.approx(0.7))
    assert found.first_negative is None


def test_the_terms_sum_to_the_saving_of_the_playgrounds_ledger() -> None:
    record = RunRecord()
    for event in streams.diverged_run():
        record.feed(event)
    arms = record.arms[0].tally, record.arms[1].tally
    found, other = value_ledger(*arms), ledger(*arms)
    assert found is not None
    assert other is not None
    terms = found.net + found.draft + found.replay + found.commit + found.rest
    assert terms == pytest.approx(found.saved)
    assert found.saved == pytest.approx(other.saved_ms)
    assert [(v.proposed, v.accepted) for v in found.positions] == [
        (101, 92), (76, 66), (56, 46), (39, 30), (25, 18),
    ]  # fmt: skip


def test_pauses_cost_what_carrying_does() -> None:
    pause = replace(cycle(0, 0, draft=0.1, decode=2.0, commit=0.05), clip="pause")
    cycles = (*CYCLES, pause, pause)
    found = value_ledger(plain(10), dspark(cycles))
    assert found is not None
    assert (found.no_draft, found.no_draft_ms) == (1, pytest.approx(0.7))
    assert (found.paused, found.paused_ms) == (2, pytest.approx(0.3))
    table = run_costs(plain(10), dspark(cycles), "direct")
    assert table is not None
    assert table.draft[0].n == 1
    assert table.carry is not None
    assert (table.carry.median, table.carry.n) == (pytest.approx(0.15), 2)
    assert curve(table, cycles, "direct")[0].cycles == 1
    shape = shape_of(cycles, 2)
    assert shape is not None
    assert (shape.cycles, shape.idle, shape.tokens) == (6, 2, 9)
    # Two pauses of 2 + .2 beside the 13.9 of the other cycles.
    assert predict(TABLE, shape, "prefix").speedup == pytest.approx(18 / (13.9 + 4.4))
    missing = predict(replace(TABLE, carry=None), shape, "prefix")
    assert missing.why == "carry not measured"


def test_a_text_that_ends_inside_a_block_still_adds_up() -> None:
    cycles = (*CYCLES[:2], cycle(2, 2, ends=True, draft=0.9, verify=3.0, commit=0.1))
    tally = dspark(cycles)
    found, other = value_ledger(plain(7), tally), ledger(plain(7), tally)
    assert found is not None
    assert other is not None
    assert found.rest == pytest.approx(-2.0)
    assert found.saved == pytest.approx(other.saved_ms)


def test_a_length_that_was_never_verified_lies_on_the_line_between_its_neighbours() -> None:
    cycles = (cycle(2, 2, draft=0.9, verify=3.0), cycle(2, 1, draft=0.9, verify=3.0))
    found = value_ledger(plain(6), dspark(cycles))
    assert found is not None
    assert [value.row_cost for value in found.positions] == [pytest.approx(-1.0)] * 2


def test_a_length_that_was_seen_rarely_is_not_taken_at_its_word() -> None:
    often = [cycle(1, 1, draft=0.7, verify=2.5) for _ in range(5)]
    often += [cycle(3, 3, draft=0.9, verify=3.5) for _ in range(5)]
    odd = cycle(2, 2, draft=0.9, verify=9.0)
    arms = plain(34), dspark([*often, odd], 3)
    found, other = value_ledger(*arms), ledger(*arms)
    assert found is not None
    assert other is not None
    # Three rows lie on the line between two and four; the odd one's 6 ms more are in the rest.
    assert [value.row_cost for value in found.positions] == [
        *(pytest.approx(-11 * 0.5), pytest.approx(-6 * 0.5), pytest.approx(-5 * 0.5)),
    ]
    assert found.rest == pytest.approx(-6.0)
    assert found.saved == pytest.approx(other.saved_ms)
    table = run_costs(arms[0], arms[1], "prefix")
    assert table is not None
    assert curve(table, arms[1].cycles, "prefix")[2].pays == "open", "of a single verify"
    fit = table.fit()
    assert fit is not None
    assert (fit.fixed, fit.per_row) == pytest.approx((1.5, 0.5))


def test_the_first_position_that_costs_more_than_it_gives() -> None:
    cycles = (*(cycle(2, 1, draft=0.9, verify=3.0) for _ in range(3)),)
    found = value_ledger(plain(7), dspark(cycles))
    assert found is not None
    assert found.first_negative == 2


def test_nothing_to_add_up_yet() -> None:
    assert value_ledger(plain(1), dspark(CYCLES)) is None
    assert value_ledger(plain(8), dspark(())) is None
    assert value_ledger(None, None) is None


# Costs


def test_between_and_beyond_known_costs() -> None:
    assert along({2: 1.0, 4: 3.0}, 3) == 2.0
    assert along({2: 1.0, 4: 3.0}, 5) == 4.0
    assert along({2: 1.0, 4: 3.0}, 1) == 0.0
    assert along({0: 0.5}, 3) == 0.5
    assert along({}, 3) is None


def test_the_line_through_the_verifies() -> None:
    fit = line_through([(2, 3.0, 5), (3, 3.5, 5), (4, 4.0, 5)])
    assert fit is not None
    assert (fit.fixed, fit.per_row, fit.error) == pytest.approx((2.0, 0.5, 0.0))
    assert fit.at(6) == pytest.approx(5.0)
    bent = line_through([(2, 3.0, 1), (3, 4.0, 1), (4, 3.0, 1)])
    assert bent is not None
    assert bent.per_row == pytest.approx(0.0)
    # Leaves -1/3, 2/3, -1/3.
    assert bent.error == pytest.approx(math.sqrt((1 + 4 + 1) / 9 / 3))
    assert line_through([(2, 3.0, 5)]) is None


def measured(kind: CostKind, rows: int, ms: float, position: int = 100) -> CostMeasured:
    ns = round(ms * MS)
    rest = (kind, rows, ns, ns - 1000, ns + 3000, 30, position, ns, "split", "prefix")
    return CostMeasured("", -1, 0, *rest)


def test_the_newest_measurement_counts() -> None:
    old = [measured("decode", 1, 9.0, 50), measured("verify", 2, 9.0, 50)]
    new = [
        *(measured("decode", 1, 2.0), measured("decode", 1, 2.2)),
        *(measured("verify", 1, 2.0), measured("verify", 2, 2.5), measured("verify", 3, 3.0)),
        *(measured("draft", 0, 0.5), measured("draft", 2, 0.9)),
        *(measured("commit", 2, 0.1), measured("reproject", 2, 0.4), measured("carry", 1, 0.2)),
    ]
    table = measured_costs([*old, *new])
    assert table is not None
    assert table.decode.median == pytest.approx(2.2)
    assert table.decode.half == pytest.approx(0.002)
    assert sorted(table.verify) == [2, 3]
    assert (table.verify_ms(1), table.draft_ms(1)) == (2.2, pytest.approx(0.7))
    assert (table.commit_ms, table.replay_ms) == (pytest.approx(0.1), 2.2)
    assert (table.position, table.numerics) == (100, "split")
    assert measured_costs([]) is None
    assert measured_costs(new[2:]) is None


def test_a_runs_own_steps_make_a_table() -> None:
    carried = cycle(0, 0, draft=0.2, decode=2.0, commit=0.05)
    strict = dspark([replace(carried, clip="strict")])
    table = run_costs(plain(8), dspark(CYCLES), "direct", strict, prompt=10)
    assert table is not None
    assert table.decode.median == 2.0
    assert {rows: cost.median for rows, cost in table.verify.items()} == {2: 2.5, 3: 3.0}
    assert {n: cost.median for n, cost in table.draft.items()} == pytest.approx(
        {0: 0.5, 1: 0.7, 2: 0.9}
    )
    assert table.replay is not None
    assert (table.replay.median, table.replay.n) == (2.0, 1)
    assert table.commit is not None
    assert table.commit.n == 3
    assert table.reproject is None
    assert table.carry is not None
    assert table.carry.median == pytest.approx(0.25)
    assert table.position == 14
    again = run_costs(plain(8), dspark(CYCLES), "reproject")
    assert again is not None
    assert again.reproject == again.commit
    assert run_costs(plain(1), None, None) is None


# Break-even


def test_break_even_by_hand() -> None:
    none, one, two = curve(TABLE, CYCLES, "direct")
    assert none.cycle == pytest.approx(0.5 + 2.0 + 0.1)
    assert (none.break_even, none.depth, none.pays) == (pytest.approx(1.3), 1.0, "loses")
    assert one.cycle == pytest.approx(0.7 + 2.5 + 0.1)
    assert one.break_even == pytest.approx(1.65)
    assert (one.depth, one.half, one.pays) == (2.0, None, "open")
    # Two cycles of two drafts; one of them was rejected at once and replays one row.
    assert two.replay == pytest.approx(1.0)
    assert two.cycle == pytest.approx(0.9 + 3.0 + 0.1 + 1.0)
    assert (two.break_even, two.depth, two.cycles) == (pytest.approx(2.5), 2.0, 2)
    assert two.pays == "open"


def test_a_length_pays_when_its_depth_is_surely_above_break_even() -> None:
    deep = [cycle(2, 2)] * 9 + [cycle(2, 1)]
    assert curve(TABLE, deep, "prefix")[2].pays == "pays"
    shallow = [cycle(2, 0)] * 9 + [cycle(2, 1)]
    assert curve(TABLE, shallow, "prefix")[2].pays == "loses"


def test_no_break_even_follows_from_too_few_steps() -> None:
    slow = cycle(1, 1, draft=0.9, verify=9.0)
    arm = dspark([slow, *(cycle(2, 2, draft=0.9, verify=3.0) for _ in range(4))])
    early = run_costs(plain(5), arm, "prefix")
    assert early is not None
    found = curve(early, arm.cycles, "prefix")
    assert [row.cycle for row in found] == [None] * 3
    assert [row.pays for row in found] == [None, "few", "few"]
    shape = shape_of(arm.cycles, 2)
    assert shape is not None
    each = predict(early, shape, "prefix")
    assert each.speedup is not None
    assert (each.break_even, each.never, each.why) == (None, False, "too few cycles yet")
    # One more cycle of two drafts, and more of plain: only the length that was seen once is open.
    arm = dspark([*arm.cycles, cycle(2, 2, draft=0.9, verify=3.0)])
    table = run_costs(plain(9), arm, "prefix")
    assert table is not None
    assert [row.cycle for row in curve(table, arm.cycles, "prefix")] == [
        *(None, None, pytest.approx(3.9)),
    ]
    shape = shape_of(arm.cycles, 2)
    assert shape is not None
    assert predict(table, shape, "prefix").break_even is not None


def test_a_break_even_deeper_than_the_cycle_can_never_pay() -> None:
    table = replace(TABLE, draft={0: exactly(2.0), 2: exactly(4.0)})
    assert [row.pays for row in curve(table, CYCLES, "prefix")] == ["loses", "never", "never"]


def test_the_interval_of_a_mean() -> None:
    mean, half = mean_of([1, 1, 2, 3, 3])
    assert mean == 2
    assert half == pytest.approx(1.96 / math.sqrt(5))
    assert mean_of([]) == (None, None)
    assert mean_of([4, 4, 4, 4]) == (4, None)


# Predictions


@pytest.mark.parametrize(
    ("policy", "rows"), [("direct", 1), ("prefix", 0), ("reproject", 0), ("replay", 1)]
)
def test_rows_decoded_again(policy: str, rows: int) -> None:
    assert replayed_rows(policy, 2, 0) == rows
    assert replayed_rows(policy, 2, 2) == (3 if policy == "replay" else 0)


def test_predictions_by_hand() -> None:
    shape = shape_of(CYCLES, 2)
    assert shape is not None
    assert (shape.tokens, shape.cycles, shape.depth) == (7, 4, 1.75)
    # Two cycles of two drafts, one of one, one without: (.9+3+.1)*2 + (.7+2.5+.1) + (.5+2+.1)
    fixed = 13.9
    found = {each.policy: each for each in predictions(TABLE, shape)}
    assert found["prefix"].speedup == pytest.approx(14 / fixed)
    assert found["prefix"].break_even == pytest.approx(fixed / 4 / 2)
    assert found["direct"].speedup == pytest.approx(14 / (fixed + 2.0))
    assert found["direct"].break_even == pytest.approx((fixed + 2.0) / 4 / 2)
    # Three cycles with a verify commit by re-projection: .3 more each.
    assert found["reproject"].speedup == pytest.approx(14 / (fixed + 0.9))
    assert found["strict"].speedup == pytest.approx(2.0 / 2.2)
    # 3 + 1 + 2 rows again.
    assert found["replay"].speedup == pytest.approx(14 / (fixed + 12.0))


def test_replay_at_the_price_of_a_plain_step_cannot_pay_at_any_depth() -> None:
    shape = shape_of([cycle(2, 2)] * 10, 2)
    assert shape is not None
    found = predict(TABLE, shape, "replay")
    assert found.never
    assert found.break_even == math.inf
    dearer = predict(replace(TABLE, replay=exactly(2.5)), shape, "replay")
    assert dearer.never
    # A row that is hardly cheaper asks for depths that no block has.
    hardly = predict(replace(TABLE, replay=exactly(1.9)), shape, "replay")
    assert hardly.break_even == pytest.approx(4.0 / 0.1)
    assert hardly.never
    cheap = predict(replace(TABLE, replay=exactly(0.1)), shape, "replay")
    assert cheap.break_even == pytest.approx(4.0 / 1.9)
    assert not cheap.never


def test_what_was_not_measured_is_not_predicted() -> None:
    shape = shape_of(CYCLES, 2)
    assert shape is not None
    bare = replace(TABLE, reproject=None, carry=None, draft={})
    missing = {each.policy: each.why for each in predictions(bare, shape)}
    assert missing == {
        "direct": "draft not measured",
        "prefix": "draft not measured",
        "reproject": "re-projection not measured",
        "replay": "draft not measured",
        "strict": "carry not measured",
    }
    assert all(each.speedup is None for each in predictions(bare, shape))
    assert shape_of((), 2) is None
