"""Numbers as the boxes need them, from the tallies of `engine.stats`: depths, rates, ledger.

Pure functions; no Textual, no text. Times are engine nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ds4tui.segments import Segment
from engine.cycle_counts import CycleCounts
from engine.events import TimeSplit
from engine.stats import ArmTally


@dataclass(frozen=True, slots=True)
class Depths:
    """Cycles by tokens committed, and drafts by position, at one moment.

    Args:
        counts: cycles of depth 1, 2, ... block + 1.
        no_draft: cycles of depth 1 that proposed nothing.
        by_position: (accepted, reached) of each draft position.
        proposed_by_accepted: cycles by drafts proposed (row) and accepted (column).
        lengths_vary: blocks of more than one length, so the depths alone do not say enough.
        prefilled: tokens of the same ids that no cycle committed, but the prefill of each prompt.
        rate: tokens per second of these cycles, where they are a part of a run; else None.
    """

    counts: tuple[int, ...]
    no_draft: int
    cycles: int
    tokens: int
    proposed: int
    accepted: int
    mean: float | None
    accept_rate: float | None
    avg_accept: float | None
    by_position: tuple[tuple[int, int], ...]
    proposed_by_accepted: tuple[tuple[int, ...], ...]
    lengths_vary: bool
    prefilled: int
    rate: float | None


def depths(found: CycleCounts, prefilled: int = 1, rate: float | None = None) -> Depths | None:
    """The histogram and its denominators; None before the first cycle.

    Args:
        prefilled, rate: as in `Depths`.
    """
    cycles = found.cycles
    if not cycles:
        return None
    return Depths(
        counts=tuple(found.depth_hist().values()),
        no_draft=found.shallow()[0],
        cycles=cycles,
        tokens=found.tokens,
        proposed=found.proposed,
        accepted=found.accepted,
        mean=found.mean_depth,
        accept_rate=found.accept_rate,
        avg_accept=found.avg_accept,
        by_position=tuple(found.accept_by_position()),
        proposed_by_accepted=tuple(tuple(row) for row in found.proposed_by_accepted()),
        lengths_vary=found.lengths_vary(),
        prefilled=prefilled,
        rate=rate,
    )


def rates(token_ns: Sequence[float], total: int, columns: int) -> list[float | None]:
    """Tokens per second in each of `columns` equal ranges of the token index.

    The first token comes from prefill and has no decode time, so it counts nowhere. A step's time
    is spread evenly over the tokens that it committed. None where no token has been decoded yet.
    """
    out: list[float | None] = []
    for column in range(columns):
        first = max(1, total * column // columns)
        last = min(len(token_ns), max(first + 1, total * (column + 1) // columns))
        spent = sum(token_ns[first:last])
        out.append((last - first) * 1e9 / spent if last > first and spent else None)
    return out


KINDS = ("draft", "verify", "replay", "decode", "commit")
"""Kinds of engine time, in the order in which a cycle spends them."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the engine's milliseconds went, per token, and what speculation saved in all.

    `saved` is the sum of `terms`: the plain time of as many tokens as the DSpark arm has, less what
    that arm spent. The term `accepted` is what the accepted drafts spared: plain time less verify
    and decode.
    """

    plain: dict[str, float]
    dspark: dict[str, float]
    plain_total_ms: float
    saved_ms: float
    terms: dict[str, float]


def per_token(time: TimeSplit, tokens: int) -> dict[str, float]:
    """Milliseconds by kind for each of so many decoded tokens."""
    return {kind: getattr(time, kind) / 1e6 / max(1, tokens) for kind in KINDS}


def ledger(plain: ArmTally | None, dspark: ArmTally | None) -> Ledger | None:
    """The ledger of two arms; None until both have decoded a token."""
    if plain is None or len(plain.ids) < 2:
        return None
    plain_kinds = per_token(plain.time, len(plain.ids) - 1)
    if dspark is None or len(dspark.ids) < 2:
        return Ledger(plain_kinds, {}, plain.decode_ns / 1e6, 0.0, {})
    return _ledger(plain_kinds, dspark.time, len(dspark.ids) - 1)


def segment_ledger(plain: ArmTally, segment: Segment) -> Ledger | None:
    """The ledger of one segment, against what plain spent on the same indexes.

    None until both have decoded one of them.
    """
    if segment.first is None:
        return None
    spent = plain.token_ns[segment.first : segment.first + segment.tokens]
    if not spent:
        return None
    plain_kinds = dict.fromkeys(KINDS, 0.0) | {"decode": sum(spent) / 1e6 / len(spent)}
    return _ledger(plain_kinds, segment.time, segment.tokens)


def _ledger(plain_kinds: dict[str, float], time: TimeSplit, decoded: int) -> Ledger:
    kinds = per_token(time, decoded)
    plain_ms = sum(plain_kinds.values()) * decoded
    terms = {
        "accepted": plain_ms - (kinds["verify"] + kinds["decode"]) * decoded,
        "draft": -kinds["draft"] * decoded,
        "replay": -kinds["replay"] * decoded,
        "commit": -kinds["commit"] * decoded,
    }
    return Ledger(plain_kinds, kinds, plain_ms, sum(terms.values()), terms)
