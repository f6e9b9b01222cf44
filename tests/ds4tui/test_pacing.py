"""Frames wait when drawing costs much, but never for long."""

from __future__ import annotations

from ds4tui.pacing import LONGEST_S, SHARE, Pacing
from tests.ds4tui.harness import Clock


def frames(cost: float, fps: float = 30.0, seconds: float = 10.0) -> tuple[int, float]:
    """(frames drawn, processor time per second) when each frame costs so many seconds."""
    clock, spent = Clock(), Clock()
    pacing = Pacing(clock, spent)
    drawn = 0
    for _ in range(int(seconds * fps)):
        clock.now += 1 / fps
        if pacing.is_due():
            drawn += 1
            spent.now += cost
    return drawn, spent.now / seconds


def test_cheap_frames_are_all_drawn() -> None:
    assert frames(0.005)[0] == 300


def test_dear_frames_take_no_more_than_their_share() -> None:
    drawn, share = frames(0.012)
    assert 100 < drawn < 200
    assert share <= SHARE + 0.01


def test_no_frame_waits_for_long() -> None:
    drawn, _ = frames(0.2)
    assert drawn >= 10 / (LONGEST_S + 1 / 30) - 1
