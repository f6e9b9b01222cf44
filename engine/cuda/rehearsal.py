"""Takes the steps of timelines beforehand and undoes them, so that clocks see no compiling.

A step's kernels are compiled when it is first taken and captured in a graph the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from engine.drafter import Drafter, DrafterContext
from engine.paths import DECODE
from engine.timeline import Timeline

TIMES = 2
"""As it comes, then captured."""


def rehearse(timelines: Sequence[Timeline], progress: Callable[[int, int], None]) -> None:
    """Every step that the timelines can take: decodes, verifies, re-projections, drafts.

    Args:
        progress: called with (timelines done, timelines in all).
    """
    for done, timeline in enumerate(timelines):
        progress(done, len(timelines))
        drafter = timeline.drafter
        rows = 1 if drafter is None else 1 + drafter.block_size
        for n in range(1, min(rows, timeline.free) + 1):
            for _ in range(TIMES):
                _verify(timeline, n)
        if isinstance(drafter, Drafter) and timeline.free:
            for _ in range(TIMES):
                _draft(drafter, timeline.drafter_context, timeline.state.position, rows)
            fresh = drafter.new_context()  # the prompt's rows are many and come once
            for position, taps in timeline.taps:
                drafter.extend(fresh, taps, position)
    progress(len(timelines), len(timelines))


def _verify(timeline: Timeline, n: int) -> None:
    """A forward of n rows and its undoing."""
    state, target = timeline.state, timeline.target
    before = state.snapshot()
    plan = DECODE[target.numerics] if n == 1 else target.verify
    rows = target.model.forward(state, [0] * n, plan)
    if hasattr(rows, "processed"):
        rows.processed([()] * n)
    if timeline.info.commit == "reproject":
        state.reproject(before, n)
    state.restore(before)


def _draft(drafter: Drafter, context: DrafterContext, position: int, rows: int) -> None:
    """A block, and context rows past the last one, which are then forgotten."""
    drafter.block(context, 0, position)
    start, end = context.start, context.end
    width = len(drafter.config.target_layers) * drafter.model.config.dim
    for n in range(1, rows + 1):
        taps = torch.zeros((n, width), device=context.memory.device)
        drafter.extend(context, taps, end)
        context.start, context.end = start, end
