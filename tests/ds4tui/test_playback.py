"""Slow motion and recorded runs as a link."""

from __future__ import annotations

import pytest

from ds4tui.link import ReplayLink
from ds4tui.playback import Playback, is_playable, schedule
from ds4tui.run_record import RunRecord
from engine.events import (
    CycleFinished,
    Diverged,
    EngineReady,
    RunFinished,
    RunStarted,
    TokensCommitted,
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
    playback = Playback(EVENTS, clock)
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
    playback = Playback(EVENTS, clock)
    playback.poll()
    playback.pause(True)
    clock.now += 10
    assert playback.poll() == []
    playback.pause(False)
    playback.faster(2)
    assert playback.tokens_per_s == 40
    for _ in range(20):
        playback.faster(2)
    assert playback.tokens_per_s <= 1280


def test_nothing_to_play() -> None:
    assert not is_playable([])
    assert not is_playable(streams.load_steps())
    assert is_playable(EVENTS)


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


def test_replay_again_is_another_run(clock: Clock) -> None:
    link = ReplayLink(EVENTS, clock, float("inf"))
    link.start()
    link.poll()
    link.send(RUN)
    first = link.poll()
    link.send(RUN)
    second = link.poll()
    assert {e.run_id for e in first}.isdisjoint(e.run_id for e in second)
    assert len(first) == len(second)


def test_stopped_replay_stops(clock: Clock) -> None:
    link = ReplayLink(EVENTS, clock)
    link.start()
    link.poll()
    link.send(RUN)
    link.send(Stop())
    clock.now += 100
    assert link.poll() == []
