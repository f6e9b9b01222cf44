"""Runs of the same settings over several prompts, put together as if they were one.

Owns which runs belong together, a prompt once. Knows the runs of the session, no screens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ds4tui.over_prompts import of_one_setting, settings_of
from ds4tui.run_record import ArmRecord, RunRecord
from engine.stats import ArmTally


@dataclass(frozen=True, slots=True)
class Work:
    """An arm beside the plain arm of the same run; None = the run drafts nothing."""

    run: RunRecord
    plain: ArmRecord
    arm: ArmRecord | None


def work_of(record: RunRecord) -> Work | None:
    """The arms shown of a run; None before it has begun.

    A recorded arm and a control are of no use here: the one drafts nothing, the other repeats an
    arm, and is not compared with plain.
    """
    arm = record.beside
    if record.started is None or record.plain is None:
        return None
    return Work(record, record.plain, arm if arm is not None and arm.info.is_compared else None)


def alike(record: RunRecord, runs: Iterable[RunRecord]) -> list[Work]:
    """The run shown, and the newest whole run of every other prompt with the same settings.

    A run whose knobs were turned is of several settings: it has none beside it, nor is it beside
    another one.

    Args:
        runs: of the session, the newest last.
    """
    own = work_of(record)
    if own is None:
        return []
    if own.arm is None or own.arm.changes or record.started is None:
        return [own]
    wanted = settings_of(record.started, own.arm)
    found = {record.started.prompt_ids: own}
    for run in reversed(list(runs)):
        started = run.started
        if started is None or not run.is_whole or started.prompt_ids in found:
            continue
        arm = next((arm for settings, arm in of_one_setting(run) if settings == wanted), None)
        if arm is not None:
            found[started.prompt_ids] = Work(run, run.arms[0], arm)
    return list(found.values())


def joined(tallies: Sequence[ArmTally]) -> ArmTally:
    """One tally of several, as of one long run: only the first one's token of prefill counts.

    Its cycles are a plain list, for who goes over them more than once.
    """
    cycles = [cycle for tally in tallies for cycle in tally.cycles]
    if len(tallies) == 1:
        return replace(tallies[0], cycles=cycles)
    found = ArmTally(max(tally.block_size for tally in tallies), cycles=cycles)
    for at, tally in enumerate(tallies):
        found.ids.extend(tally.ids[min(at, 1) :])
        found.token_ns.extend(tally.token_ns[min(at, 1) :])
        found.time = found.time + tally.time
    return found
