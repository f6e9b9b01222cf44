"""The panel of files and settings says what is known, and what becomes known while it is open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4tui.paint.model import file_rows
from ds4tui.screens.model_panel import ModelPanel
from ds4tui.spans import text_of
from ds4tui.widgets.rows_view import RowsView
from engine.events import FileInfo, RunStarted
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, settle
from tests.ds4tui.session import SMALL, Session


def text(panel: ModelPanel) -> str:
    return "\n".join(text_of(row) for row in panel.query_one(RowsView).rows())


async def test_it_follows_what_is_loaded_and_run() -> None:
    session = Session()
    session.link.greeting = streams.load_steps()[:3]
    async with session.app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: bool(session.controller.steps))
        await pilot.press("o")
        panel = session.app.screen
        assert isinstance(panel, ModelPanel)
        assert "no file is loaded yet" in text(panel)
        session.link.waiting.append(READY)
        await settle(pilot, lambda: session.controller.ready is not None)
        panel.look()
        assert "target.gguf" in text(panel)
        assert "known once a run has started" in text(panel)
        session.link.waiting += streams.until(streams.diverged_run(), 5)
        await settle(pilot, lambda: session.controller.record is not None)
        panel.look()
        assert "settings of the run shown" in text(panel)
        assert "layer kinds" in text(panel)


@pytest.mark.parametrize("drafters", [2, 1])
async def test_every_arm_and_its_drafter_have_their_own_facts(drafters: int) -> None:
    """A single one too: it need not be the default drafter, whose facts the run's start tells."""
    session = Session()
    events = streams.until(streams.diverged_run(), 5)
    started = next(event for event in events if isinstance(event, RunStarted))
    plain, arm = started.arms
    one = replace(arm, drafter="a.gguf", block_size=5, noise_id=8, window=128)
    other = replace(
        arm, name="other", commit="prefix", confidence=0.25, draft_max=None, drafter="some/b.gguf",
        block_size=7, noise_id=3, window=64,
    )  # fmt: skip
    own = replace(started, arms=(plain, one, other)[:: 3 - drafters])
    session.link.greeting = [READY, *(own if event is started else event for event in events)]
    async with session.app.run_test(size=SMALL) as pilot:
        await settle(pilot, lambda: session.controller.record is not None)
        await pilot.press("o")
        panel = session.app.screen
        assert isinstance(panel, ModelPanel)
        words = " ".join(text(panel).split())
        first = "drafter a.gguf block size 5 noise id 8 window 128"
        assert (first in words) == (drafters == 2)
        assert "drafter b.gguf block size 7 noise id 3 window 64" in words
        assert words.count("block size") == drafters
        assert "arm other commit prefix confidence 0.25 draft_max none" in words
        assert words.count("draft_max") == drafters


def test_a_draft_vocabulary_is_a_drafter_s_fact() -> None:
    own = FileInfo("drafter", "d.gguf", "ab", 1, "deepseek4-dspark", "tiny", 1, (), 4096)
    lines = [" ".join(text_of(row).split()) for row in file_rows([own], 80)]
    assert "drafts from 4,096 tokens" in lines
    other = FileInfo("drafter", "d.gguf", "ab", 1, "deepseek4-dspark", "tiny", 1, ())
    assert not any("drafts from" in text_of(row) for row in file_rows([other], 80))
