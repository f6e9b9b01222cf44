"""Everything that the economics screen shows of a run, gathered at one moment.

Owns which costs are taken for it: a measurement of the same numerics, else the run's own steps.
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
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.suite_record import SuiteRecord
from engine.events import CostMeasured
from engine.stats import Speedup, speedup

Source = Literal["measured", "run"]


@dataclass(frozen=True, slots=True)
class Economics:
    """What drafting is worth in one run.

    Args:
        policy: of the DSpark arm, "" without one.
        table: the costs that everything is predicted from.
        sources: where costs could be taken from.
        spent_ms: the DSpark arm's time without prefill.
        speedup: measured, with its interval; of a running run as far as it is.
        parts_at: the first index at which the ids differ: then it is different work.
        ends: the run has ended.
        mixed: its policy was changed on the way.
        ids: hashes of both arms.
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
    parts_at: int | None = None
    ends: bool = False
    mixed: bool = False
    ids: tuple[str, str] = ("", "")
    calibration: Calibration | None = None


def economics_of(
    record: RunRecord | None,
    costs: Sequence[CostMeasured],
    wanted: Source | None = None,
    sweep: SuiteRecord | None = None,
) -> Economics:
    """The economics of the run shown.

    Args:
        wanted: the source to take costs from when there is a choice; None = a measurement.
        sweep: the last sweep, whose arms without a gate show the head's whole range.
    """
    measured = measured_costs(costs)
    plain = record.plain if record is not None else None
    arm = record.dspark if record is not None else None
    if record is None or record.started is None or plain is None:
        sources: tuple[Source, ...] = ("measured",) if measured is not None else ()
        rows = tuple(curve(measured, (), "")) if measured is not None else ()
        return Economics(table=measured, sources=sources, curve=rows)
    numerics = plain.info.numerics
    policy = (arm.info.commit or "") if arm is not None else ""
    strict = _strict(record)
    own = run_costs(
        plain.tally,
        arm.tally if arm is not None else None,
        policy,
        strict.tally if strict is not None else None,
        len(record.started.prompt_ids),
        numerics,
    )
    if measured is not None and measured.numerics not in ("", numerics):
        measured = None
    by_source: dict[Source, CostTable] = {}
    if measured is not None:
        by_source["measured"] = measured
    if own is not None:
        by_source["run"] = own
    table = by_source.get(wanted or "measured") or next(iter(by_source.values()), None)
    cycles = arm.cycles if arm is not None else []
    most = arm.info.draft_max if arm is not None else None
    shape = shape_of(cycles, most or record.started.block_size)
    known = table is not None and shape is not None
    return Economics(
        policy=policy,
        numerics=numerics,
        table=table,
        sources=tuple(by_source),
        curve=tuple(curve(table, cycles, policy)) if table is not None else (),
        shape=shape,
        ledger=value_ledger(plain.tally, arm.tally if arm is not None else None),
        spent_ms=arm.tally.decode_ns / 1e6 if arm is not None else 0.0,
        predicted=predict(table, shape, policy) if known and table and shape else None,
        predictions=tuple(predictions(table, shape)) if known and table and shape else (),
        speedup=_speedup(record, plain, arm),
        parts_at=arm.diverged.index if arm is not None and arm.diverged is not None else None,
        ends=record.finished is not None,
        mixed=arm is not None and arm.mixed,
        ids=(plain.ids_hash, arm.ids_hash if arm is not None else ""),
        calibration=calibration(_calibrated(record, sweep)),
    )


def _strict(record: RunRecord) -> ArmRecord | None:
    return next((arm for arm in record.arms if arm.info.commit == "strict"), None)


def _speedup(record: RunRecord, plain: ArmRecord, arm: ArmRecord | None) -> Speedup | None:
    if arm is None:
        return None
    if record.speedup is not None:
        return record.speedup
    common = min(len(plain.ids), len(arm.ids))
    return speedup([plain.tally.token_ns[:common]], [arm.tally.token_ns[:common]])


def _calibrated(record: RunRecord, sweep: SuiteRecord | None) -> list[ArmRecord]:
    """The run's own arms; those of a sweep when only they have cycles without a gate."""
    arms = [arm for arm in record.arms if arm.info.kind == "dspark"]
    drafter = next((arm.info.drafter for arm in arms), "")
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
