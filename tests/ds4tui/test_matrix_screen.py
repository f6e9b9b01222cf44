"""Screen 4 at work: what its keys ask for, what it shows live, and what it writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from ds4tui.app import Ds4App
from ds4tui.controller import Controller
from ds4tui.link import ReplayLink
from ds4tui.matrix_report import MatrixReport
from ds4tui.run_state import RunState
from ds4tui.screens.matrix import MatrixScreen
from ds4tui.screens.set_chooser import SetChooser
from ds4tui.spans import text_of
from ds4tui.widgets.bars import PromptBar, RunBar, VerdictBar
from engine.events import Event, Notice, RunFailed, RunStarted
from engine.process import Pause, Run, RunSuite, Stop, Turn
from engine.settings import Knobs, Settings
from engine.suite import MatrixRequest
from engine.trace import TraceWriter, read_trace
from tests.ds4tui import streams, suite_streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle
from tests.ds4tui.test_matrix_view import until_run

SIZE = (120, 36)


@cache
def whole() -> tuple[Event, ...]:
    return tuple(suite_streams.suite())


def app_of(link: FakeLink, **given: object) -> Ds4App:
    return make_app(make_controller(link=link, prompt=None, **given))  # type: ignore[arg-type]


def screen_of(app: Ds4App) -> MatrixScreen:
    screen = app.instruments["4"]
    assert isinstance(screen, MatrixScreen)
    return screen


async def opened(pilot: Pilot[int], link: FakeLink, events: Sequence[Event] = ()) -> MatrixScreen:
    """The screen, shown, after some events."""
    app = pilot.app
    assert isinstance(app, Ds4App)
    await settle(pilot, lambda: app.controller.ready is not None)
    await pilot.press("4")
    link.waiting += events
    screen = screen_of(app)
    await settle(pilot)
    await fresh(pilot)
    return screen


async def fresh(pilot: Pilot[int]) -> None:
    """Until all figures are up to date."""
    app = pilot.app
    assert isinstance(app, Ds4App)
    record = screen_of(app).record
    await settle(pilot, lambda: record is None or not _draws(app, record.report))


def _draws(app: Ds4App, report: MatrixReport) -> bool:
    app.instrument.redraw()
    return report.is_stale


def shown(screen: MatrixScreen) -> str:
    """Everything on the screen, as text."""
    bars = [screen.query_one(kind).rows() for kind in (RunBar, PromptBar, VerdictBar)]
    boxes = [box.rows() for box in screen.boxes]
    return "\n".join(text_of(row) for rows in (*bars, *boxes) for row in rows)


async def test_before_anything_has_run_it_says_what_to_press_and_for_how_long() -> None:
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        text = shown(screen)
        assert "· no matrix yet" in text
        assert "R runs 3 prompts x 10 cells, at most 400 tokens each." in text
        assert "known after the first run" in text
        link.waiting += streams.diverged_run()
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        # 2 arms of 400 tokens took 1.9 s: 12 arms on 3 prompts take 18 times as long.
        assert "That takes about 34 s here" in shown(screen)


async def test_keys_ask_for_the_whole_a_cell_and_a_prompt() -> None:
    link = FakeLink()
    app = app_of(link, settings=Settings(dspark=(Knobs(confidence=0.7),), max_tokens=50))
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, link)
        for keys, only, indexes in (
            (("R",), (), ()),
            (("j", "l", "r"), ("invariant prefix",), ()),
            (("tab", "j", "r"), (), (1,)),
        ):
            await pilot.press(*keys)
            await settle(pilot)
            command = link.commands[-1]
            assert isinstance(command, RunSuite)
            request = command.request
            assert isinstance(request, MatrixRequest)
            assert (request.kind, request.only, request.indexes) == ("matrix", only, indexes)
            assert len(request.prompts) == 3
            assert request.settings.max_tokens == 50
            assert {knobs.confidence for knobs in request.settings.dspark} == {0.7}


async def test_cells_fill_in_while_it_runs() -> None:
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, until_run(whole(), 3, 100))
        text = shown(screen)
        assert "RUNNING 10/30" in text
        assert "demo, 3 prompts: 2 mutex, split" in text
        assert "20 runs left, 7 s" in text
        assert "= AS REQUIRED so far  7 of 7 runs identical that must be" in text
        assert "0/1   #163    1.3" in text
        assert "diff. work" in text
        rest = whole()[len(until_run(whole(), 3, 100)) :]
        link.waiting += rest
        await settle(pilot, lambda: app.controller.running_suite is None)
        await fresh(pilot)
        text = shown(screen)
        assert "DONE 30/30" in text
        assert "= AS REQUIRED       21 of 21 runs identical that must be" in text


async def test_space_pauses_and_escape_stops_all_of_it() -> None:
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, until_run(whole(), 3, 100))
        await pilot.press("space")
        await settle(pilot)
        assert isinstance(link.commands[-1], Pause)
        assert "PAUSED 10/30" in shown(screen)
        await pilot.press("c")  # a knob must not touch the runs of a suite
        await settle(pilot)
        assert not any(isinstance(command, Turn) for command in link.commands)
        await pilot.press("escape")
        await settle(pilot)
        assert isinstance(link.commands[-1], Stop)
        link.waiting += whole()[-1:]
        await settle(pilot, lambda: app.controller.running_suite is None)
        assert "STOPPED 10/30" in shown(screen)


async def test_a_set_stopped_on_another_screen_is_shown_as_it_stands() -> None:
    link = FakeLink()
    app = app_of(link)
    events = suite_streams.suite("set", ("split",), ("direct",), ())
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        await pilot.press("v", "1")
        link.waiting += [*until_run(events, 3, 100), events[-1]]
        await settle(pilot, lambda: app.controller.running_suite is None and not link.waiting)
        await pilot.press("4")
        await settle(pilot, lambda: app.instrument is screen)
        text = shown(screen)
        assert "STOPPED 2/3" in text
        assert "= IDENTICAL so far" in text
        assert "PLAIN ONLY" not in text


async def test_enter_opens_the_cells_run_and_arm_and_brackets_the_next_prompts() -> None:
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, link, whole())
        await pilot.press("j", "enter")  # split prefix parts on the first prompt
        await settle(pilot)
        record = app.controller.record
        assert app.instrument.KEY == "1"
        assert record is not None
        assert record.started is not None
        assert (record.started.cell, record.started.prompt_index) == ("split", 0)
        assert record.beside is not None
        assert record.beside.info.name == "prefix"
        assert app.playground.panes.compared is record.beside
        assert "≠ DIVERGED at 163" in text_of(app.instrument.query_one(VerdictBar).rows()[0])
        await pilot.press("right_square_bracket")
        await settle(pilot)
        record = app.controller.record
        assert record is not None
        assert record.started is not None
        assert (record.started.cell, record.started.prompt_index) == ("split", 1)
        assert record.beside is not None
        assert record.beside.info.name == "prefix"
        assert not any(isinstance(command, Run) for command in link.commands)


async def test_an_open_run_stays_while_the_suite_goes_on() -> None:
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        part = until_run(whole(), 3, 100)
        await opened(pilot, link, part)
        await pilot.press("enter")
        await settle(pilot)
        chosen = app.controller.record
        link.waiting += whole()[len(part) :]
        await settle(pilot, lambda: app.controller.running_suite is None)
        assert app.controller.record is chosen
        assert app.controller.newest is not chosen


async def test_the_chosen_prompts_run_is_opened() -> None:
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        await opened(pilot, link, whole())
        await pilot.press("l", "tab", "j", "j", "enter")
        await settle(pilot)
        record = app.controller.record
        assert record is not None
        assert record.started is not None
        assert (record.started.cell, record.started.prompt_index) == ("invariant", 2)


async def test_a_dead_engine_is_loaded_again_and_runs_the_suite() -> None:
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, until_run(whole(), 3, 100))
        link.is_alive = False
        link.waiting += [RunFailed("", -1, 10**12, "Engine process ended", "It ended.", "Again.")]
        await settle(pilot, lambda: app.controller.state is RunState.FAILED)
        assert "FAILED 10/30" in shown(screen)
        assert "what has ended is kept" in shown(screen)
        await pilot.press("R")
        await settle(pilot, lambda: any(isinstance(c, RunSuite) for c in link.commands))
        assert app.controller.failure is None


async def test_the_suite_waits_for_the_model() -> None:
    link = FakeLink(streams.load_steps()[:20])
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot, lambda: bool(app.controller.steps))
        await pilot.press("4", "R")
        await settle(pilot)
        assert not link.commands
        assert "the model is being loaded, and then it begins" in shown(screen_of(app))
        link.waiting += [READY]
        await settle(pilot, lambda: any(isinstance(c, RunSuite) for c in link.commands))


async def test_without_a_drafter_there_is_no_matrix() -> None:
    link = FakeLink()
    app = app_of(link, settings=Settings(dspark=()))
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        assert "There is no drafter" in shown(screen)
        await pilot.press("r")
        await settle(pilot)
        assert not link.commands


async def test_the_set_runs_with_the_runs_own_settings_and_shows_categories() -> None:
    link = FakeLink()
    app = app_of(link, settings=Settings("invariant", (Knobs("prefix"),)))
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot, lambda: app.controller.ready is not None)
        await pilot.press("R")
        await settle(pilot)
        command = link.commands[-1]
        assert isinstance(command, RunSuite)
        assert isinstance(command.request, MatrixRequest)
        assert command.request.kind == "set"
        assert command.request.cells() == ("invariant prefix",)
        link.waiting += suite_streams.suite("set", ("invariant",), ("prefix",))
        screen = await opened(pilot, link)
        text = shown(screen)
        assert screen.kind == "set"
        assert "category" in text
        assert "facts" in text
        assert "code" in text
        assert "acc/prop." in text
        await pilot.press("v")
        await settle(pilot)
        assert "· no matrix yet" in shown(screen)


async def test_all_cells_of_the_prompt_from_the_playground() -> None:
    link = FakeLink()
    app = make_app(make_controller(link=link, prompt=None))
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot, lambda: app.controller.ready is not None)
        app.controller.choose_prompt(1)
        await pilot.press("a")
        await settle(pilot)
        command = link.commands[-1]
        assert isinstance(command, RunSuite)
        assert isinstance(command.request, MatrixRequest)
        assert command.request.indexes == (0,)
        assert app.instrument.KEY == "4"


async def test_another_set(tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text('first\n{"text": "second", "category": "c"}\n')
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link)
        await pilot.press("o")
        await settle(pilot)
        chooser = app.screen
        assert isinstance(chooser, SetChooser)
        field = chooser.query_one(Input)
        field.value = str(tmp_path / "nothing")
        await pilot.press("enter")
        await settle(pilot)
        assert app.screen is chooser
        field.value = str(own)
        await pilot.press("enter")
        await settle(pilot, lambda: app.screen is screen)
        assert [entry.prompt.text for entry in app.controller.prompts] == ["first", "second"]
        assert "R runs 2 prompts x 10 cells" in shown(screen)
        await pilot.press("o", "down", "enter")
        await settle(pilot, lambda: app.screen is screen)
        assert len(app.controller.prompts) == 10


async def test_the_figures_and_the_report_go_to_files(tmp_path: Path) -> None:
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        screen = await opened(pilot, link, whole())
        screen.export()
        screen.report()
        await settle(pilot)
        report = MatrixReport()
        for event in whole():
            report.feed(event)
        record = screen.record
        assert record is not None
        document = report.document(wall_s=record.elapsed_s)
        written = json.loads((tmp_path / "exports" / "matrix-5u17e.json").read_text())
        assert written == json.loads(json.dumps(document))
        markdown = (tmp_path / "exports" / "matrix-5u17e.md").read_text()
        must_be = "21 of 21 runs identical that must be; states equal after every cycle"
        assert f"**AS REQUIRED: {must_be}; 3 of 9" in markdown


async def test_a_trace_shows_the_same_as_the_live_suite(tmp_path: Path) -> None:
    path = str(tmp_path / "t.jsonl")
    writer = TraceWriter(path)
    writer.write([READY, *whole()])
    writer.close()
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=SIZE) as pilot:
        live = shown(await opened(pilot, link, whole()))
    events = read_trace(path)
    replay = ReplayLink(events, lambda: 0.0, float("inf"))
    controller = make_controller(link=replay)  # type: ignore[arg-type]
    app = make_app(controller)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot, lambda: "matrix" in controller.suites)
        await settle(pilot, lambda: controller.suites["matrix"].is_over)
        await pilot.press("4")
        await fresh(pilot)
        assert shown(screen_of(app)) == live


@pytest.mark.parametrize("size", [(80, 24), (58, 15), (40, 10)])
async def test_small_terminals_show_one_table_at_a_time(size: tuple[int, int]) -> None:
    link = FakeLink()
    app = app_of(link)
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot, link, whole())
        assert screen.query_one("#matrix-cells").display
        assert not screen.prompts_box.display
        await pilot.press("tab")
        await settle(pilot)
        assert not screen.query_one("#matrix-cells").display
        assert screen.prompts_box.display
        await pilot.press("f")
        await settle(pilot)
        assert "facts" in "\n".join(text_of(row) for row in screen.prompts_box.rows())


def test_a_repeated_notice_is_said_once() -> None:
    link = FakeLink()
    controller = make_controller(link=link, prompt=None)
    controller.start()
    controller.drain()
    events: list[Event] = []
    for event in whole():
        events.append(event)
        if isinstance(event, RunStarted):
            events.append(Notice(event.run_id, -1, 0, "info", "strict drafts nothing"))
            events.append(Notice(event.run_id, -1, 0, "warning", "odd file"))
    link.waiting += events
    assert controller.drain().notices == [("warning", "odd file")]


def test_the_controllers_places_survive_a_cell_run_again() -> None:
    link = FakeLink()
    controller: Controller = make_controller(link=link, prompt=None)
    controller.start()
    link.waiting += whole()
    again = suite_streams.suite(numerics=("split",), policies=("replay",), suite_id="b")
    link.waiting += again
    controller.drain()
    suite = controller.suites["matrix"]
    assert suite.place_of("invariant prefix", 0) is not None
    place = suite.place_of("split replay", 0)
    assert place is not None
    assert place[1] == 1
