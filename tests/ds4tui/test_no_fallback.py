"""A model file that cannot be used ends every command with its sentence: no other steps in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ds4tui import cli
from tests.engine.random_pair import SMALL, TargetShape, write_drafter, write_target

Made = tuple[Path, Path, tuple[str, ...]]
"""Target, drafter, what the sentence names."""


def missing_tensors(folder: Path) -> Made:
    gone = ("output.weight", "blk.1.attn_q_a.weight")
    target = write_target(folder / "t.gguf", SMALL, without=gone)
    return target, write_drafter(folder / "d.gguf", SMALL), (*gone, "'deepseek4'")


def missing_heads(folder: Path) -> Made:
    gone = ("mtp.1.markov_head.markov_w1.weight",)
    target = write_target(folder / "t.gguf", SMALL)
    return target, write_drafter(folder / "d.gguf", SMALL, without=gone), gone


def web_page(folder: Path) -> Made:
    target = folder / "t.gguf"
    target.write_text("<!DOCTYPE html><title>404</title>")
    return target, write_drafter(folder / "d.gguf", SMALL), ("this is a web page",)


def cut_short(folder: Path) -> Made:
    target = write_target(folder / "t.gguf", SMALL)
    target.write_bytes(target.read_bytes()[:-100])
    return target, write_drafter(folder / "d.gguf", SMALL), ("cut short inside tensor",)


def another_vocabulary(folder: Path) -> Made:
    target = write_target(folder / "t.gguf", SMALL)
    drafter = write_drafter(folder / "d.gguf", TargetShape(vocab=400))
    return target, drafter, (str(target), "does not fit", "400", "320")


def the_target_twice(folder: Path) -> Made:
    target = write_target(folder / "t.gguf", SMALL)
    return target, target, ("is the target itself",)


def no_such_file(folder: Path) -> Made:
    return folder / "none.gguf", write_drafter(folder / "d.gguf", SMALL), ("none.gguf", "not exist")


@pytest.mark.parametrize(
    "make",
    [
        missing_tensors,
        missing_heads,
        web_page,
        cut_short,
        another_vocabulary,
        the_target_twice,
        no_such_file,
    ],
)
@pytest.mark.parametrize(
    "command", [("ab", "-p", "x"), ("matrix", "-p", "x"), ("bench",), ("export",)]
)
def test_every_command_refuses_what_it_cannot_use(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], Made],
    command: tuple[str, ...],
) -> None:
    target, drafter, parts = make(tmp_path)
    out = ("--out", str(tmp_path / "out")) if command == ("export",) else ()
    code = cli.main([*command, *out, "-m", str(target), "--mtp", str(drafter)])
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.startswith("ds4tui: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    for part in parts:
        assert part in captured.err
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
