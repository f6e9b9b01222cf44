"""A sweep's table: one row for each threshold or block length, from the runs that have it.

Owns every figure of the sweep screen: rates at one pace, identical work, the best range. Pure
functions of a suite's record; knows no screens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from ds4tui.run_record import ArmRecord
from ds4tui.suite_record import SuiteRecord
from ds4tui.sweep_compare import Intervals, Work
from engine.cycle_counts import CycleCounts, ratio
from engine.events import CUT_SHORT
from engine.stats import Speedup, ids_sha256

STRICT = "strict"
PLAIN = "plain"
State = Literal["queued", "running", "done"]


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One row over all of its runs.

    Args:
        name: `plain`, `strict`, or the cell's.
        value: threshold or block length.
        runs: finished ones.
        counts: of the cycles; none of plain's.
        tokens_per_s: plain's rate over the whole sweep, times this row's ratio to the plain arms
            of its own runs: what the machine did from run to run is in no row.
        speedup: over plain, with its interval; None before a run has ended, without identical
            work, and of plain.
        differs: (prompt index, first unequal index) of each prompt with other ids than plain's.
        ids: sha256 over the ids of all prompts.
    """

    name: str
    value: float | None
    state: State
    runs: int = 0
    tokens: int = 0
    counts: CycleCounts = field(default_factory=CycleCounts)
    cycle_ms: float | None = None
    tokens_per_s: float | None = None
    speedup: Speedup | None = None
    differs: tuple[tuple[int, int], ...] = ()
    ids: str = ""

    @property
    def drafts_per_cycle(self) -> float | None:
        """Drafts sent to the verify by a cycle."""
        return ratio(self.counts.proposed, self.counts.cycles)

    @property
    def depth(self) -> float | None:
        """Tokens per cycle; plain decodes one by one."""
        return 1.0 if self.name == PLAIN and self.tokens else self.counts.mean_depth

    @property
    def no_draft(self) -> float | None:
        """The share of cycles that proposed nothing."""
        return ratio(self.counts.shallow()[0], self.counts.cycles)

    @property
    def is_faster(self) -> bool:
        """Surely faster than plain, with plain's ids."""
        found = self.speedup
        return found is not None and found.resolved and found.value > 1

    @property
    def half(self) -> float | None:
        """Half of the 95 % interval of the rate, tokens per second."""
        if self.speedup is None or self.tokens_per_s is None:
            return None
        return self.tokens_per_s * self.speedup.half / self.speedup.value


@dataclass(frozen=True, slots=True)
class BestRange:
    """The values that are not resolved from the fastest one, next to it on both sides.

    There is one only where that is surely faster than plain.

    Args:
        default: how the default stands to the fastest: its speed / the fastest's; None = unknown.
    """

    low: float
    high: float
    fastest: SweepRow
    default: Speedup | None = None

    def has(self, value: float | None) -> bool:
        """A value lies in the range."""
        return value is not None and self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class SweepTable:
    """All rows: plain, `strict`, then the values in rising order.

    Args:
        axis: `confidence` or `block`.
        prompts: how many a row has.
        tokens, fewest: ids of the longest and of the shortest text.
        disagrees: a prompt whose plain arms have different ids from run to run.
        default: the drafter's own threshold, or the whole block.
    """

    axis: str
    rows: tuple[SweepRow, ...]
    runs_done: int
    runs: int
    is_over: bool
    prompts: int
    tokens: int
    fewest: int
    best: BestRange | None = None
    disagrees: int | None = None
    default: float | None = None

    @property
    def values(self) -> tuple[SweepRow, ...]:
        """The rows that have a value."""
        return tuple(row for row in self.rows if row.value is not None)

    @property
    def fastest(self) -> SweepRow | None:
        """The value with the most tok/s among those with plain's ids and a run that has ended."""
        return fastest_of(self.values)

    @property
    def different(self) -> tuple[SweepRow, ...]:
        """The rows whose ids are not plain's."""
        return tuple(row for row in self.rows if row.differs)

    def row(self, name: str) -> SweepRow | None:
        """A row by its name."""
        return next((row for row in self.rows if row.name == name), None)


def axis_of(cells: Sequence[str]) -> str:
    """What is swept, from the names of the cells."""
    return next((cell.split(" ")[0] for cell in cells if " " in cell), "confidence")


def value_of(cell: str) -> float | None:
    """The value in a cell's name; None of `strict`."""
    _, _, text = cell.partition(" ")
    try:
        return float(text)
    except ValueError:
        return None


def cell_of(arm: ArmRecord, axis: str) -> str:
    """The cell that an arm belongs to."""
    info = arm.info
    if info.kind == "plain" or info.commit == STRICT:
        return PLAIN if info.kind == "plain" else STRICT
    value = info.confidence if axis == "confidence" else info.draft_max
    return f"{axis} {value:g}" if value is not None else axis


def works(suite: SuiteRecord) -> dict[str, list[Work]]:
    """Every arm of every run by its cell; plain's too."""
    axis = axis_of(suite.started.cells)
    found: dict[str, list[Work]] = {}
    for run in suite.runs:
        for arm in run.arms:
            if run.plain is not None and arm.info.role == "arm":
                found.setdefault(cell_of(arm, axis), []).append(Work(run, arm, run.plain))
    return found


