"""Snapshots are written by the versions that drew them, and by no others."""

from __future__ import annotations

from typing import cast

import pytest

from tests.ds4tui import conftest


class Config:
    def __init__(self, update: bool) -> None:
        self.update = update

    def getoption(self, name: str, default: bool) -> bool:
        return self.update


def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "version", lambda package: "1.0")
    with pytest.raises(pytest.UsageError, match="snapshots are drawn with"):
        conftest.pytest_collection_modifyitems(cast(pytest.Config, Config(True)))
    conftest.pytest_collection_modifyitems(cast(pytest.Config, Config(False)))
