"""Files that nest too deeply or hold endless numbers, and paths that are no files: one sentence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ds4tui.config import load_config
from ds4tui.recorded import read_recorded
from ds4tui.text_file import MAX_MIB, read_text
from ds4tui.trace_store import TraceStore
from engine.errors import Ds4Error
from engine.gguf import open_gguf
from engine.prompt_set import parse_prompt_set

DEPTH = 100_000
DIGITS = 5_000


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_recorded, "[" * DEPTH),
        (read_recorded, f"[{'1' * DIGITS}]"),
        (lambda path: parse_prompt_set(Path(path).read_text(), path), '{"text": ' + "[" * DEPTH),
        (lambda path: parse_prompt_set(Path(path).read_text(), path), f'{{"n": {"1" * DIGITS}}}'),
        (lambda path: load_config(path, environment={}), "a = " + "[" * DEPTH),
        (lambda path: load_config(path, environment={}), f"fps = {'1' * DIGITS}"),
    ],
)
def test_what_cannot_be_parsed_is_refused_by_name(
    tmp_path: Path, read: Callable[[str], object], text: str
) -> None:
    path = tmp_path / "hostile.txt"
    path.write_text(text)
    with pytest.raises(Ds4Error, match=r"hostile\.txt") as caught:
        read(str(path))
    assert len(caught.value.message) < 1000


def test_a_prompt_of_brackets_is_a_prompt() -> None:
    (entry,) = parse_prompt_set("[" * DEPTH, "set.txt")
    assert entry.prompt.text == "[" * DEPTH


@pytest.mark.parametrize("head", ["[]", "3", '"text"', "[" * DEPTH, '{"schema": []}'])
def test_a_stored_trace_with_another_first_line_is_left_out(tmp_path: Path, head: str) -> None:
    (tmp_path / "a.jsonl").write_text(f"{head}\n")
    assert TraceStore(tmp_path).stored() == []


@pytest.mark.skipif(os.name != "posix", reason="needs pipes and devices")
def test_a_pipe_or_a_device_is_no_model_file(tmp_path: Path) -> None:
    """Opening a pipe that nobody writes to would wait for ever."""
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path in (pipe, Path(os.devnull)):
        with pytest.raises(Ds4Error, match="is a device or a pipe, not a GGUF file"):
            open_gguf(path)


def test_a_text_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    with path.open("wb") as file:
        file.truncate(MAX_MIB * 2**20 + 1)
    for read in (read_recorded, lambda path: load_config(path, environment={})):
        with pytest.raises(Ds4Error, match=r"long\.txt holds more than 64 MiB; expected a text"):
            read(str(path))


@pytest.mark.skipif(os.name != "posix", reason="needs pipes and devices")
def test_a_text_may_come_from_a_pipe_and_a_device_without_an_end_is_refused() -> None:
    """As a shell's `<(command)` gives one, and as /dev/stdin may be."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"one\r\ntwo")
    os.close(write_end)
    assert read_text(f"/dev/fd/{read_end}", "prompt file") == "one\ntwo"
    os.close(read_end)
    assert load_config(os.devnull, environment={}).keys == {}
    with pytest.raises(Ds4Error, match="prompt file /dev/zero holds more than 64 MiB"):
        read_text("/dev/zero", "prompt file")
