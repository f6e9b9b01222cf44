"""Two arms of any runs compared as if they were one run: where they part, and by how much.

Owns the comparison of what was recorded. States were not compared with each other, so there is no
drift and no cause. Knows no widgets.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ds4tui.arm_names import told_apart
from ds4tui.drift_data import DriftTrack
from ds4tui.paint.numbers import logits, ulps
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.verdict_line import VerdictLine
from engine.events import Diverged, RunFinished
from engine.settings import NEAR_TIE_ULPS
from engine.stats import Speedup, speedup
from engine.verdict import margin, verdict


class PairRecord(RunRecord):
    """Left and right are the two arms; `plain` is the left one and `beside` the right one.

    Args:
        left, right: a run and one of its arms.
    """

    def __init__(self, left: tuple[RunRecord, int], right: tuple[RunRecord, int]) -> None:
        super().__init__()
        (self.left_run, at_left), (self.right_run, at_right) = left, right
        first, second = self.left_run.arms[at_left], self.right_run.arms[at_right]
        assert self.left_run.started is not None
        self.token_bytes = {**self.right_run.token_bytes, **self.left_run.token_bytes}
        self.same_prompt = (
            self.right_run.started is not None
            and self.left_run.started.prompt_ids == self.right_run.started.prompt_ids
        )
        parted = _parting(self.left_run, first, second) if self.same_prompt else None
        self.arms = [_bare(first, None), _bare(second, parted)]
        run_id = f"{first.ids_hash}-{second.ids_hash}"
        self.started = replace(
            self.left_run.started, run_id=run_id, arms=(first.info, second.info), suite_id=""
        )
        ended = self.left_run.finished
        t_ns = ended.t_ns if ended is not None else self.started.t_ns
        self.finished = RunFinished(run_id, -1, t_ns, parted is None)

    @property
    def names(self) -> tuple[str, str]:
        """Of both arms, by what tells them apart."""
        return told_apart(self.arms[0], self.arms[1])

    @property
    def speedup(self) -> Speedup | None:
        """Of the right arm over the left one."""
        if not self.same_prompt:
            return None
        return speedup([self.arms[0].tally.token_ns], [self.arms[1].tally.token_ns])


def _bare(arm: ArmRecord, parted: Diverged | None) -> ArmRecord:
    """An arm without what its own run found out against its own plain arm."""
    tally = replace(arm.tally, diverged=parted, first_drift=None, compared=0)
    return replace(arm, tally=tally, drift=DriftTrack())


def _parting(run: RunRecord, left: ArmRecord, right: ArmRecord) -> Diverged | None:
    pairs = enumerate(zip(left.ids, right.ids, strict=False))
    index = next((i for i, (a, b) in pairs if a != b), None)
    if index is None:
        return None
    row = left.top[index]
    found = dict(row)
    ours, theirs = left.ids[index], right.ids[index]
    assert run.started is not None
    types = {run.started.ulp_type(arm.info) for arm in (left, right)}
    of_type = max(types - {"F32"}, default="F32")  # the coarser one where they differ
    # A token outside the five best is at least as far away as the fifth.
    least = row[-1][1] if row else -math.inf
    gap = margin(found.get(ours, math.inf), found.get(theirs, least), of_type)
    limit = float(run.settings.get("near_tie_ulps", NEAR_TIE_ULPS))
    kind = verdict(gap, limit)
    numbers = (gap.logits, gap.ulps, gap.ulp_type)
    return Diverged("", 1, 0, index, ours, theirs, None, *numbers, kind, False, (), None)


def pair_verdict(pair: PairRecord) -> VerdictLine:
    """Row 3 on two arms."""
    left, right = pair.arms
    names = " and ".join(pair.names)
    numerics = "" if left.info.numerics == right.info.numerics else "   numerics differ"
    if not pair.same_prompt:
        return VerdictLine("withheld", "? OTHER PROMPT", (f"{names} ran different prompts",))
    found = right.diverged
    if found is None:
        shorter = min(len(left.ids), len(right.ids))
        rest = "" if len(left.ids) == len(right.ids) else ", as far as the shorter one goes"
        body = f"{shorter} ids of {names}{rest}{numerics}"
        return VerdictLine("same", "= SAME IDS", (body, f"{shorter} ids{numerics}"))
    ours, theirs = pair.label(found.left), pair.label(found.right)
    in_ulps = f" = {ulps(found.margin_ulps)} ulp {found.ulp_type}" if found.margin_logits else ""
    gap = f"{found.verdict} {logits(found.margin_logits)}{in_ulps}"
    bodies = (
        f"{pair.names[0]} {ours}  {pair.names[1]} {theirs}  {gap}{numerics}",
        f"{ours} / {theirs}  {gap}{numerics}",
        f"{ours} / {theirs}{numerics}",
    )
    return VerdictLine("differ", f"≠ PART at {found.index}", bodies)
