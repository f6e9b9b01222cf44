"""Runs the arms of one comparison in turn and says what became of them.

Owns the schedule (the arm with the fewest tokens goes next, plain first on ties), the level stop,
self-consistency controls and the verdict on the run. Takes ready lanes: how they were made is
`engine.session`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from engine.compare import Comparison, Lane
from engine.decode import Control, Stamp
from engine.events import ArmFinished, Event, Notice, RunFinished, TokensCommitted


def no_explanation(arm: int, index: int) -> tuple[str, ...]:
    """Nothing is recorded, so no choice can be named."""
    return ()


@dataclass(frozen=True, slots=True)
class RaceRules:
    """How arms are compared: see `engine.settings.Settings`."""

    digest_every: int
    near_tie_ulps: float
    ulp_type: str


class Race:
    """All arms of a run, interleaved.

    Args:
        lanes: arm 0 is plain; controls last.
        controls: (arm, its control) pairs.
        explain: see `Comparison`.
    """

    def __init__(
        self,
        run_id: str,
        lanes: Sequence[Lane],
        control: Control,
        rules: RaceRules,
        controls: Sequence[tuple[int, int]] = (),
        explain: Callable[[int, int], tuple[str, ...]] = no_explanation,
    ) -> None:
        self._run = Stamp(run_id, -1)
        self._lanes = lanes
        self._control = control
        self._controls = controls
        self._levelled = False
        second = {arm for _, arm in controls}
        self.comparisons = {
            lane.stamp.arm: Comparison(
                lanes[0],
                lane,
                rules.digest_every,
                rules.near_tie_ulps,
                rules.ulp_type,
                lane.timeline.info.kind == "recorded",
                explain,
            )
            for lane in lanes[1:]
            if lane.stamp.arm not in second
        }

    def events(self) -> Iterator[Event]:
        """Run to the end, step by step."""
        while True:
            self._control.checkpoint()
            self._level()
            running = [lane for lane in self._lanes if not lane.done]
            if not running:
                break
            yield from self._step(min(running, key=lambda lane: len(lane.timeline.ids)))
        yield from self._finish()

    def _level(self) -> None:
        """A stop lets the arms that are behind catch up, so that all show the same tokens."""
        if self._control.stopped and not self._levelled:
            self._levelled = True
            self._control.limit = max(len(lane.timeline.ids) for lane in self._lanes)

    def _step(self, lane: Lane) -> Iterator[Event]:
        events = next(lane.steps, None)
        for event in events or ():
            if isinstance(event, TokensCommitted):
                lane.committed = event
            yield event
        if lane.stamp.arm == 0:
            touched = list(self.comparisons.values())
        else:
            touched = [c for c in self.comparisons.values() if c.other is lane]
        for comparison in touched:
            yield from comparison.after_step()
        yield from self._announce()

    def _announce(self) -> Iterator[Event]:
        """Report the arms that have ended and whose comparison is over."""
        for lane in self._lanes:
            if not lane.done or lane.announced:
                continue
            comparison = self.comparisons.get(lane.stamp.arm)
            waits = comparison is not None and comparison.diverged is None
            if waits and not self._lanes[0].done:
                continue
            lane.announced = True
            equal = comparison.state_equal() if comparison else None
            assert lane.timeline.reason is not None
            yield ArmFinished(*lane.stamp(), lane.timeline.reason, len(lane.timeline.ids), equal)

    def _finish(self) -> Iterator[Event]:
        withheld = self._withheld()
        compared = self.comparisons.values()
        identical = not withheld and all(c.diverged is None for c in compared)
        for comparison in compared:
            left, right = comparison.plain.timeline, comparison.other.timeline
            shorter = min(len(left.ids), len(right.ids))
            if comparison.diverged is None and len(left.ids) != len(right.ids):
                text = f"{right.info.name} and plain have {len(right.ids)} and {len(left.ids)} ids"
                which = "only the first one is" if shorter == 1 else f"the first {shorter} are"
                yield Notice(*self._run(), "warning", f"{text}; {which} compared.")
        yield RunFinished(*self._run(), None if withheld else identical, withheld)

    def _withheld(self) -> str:
        """Why there is no verdict, or nothing."""
        for arm, control in self._controls:
            first, second = self._lanes[arm].timeline, self._lanes[control].timeline
            pairs = enumerate(zip(first.ids, second.ids, strict=False))
            parted = next((i for i, (a, b) in pairs if a != b), None)
            if parted is not None:
                return (
                    f"{first.info.name}: this arm disagrees with itself at {parted} (controls), "
                    "so it is not compared"
                )
        if not self.comparisons:
            return "there is nothing to compare plain with"
        if any(lane.timeline.reason == "cancelled" for lane in self._lanes):
            return "the run was cancelled"
        return ""