@dataclass(frozen=True, slots=True)
class Sums:
    """Tokens that arms decoded in so many nanoseconds, in which cycles."""

    tokens: int = 0
    spent: int = 0
    counts: CycleCounts = field(default_factory=CycleCounts)

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.tokens + other.tokens, self.spent + other.spent, self.counts + other.counts
        )


def _total(arms: Iterable[ArmRecord]) -> Sums:
    """What some arms did so far."""
    parts = (Sums(max(0, len(arm.ids) - 1), arm.tally.decode_ns, arm.tally.counts) for arm in arms)
    return sum(parts, Sums())


@dataclass(slots=True)
class SweepFigures:
    """Makes the table of a suite, again and again while it runs; remembers the intervals."""

    intervals: Intervals = field(default_factory=Intervals)

    def table(self, suite: SuiteRecord, default: float | None) -> SweepTable:
        """The table as the suite stands."""
        found = works(suite)
        started = suite.started
        plain = found.get(PLAIN, [])
        pace = _rate(_total(work.arm for work in plain))
        rows = [
            self._row(suite, name, found.get(name, []), pace) for name in (PLAIN, *started.cells)
        ]
        done = {
            row.name: [work for work in found[row.name] if work.is_finished]
            for row in rows
            if row.runs
        }

        def faster(one: SweepRow, other: SweepRow) -> Speedup | None:
            return self.intervals.of(suite, one.name, other.name, done[one.name], done[other.name])

        lengths = [len(work.plain.ids) for work in plain if work.is_finished or len(plain) == 1]
        return SweepTable(
            axis_of(started.cells),
            tuple(rows),
            sum(run.finished is not None for run in suite.runs),
            started.runs,
            suite.is_over,
            len({work.prompt_index for work in plain}),
            max(lengths, default=0),
            min(lengths, default=0),
            best_range(rows, faster, default),
            _disagrees(plain),
            default,
        )

    def _row(self, suite: SuiteRecord, name: str, own: list[Work], pace: float | None) -> SweepRow:
        finished = [work for work in own if work.is_finished]
        state: State = "queued"
        if own:
            state = "done" if len(finished) == len(own) or suite.is_over else "running"
        own = [work for work in own if len(work.arm.ids) > 1]
        if not own:
            return SweepRow(name, value_of(name), state)
        total = _total(work.arm for work in own)
        against = _rate(_total(work.plain for work in own))
        rate = _rate(total)
        if name != PLAIN and rate is not None and against and pace:
            rate *= pace / against
        differs = _differs(own)
        gained = None
        if name != PLAIN and finished and not differs:
            plain = [Work(work.run, work.plain, work.plain) for work in finished]
            gained = self.intervals.of(suite, name, PLAIN, finished, plain)
        first = {work.prompt_index: work for work in reversed(own)}
        ids = [token for at in sorted(first) for token in first[at].arm.ids]
        return SweepRow(
            name,
            value_of(name),
            state,
            len(finished),
            total.tokens,
            total.counts,
            ratio(total.spent / 1e6, total.counts.cycles if name != PLAIN else total.tokens),
            rate,
            gained,
            differs,
            ids_sha256(ids),
        )


def _rate(total: Sums) -> float | None:
    """Tokens per second."""
    return ratio(total.tokens * 1e9, total.spent)


def _differs(own: Sequence[Work]) -> tuple[tuple[int, int], ...]:
    found: dict[int, int] = {}
    for work in own:
        at = work.parts_at
        if at is not None:
            found.setdefault(work.prompt_index, at)
    return tuple(sorted(found.items()))


def _disagrees(plain: Sequence[Work]) -> int | None:
    """A prompt whose finished plain arms do not have the same ids in all runs."""
    ids: dict[int, list[int]] = {}
    for work in plain:
        reasons = {arm.finished.reason for arm in work.run.arms if arm.finished}
        if not work.is_finished or not reasons.isdisjoint(CUT_SHORT):
            continue
        if ids.setdefault(work.prompt_index, work.arm.ids) != work.arm.ids:
            return work.prompt_index
    return None


def fastest_of(rows: Sequence[SweepRow]) -> SweepRow | None:
    """The value with the most tok/s; only rows that have a speed-up count."""
    known = (row for row in rows if row.value is not None and row.speedup is not None)
    return max(known, key=lambda row: row.tokens_per_s or 0.0, default=None)


def best_range(
    rows: Sequence[SweepRow],
    faster: Callable[[SweepRow, SweepRow], Speedup | None],
    default: float | None,
) -> BestRange | None:
    """The fastest value by tok/s and its neighbours that are not resolved from it.

    Only rows with identical work and a finished run count; None where no value is surely faster
    than plain.

    Args:
        faster: how many times faster a row is than another.
    """
    fastest = fastest_of(rows)
    if fastest is None or not fastest.is_faster:
        return None
    known = [row for row in rows if row.value is not None and row.speedup is not None]
    known.sort(key=lambda row: row.value or 0.0)
    at = known.index(fastest)

    def edge(step: int) -> float:
        edge = at
        for n in count(at + step, step):
            if not 0 <= n < len(known):
                break
            found = faster(fastest, known[n])
            if found is not None and found.resolved:
                break
            edge = n
        return known[edge].value or 0.0

    own = next((row for row in known if row.value == default), None)
    against = faster(own, fastest) if own is not None and own is not fastest else None
    return BestRange(edge(-1), edge(1), fastest, against)
