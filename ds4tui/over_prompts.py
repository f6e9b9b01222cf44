"""Cycles of one arm's settings over all prompts that ran with them. Knows the runs, no widgets."""

from __future__ import annotations

from collections.abc import Iterator

from ds4tui.run_record import ArmRecord, RunRecord
from engine.cycle_counts import CycleCounts
from engine.events import RunStarted
from engine.settings import OF_ARMS

_OF_THE_PROMPT = ("system", "chat", "think", "control_tokens", "max_tokens", "prompt_index")
"""Settings of a run that say nothing about its arms."""

Same = tuple[object, ...]


class OverPrompts:
    """Sums live over the runs of the session, those that are no longer in memory included.

    A prompt that ran again counts once, as it ran last. A run that was cut short does not count,
    and neither does one whose knobs were turned: its cycles are of several settings.
    """

    def __init__(self) -> None:
        self._found: dict[Same, dict[object, CycleCounts]] = {}
        self._newest: RunRecord | None = None

    def add(self, record: RunRecord) -> None:
        """Take a run that has begun; its counts are read when they are asked for."""
        self._settle()
        self._newest = record

    def _settle(self) -> None:
        """Take over the counts of the newest run if it has come to its end."""
        record = self._newest
        if record is None or record.started is None or not record.is_whole:
            return
        self._newest = None
        for settings, arm in of_one_setting(record):
            if arm.cycles:
                found = self._found.setdefault(settings, {})
                found[record.started.prompt_ids] = arm.tally.counts

    def counts(self, record: RunRecord, arm: ArmRecord) -> tuple[int, CycleCounts] | None:
        """(prompts, counts) of the settings that an arm was started with; None without any."""
        if record.started is None:
            return None
        self._settle()
        wanted = settings_of(record.started, arm)
        found = dict(self._found.get(wanted, {}))
        running = self._newest
        if running and running.started and not (running.finished or running.failed):
            for settings, own in of_one_setting(running):
                if settings == wanted and own.cycles:
                    found[running.started.prompt_ids] = own.tally.counts
        whole = list(found.values())
        return (len(whole), sum(whole[1:], whole[0])) if whole else None


def of_one_setting(record: RunRecord) -> Iterator[tuple[Same, ArmRecord]]:
    """The compared arms whose knobs were not turned, with their settings."""
    for arm in record.arms:
        if record.started is not None and arm.info.is_compared and not arm.changes:
            yield settings_of(record.started, arm), arm


def settings_of(started: RunStarted, arm: ArmRecord) -> Same:
    """What must be equal for the cycles of two runs to be of the same settings."""
    info = arm.info
    own = (info.numerics, info.commit, info.confidence, info.draft_max, info.drafter)
    left_out = (*_OF_THE_PROMPT, "numerics", *OF_ARMS)  # `ArmInfo` has the arms'
    rest = tuple(pair for pair in started.settings if pair[0] not in left_out)
    return (*own, rest, tuple(file.sha256 for file in started.files))
