"""Slow motion and recorded runs as a link."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.long_stream import long_run
from ds4tui.link import ReplayLink
from ds4tui.playback import FASTEST, MOST, Playback, recorded, schedule
from ds4tui.run_record import RunRecord
from engine.events import (
    CycleFinished,
    Diverged,
    EngineReady,
    LoadProgress,
    RunFinished,
    RunStarted,
    SuiteStarted,
    TokensCommitted,
    TokenText,
)
from engine.process import Pause, Resume, Run, Stop
from engine.settings import Prompt, RunRequest
from tests.ds4tui import streams
from tests.ds4tui.harness import Clock

EVENTS = streams.diverged_run()
RUN = Run(RunRequest(Prompt("a")))


def test_schedule_has_every_event_once_and_in_each_arms_order() -> None:
    timed = schedule(EVENTS)
    assert len(timed) == len(EVENTS)
    assert [ns for ns, _ in timed] == sorted(ns for ns, _ in timed)
    for arm in (0, 1):
        before = [e for e in EVENTS if e.arm == arm and isinstance(e, TokensCommitted)]
        after = [e for _, e in timed if e.arm == arm and isinstance(e, TokensCommitted)]
        assert before == after
    assert isinstance(timed[-1][1], RunFinished)


def test_a_cycle_comes_with_its_tokens() -> None:
    times = {}
    for ns, event in schedule(EVENTS):
        if event.arm == 1 and isinstance(event, CycleFinished | TokensCommitted):
            times.setdefault(event.index, set()).add(ns)
    assert all(len(found) == 1 for found in times.values())


def test_the_verdict_waits_for_the_slower_arm() -> None:
    seen = [0, 0]
    for _, event in schedule(EVENTS):
        if isinstance(event, TokensCommitted):
            seen[event.arm] = event.index + len(event.ids)
        if isinstance(event, Diverged):
            assert min(seen) > event.index
            return
    raise AssertionError("no divergence")


def test_played_out_it_is_the_same_run() -> None:
    clock = Clock()
    playback = Playback.slowly(EVENTS, clock)
    record = RunRecord()
    while not playback.is_over:
        clock.now += 0.5
        for event in playback.poll():
            record.feed(event)
    whole = RunRecord()
    for event in EVENTS:
        whole.feed(event)
    assert [arm.ids_hash for arm in record.arms] == [arm.ids_hash for arm in whole.arms]
    assert [arm.tally.time for arm in record.arms] == [arm.tally.time for arm in whole.arms]


def test_speed_and_pause() -> None:
    clock = Clock()
    playback = Playback.slowly(EVENTS, clock)
    playback.poll()
    playback.pause(True)
    clock.now += 10
    assert playback.poll() == []
    playback.pause(False)
    before = playback.speed
    playback.faster(2)
    assert playback.speed == 2 * before
    for _ in range(30):
        playback.faster(2)
    assert playback.speed == FASTEST


def test_nothing_to_play() -> None:
    record = RunRecord()
    assert not record.is_playable
    for event in streams.load_steps():
        record.feed(event)
    assert not record.is_playable
    for event in streams.until(EVENTS, 3):
        record.feed(event)
    assert record.is_playable


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_replay_greets_like_an_engine(clock: Clock) -> None:
    link = ReplayLink(EVENTS, clock)
    link.start()
    (ready,) = link.poll()
    assert isinstance(ready, EngineReady)
    assert ready.block_size == 5


def test_replay_keeps_the_recorded_pace(clock: Clock) -> None:
    link = ReplayLink(EVENTS, clock)
    link.start()
    link.poll()
    clock.now += 100
    assert link.poll() == []
    link.send(RUN)
    clock.now += 0.5
    some = link.poll()
    assert 0 < len(some) < len(EVENTS) / 2
    link.send(Pause())
    clock.now += 100
    assert link.poll() == []
    link.send(Resume())
    clock.now += 100
    rest = link.poll()
    assert isinstance(rest[-1], RunFinished)
    assert sum(isinstance(e, RunStarted) for e in some + rest) == 1


def test_replay_again_is_the_same_run_from_its_start(clock: Clock) -> None:
    link = ReplayLink(EVENTS, clock, float("inf"))
    link.start()
    link.poll()
    link.send(RUN)
    first = link.poll()
    assert link.playback.take_rewind() == ""
    link.send(RUN)
    assert link.poll() == first
    assert link.playback.take_rewind() == "run"


def test_stopped_replay_is_at_its_end_at_once(clock: Clock) -> None:
    link = ReplayLink(EVENTS, clock)
    link.start()
    link.poll()
    link.send(RUN)
    link.send(Stop())
    assert link.poll() == [event for event in EVENTS if not isinstance(event, LoadProgress)]


def played(playback: Playback, record: RunRecord) -> RunRecord:
    """What a front end has after a poll."""
    events = playback.poll()
    if playback.take_rewind():
        record = RunRecord()
    for event in events:
        record.feed(event)
    return record


@pytest.mark.parametrize("timed", [recorded(EVENTS), schedule(EVENTS)], ids=["trace", "slow"])
def test_stepping_goes_cycle_by_cycle_both_ways(clock: Clock, timed: Any) -> None:
    playback = Playback(timed, clock)
    playback.pause(True)
    record = RunRecord()
    seen = []
    for _ in range(5):
        playback.step(1)
        record = played(playback, record)
        seen.append(len(record.arms[1].cycles))
    assert seen == [0, 1, 2, 3, 4]
    clock.now += 100
    assert playback.poll() == [], "stepping stays where it is"
    playback.step(-2)
    record = played(playback, record)
    assert len(record.arms[1].cycles) == 2
    assert record.arms[0].ids[:3] == record.arms[1].ids[:3]
    playback.step(1000)
    record = played(playback, record)
    assert record.finished is not None


def test_seeking_goes_to_the_cycle_of_an_index(clock: Clock) -> None:
    playback = Playback(recorded(EVENTS), clock)
    playback.pause(True)
    record = RunRecord()
    for index in (163, 40, 399, 0, 10**6):
        playback.seek(index)
        record = played(playback, record)
        assert len(record.arms[1].ids) >= min(400, index + 1)
        cycle = record.arms[1].cycle_of(min(index, 399))
        assert cycle is None or cycle == record.arms[1].cycles[-1] or index >= 400
    playback.seek(163)
    record = played(playback, record)
    assert record.arms[1].diverged is not None, "plain has caught up"


def test_pauses_between_runs_are_cut() -> None:
    later = [replace(e, run_id="b", t_ns=e.t_ns + 10**12) for e in EVENTS]
    times = [ns for ns, _ in recorded([*EVENTS, *later])]
    assert times == sorted(times)
    assert times[-1] < 3 * 10**9 + 2 * times[len(EVENTS) - 1]


def test_a_trace_with_a_suite_is_given_again_from_its_start(clock: Clock) -> None:
    runs = [streams.of_suite(EVENTS, "s1", cell, 0) for cell in ("split", "invariant")]
    started = SuiteStarted("", -1, 0, "s1", "matrix", ("split direct",))
    playback = Playback(recorded([started, *runs[0], *runs[1]]), clock, float("inf"))
    clock.now += 1
    assert len(playback.poll()) == 1 + 2 * len(EVENTS)
    playback.step(-3)
    again = playback.poll()
    assert playback.take_rewind() == "all"
    assert again[0] is started
    assert len(again) > len(EVENTS)


def test_many_events_come_in_batches_and_none_is_lost() -> None:
    events = [event for step in long_run("long", 4000) for event in step]
    clock = Clock()
    playback = Playback(recorded(events), clock, speed=float("inf"))
    batches = []
    while not playback.is_over:
        clock.now += 1.0
        batches.append(playback.poll())
    assert len(batches) > 2
    assert max(map(len, batches)) <= MOST
    assert [event for batch in batches for event in batch] == events


@pytest.mark.parametrize("rewound", ["run", "all"])
def test_a_step_back_in_a_suite_repeats_no_more_than_it_must(rewound: str) -> None:
    """Inside a run only that run comes again; behind its end its suite's figures count it."""
    suite = SuiteStarted("s", -1, 0, "s", "matrix", ("split direct",))
    first, second = (streams.of_suite(EVENTS, "s", "split", n) for n in (0, 1))
    playback = Playback(recorded([suite, *first, *second]), Clock())
    playback.seek(0)
    playback.poll()
    playback._go(1 + len(first) + 200)
    playback.poll()
    if rewound == "all":
        playback._go(1 + len(first) + len(second))
        playback.poll()
    playback.step(-1)
    again = playback.poll()
    assert playback.take_rewind() == rewound
    assert isinstance(again[0], RunStarted | SuiteStarted | TokenText)
    assert (again[0] is suite) == (rewound == "all")
