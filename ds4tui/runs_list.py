"""The runs of the session and of the disk as lines of a list. Knows no widgets and no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

from ds4tui.options import embedded_hashes
from ds4tui.paint.numbers import fraction
from ds4tui.run_record import ArmRecord, RunRecord
from engine.events import RunStarted
from engine.stats import speedup

RUNNING, CUT_OFF = "running", "cut off"
"""First words of the verdict on a run without an end."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """One arm of one run in the list.

    Args:
        time: of day, when the run began.
        ids: first eight digits of the ids' hash.
        versus: speed-up over plain, or why there is none.
    """

    run_id: str
    arm: int
    time: str
    prompt: str
    numerics: str
    policy: str
    confidence: float | None
    drafter: str
    ids: str
    verdict: str
    tokens_per_s: float | None
    versus: str
    tokens: int

    @property
    def goes_on(self) -> bool:
        """More is to come of the run."""
        return self.verdict.startswith(RUNNING)


def lines_of(record: RunRecord, time: str, *, goes_on: bool = False) -> list[RunLine]:
    """A line per DSpark or recorded arm that is no control; one for plain when there is none.

    Args:
        goes_on: more is to come of the run; else a run without an end was cut off.
    """
    started = record.started
    if started is None:
        return []
    infos = enumerate(arm.info for arm in record.arms)
    shown = [at for at, info in infos if info.is_compared or info.kind == "recorded"]
    return [_line(record, at, time, goes_on) for at in shown or [0]]


def _line(record: RunRecord, at: int, time: str, goes_on: bool) -> RunLine:
    started, arm = record.started, record.arms[at]
    assert started is not None
    return RunLine(
        run_id=started.run_id,
        arm=at,
        time=time,
        prompt=started.prompt,
        numerics=arm.info.numerics,
        policy=("MIXED" if arm.mixed else arm.info.commit) or arm.info.kind,
        confidence=arm.info.confidence,
        drafter=_drafter(started, arm.info.drafter if at else ""),
        ids=arm.ids_hash if arm.ids else "-",
        verdict=_verdict(record, arm, goes_on),
        tokens_per_s=arm.tokens_per_s,
        versus=_versus(record, arm),
        tokens=len(arm.ids),
    )


def _drafter(started: RunStarted, path: str) -> str:
    """What an arm's drafter is called: its file's name, or that it is the embedded one."""
    hashes = {file.sha256 for file in started.files if file.path == path}
    if hashes & set(embedded_hashes()):
        return "embedded"
    return PurePath(path).stem or "-"


def _verdict(record: RunRecord, arm: ArmRecord, goes_on: bool) -> str:
    if record.failed is not None:
        return "\u00d7 FAILED"
    if arm.diverged is not None:
        what = "LOGIC ERROR" if arm.diverged.logic_error else arm.diverged.verdict
        return f"≠ #{arm.diverged.index} {what}"
    if record.finished is None:
        return f"{RUNNING if goes_on else CUT_OFF} #{len(arm.ids)}"
    if arm.info.kind == "plain":
        return "· PLAIN ONLY"
    if record.finished.identical is None:
        return "? WITHHELD"
    most = max(len(record.arms[0].ids), len(arm.ids))
    compared = min(len(record.arms[0].ids), len(arm.ids))
    return "= IDENTICAL" if compared == most else f"= {compared} of {most} ids"


def _versus(record: RunRecord, arm: ArmRecord) -> str:
    plain = record.plain
    if plain is None or arm is plain or record.finished is None or arm.info.kind == "recorded":
        return ""
    if arm.diverged is not None:
        return "different work"
    found = speedup([plain.tally.token_ns], [arm.tally.token_ns])
    if found is None:
        return ""
    unresolved = "" if found.resolved else " n.r."
    return f"{found.value:.2f}x ±{fraction(found.half, 2)}{unresolved}"


def lines_as_json(lines: Sequence[RunLine]) -> list[dict[str, Any]]:
    """For the first line of a stored trace."""
    return [asdict(line) for line in lines]


def lines_from_json(data: object) -> list[RunLine]:
    """The lines of a stored trace; none when they are not as this version writes them. Nothing more
    comes of a run on disk, so one without an end was cut off."""
    if not isinstance(data, list):
        return []
    try:
        lines = [RunLine(**item) for item in data]
        return [
            replace(line, verdict=line.verdict.replace(RUNNING, CUT_OFF, 1))
            if line.goes_on
            else line
            for line in lines
        ]
    except (AttributeError, TypeError):
        return []
