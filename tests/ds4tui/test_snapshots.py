"""Pictures of each state at both design sizes; written by `pytest --snapshot-update`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from textual.pilot import Pilot

from ds4tui.controller import Controller
from ds4tui.run_state import RunState
from engine.events import Event, PromptRendered, RunStarted, TokenText
from engine.settings import Knobs, Settings
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle

SIZES = [pytest.param((80, 24), id="80x24"), pytest.param((120, 36), id="120x36")]
Compare = Callable[..., bool]
CURED = Settings(numerics="invariant", dspark=(Knobs("prefix"),))


def has_ended(controller: Controller) -> bool:
    return controller.state in (RunState.DONE, RunState.FAILED)


def take(
    compare: Compare,
    size: tuple[int, int],
    *runs: list[Event],
    keys: tuple[str, ...] = (),
    prompt: str | None = streams.PROMPT,
    greeting: list[Event] | None = None,
    until: Callable[[Controller], bool] = has_ended,
    then: list[Event] | None = None,
    settings: Settings | None = None,
    **config: object,
) -> bool:
    link = FakeLink([READY] if greeting is None else greeting, *runs)
    controller = make_controller(link=link, prompt=prompt, settings=settings)

    async def before(pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: until(controller))
        await pilot.press(*keys)
        link.waiting += then or []
        await settle(pilot)

    app = make_app(controller, **config)
    return compare(app, terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES)
def test_empty(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, prompt=None, until=lambda c: c.ready is not None)


@pytest.mark.parametrize("size", SIZES)
def test_loading(snap_compare: Compare, size: tuple[int, int]) -> None:
    steps = streams.load_steps()[:20]
    assert take(snap_compare, size, greeting=steps, until=lambda c: bool(c.steps))


@pytest.mark.parametrize("size", SIZES)
def test_running(snap_compare: Compare, size: tuple[int, int]) -> None:
    part = streams.until(streams.identical_run(), 171)
    assert take(
        snap_compare, size, part, until=lambda c: c.state is RunState.DECODING, settings=CURED
    )


@pytest.mark.parametrize("size", SIZES)
def test_diverged(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.diverged_run())


@pytest.mark.parametrize("size", SIZES)
def test_cursor_and_rejected_drafts(snap_compare: Compare, size: tuple[int, int]) -> None:
    keys = ("x", "d", "l", "n", "p")
    assert take(snap_compare, size, streams.diverged_run(), keys=keys)


@pytest.mark.parametrize("size", SIZES)
def test_identical(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.identical_run(), settings=CURED)


@pytest.mark.parametrize("size", SIZES)
def test_failed(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.failed_run())


def test_editor(snap_compare: Compare) -> None:
    names = (
        (0, "<｜begin▁of▁sentence｜>"),
        (3, "<｜User｜>"),
        (17, "Explain"),
        (4, "<｜Assistant｜>"),
    )
    rendered = [
        TokenText("", -1, 0, tuple((n, text.encode()) for n, text in names)),
        PromptRendered("", -1, 0, streams.PROMPT, (0, 3, 17, 4)),
    ]
    assert take(snap_compare, (80, 24), streams.diverged_run(), keys=("i",), then=rendered)


def test_popup(snap_compare: Compare) -> None:
    assert take(snap_compare, (80, 24), streams.diverged_run(), keys=("d", "enter"))


@pytest.mark.parametrize("size", SIZES)
def test_plain_only(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.plain_run(), settings=Settings(dspark=()))


@pytest.mark.parametrize("size", SIZES)
def test_strict(snap_compare: Compare, size: tuple[int, int]) -> None:
    settings = Settings(dspark=(Knobs("strict"),))
    assert take(snap_compare, size, streams.strict_run(), settings=settings)


@pytest.mark.parametrize("size", SIZES)
def test_mixed(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.mixed_run())


@pytest.mark.parametrize("size", SIZES)
def test_over_prompts(snap_compare: Compare, size: tuple[int, int]) -> None:
    first, second = (on_prompt(streams.diverged_run(), prompt) for prompt in (1, 2))
    app = make_app(make_controller(link=FakeLink([READY], first, second)))

    async def before(pilot: Pilot[int]) -> None:
        for runs in (1, 2):
            await settle(pilot, lambda runs=runs: len(app.controller.runs) == runs)
            await pilot.press(*("r" if runs == 1 else ()))
        await pilot.press("tab", "tab", *("f" if size == (80, 24) else "ff"))
        await settle(pilot)

    assert snap_compare(app, terminal_size=size, run_before=before)


def on_prompt(events: list[Event], prompt: int) -> list[Event]:
    """The same run as one of another prompt."""
    changed = [
        replace(event, prompt_ids=(prompt,)) if isinstance(event, RunStarted) else event
        for event in events
    ]
    return streams.renamed(changed, f"run-on-{prompt}")


def test_paused(snap_compare: Compare) -> None:
    part = streams.until(streams.diverged_run(), 120)
    decoding = RunState.DECODING
    keys = ("space",)
    assert take(snap_compare, (80, 24), part, keys=keys, until=lambda c: c.state is decoding)


def test_no_proposals(snap_compare: Compare) -> None:
    script = streams.Script(diverges=False, drifts=False, no_drafts=True)
    assert take(snap_compare, (80, 24), streams.run(script))


def test_logic_error(snap_compare: Compare) -> None:
    script = streams.Script(drifts=False, logic_error=True)
    assert take(snap_compare, (80, 24), streams.run(script))


@pytest.mark.parametrize("size", SIZES)
def test_help(snap_compare: Compare, size: tuple[int, int]) -> None:
    assert take(snap_compare, size, streams.diverged_run(), keys=("question_mark",))


def test_help_light(snap_compare: Compare) -> None:
    keys = ("question_mark",)
    assert take(snap_compare, (80, 24), streams.diverged_run(), keys=keys, theme="light")


def test_the_end_of_the_help(snap_compare: Compare) -> None:
    keys = ("question_mark", "G")
    assert take(snap_compare, (80, 24), streams.diverged_run(), keys=keys)


def test_palette(snap_compare: Compare) -> None:
    assert take(snap_compare, (80, 24), streams.diverged_run(), keys=("ctrl+p", "d", "i", "v"))


def test_flipped_boxes(snap_compare: Compare) -> None:
    keys = ("tab", "tab", "f", "tab", "f")
    assert take(snap_compare, (120, 36), streams.diverged_run(), keys=keys)


def test_maximised_box(snap_compare: Compare) -> None:
    assert take(snap_compare, (80, 24), streams.diverged_run(), keys=("tab", "tab", "tab", "m"))


def test_small(snap_compare: Compare) -> None:
    assert take(snap_compare, (58, 15), streams.diverged_run(), keys=("tab",))


def test_light(snap_compare: Compare) -> None:
    assert take(snap_compare, (120, 36), streams.diverged_run(), theme="light")


def test_ascii(snap_compare: Compare) -> None:
    assert take(snap_compare, (80, 24), streams.diverged_run(), ascii=True)


def test_no_color(snap_compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert take(snap_compare, (80, 24), streams.diverged_run())
