"""What the three charts of the playground can show, as sides that `f` turns over.

Owns which sides there are, in which order, and their titles; the rows are painted elsewhere. The
first side is what the chart shows by itself: the run, after a turned knob its newest segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ds4tui.figures import Depths, Ledger, depths, ledger, segment_ledger
from ds4tui.marks import Marks
from ds4tui.paint import depth, pair, rates
from ds4tui.paint import ledger as ledger_rows
from ds4tui.paint.rates import RateData
from ds4tui.pair import PairRecord
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.segments import Segment
from ds4tui.spans import Row
from engine.cycle_counts import CycleCounts

Title = tuple[str, str]
"""Left and right part."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a chart.

    Args:
        name: stays the same while its numbers change.
        wide, narrow: the title of the box and of the strip.
        data: what the rows are made from; equal data is not painted again.
        box: rows for a width and a height.
        strip: rows for a width; None = a box only.
    """

    name: str
    wide: Title
    narrow: Title
    data: object
    box: Callable[[int, int, Marks], list[Row]] = field(compare=False)
    strip: Callable[[int, Marks], list[Row]] | None = field(compare=False)


# Depths


def depth_sides(
    record: RunRecord | None, arm: ArmRecord | None, over: tuple[int, CycleCounts] | None
) -> list[Side]:
    """Cycles by depth: segments, the run and its table, all prompts and their table.

    Args:
        over: (prompts, counts) of the arm's settings over all prompts that ran with them.
    """
    if isinstance(record, PairRecord):
        return [_pair_depths(record)]
    if record is not None and record.started is not None and arm is None:
        title = ("depth", "")
        return [_fixed("none", title, None, lambda width, height: [[(NO_ARM, "dim")]])]
    found = depths(arm.tally.counts) if arm is not None else None
    segments = arm.segments.all if arm is not None else []
    sides = []
    if arm is not None and len(segments) > 1:
        sides = [_segment_depths(arm, at) for at in reversed(range(len(segments)))]
        whole = ("depth, the whole run", depth.mean_of(found))
        sides.append(_histogram("run", whole, whole, found))
    else:
        titles = depth.title(found, False), depth.title(found, True)
        sides.append(_histogram("run", *titles, found))
    sides.append(_table("table", "cycles by proposed and accepted", found))
    if over is not None and over[0] > 1:
        prompts, summed = over[0], depths(over[1], prefilled=over[0])
        title = (f"depth, session: {prompts} prompts", depth.mean_of(summed))
        narrow = (f"depth, {prompts} prompts", depth.mean_of(summed))
        sides.append(_histogram("prompts", title, narrow, summed))
        title_of_table = f"proposed, accepted: {prompts} prompts"
        sides.append(_table("prompts table", title_of_table, summed, OVER_SESSION))
    return sides


def _histogram(name: str, wide: Title, narrow: Title, found: Depths | None) -> Side:
    def box(width: int, height: int, marks: Marks) -> list[Row]:
        return depth.box(found, width, height, marks) if found else []

    def strip(width: int, marks: Marks) -> list[Row]:
        return depth.strip(found, width, marks) if found else []

    return Side(name, wide, narrow, found, box, strip)


OVER_SESSION = "session's prompts, each as it last ran whole"
"""What is counted over several prompts; the tables of screen 4 count the runs of one set."""


def _table(name: str, title: str, found: Depths | None, note: str = "") -> Side:
    def box(width: int, height: int, marks: Marks) -> list[Row]:
        return depth.table(found, width, height, note) if found else []

    titles = (title, depth.mean_of(found))
    return Side(name, titles, titles, found, box, None)


def _segment_depths(arm: ArmRecord, at: int) -> Side:
    segment = arm.segments.all[at]
    found = depths(segment.counts, prefilled=0, rate=segment.tokens_per_s)
    title, mean = f"depth {_range(arm, at)}", depth.mean_of(found)
    wide = f"{title}, {_turned(arm, segment)}"
    return _histogram(f"segment {at}", (wide, mean), (title, mean), found)


def _range(arm: ArmRecord, at: int) -> str:
    """`to #119`, `#120 to #200`, `from #201`."""
    segments = arm.segments.all
    begins = segments[at].first
    after = segments[at + 1].first if at + 1 < len(segments) else None
    if begins is None:
        return "from now"
    if after is None:
        return f"from #{begins}"
    return f"to #{after - 1}" if at == 0 else f"#{begins} to #{after - 1}"


def _turned(arm: ArmRecord, segment: Segment) -> str:
    if not segment.turned:
        return arm.info.commit or arm.info.kind
    words = []
    for name, value in segment.turned:
        if name == "confidence":
            # Beside another knob it only says that the gate is the drafter's own, as it was.
            words += ["default gate"] * (value == "none" and len(segment.turned) == 1)
            words += [f"≥{float(value):.2f}"] if value != "none" else []
        elif name == "draft_max":
            words.append("whole blocks" if value == "none" else f"blk{value}")
        else:
            words.append(value)
    return " ".join(words)


def _pair_depths(record: PairRecord) -> Side:
    left, right = (depths(arm.tally.counts) for arm in record.arms)
    names = record.names
    draw = partial(pair.depth_rows, left, right, names)
    title = ("cycles by depth", "")
    return _fixed("pair", title, (record.started, names), draw)


def _fixed(name: str, title: Title, data: object, draw: Callable[[int, int], list[Row]]) -> Side:
    """A side whose rows are the same in box and strip."""

    def box(width: int, height: int, marks: Marks) -> list[Row]:
        return draw(width, height)

    def strip(width: int, marks: Marks) -> list[Row]:
        return draw(width, STRIP_ROWS)

    return Side(name, title, title, data, box, strip)


STRIP_ROWS = 5
"""Rows of a strip under its title."""
NO_ARM = " nothing is drafted"

# Rates


def rate_sides(record: RunRecord | None, arm: ArmRecord | None) -> list[Side]:
    """Tokens per second over the index, and the race."""
    data = _rates(record, arm) if record is not None else None
    counted = depths(arm.tally.counts) if arm is not None else None
    # The arms' lists are the same objects as long as they grow.
    known = data and (len(data.plain_ns), len(data.dspark_ns), data.total, data.parting)
    seen = (record, arm and arm.info, data and data.turns, known)

    def scatter(width: int, height: int, marks: Marks) -> list[Row]:
        return rates.box(data, width, height, marks) if data else []

    def race(width: int, height: int, marks: Marks) -> list[Row]:
        return rates.race(data, width, height, marks) if data else []

    def strip(width: int, marks: Marks) -> list[Row]:
        return rates.strip(data, counted, width, marks) if data else []

    narrow = ("tok/s", "")
    return [
        Side("rates", ("tok/s over token index", ""), narrow, seen, scatter, strip),
        Side("race", ("tokens over engine time", ""), narrow, seen, race, None),
    ]


def _rates(record: RunRecord, arm: ArmRecord | None) -> RateData | None:
    plain = record.plain
    if record.started is None or plain is None:
        return None
    done = all(each.finished for each in record.arms)
    longest = max(len(each.ids) for each in record.arms)
    return RateData(
        plain_ns=plain.tally.token_ns,
        dspark_ns=arm.tally.token_ns if arm else (),
        plain_rate=plain.tokens_per_s,
        dspark_rate=arm.tokens_per_s if arm else None,
        total=longest if done else max(longest, record.started.max_tokens),
        parting=record.parts_at if arm else None,
        names=record.names if arm is not None else (record.names[0], ""),
        turns=tuple(arm.segments.turns) if arm else (),
    )


# Times


def ledger_sides(record: RunRecord | None, arm: ArmRecord | None) -> list[Side]:
    """Engine milliseconds per token: segments, then the run."""
    plain = record.plain if record is not None else None
    if isinstance(record, PairRecord):
        left, right = record.arms
        names = record.names
        draw = partial(pair.ledger_rows, left.tally, right.tally, names)
        return [_fixed("pair", ("ms per token", ""), (record.started, names), draw)]
    if plain is None:
        return [_ledger("run", _WHOLE, None)]
    sides = []
    if arm is not None and len(arm.segments.all) > 1:
        for at in reversed(range(len(arm.segments.all))):
            found = segment_ledger(plain.tally, arm.segments.all[at])
            titles = f"ms per token {_range(arm, at)}", f"ms {_range(arm, at)}"
            sides.append(_ledger(f"segment {at}", titles, found))
    whole = ledger(plain.tally, arm.tally if arm is not None else None)
    titles = ("ms per token, the whole run", "ms, the whole run")
    return [*sides, _ledger("run", titles if sides else _WHOLE, whole)]


_WHOLE = (ledger_rows.title(narrow=False), ledger_rows.title(narrow=True))


def _ledger(name: str, titles: Sequence[str], found: Ledger | None) -> Side:
    def box(width: int, height: int, marks: Marks) -> list[Row]:
        return ledger_rows.box(found, width, marks) if found else []

    def strip(width: int, marks: Marks) -> list[Row]:
        return ledger_rows.strip(found, width, marks) if found else []

    return Side(name, (titles[0], ""), (titles[1], ""), found, box, strip)
