"""Files that the interface writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ds4tui.exports import write_export


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    first = write_export("run-1-plain.txt", "a", tmp_path)
    again = write_export("run-1-plain.txt", "a", tmp_path)
    other = write_export("run-1-plain.txt", "b", tmp_path)
    assert first == again
    assert other.name == "run-1-plain-2.txt"
    assert first.read_text(encoding="utf-8") == "a"


def test_names_stay_in_the_folder(tmp_path: Path) -> None:
    path = write_export("../../etc/x y.txt", "a", tmp_path)
    assert path.parent == tmp_path


def test_what_could_not_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="needs limits of a process")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="large"):
            write_export("run-1-plain.txt", "a" * 20_000, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
