"""Figures over repeats: the rate is the median, the peak the best, so never below the rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import pytest

from ds4tui import report
from engine.events import Event, TimeSplit, TokensCommitted
from tests.engine.races import engine, run
from tests.engine.scripted import ScriptedDrafter, ScriptedModel, continuation, path_script

SCRIPT = path_script([2 + i * 7 % 29 for i in range(100)], 13)


def slower(events: Sequence[Event], factor: int) -> list[Event]:
    """The same run on a machine that takes so many times as long."""

    def scaled(time: TimeSplit) -> TimeSplit:
        return TimeSplit(*(getattr(time, field.name) * factor for field in fields(time)))

    return [
        replace(event, time=scaled(event.time)) if isinstance(event, TokensCommitted) else event
        for event in events
    ]


@pytest.mark.parametrize("factors", [(1,), (20, 1, 1), (1, 20, 20), (1, 1, 20), (9, 5, 1, 1)])
def test_the_peak_is_never_below_the_median_rate(factors: Sequence[int]) -> None:
    made = engine(ScriptedModel(SCRIPT), ScriptedDrafter(continuation(SCRIPT)))
    events = run(made, "prefix", "replay").events
    repeats = [report.RunEvents.of(slower(events, factor)) for factor in factors]
    document = report.ab_document(repeats)
    best = report.ab_document([report.RunEvents.of(events)])
    assert document["repeats"] == len(factors)
    for arm, fastest in zip(document["arms"], best["arms"], strict=True):
        assert arm["peak_tokens_per_s"] >= arm["tokens_per_s"] * (1 - 1e-9)
        assert arm["peak_tokens_per_s"] == pytest.approx(fastest["peak_tokens_per_s"])
