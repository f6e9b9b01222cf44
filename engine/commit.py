"""The five commit policies: what becomes of the state after a verify.

Each is a few lines over the state's own operations. Knows nothing of drafters or other arms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.arrays import joined
from engine.paths import Policy
from engine.timeline import Row, Timeline


@dataclass(frozen=True, slots=True)
class Verified:
    """A verify over `[anchor, *drafts]`, before its commit.

    Args:
        snapshot: the state before it.
        rows: len(drafts) + 1 rows.
        taps: of the same rows.
        accepted: longest prefix of the drafts that the rows would have chosen, up to an EOS.
        ends: the last accepted draft is EOS, so there is no bonus.
    """

    snapshot: Any
    anchor: int
    drafts: tuple[int, ...]
    rows: Sequence[Row]
    taps: Any
    accepted: int
    ends: bool

    @property
    def kept(self) -> int:
        """Rows whose tokens the state must cover: all that is committed but the newest token."""
        return self.accepted if self.ends else self.accepted + 1


@dataclass(frozen=True, slots=True)
class Settled:
    """What a policy commits; the state is installed.

    Args:
        ids: accepted drafts and the bonus, if there is one.
        rows: per id, the row that the policy says it came from.
        last: the row at the state's last position.
        taps: of the rows that the state covers since the snapshot.
        replayed: argmax of every re-decoded row.
        recheck_cut: accepted drafts that a re-decode dropped.
    """

    ids: tuple[int, ...]
    rows: tuple[Row, ...]
    last: Row
    taps: Any
    accepted: int
    replayed: tuple[int, ...] = ()
    recheck_cut: int = 0


def accepted_prefix(
    drafts: Sequence[int], rows: Sequence[Row], eos_id: int | None
) -> tuple[int, bool]:
    """Drafts that the rows before them would have chosen, and whether the last one is EOS.

    Source: Leviathan et al. 2023, algorithm 1, at temperature 0.
    """
    for accepted, (draft, row) in enumerate(zip(drafts, rows, strict=False)):
        if draft != row.choice:
            return accepted, False
        if draft == eos_id:
            return accepted + 1, True
    return len(drafts), False


def _from_verify(verified: Verified) -> Settled:
    """Every id from its verify row; the state is already that of the rows kept."""
    a, kept = verified.accepted, verified.kept
    rows = tuple(verified.rows[:kept])
    ids = verified.drafts[:a] if verified.ends else (*verified.drafts[:a], rows[-1].choice)
    return Settled(ids, rows, rows[-1], verified.taps[:kept], a)


def _redecode(timeline: Timeline, verified: Verified, checked: bool) -> tuple[list[Row], Any]:
    """Restore, then decode the committed rows one by one.

    Args:
        checked: stop after a row whose argmax is not the next draft.
    Returns:
        The rows and their taps.
    """
    with timeline.clock("commit"):
        timeline.state.restore(verified.snapshot)
    drafts = verified.drafts
    rows: list[Row] = []
    taps = []
    with timeline.clock("replay"):
        for i, token in enumerate((verified.anchor, *drafts)[: verified.kept]):
            row, row_taps = timeline.decode(token, drafts[:i])
            rows.append(row)
            taps.append(row_taps)
            if checked and i < verified.accepted and row.choice != drafts[i]:
                break
    return rows, joined(taps)


def direct(timeline: Timeline, verified: Verified) -> Settled:
    """All accepted: keep the verify's state. Else restore and re-decode the committed rows."""
    if verified.kept == len(verified.rows):
        return _from_verify(verified)
    rows, taps = _redecode(timeline, verified, checked=False)
    a = verified.accepted
    ids, sources = verified.drafts[:a], tuple(verified.rows[:a])
    if not verified.ends:
        ids, sources = (*ids, rows[-1].choice), (*sources, rows[-1])
    return Settled(ids, sources, rows[-1], taps, a, tuple(row.choice for row in rows))


def replay(timeline: Timeline, verified: Verified) -> Settled:
    """Restore and re-decode every committed row; what a re-decoded row says is what counts."""
    rows, taps = _redecode(timeline, verified, checked=True)
    replayed = tuple(row.choice for row in rows)
    a, ends = accepted_prefix(verified.drafts[: verified.accepted], rows, None)
    ends = verified.ends and a == verified.accepted
    ids = verified.drafts[:a] if ends else (*verified.drafts[:a], replayed[-1])
    return Settled(ids, tuple(rows), rows[-1], taps, a, replayed, verified.accepted - a)


def prefix(timeline: Timeline, verified: Verified) -> Settled:
    """Keep the verify's state as it was after the committed rows; never re-decode."""
    if verified.kept < len(verified.rows):
        with timeline.clock("commit"):
            timeline.state.install_prefix(verified.snapshot, verified.kept)
    return _from_verify(verified)


def reproject(timeline: Timeline, verified: Verified) -> Settled:
    """Keep the verify's raw rows; re-run the compressors of the committed rows, decode path."""
    with timeline.clock("commit"):
        timeline.state.reproject(verified.snapshot, verified.kept)
    return _from_verify(verified)


COMMITS: Mapping[Policy, Callable[[Timeline, Verified], Settled]] = {
    "direct": direct,
    "prefix": prefix,
    "reproject": reproject,
    "replay": replay,
}
"""By policy; `strict` never verifies, so it has no entry."""
