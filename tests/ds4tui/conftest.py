"""Snapshots are drawn by one Python and one Textual; no others may write them."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

BASELINE = {"python": "3.11", "textual": "8.2.8", "rich": "15.0.0"}


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """Refuse `--snapshot-update` on other versions than the baselines'."""
    if not config.getoption("update_snapshots", False):
        return
    found = {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "textual": version("textual"),
        "rich": version("rich"),
    }
    if found != BASELINE:
        raise pytest.UsageError(f"snapshots are drawn with {BASELINE}, this is {found}")


@pytest.fixture(autouse=True)
def _no_terminal_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine shows in the interface, and exports go nowhere near the user's."""
    for name in ("NO_COLOR", "TEXTUAL_ANIMATIONS", "DS4TUI_CONFIG", "DS4TUI_THEME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("ds4tui.exports.exports_folder", lambda: tmp_path / "exports")
