"""Keys by id: remapping, help, palette."""

from __future__ import annotations

import pytest

from ds4tui.app import Ds4App
from ds4tui.commands import COMMANDS
from ds4tui.config import UiConfig
from engine.errors import Ds4Error
from tests.ds4tui.harness import make_controller


def app_with(**keys: str) -> Ds4App:
    return Ds4App(make_controller(), UiConfig(keys=keys))


def test_every_binding_is_in_the_help_once() -> None:
    table = app_with().table
    named = [name for _, names in table.groups() for name in names]
    assert len(named) == len(set(named))
    assert set(named) == set(table.shown)


def test_every_palette_entry_is_a_key() -> None:
    table = app_with().table
    assert {name for name, _ in COMMANDS} <= set(table.shown)
    assert all(": " in text for _, text in COMMANDS)


def test_no_key_is_bound_twice() -> None:
    table = app_with().table
    shared = [*table.by_area["run"], *table.by_area[""]]
    for area, names in table.by_area.items():
        if area in ("run", ""):
            continue
        names = names if area != "tokens" else [*names, *table.by_area["play"]]
        keys = [key for name in (*shared, *names) for key in table.binding(name).key.split(",")]
        assert len(keys) == len(set(keys)), area


def test_nothing_needs_ctrl_a_ctrl_b_alt_or_a_function_key() -> None:
    table = app_with().table
    for name in table.shown:
        key = table.binding(name).key
        assert not any(part in key for part in ("ctrl+a", "ctrl+b", "alt+"))
        assert not any(f"f{n}" in key.split(",") for n in range(1, 13))


def test_a_remapped_key_is_shown() -> None:
    assert app_with(run="g").table.shown["run"] == "g"
    assert app_with().table.shown["token"] == "enter"


def test_an_unknown_action_names_the_nearest() -> None:
    with pytest.raises(Ds4Error, match="divergense") as found:
        app_with(divergense="x")
    assert "divergence" in found.value.hint


@pytest.mark.parametrize(("keys", "said"), [({}, "q"), ({"quit": "Q"}, "Q")])
async def test_ctrl_c_says_which_key_leaves(keys: dict[str, str], said: str) -> None:
    app = app_with(**keys)
    async with app.run_test() as pilot:
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert [note.message for note in app._notifications] == [f"Press {said} to quit"]
