"""Everything that the economics screen shows of a run, or of all prompts, at one moment.

Owns which costs are taken for it: a measurement of the same numerics, else the runs' own steps.
Pure functions of records; knows no screens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ds4tui.calibration import Calibration, calibration
from ds4tui.economics import (
    CurveRow,
    Prediction,
    Shape,
    ValueLedger,
    curve,
    predict,
    predictions,
    shape_of,
    value_ledger,
)
from ds4tui.economics_costs import CostTable, measured_costs, run_costs
from ds4tui.pooled_runs import Work, joined
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.suite_record import SuiteRecord
from engine.events import CostMeasured
from engine.stats import Speedup, ids_sha256, speedup

Source = Literal["measured", "run"]


@dataclass(frozen=True, slots=True)
class View:
    """What the figures are of.

    Args:
        source: where costs are taken from when there is a choice.
        all_prompts: the cycles of all prompts with the settings of the run shown, not only its own.
    """

    source: Source = "measured"
    all_prompts: bool = False


@dataclass(frozen=True, slots=True)
class Economics:
    """What drafting is worth in one run, or over the runs of several prompts.

    Args:
        policy: of the DSpark arm, "" without one.
        table: the costs that everything is predicted from.
        sources: where costs could be taken from.
        spent_ms: the DSpark arm's time without prefill.
        speedup: measured, with its interval; of a running run as far as it is.
        prompts: how many the figures are of.
        parted: of how many of them the ids differ: then it is different work.
        parts_at: the first index at which they do, in the first of those.
        ends: all runs have ended.
        mixed: the policy was changed on the way.
        ids: hashes of both arms' ids, of several prompts of all of them in a row.
    """

    policy: str = ""
    numerics: str = ""
    table: CostTable | None = None
    sources: tuple[Source, ...] = ()
    curve: tuple[CurveRow, ...] = ()
    shape: Shape | None = None
    ledger: ValueLedger | None = None
    spent_ms: float = 0.0
    predicted: Prediction | None = None
    predictions: tuple[Prediction, ...] = ()
    speedup: Speedup | None = None
    prompts: int = 1
    parted: int = 0
    parts_at: int | None = None
    ends: bool = False
    mixed: bool = False
    ids: tuple[str, str] = ("", "")
    calibration: Calibration | None = None

    @property
    def of_what(self) -> str:
        """What the figures are of, in words."""
        return "this run" if self.prompts == 1 else f"{self.prompts} prompts"


def economics_of(
    works: Sequence[Work],
    costs: Sequence[CostMeasured],
    source: Source = "measured",
    sweep: SuiteRecord | None = None,
) -> Economics:
    """The economics of runs of one setting, the run shown first.

    Args:
        works: a prompt once; none before there is a run.
        source: to take costs from when there is a choice.
        sweep: the last sweep, whose arms without a gate show the head's whole range.
    """
    measured = measured_costs(costs)
    if not works:
        sources: tuple[Source, ...] = ("measured",) if measured is not None else ()
        rows = tuple(curve(measured, (), "")) if measured is not None else ()
        return Economics(table=measured, sources=sources, curve=rows)
    first, arms = works[0], [work.arm for work in works if work.arm is not None]
    started = first.run.started
    assert started is not None
    plain = joined([work.plain.tally for work in works])
    arm = joined([arm.tally for arm in arms]) if arms else None
    numerics = first.plain.info.numerics
    policy = (first.arm.info.commit or "") if first.arm is not None else ""
    strict = [each.tally for work in works if (each := _strict(work.run)) is not None]
    own = run_costs(
        plain,
        arm,
        policy,
        joined(strict) if strict else None,
        len(started.prompt_ids),
        numerics,
    )
    info = first.arm.info if first.arm is not None else None
    if measured is not None and not _fits(measured, numerics, info.drafter if info else ""):
        measured = None
    by_source: dict[Source, CostTable] = {}
    if measured is not None:
        by_source["measured"] = measured
    if own is not None:
        by_source["run"] = own
    table = by_source.get(source) or next(iter(by_source.values()), None)
    cycles = arm.cycles if arm is not None else []
    shape = shape_of(cycles, (info.draft_max or started.block_of(info)) if info is not None else 0)
    parted = [arm.diverged.index for arm in arms if arm.diverged is not None]
    return Economics(
        policy=policy,
        numerics=numerics,
        table=table,
        sources=tuple(by_source),
        curve=tuple(curve(table, cycles, policy)) if table is not None else (),
        shape=shape,
        ledger=value_ledger(plain, arm),
        spent_ms=arm.decode_ns / 1e6 if arm is not None else 0.0,
        predicted=predict(table, shape, policy) if table and shape else None,
        predictions=tuple(predictions(table, shape)) if table and shape else (),
        speedup=_speedup(works),
        prompts=len(works),
        parted=len(parted),
        parts_at=parted[0] if parted else None,
        ends=all(work.run.finished is not None for work in works),
        mixed=any(arm.mixed for arm in arms),
        ids=_hashes(works),
        calibration=calibration(_calibrated(works, sweep)),
    )


def _fits(measured: CostTable, numerics: str, drafter: str) -> bool:
    """Costs are those of a run's numerics and drafter, as far as both tell."""
    same = not (measured.drafter and drafter) or measured.drafter == drafter
    return same and measured.numerics in ("", numerics)


def _strict(record: RunRecord) -> ArmRecord | None:
    return next((arm for arm in record.arms if arm.info.commit == "strict"), None)


def _speedup(works: Sequence[Work]) -> Speedup | None:
    if len(works) == 1 and works[0].arm is not None and works[0].run.speedup is not None:
        return works[0].run.speedup
    plains, arms = [], []
    for work in works:
        if work.arm is not None:
            common = min(len(work.plain.ids), len(work.arm.ids))
            plains.append(work.plain.tally.token_ns[:common])
            arms.append(work.arm.tally.token_ns[:common])
    return speedup(plains, arms) if arms else None


def _hashes(works: Sequence[Work]) -> tuple[str, str]:
    if len(works) == 1:
        own = works[0].arm
        return works[0].plain.ids_hash, own.ids_hash if own is not None else ""
    plain = [token for work in works for token in work.plain.ids]
    arm = [token for work in works if work.arm is not None for token in work.arm.ids]
    return ids_sha256(plain)[:8], ids_sha256(arm)[:8]


def _calibrated(works: Sequence[Work], sweep: SuiteRecord | None) -> list[ArmRecord]:
    """Arms of the drafter shown; those of a sweep when only they have cycles without a gate."""
    shown = works[0].arm
    if shown is None:
        return []
    drafter = shown.info.drafter
    arms = [
        arm for arm in works[0].run.arms if arm.info.is_compared and arm.info.drafter == drafter
    ]
    arms += [work.arm for work in works[1:] if work.arm is not None]
    if any(arm.info.confidence == 0 for arm in arms) or sweep is None:
        return arms
    first: dict[int, ArmRecord] = {}
    for run in sweep.runs:
        for arm in run.arms:
            is_open = arm.info.confidence == 0 and arm.info.drafter == drafter
            if is_open and run.started is not None:
                # A repeat of the same prompt has the same drafts again.
                first.setdefault(run.started.prompt_index, arm)
    return list(first.values()) or arms
