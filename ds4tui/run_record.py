"""One run, gathered from its events: tokens with their text, cycles, times, the divergence.

Owns what every widget shows of a run. Knows the events and nothing of widgets, clocks or processes.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from sys import intern

from ds4tui.drift_data import DriftTrack
from ds4tui.packed import PackedList, Spill
from ds4tui.rejected import RejectedDrafts
from ds4tui.segments import Segments
from ds4tui.visible import drawable_line, token_label
from engine.events import (
    CUT_SHORT,
    ArmFinished,
    ArmInfo,
    CycleFinished,
    Diverged,
    Event,
    FirstDrift,
    Notice,
    RunFailed,
    RunFinished,
    RunStarted,
    SettingsChanged,
    Source,
    StateDrift,
    TokensCommitted,
    TokenText,
)
from engine.stats import ArmTally, Speedup, speedup
from engine.text import IncrementalText, decode_bytes

TopRow = tuple[tuple[int, float], ...]
"""(id, logit) of the best ids of one row, the best first."""
EVENTS_PAGE, ITEMS_PAGE = 1024, 256
"""Events, and cycles or rows of logits, that are packed together."""


@dataclass(slots=True)
class ArmRecord:
    """What one arm has done so far: its tally, and what a pane shows of each token.

    `cycles` is the tally's; the plain arm has none.
    """

    info: ArmInfo
    tally: ArmTally
    cycles: PackedList[CycleFinished]
    top: PackedList[TopRow]
    segments: Segments
    texts: list[str] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    cycle_starts: array[int] = field(default_factory=lambda: array("q"))
    rejected: RejectedDrafts = field(default_factory=RejectedDrafts)
    finished: ArmFinished | None = None
    changes: list[SettingsChanged] = field(default_factory=list)
    smallest_gap: tuple[float, int] | None = None
    drift: DriftTrack = field(default_factory=DriftTrack)
    _begins: array[int] = field(default_factory=lambda: array("q"))
    _text: IncrementalText = field(default_factory=IncrementalText)
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    @staticmethod
    def of(info: ArmInfo, block_size: int, spill: Spill | None = None) -> ArmRecord:
        """An arm that has done nothing yet.

        Args:
            block_size: drafts of a whole block, 0 when it is no DSpark arm.
            spill: of the run, for what is far from the end.
        """
        cycles: PackedList[CycleFinished] = PackedList(ITEMS_PAGE, spill)
        tally = ArmTally(block_size, cycles=cycles)
        return ArmRecord(info, tally, cycles, PackedList(ITEMS_PAGE, spill), Segments(block_size))

    @property
    def ids(self) -> list[int]:
        """Ids committed so far."""
        return self.tally.ids

    @property
    def diverged(self) -> Diverged | None:
        """Where this arm's ids part from plain's."""
        return self.tally.diverged

    @property
    def tokens_per_s(self) -> float | None:
        """(ids - 1) / (all engine time but prefill); None below two ids, and of given ids."""
        return None if self.info.kind == "recorded" else self.tally.tokens_per_s

    @property
    def ids_hash(self) -> str:
        """First eight hex digits of the sha256 over the ids as little-endian u32."""
        return self._hash.hexdigest()[:8]

    @property
    def first_drift(self) -> FirstDrift | None:
        """The first boundary at which the states differed while the ids agreed."""
        return self.tally.first_drift

    @property
    def mixed(self) -> bool:
        """A policy was changed during the run."""
        return any(name == "commit" for change in self.changes for name, _ in change.settings)

    def index_at(self, cycle: int) -> int | None:
        """Index of the first token of a cycle; None while it is still to come."""
        return self.cycles[cycle].index if cycle < len(self.cycles) else None

    def cycle_of(self, index: int) -> CycleFinished | None:
        """The cycle that committed a token; None for the first one and for plain."""
        at = self.cycle_at(index)
        return self.cycles[at] if at >= 0 else None

    def cycle_at(self, index: int) -> int:
        """Where that cycle is in `cycles`; -1 for the first token."""
        return bisect_right(self._begins, index) - 1


class RunRecord:
    """All of one run.

    Args:
        keep_events: remember the events too, for slow motion and traces.

    `cursor` is the index that is looked at on every screen about the run, None = none chosen.
    """

    def __init__(self, keep_events: bool = True) -> None:
        self._spill = Spill()
        self.events: PackedList[Event] = PackedList(EVENTS_PAGE, self._spill)
        self.started: RunStarted | None = None
        self.arms: list[ArmRecord] = []
        self.token_bytes: dict[int, bytes] = {}
        self.finished: RunFinished | None = None
        self.failed: RunFailed | None = None
        self.notices: list[Notice] = []
        self.cursor: int | None = None
        self._chosen: int | None = None
        self._agreed: dict[int, int] = {}
        self._speedups: dict[int, Speedup | None] = {}
        self._keep = keep_events

    @property
    def plain(self) -> ArmRecord | None:
        """Arm 0, once the run has started."""
        return self.arms[0] if self.arms else None

    @property
    def beside(self) -> ArmRecord | None:
        """The arm that is shown beside plain, whatever its kind; None without one."""
        return self.arms[self.shown_arm] if self.shown_arm < len(self.arms) else None

    @property
    def names(self) -> tuple[str, str]:
        """What plain and the arm shown beside it are called in titles and columns."""
        arm = self.beside
        if arm is None or arm.info.kind == "dspark":
            return "plain", "DSpark"
        return "plain", drawable_line(arm.info.name)

    @property
    def place(self) -> int:
        """The index looked at: the cursor, else where the ids part, else the newest token."""
        arm = self.beside
        if self.cursor is not None:
            return self.cursor
        if self.parts_at is not None:
            return self.parts_at
        return max(0, len(arm.ids) - 1) if arm is not None else 0

    @property
    def shown_arm(self) -> int:
        """Index of the arm that is shown beside plain."""
        return 1 if self._chosen is None else self._chosen

    def choose(self, arm: int) -> None:
        """Show another arm beside plain.

        Raises:
            ValueError: when there is no such arm, or it is plain.
        """
        if not 1 <= arm < len(self.arms):
            raise ValueError(f"arm is {arm}; expected 1 to {len(self.arms) - 1}")
        self._chosen = arm

    @property
    def settings(self) -> dict[str, str]:
        """The run's settings as it was started."""
        return dict(self.started.settings) if self.started else {}

    @property
    def compared(self) -> int:
        """Tokens that plain and the arm shown beside it both have."""
        both = (self.plain, self.beside)
        return min((len(arm.ids) for arm in both if arm is not None), default=0)

    @property
    def speedup(self) -> Speedup | None:
        """Speed-up of the arm shown beside plain with its interval, once the run has ended."""
        plain, beside = self.plain, self.beside
        if self.finished is None or plain is None or beside is None:
            return None
        if self.shown_arm not in self._speedups:
            found = speedup([plain.tally.token_ns], [beside.tally.token_ns])
            self._speedups[self.shown_arm] = found
        return self._speedups[self.shown_arm]

    @property
    def parts_at(self) -> int | None:
        """First index at which the arm shown beside plain has another id than plain.

        No event tells it of a control, which is compared with the arm that it repeats: its ids do.
        """
        plain, beside = self.plain, self.beside
        if plain is None or beside is None or beside.info.role != "control":
            return beside.diverged.index if beside is not None and beside.diverged else None
        at, end = self._agreed.get(self.shown_arm, 0), self.compared
        while at < end and plain.ids[at] == beside.ids[at]:
            at += 1
        self._agreed[self.shown_arm] = at
        return at if at < end else None

    @property
    def is_other_work(self) -> bool:
        """The arm shown beside plain has other ids than plain."""
        return self.parts_at is not None

    @property
    def is_whole(self) -> bool:
        """It has ended, and nobody cut it short."""
        ends = [arm.finished.reason for arm in self.arms if arm.finished is not None]
        all_ended = self.finished is not None and len(ends) == len(self.arms)
        return all_ended and not any(reason in CUT_SHORT for reason in ends)

    @property
    def is_playable(self) -> bool:
        """Its events are kept, and there is something to see in them."""
        return bool(self.events) and any(arm.ids for arm in self.arms)

    def text(self, token_id: int) -> str:
        """A token for a cell of a table: its characters, or its id when it has no ink."""
        written = drawable_line(decode_bytes(self.token_bytes.get(token_id, b"")))
        return written.strip(" ") or f"<{token_id}>"

    def label(self, token_id: int) -> str:
        """A token in quotes for a sentence."""
        return token_label(self.token_bytes.get(token_id, b""), token_id)

    def pack(self) -> None:
        """Take little memory from now on; what is looked at again is unpacked."""
        self.events.pack()
        for arm in self.arms:
            arm.top.pack()
            arm.cycles.pack()

    def feed(self, event: Event) -> None:
        """Take the next event of this run."""
        if self._keep:
            self.events.append(event)
        if event.arm >= len(self.arms):
            return  # an arm that the run's start did not name: a damaged trace
        if event.arm >= 0:
            self._feed_arm(self.arms[event.arm], event)
            return
        match event:
            case TokenText():
                self.token_bytes.update(event.entries)
            case RunStarted():
                self.started = event
                spill, block = self._spill, event.block_of
                self.arms = [ArmRecord.of(info, block(info), spill) for info in event.arms]
            case RunFinished():
                self.finished = event
            case RunFailed():
                self.failed = event
            case Notice():
                self.notices.append(event)
            case _:
                pass

    def _feed_arm(self, arm: ArmRecord, event: Event) -> None:
        arm.tally.feed(event)
        match event:
            case TokensCommitted():
                self._committed(arm, event)
            case CycleFinished():
                arm._begins.append(event.index)
                arm.segments.count(event)
                rejected = event.drafts[event.accepted : event.proposed]
                if rejected:
                    arm.rejected.add(event.index + event.accepted, rejected)
            case StateDrift():
                arm.drift.feed(event)
            case SettingsChanged():
                arm.changes.append(event)
                arm.segments.turn(event)
            case ArmFinished():
                self._arm_finished(arm, event)
            case TokenText():
                self.token_bytes.update(event.entries)
            case Notice():
                self.notices.append(event)
            case _:
                pass

    def _committed(self, arm: ArmRecord, event: TokensCommitted) -> None:
        for offset, (token_id, source) in enumerate(zip(event.ids, event.sources, strict=True)):
            arm.sources.append(intern(source))  # type: ignore[arg-type]  # the same word
            text = arm._text.feed(self.token_bytes.get(token_id, b""))
            arm.texts.append(intern(text))
            row = event.top[offset]
            arm.top.append(row)
            if len(row) > 1:
                gap = row[0][1] - row[1][1]
                if arm.smallest_gap is None or gap < arm.smallest_gap[0]:
                    arm.smallest_gap = (gap, event.index + offset)
        arm.segments.spend(event)
        arm._hash.update(struct.pack(f"<{len(event.ids)}I", *event.ids))
        if event.ids and arm.info.kind == "dspark":
            arm.cycle_starts.append(event.index)

    def _arm_finished(self, arm: ArmRecord, event: ArmFinished) -> None:
        arm.finished = event
        rest = arm._text.flush()
        if rest and arm.texts:
            arm.texts[-1] += rest


def is_same(run: RunRecord, started: RunStarted) -> bool:
    """A run is the one that begins here: a trace plays it again."""
    return run.started is not None and run.started.run_id == started.run_id


RUNS_KEPT = 20
IDS_KEPT = 60_000
"""Runs of the session, and ids of all their arms, that stay in memory; older ones are on disk."""


def newest_of(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The newest runs that may stay; always at least one."""
    kept: list[RunRecord] = []
    ids = 0
    for run in reversed(runs[-RUNS_KEPT:]):
        ids += sum(len(arm.ids) for arm in run.arms)
        if kept and ids > IDS_KEPT:
            break
        kept.insert(0, run)
    return kept
