"""Exit code 1 is a divergence and nothing else: a full disk and a bug of ours are 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from ds4tui import cli

FULL = Path("/dev/full")


def run(*words: str, **where: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "ds4tui", *words],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
        **where,  # type: ignore[call-overload]
    )


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [("--help",), ("config", "show"), ("inspect", "--json", "-")])
def test_standard_output_on_a_full_disk(tmp_path: Path, words: tuple[str, ...]) -> None:
    from tests.engine.random_pair import SMALL, write_target

    files = [str(write_target(tmp_path / "t.gguf", SMALL))] if words[0] == "inspect" else []
    with FULL.open("w") as full:
        done = run(*words, *files, stdout=full)
    assert done.returncode == 2
    assert done.stderr == b"ds4tui: Output cannot be written: No space left on device.\n"


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes a descriptor")
def test_no_standard_output_at_all() -> None:
    command = f'"{sys.executable}" -m ds4tui config path >&-'
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes a descriptor")
def test_no_error_output_at_all(tmp_path: Path) -> None:
    """What would be said there, progress or a sentence, is for nobody, and goes nowhere else."""
    from tests.engine.random_pair import SMALL, write_target

    target = write_target(tmp_path / "t.gguf", SMALL)
    command = f'"{sys.executable}" -m ds4tui export --out "{tmp_path}" -m "{target}" 2>&-'
    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, check=False)
    assert done.returncode == 0
    again = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, check=False)
    assert (again.returncode, again.stdout) == (2, b"")


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes a descriptor")
def test_json_for_a_closed_standard_output_is_refused() -> None:
    command = f'"{sys.executable}" -m ds4tui ab --json - >&-'
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr == b"ds4tui: Standard output is closed. Give a file.\n"


@pytest.mark.skipif(os.name != "posix", reason="needs a pipe that breaks")
def test_a_reader_that_leaves_a_table_is_no_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    def table(words: object) -> int:
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "w", closefd=False) as file:
            Console(file=file).print("a table")
        return 0

    # What rich does to our standard output must not be done to the tests' own.
    monkeypatch.setattr(os, "dup2", lambda *descriptors: None)
    monkeypatch.setitem(cli._MAIN, "ab", table)
    assert cli.main(["ab", "-p", "x"]) == 2


def test_a_bug_of_ours_is_no_divergence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(words: object) -> int:
        raise RuntimeError("something impossible")

    monkeypatch.setitem(cli._MAIN, "ab", broken)
    assert cli.main(["ab", "-p", "x"]) == 2
    assert "RuntimeError: something impossible" in capsys.readouterr().err


INTERRUPTED = {
    "while a command works": """
        from ds4tui import cli
        def work(words):
            print("what was printed before")
            press()
        cli._MAIN["ab"] = work
    """,
    "while a model is loaded": """
        from ds4tui import cli, interrupts
        def work(words):
            with interrupts.ending_at_once(lambda: print("what was printed before")):
                callback = ctypes.CFUNCTYPE(None)(press)
                callback()
        cli._MAIN["ab"] = work
    """,
    "while there is something to keep": """
        from ds4tui import cli, interrupts
        def work(words):
            try:
                with interrupts.raised():
                    press()
            finally:
                print("what was printed before")
        cli._MAIN["ab"] = work
    """,
    "while the command line is imported": """
        class Importing(types.ModuleType):
            def __getattr__(self, name):
                raise KeyboardInterrupt
        sys.modules["ds4tui.cli"] = Importing("ds4tui.cli")
    """,
    "in a finaliser, which cannot raise": """
        from ds4tui import cli
        class Held:
            def __del__(self):
                raise KeyboardInterrupt
        def work(words):
            del held[:]
            for _ in range(3000):
                time.sleep(0.01)
        held = [Held()]
        cli._MAIN["ab"] = work
    """,
    "again while it is answered": """
        from ds4tui import cli, interrupts
        def work(words):
            plain = os.write
            def write(file, data):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)
                return plain(file, data)
            os.write = write
            with interrupts.raised():
                press()
        cli._MAIN["ab"] = work
    """,
}


@pytest.mark.parametrize("when", INTERRUPTED)
def test_a_key_that_interrupts_is_told_from_all_of_them(when: str) -> None:
    program = f"""
        import ctypes, os, signal, sys, time, types
        # As at a terminal; tests that run in a shell's background are born deaf to it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def press():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        {INTERRUPTED[when]}
        from ds4tui.__main__ import main
        sys.argv = ["ds4tui", "ab"]
        sys.exit(main())
    """
    lines = [line[8:] for line in program.splitlines()]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "ds4tui: interrupted\n")
    says = "printed before" in INTERRUPTED[when]
    assert done.stdout == ("what was printed before\n" if says else "")
