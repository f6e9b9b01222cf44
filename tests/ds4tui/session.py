"""An app on a scripted engine, with short words for what tests look at."""

from __future__ import annotations

from textual.pilot import Pilot

from ds4tui.app import Ds4App
from ds4tui.controller import Controller
from ds4tui.run_state import RunState
from ds4tui.spans import text_of
from ds4tui.widgets.bars import KeyFooter, PromptBar, RunBar, VerdictBar
from engine.events import Event
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle

Size = tuple[int, int]
SMALL: Size = (80, 24)
LARGE: Size = (120, 36)


def done(controller: Controller) -> bool:
    return controller.state in (RunState.DONE, RunState.FAILED)


def screen_of(app: Ds4App) -> list[str]:
    """What the terminal shows, row by row."""
    strips = app.screen._compositor.render_strips()
    return [strip.text for strip in strips][: app.size.height]


class Session:
    """An app on a fake link, with short words for what tests look at."""

    def __init__(self, *runs: list[Event], prompt: str | None = streams.PROMPT, **config: object):
        self.link = FakeLink((READY,), *runs)
        self.controller = make_controller(link=self.link, prompt=prompt)
        self.app: Ds4App = make_app(self.controller, **config)

    def row(self, kind: type[RunBar | PromptBar | VerdictBar | KeyFooter]) -> str:
        return text_of(self.app.playground.query_one(kind).rows()[0]).rstrip()

    @property
    def screen(self) -> list[str]:
        """What the terminal shows, row by row."""
        return screen_of(self.app)


async def finished(pilot: Pilot[int], session: Session) -> None:
    await settle(pilot, lambda: done(session.controller))
