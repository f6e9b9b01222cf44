"""The result of a comparison as JSON, schema `ds4tui.ab/1`, made from the events alone.

Owns the document's fields; `ds4tui.ab_text` draws the same document as a table. Two rules hold in
both: no speed without the sha256 of the ids, and a speed-up between different ids is marked.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from engine import stats
from engine.events import (
    TIME_KINDS,
    ArmFinished,
    ArmInfo,
    Diverged,
    Event,
    FileInfo,
    Notice,
    RunFinished,
    RunStarted,
    SettingsChanged,
    TokenText,
)
from engine.settings import as_json
from engine.stats import ArmTally
from engine.text import decode_bytes
from engine.verdict import identical_kind, margin

SCHEMA = "ds4tui.ab/1"
SET_SCHEMA = "ds4tui.ab-set/1"
SAME_AGAIN = "the repeats of this arm have different ids"

Document = dict[str, Any]
Kind = TypeVar("Kind", bound=Event)


@dataclass(slots=True)
class RunEvents:
    """One finished run, its events sorted by what they tell."""

    started: RunStarted
    finished: RunFinished
    arms: list[ArmTally]
    ends: dict[int, ArmFinished] = field(default_factory=dict)
    token_bytes: dict[int, bytes] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    changes: list[Document] = field(default_factory=list)

    @staticmethod
    def of(events: Sequence[Event]) -> RunEvents:
        """Sort the events of one run."""
        run = RunEvents(
            next(_of(events, RunStarted)), next(_of(events, RunFinished)), stats.tally(events)
        )
        run.ends = {event.arm: event for event in _of(events, ArmFinished)}
        for text in _of(events, TokenText):
            run.token_bytes.update(text.entries)
        run.notices = [notice.text for notice in _of(events, Notice)]
        run.changes = [
            {"arm": event.arm, "cycle": event.cycle, "settings": dict(event.settings)}
            for event in _of(events, SettingsChanged)
        ]
        return run

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """Bytes of ids; unknown ones have none."""
        return b"".join(self.token_bytes.get(token, b"") for token in ids)


def _of(events: Sequence[Event], kind: type[Kind]) -> Any:
    return (event for event in events if isinstance(event, kind))


def ab_document(repeats: Sequence[RunEvents]) -> Document:
    """The JSON document of one prompt.

    Args:
        repeats: of the same request; ids must agree, speeds are medians.
    """
    first = repeats[0]
    started = first.started
    arms = [_arm(repeats, arm, info) for arm, info in enumerate(started.arms)]
    withheld = next((r.finished.withheld for r in repeats if r.finished.withheld), "")
    unsteady = [arm["name"] for arm in arms if arm.pop("unsteady")]
    if unsteady and not withheld:
        withheld = f"{unsteady[0]}: {SAME_AGAIN}"
    parted = [arm["first_divergence"] for arm in arms if arm["first_divergence"]]
    document: Document = {
        "schema": SCHEMA,
        **announced(started),
        "arms": arms,
        "identical": None if withheld else not parted,
        "first_divergence": min(parted, key=lambda found: found["index"], default=None),
        "withheld": withheld,
        "repeats": len(repeats),
        "notices": first.notices,
        "category": started.category,
        "changes": first.changes,
    }
    return {name: finite(value) for name, value in document.items()}


def announced(started: RunStarted) -> Document:
    """What a run says of itself before its first step, but for its arms."""
    return {
        "environment": dict(started.environment),
        "model": file_document(started.files, "target"),
        "drafter": file_document(started.files, "drafter"),
        "drafters": file_documents(started.files, "drafter"),
        "settings": as_json(started.settings),
        "prompt": {
            "text": started.prompt,
            "ids": list(started.prompt_ids),
            "cached": started.cached,
        },
    }


def announced_arm(info: ArmInfo) -> Document:
    """What an arm is, before its first step."""
    return {
        "name": info.name,
        "role": info.role,
        "kind": info.kind,
        "numerics": info.numerics,
        "commit": info.commit,
        "confidence": info.confidence,
        "draft_max": info.draft_max,
        "drafter": info.drafter or None,
    }


def file_document(files: Sequence[FileInfo], role: str) -> Document | None:
    """What is said of the target or the (first) drafter."""
    return next(iter(file_documents(files, role)), None)


def file_documents(files: Sequence[FileInfo], role: str) -> list[Document]:
    """What is said of every file with a role, in the order of the command line."""
    found = [asdict(file) for file in files if file.role == role]
    return [{name: value for name, value in file.items() if name != "role"} for file in found]


def _arm(repeats: Sequence[RunEvents], arm: int, info: ArmInfo) -> Document:
    run = repeats[0]
    tally, end = run.arms[arm], run.ends[arm]
    tallies = [repeat.arms[arm] for repeat in repeats]
    text = run.bytes_of(tally.ids[:-1] if end.reason == "eos" else tally.ids)
    has_speed = info.kind != "recorded"
    rates = [t.tokens_per_s for t in tallies if t.tokens_per_s is not None]
    return {
        **announced_arm(info),
        "ids": tally.ids,
        "text": decode_bytes(text),
        "ids_sha256": stats.ids_sha256(tally.ids),
        "text_sha256": hashlib.sha256(text).hexdigest(),
        "finish_reason": end.reason,
        "tokens_per_s": statistics.median(rates) if has_speed and rates else None,
        "peak_tokens_per_s": _peak(tallies) if has_speed and rates else None,
        "speedup": _speedup(repeats, arm) if has_speed and info.kind == "dspark" else None,
        "time_ms": _time_ms(tallies),
        **_acceptance(tally),
        "state_equal": end.state_equal,
        **_states(run, arm),
        "smallest_margin": _smallest_margin(run, arm),
        "compared": _compared(run, arm),
        "compared_margin": _smallest_margin(run, 0, _compared(run, arm)),
        "identical_kind": _identical_kind(run, arm),
        "first_divergence": _divergence(run, tally.diverged),
        "unsteady": any(t.ids != tally.ids for t in tallies),
    }


def _states(run: RunEvents, arm: int) -> Document:
    """How often an arm's states were compared with plain's, and the first difference found."""
    tally, is_compared = run.arms[arm], run.started.arms[arm].is_compared
    drift = tally.first_drift
    return {
        "states_compared": tally.compared,
        "state_boundaries": tally.boundaries if is_compared else 0,
        "first_drift": None if drift is None else asdict(drift),
    }


def _peak(tallies: Sequence[ArmTally]) -> float | None:
    """The best of all repeats, so that it is never below their median rate."""
    peaks = [stats.peak_rate(tally.token_ns) for tally in tallies]
    return max((peak for peak in peaks if peak is not None), default=None)


def _acceptance(tally: ArmTally) -> Document:
    """Counts of a DSpark arm; those of the others are 0, None or empty."""
    counts = tally.counts
    none, rejected = counts.shallow()
    figures: Document = {
        "cycles": counts.cycles,
        "drafted": counts.drafted,
        "proposed": counts.proposed,
        "accepted_draft": counts.accepted,
        "recheck_cut": counts.recheck_cut,
        "accept_rate": counts.accept_rate,
        "accept_of_drafted": counts.accept_of_drafted,
        "avg_accept": counts.avg_accept,
        "mean_depth": counts.mean_depth,
        "depth_hist": {str(depth): n for depth, n in counts.depth_hist().items()},
        "no_draft": none,
        "first_rejected": rejected,
        "clipped": _clips(tally),
        "lengths_vary": counts.lengths_vary(),
        "proposed_by_accepted": counts.proposed_by_accepted() if counts.block_size else [],
        "accept_by_position": [list(pair) for pair in counts.accept_by_position()],
        "without_loops": None,
    }
    if tally.cycles:
        figures["without_loops"] = asdict(stats.without_loops(tally))
    return figures


def _clips(tally: ArmTally) -> dict[str, int]:
    """Cycles whose block was clipped, by the reason."""
    return dict(Counter(cycle.clip for cycle in tally.cycles if cycle.clip))


def _time_ms(tallies: Sequence[ArmTally]) -> Document:
    """Engine time by kind, the mean of the repeats."""
    return {
        kind: sum(getattr(t.time, kind) for t in tallies) / len(tallies) / 1e6
        for kind in TIME_KINDS
    }


def _speedup(repeats: Sequence[RunEvents], arm: int) -> Document | None:
    found = stats.speedup(
        [repeat.arms[0].token_ns for repeat in repeats],
        [repeat.arms[arm].token_ns for repeat in repeats],
    )
    if found is None:
        return None
    same = repeats[0].arms[0].ids == repeats[0].arms[arm].ids
    return {**asdict(found), "resolved": found.resolved, "different_work": not same}


def _top_margin(run: RunEvents, arm: int, index: int) -> Document:
    tally = run.arms[arm]
    best = tally.best[index]
    found = margin(best, best - tally.gaps[index], run.started.ulp_type(run.started.arms[arm]))
    return {"logits": tally.gaps[index], "ulps": found.ulps}


def _compared(run: RunEvents, arm: int) -> int:
    """Ids that plain and an arm both have: a recording may be shorter than the run."""
    return min(len(run.arms[0].ids), len(run.arms[arm].ids))


def _smallest_margin(run: RunEvents, arm: int, among: int | None = None) -> Document | None:
    index = run.arms[arm].smallest_gap(among)
    return None if index is None else {"index": index, **_top_margin(run, arm, index)}


def _identical_kind(run: RunEvents, arm: int) -> str | None:
    """Which of the kinds of identical an arm is; None for plain, controls and diverged arms."""
    info = run.started.arms[arm]
    if arm == 0 or info.role == "control" or run.arms[arm].diverged:
        return None
    plain = run.arms[0]
    index = plain.smallest_gap(_compared(run, arm))
    return identical_kind(run.ends[arm].state_equal, None if index is None else plain.gaps[index])


def _divergence(run: RunEvents, event: Diverged | None) -> Document | None:
    if event is None:
        return None
    plain = run.arms[0]
    drift = event.first_drift
    return {
        "arms": [0, event.arm],
        "index": event.index,
        "left": _token(run, event.left),
        "right": _token(run, event.right),
        "cause": event.cause,
        "margin_logits": event.margin_logits,
        "margin_ulps": event.margin_ulps,
        "ulp_type": event.ulp_type,
        "verdict": event.verdict,
        "logic_error": event.logic_error,
        "differing_choices": list(event.differing_choices),
        "first_drift": None if drift is None else asdict(drift),
        "top2_margins": [_top_margin(run, arm, event.index) for arm in (0, event.arm)],
        "inside_repeat": stats.repeated(plain.ids)[event.index],
        "shared_prefix": decode_bytes(run.bytes_of(plain.ids[: event.index])),
    }


def _token(run: RunEvents, token: int) -> Document:
    return {"id": token, "text": decode_bytes(run.bytes_of([token]))}


def finite(value: Any) -> Any:
    """The same data with None for numbers that JSON cannot hold, and lists for tuples."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def set_document(
    documents: Sequence[Document], categories: Sequence[Document] = (), *, complete: bool = True
) -> Document:
    """Several prompts' documents with their summary, and the figures by category.

    Args:
        complete: these are all prompts of the set.
    """
    return {
        "schema": SET_SCHEMA,
        "complete": complete,
        "summary": summary(documents),
        "categories": list(categories),
        "runs": list(documents),
    }


def summary(documents: Sequence[Document]) -> Document:
    """How many prompts are identical, diverged, withheld."""
    verdicts = [document["identical"] for document in documents]
    return {
        "identical": verdicts.count(True),
        "diverged": verdicts.count(False),
        "withheld": verdicts.count(None),
    }


def exit_code(documents: Sequence[Document]) -> int:
    """0 all identical, 1 some diverged, 2 a verdict is withheld."""
    counts = summary(documents)
    return 2 if counts["withheld"] else 1 if counts["diverged"] else 0
