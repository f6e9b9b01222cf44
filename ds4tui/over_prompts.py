"""Cycles of one arm's settings over all prompts that ran with them. Knows the runs, no widgets."""

from __future__ import annotations

from ds4tui.run_record import ArmRecord, RunRecord
from engine.cycle_counts import CycleCounts
from engine.events import RunStarted, SettingsChanged

_OF_THE_PROMPT = ("system", "chat", "think", "control_tokens", "max_tokens", "prompt_index")
_OF_THE_ARM = ("numerics", "commit", "confidence", "draft_max")
"""Settings of a run that say nothing more about its arms: `ArmInfo` has them, for every arm."""

Same = tuple[object, ...]


class OverPrompts:
    """Sums live over the runs of the session, those that are no longer in memory included.

    A prompt that ran again counts once, as it ran last; a run whose knobs were turned does not
    count, since its cycles are of several settings.
    """

    def __init__(self) -> None:
        self._found: dict[Same, dict[object, tuple[CycleCounts, list[SettingsChanged]]]] = {}

    def add(self, record: RunRecord) -> None:
        """Take a run that has begun; its counts are read when they are asked for."""
        started = record.started
        if started is None:
            return
        for arm in record.arms:
            if (arm.info.kind, arm.info.role) == ("dspark", "arm"):
                prompts = self._found.setdefault(settings_of(started, arm), {})
                prompts[started.prompt_ids] = arm.tally.counts, arm.changes

    def counts(self, record: RunRecord, arm: ArmRecord) -> tuple[int, CycleCounts] | None:
        """(prompts, counts) of the settings that an arm was started with; None without any."""
        if record.started is None:
            return None
        prompts = self._found.get(settings_of(record.started, arm), {})
        whole = [counts for counts, changes in prompts.values() if counts.cycles and not changes]
        return (len(whole), sum(whole[1:], whole[0])) if whole else None


def settings_of(started: RunStarted, arm: ArmRecord) -> Same:
    """What must be equal for the cycles of two runs to be of the same settings."""
    info = arm.info
    own = (info.numerics, info.commit, info.confidence, info.draft_max, info.drafter)
    left_out = (*_OF_THE_PROMPT, *_OF_THE_ARM)
    rest = tuple(pair for pair in started.settings if pair[0] not in left_out)
    return (*own, rest, tuple(file.sha256 for file in started.files))
