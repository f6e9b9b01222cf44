"""Titles of the panes: whatever the width, no arm without the hash of its ids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4tui.marks import UNICODE
from ds4tui.paint import panes
from ds4tui.spans import text_of, width_of
from tests.ds4tui import streams
from tests.ds4tui.harness import record_of

MIXED = record_of(streams.mixed_run())


@pytest.mark.parametrize("width", range(8, 70))
def test_the_hash_is_in_the_title_at_every_width(width: int) -> None:
    arm = MIXED.arms[1]
    for names in (("plain", "DSpark"), ("direct 0.90", "direct 0.60")):
        for row in (
            panes.top_title(arm, width, UNICODE),
            panes.top_title(arm, width, UNICODE, "12/34"),
            panes.tabs(names, 1, arm, width, UNICODE),
        ):
            assert arm.ids_hash[: width - 2] in text_of(row)
            assert width_of(row) <= width


@pytest.mark.parametrize(
    ("kind", "role", "name", "title"),
    [
        ("dspark", "arm", "direct", "DSpark 2/4 · direct"),
        ("dspark", "control", "direct again", "DSpark 2/4 · direct again"),
        ("plain", "control", "plain again", "2/4 plain again"),
        ("recorded", "arm", "recorded ids.json", "2/4 recorded ids.json"),
    ],
)
def test_every_kind_of_arm_is_named_and_numbered(
    kind: str, role: str, name: str, title: str
) -> None:
    arm = record_of(streams.diverged_run()).arms[1]
    commit = "direct" if kind == "dspark" else None
    arm.info = replace(arm.info, kind=kind, role=role, name=name, commit=commit)
    assert text_of(panes.top_title(arm, 60, UNICODE, "2/4")).startswith(f"{title} · split ─")
