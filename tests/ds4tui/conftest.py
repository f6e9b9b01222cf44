"""Snapshots are drawn by one Python and one Textual; no others may write them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.ds4tui.harness import until_idle

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


COLLECTS_AFTER = 10_000
"""New objects until the collector looks. An app has tens of thousands that stay: at Python's own
700 a quarter of the tests' time goes into looking at them.
"""


@pytest.fixture(scope="package", autouse=True)
def _a_calmer_collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(COLLECTS_AFTER, *before[1:])
    yield
    gc.set_threshold(*before)


@pytest.fixture(autouse=True)
def _nothing_stays_frozen() -> Iterator[None]:
    """A replayed trace is hidden from the collector, and with it all else that is there then."""
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _no_terminal_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the machine shows in the interface, and exports go nowhere near the user's."""
    for name in ("NO_COLOR", "TEXTUAL_ANIMATIONS", "DS4TUI_CONFIG", "DS4TUI_THEME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("ds4tui.marks.terminal_encoding", lambda: "utf-8")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("ds4tui.exports.exports_folder", lambda: tmp_path / "exports")


@pytest.fixture(autouse=True)
def _no_naps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual's pilot naps for a fiftieth of a second wherever it waits; here it only waits."""
    for module in ("pilot", "app"):
        monkeypatch.setattr(f"textual.{module}.wait_for_idle", until_idle)
