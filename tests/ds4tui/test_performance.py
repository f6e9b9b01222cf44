"""It keeps up: bounds are five times what was measured on two busy cores, so that only a change of
order fails."""

from __future__ import annotations

import time

import pytest
from textual.app import App, ComposeResult

from ds4tui.run_state import RunState
from ds4tui.widgets.box import Box
from ds4tui.widgets.token_lines import Token, TokenLines
from ds4tui.widgets.token_stream import TokenStream
from tests.ds4tui import streams
from tests.ds4tui.harness import make_app, make_controller, settle

WORDS = (" the", " client", " sends", " a", " segment", ",", " hand", "shake", ".", "\n")


def tokens(count: int) -> list[Token]:
    sources = ("draft", "draft", "bonus")
    return [
        Token(WORDS[n % 10], sources[n % 3], n % 3 == 0)  # type: ignore[arg-type]
        for n in range(count)
    ]


def test_wrapping_ten_thousand_tokens() -> None:
    lines = TokenLines(60)
    lines.append(tokens(10_000))
    start = time.perf_counter()
    lines.rewrap(50)
    assert time.perf_counter() - start < 0.25


class Pane(App[None]):
    CSS = "TokenStream { scrollbar-size: 0 0; }"

    def compose(self) -> ComposeResult:
        yield TokenStream()


async def test_appending_costs_the_same_behind_ten_thousand_tokens() -> None:
    app = Pane()
    async with app.run_test(size=(60, 40)) as pilot:
        pane = app.query_one(TokenStream)
        pane.append(tokens(10_000))
        await pilot.pause()
        start = time.perf_counter()
        for token in tokens(200):
            pane.append([token])
            for row in range(pane.size.height):
                pane.render_line(row)
        assert (time.perf_counter() - start) / 200 < 0.02
        assert pane.follows
        assert len(pane.lines) == 10_200


async def test_what_is_painted_is_what_was_appended() -> None:
    app = Pane()
    async with app.run_test(size=(30, 6)) as pilot:
        pane = app.query_one(TokenStream)
        for token in tokens(90):
            pane.append([token])
            await pilot.pause()
        painted = [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
        top = pane.scroll_offset.y
        expected = [f"  {pane.lines.row_text(top + row)}".rstrip() for row in range(6)]
        assert painted == expected


@pytest.mark.parametrize("layer_kinds", [streams.LAYER_KINDS, streams.FULL_SIZE])
async def test_a_key_on_cycle_and_drift_behind_ten_thousand_tokens(
    layer_kinds: tuple[int, ...],
) -> None:
    app = make_app(make_controller(streams.long_run(10_000, layer_kinds)))
    async with app.run_test(size=(120, 36)) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        for key, actions in (
            ("2", ("row(1)", "cycle(-1)", "end(False)", "rejected_draft", "end(True)")),
            ("3", ("sample(-1)", "row(1)", "group", "group", "drift")),
        ):
            await pilot.press(key)
            await settle(pilot)
            for action in actions:
                start = time.perf_counter()
                await app.instrument.run_action(action)
                for box in app.instrument.query(Box):
                    box.rows()
                assert time.perf_counter() - start < 0.1, action
