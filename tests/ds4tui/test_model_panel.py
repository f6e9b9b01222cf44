"""The panel of files and settings says what is known, and what becomes known while it is open."""

from __future__ import annotations

from ds4tui.screens.model_panel import ModelPanel
from ds4tui.spans import text_of
from ds4tui.widgets.rows_view import RowsView
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
