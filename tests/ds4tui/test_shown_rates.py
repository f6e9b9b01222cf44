"""Rates on the screen are the engine's own: its tokens over its own clock."""

from __future__ import annotations

import pytest

from engine.stats import tally
from tests.ds4tui import streams
from tests.ds4tui.session import LARGE, SMALL, Session, Size, finished


@pytest.mark.parametrize("size", [SMALL, LARGE])
async def test_the_panes_show_the_engines_tokens_per_second(size: Size) -> None:
    events = streams.diverged_run()
    rates = [arm.tokens_per_s for arm in tally(events)]
    session = Session(events)
    async with session.app.run_test(size=size) as pilot:
        await finished(pilot, session)
        for pane, rate in zip(
            (session.app.playground.left, session.app.playground.right), rates, strict=True
        ):
            assert rate is not None
            rows = session.screen[pane.region.y : pane.region.bottom]
            shown = " ".join(row[pane.region.x : pane.region.right] for row in rows)
            assert f" {rate:.0f} tok/s" in shown
