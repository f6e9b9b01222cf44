"""Where headless commands write: whole files, links, pipes and devices, disks that are full."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from ds4tui import cli
from ds4tui.output import check_outputs, check_writable, write_output
from engine.errors import Ds4Error
from tests.engine.random_pair import write_pair

posix = pytest.mark.skipif(os.name != "posix", reason="needs pipes, links and devices")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    for text in ("a longer first text\n", "é\n"):
        check_writable(str(path))
        write_output(str(path), text)
        assert path.read_bytes() == text.encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")

    def full(self: Path, text: str, **more: object) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(Ds4Error, match=r"out\.json: No space left on device"):
        write_output(str(path), "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@posix
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(target)
    for text in ("first", "second"):
        write_output(str(link), text)
        assert link.is_symlink()
        assert target.read_text() == text


@posix
def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """As a shell's `>(command)` gives one, and as /dev/stdout may be."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    check_writable(str(pipe))
    write_output(str(pipe), "through")
    reader.join()
    assert read == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@posix
def test_a_device_is_written_to_and_stays() -> None:
    # A descriptor's path, so that a mistake cannot replace a device of this machine.
    with open(os.devnull, "w") as device:
        path = f"/dev/fd/{device.fileno()}"
        check_writable(path)
        write_output(path, "nothing")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("", "is a folder"), ("none/out.json", "lies in a folder that does not exist")],
)
def test_what_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, name: str, problem: str
) -> None:
    with pytest.raises(Ds4Error, match=problem):
        check_writable(str(tmp_path / name))


def test_a_model_file_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, drafter = map(str, write_pair(tmp_path))
    before = Path(target).read_bytes()
    with pytest.raises(Ds4Error, match=r"target\.gguf is a model file"):
        check_writable(target)
    assert cli.main(["inspect", "--json", target, drafter]) == 2
    assert "is a model file" in capsys.readouterr().err
    assert Path(target).read_bytes() == before


@pytest.mark.parametrize("result", ["--json", "--report", "--trace"])
@pytest.mark.parametrize(
    ("command", "given"),
    [
        ("ab", "--prompt-file"),
        ("ab", "--prompts"),
        ("ab", "--against"),
        ("matrix", "--prompt-file"),
        ("matrix", "--prompts"),
    ],
)
def test_a_text_that_the_command_reads_is_not_replaced(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    result: str,
    command: str,
    given: str,
) -> None:
    path = tmp_path / "text"
    path.write_text("[5, 6]" if given == "--against" else "a prompt")
    before = path.read_text()
    assert cli.main([command, given, str(path), result, f"{tmp_path}/./text"]) == 2
    assert "text is read by this command" in capsys.readouterr().err
    assert path.read_text() == before


def test_no_name_is_no_file() -> None:
    with pytest.raises(Ds4Error, match="An empty name is no file"):
        check_writable("")


@pytest.mark.parametrize(("left", "right"), [("a.json", "a.json"), ("a.json", "./x/../a.json")])
def test_two_results_in_one_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, right: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    with pytest.raises(Ds4Error, match="--json and --trace both name"):
        check_outputs({"--json": left, "--report": None, "--trace": right})
    check_outputs({"--json": left, "--report": "-", "--trace": None})


def test_two_results_on_standard_output_are_refused() -> None:
    with pytest.raises(Ds4Error, match="--json and --report both name -"):
        check_outputs({"--json": "-", "--report": "-"})
    check_outputs({"--json": os.devnull, "--report": os.devnull})
