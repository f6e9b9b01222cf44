"""Full collections of Python's collector wait until no run is going on."""

from __future__ import annotations

import gc

import pytest

from ds4tui import app
from ds4tui.collecting import NEVER, Collecting
from tests.ds4tui import streams
from tests.ds4tui.harness import settle
from tests.ds4tui.session import LARGE, Session, finished


async def test_a_run_is_followed_by_one_collection_and_the_thresholds_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy: list[bool] = []
    monkeypatch.setattr(app, "REST_SECONDS", 0.05)
    session = Session(streams.diverged_run())
    monkeypatch.setattr(Collecting, "collect", lambda _: busy.append(session.controller.is_busy))
    before = gc.get_threshold()
    async with session.app.run_test(size=LARGE) as pilot:
        await settle(pilot, lambda: gc.get_threshold() != before)
        assert gc.get_threshold() == (*before[:2], NEVER)
        await finished(pilot, session)
        await settle(pilot, lambda: bool(busy))
        assert busy == [False]
    assert gc.get_threshold() == before


def test_what_only_a_cycle_keeps_goes() -> None:
    class Node:
        me: object

    node = Node()
    node.me = node
    number = id(node)
    del node
    Collecting().collect()
    assert not any(id(found) == number and isinstance(found, Node) for found in gc.get_objects())
