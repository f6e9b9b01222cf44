"""Counts that add up: segments of a run, and cycles over several prompts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4tui.chart_sides import OVER_SESSION, Side, depth_sides, ledger_sides, rate_sides
from ds4tui.figures import segment_ledger
from ds4tui.marks import UNICODE
from ds4tui.over_prompts import OverPrompts
from ds4tui.run_record import RunRecord
from ds4tui.segments import Segments
from ds4tui.spans import text_of
from engine.cycle_counts import CycleCounts
from engine.events import ArmFinished, CycleFinished, Event, RunStarted, SettingsChanged
from tests.ds4tui import streams
from tests.ds4tui.harness import record_of


def on_another_prompt(events: list[Event], prompt: int) -> list[Event]:
    """The same run as one of another prompt."""
    changed = [
        replace(event, prompt_ids=(prompt,)) if isinstance(event, RunStarted) else event
        for event in events
    ]
    return streams.renamed(changed, f"run-on-{prompt}")


def shown(side: Side) -> list[str]:
    return [text_of(row).rstrip() for row in side.box(48, 10, UNICODE)]


MIXED = record_of(streams.mixed_run())
TWICE = record_of(streams.mixed_run((120, (("commit", "replay"),)), (300, (("draft_max", "2"),))))


def test_a_run_without_turned_knobs_is_one_segment() -> None:
    arm = record_of(streams.diverged_run()).arms[1]
    (only,) = arm.segments.all
    assert only.counts == arm.tally.counts
    assert (only.tokens, only.time.total) == (399, arm.tally.decode_ns)
    assert arm.segments.turns == []


@pytest.mark.parametrize("record", [MIXED, TWICE])
def test_segments_add_up_to_the_run(record: RunRecord) -> None:
    arm = record.arms[1]
    segments = arm.segments.all
    assert sum((each.counts for each in segments[1:]), segments[0].counts) == arm.tally.counts
    assert sum(each.tokens for each in segments) == len(arm.ids) - 1
    assert sum(each.time.total for each in segments) == arm.tally.decode_ns
    assert len(arm.segments.turns) == len(segments) - 1
    for segment, index in zip(segments[1:], arm.segments.turns, strict=True):
        assert segment.first == index
        assert segment.counts.tokens == segment.tokens


def test_knobs_turned_before_a_cycle_are_one_segment() -> None:
    segments = Segments(5)
    cycle = next(e for e in streams.diverged_run() if isinstance(e, CycleFinished))
    for settings in ((("commit", "prefix"),), (("commit", "replay"), ("draft_max", "2"))):
        segments.turn(SettingsChanged("run", 1, 0, 0, settings))
    assert len(segments.all) == 1
    segments.count(cycle)
    segments.turn(SettingsChanged("run", 1, 0, 1, (("confidence", "0.5"),)))
    segments.turn(SettingsChanged("run", 1, 0, 1, (("confidence", "0.7"),)))
    assert [each.turned for each in segments.all] == [
        (("commit", "replay"), ("draft_max", "2")),
        (("confidence", "0.7"),),
    ]


def test_a_segment_is_measured_against_plain_on_the_same_indexes() -> None:
    plain, arm = MIXED.arms
    newest = arm.segments.all[-1]
    found = segment_ledger(plain.tally, newest)
    assert found is not None
    assert newest.first is not None
    same = plain.tally.token_ns[newest.first :]
    assert found.plain_total_ms == pytest.approx(sum(same) / 1e6)
    assert sum(found.terms.values()) == pytest.approx(found.saved_ms)
    assert found.saved_ms == pytest.approx((sum(same) - newest.time.total) / 1e6)


def test_charts_begin_anew_where_a_knob_was_turned() -> None:
    arm = TWICE.arms[1]
    first, second = arm.segments.turns
    sides = depth_sides(TWICE, arm, None)
    assert [side.wide[0] for side in sides] == [
        f"depth from #{second}, blk2",
        f"depth #{first} to #{second - 1}, replay",
        f"depth to #{first - 1}, direct",
        "depth, the whole run",
        "cycles by proposed and accepted",
    ]
    tokens = [shown(side)[-1] for side in sides[:4]]
    assert [row.split(", ")[1] for row in tokens[:3]] == [
        f"{each.tokens} tokens" for each in reversed(arm.segments.all)
    ]
    assert all(row.endswith(" tok/s") for row in tokens[:3])
    assert tokens[3].endswith("399 tokens + 1 from prefill = 400")
    assert [side.name for side in ledger_sides(TWICE, arm)] == [
        "segment 2",
        "segment 1",
        "segment 0",
        "run",
    ]
    strip = text_of(rate_sides(TWICE, arm)[0].strip(40, UNICODE)[2])  # type: ignore[misc]
    assert strip.count(UNICODE.turn) == 2
    scatter = "\n".join(shown(rate_sides(TWICE, arm)[0]))
    assert f"#{first}" in scatter


def test_counts_over_prompts_are_the_sum_of_their_runs() -> None:
    over = OverPrompts()
    runs = [record_of(on_another_prompt(streams.diverged_run(), prompt)) for prompt in range(3)]
    for run in runs:
        over.add(run)
    found = over.counts(runs[0], runs[0].arms[1])
    assert found is not None
    one = runs[0].arms[1].tally.counts
    assert found == (3, one + one + one)
    assert found[1].accept_by_position()[0] == (3 * 92, 3 * 101)
    titles = [side.wide[0] for side in depth_sides(runs[0], runs[0].arms[1], found)]
    assert "depth, session: 3 prompts" in titles
    assert "proposed, accepted: 3 prompts" in titles
    sides = {side.name: side for side in depth_sides(runs[0], runs[0].arms[1], found)}
    assert shown(sides["prompts table"])[-3] == f" {OVER_SESSION}"
    assert shown(sides["prompts"])[-1].endswith("1197 tokens + 3 from prefill = 1200")


def test_a_prompt_counts_once_as_it_last_ran_to_its_end() -> None:
    over = OverPrompts()
    once = record_of(streams.diverged_run())
    over.add(once)
    again = RunRecord()
    events = streams.diverged_run()
    at = next(n for n, event in enumerate(events) if isinstance(event, RunStarted)) + 1
    for event in events[:at]:
        again.feed(event)
    over.add(again)
    old = (1, once.arms[1].tally.counts)
    assert over.counts(again, again.arms[1]) == old
    for event in events[at:-1]:
        again.feed(event)
    assert over.counts(again, again.arms[1]) == old
    again.feed(events[-1])
    assert over.counts(again, again.arms[1]) == (1, again.arms[1].tally.counts)


def test_a_run_that_was_stopped_does_not_count() -> None:
    over = OverPrompts()
    whole = record_of(on_another_prompt(streams.diverged_run(), 1))
    stopped = record_of(
        replace(event, reason="stop") if isinstance(event, ArmFinished) else event
        for event in streams.diverged_run()
    )
    dropped = record_of(on_another_prompt(streams.until(streams.diverged_run(), 50), 2))
    for run in (whole, dropped, stopped):
        over.add(run)
    assert over.counts(whole, whole.arms[1]) == (1, whole.arms[1].tally.counts)


def test_other_settings_and_mixed_runs_do_not_count() -> None:
    over = OverPrompts()
    runs = [
        record_of(streams.diverged_run()),
        record_of(on_another_prompt(streams.identical_run(), 1)),
        record_of(on_another_prompt(streams.mixed_run(), 2)),
    ]
    for run in runs:
        over.add(run)
    found = over.counts(runs[0], runs[0].arms[1])
    assert found is not None
    assert found[0] == 1
    assert len(depth_sides(runs[0], runs[0].arms[1], found)) == 2


def test_counts_of_any_cycles_add_up() -> None:
    cycles = [e for e in streams.diverged_run() if isinstance(e, CycleFinished)]
    whole = CycleCounts.of(cycles, 5)
    for cut in (0, 1, 70, len(cycles)):
        assert CycleCounts.of(cycles[:cut], 5) + CycleCounts.of(cycles[cut:], 5) == whole
    assert whole.tokens == 399
    assert (whole.drafted, whole.proposed, whole.accepted) == (297, 297, 252)
