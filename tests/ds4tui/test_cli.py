"""The command line: sentences and exit code 2 for mistakes, aliases, start-up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ds4tui import __version__, ab_command, cli, options
from ds4tui.config import load_config
from ds4tui.output import Progress
from ds4tui.recorded import read_recorded
from engine.errors import Ds4Error
from engine.paths import OP_CLASSES, Perturb
from engine.settings import Knobs, Recorded

FILES = ("-m", "target.gguf", "--mtp", "drafter.gguf")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence of a command line that is refused."""
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("ds4tui: ")
    assert captured.err.count("\n") == 1, "one line"
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--temp", "-1"), "--temp is -1; only 0 is possible"),
        (("--temp", "nan"), 'is "nan"; expected a finite number'),
        (("--temp", "abc"), 'is "abc"; expected a number'),
        (("-n", "many"), 'is "many"; expected a whole number'),
        (("-n", "1_0"), 'is "1_0"; expected a whole number'),
        (("--near-tie", "1_0"), 'is "1_0"; expected a number'),
        (("-n", "0"), "-n is 0; expected 1 to 2147483647"),
        (("-n", "-3"), "-n is -3; expected 1 to 2147483647 tokens"),
        (("--commit", "fast"), "one of direct, prefix, reproject, replay, strict"),
        (("--numerics", "exact"), "split or invariant"),
        (("--batch-ops", "router,foo"), '"foo"; expected some of hc'),
        (("--batch-ops", ""), "expected some of hc"),
        (("--pin", "head"), "some of router, indexer"),
        (("--perturb", "head"), "CLASS:ULPS"),
        (("--dspark-confidence", "2"), "a number from 0 (no gate) to 1"),
        (("--draft-max", "0"), "1 or more"),
        (("--threads", "0"), "--threads is 0"),
        (("--ctx", "-5"), "--ctx is -5"),
        (("--device", "tpu"), "some of cpu, cuda"),
        (("--kv-rounding", "fp4"), "some of fp8, none"),
        (("--cuda", "--device", "cpu"), "exclude each other"),
        (("--dspark-strict", "--commit", "replay"), "exclude each other"),
        (("--numerics", "invariant", "--batch-ops", "head"), "no batch path to restrict"),
        (("--numerics", "invariant", "--pin", "router"), "choose as plain does unless --perturb"),
        (("--no-chat", "--think"), "exclude each other"),
        (("--prompt-file", "no-such-file.txt"), "no-such-file.txt does not exist"),
        (("-p", ""), "-p is empty"),
        (("-p", "x", "--prompt-file", "y"), "exclude each other"),
        (("--bogus",), "Unrecognized arguments: --bogus"),
        (("-p",), "expected one argument"),
    ],
)
def test_a_mistake_is_one_sentence(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    prompt = () if "-p" in words or "--prompt-file" in words else ("-p", "x")
    assert sentence in refused(capsys, "ab", *FILES, *prompt, *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("frobnicate",),
            '"frobnicate" is no command; expected run, ab, matrix, bench, inspect, replay',
        ),
        (("--mtp", "d.gguf"), "--mtp was given without -m"),
        (("-m", "t.gguf", "--commit", "replay"), "--commit replay was given without a drafter"),
        (("-m", "t.gguf", "--dspark-confidence", "0"), "--dspark-confidence 0 was given without"),
        ((*FILES, "--commit", "direct", "--commit", "replay"), "more than once"),
        (("ab", "-m", "t.gguf", "-p", "x"), "nothing to compare plain with"),
        (("ab", *FILES), "ab was given no prompt"),
        ((*FILES, "-n", "0"), "-n is 0; expected 1 to 2147483647"),
        (("matrix", *FILES, "-p", "x", "-n", "0"), "-n is 0; expected 1 to 2147483647"),
        (("ab", *FILES, "-p", "x", "--repeat", "0"), "--repeat is 0"),
        (("ab", *FILES, "-p", "x", "--json", "no/such/dir/x.json"), "does not exist"),
        (("ab", *FILES, "-p", "x", "--against", "none.json"), "none.json does not exist"),
        (("ab", *FILES, "-p", "x", "--arm", "speed=1"), "KEY=VALUE"),
        (("ab", *FILES, "-p", "x", "--prompts", "set.txt"), "exclude each other"),
        (
            ("ab", *FILES, "--dspark-confidence", "0", "--dspark-confidence", "0.9"),
            "given twice, 0 and 0.9; only ds4tui matrix takes several",
        ),
        (("--dspark-confidence", "0", "--dspark-confidence", "0"), "given twice"),
        (("ab", "-m", "t.gguf", "--mtp", "", "-p", "x"), "--mtp is empty; expected a file's name"),
        (("ab", "-m", "", "-p", "x"), "-m is empty; expected a file's name"),
        (("ab", *FILES, "-p", "x", "--arm", "mtp="), "--arm mtp is empty; expected a drafter's"),
        (("ab", *FILES, "-p", "x", "--json", "same", "--report", "same"), "both name same"),
        (("matrix", *FILES, "-p", "x", "--json", "-", "--report", "-"), "both name -"),
        (("ab", *FILES, "-p", "x", "--trace", "-"), "cannot go to standard output"),
        (("ab", *FILES, "--prompts", "none.txt"), "none.txt does not exist"),
        (("export", "-m", "none.gguf", "--out", "x"), "none.gguf"),
        (("replay",), "required: TRACE"),
        (("config", "reset"), "invalid choice"),
    ],
)
def test_a_command_that_cannot_be_is_one_sentence(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert sentence in refused(capsys, *words)


def test_a_missing_model_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert "target.gguf" in refused(capsys, "ab", *FILES, "-p", "x")


def test_without_a_terminal_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = refused(capsys, *FILES, "-p", "x")
    assert "needs a terminal" in sentence
    assert "ds4tui ab" in sentence


def test_a_dumb_terminal_is_told_instead_of_drawn_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert "calls itself dumb" in refused(capsys, *FILES, "-p", "x")
    progress = Progress()
    progress.show("prefill 1/2", now=True)
    progress.clear()
    assert capsys.readouterr().err == ""


def test_control_characters_of_arguments_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "\x1b" not in refused(capsys, "\x1b[2J")
    assert "\x1b" not in refused(capsys, "ab", "-m", "\x1b[2J.gguf", "-p", "x")


def parsed(*words: str) -> ab_command.AbOptions:
    return ab_command.ab_options(cli._ab_parser().parse_args([*FILES, "-p", "x", *words]))


def test_defaults_are_those_of_the_seed() -> None:
    found = parsed()
    assert found.settings.dspark == (Knobs("direct"),)
    assert found.settings.numerics == "split"
    assert found.settings.max_tokens == 400
    assert found.settings.batch_ops == OP_CLASSES
    assert (found.files.kv_rounding, found.files.threads, found.files.context) == ("fp8", 1, None)


def test_the_seeds_command_lines_paste() -> None:
    found = parsed("--dspark", "--dspark-strict", "--temp", "0", "-n", "256")
    assert found.settings.dspark == (Knobs("strict"),)
    assert parsed("--dspark", "--dspark-confidence", "0.9", "--cuda").files.device == "cuda"


def test_arms_come_in_the_order_of_the_command_line() -> None:
    found = parsed(
        "--commit", "direct", "--commit", "replay", "--dspark-confidence", "0.5",
        "--arm", "commit=prefix,draft-max=2", "--arm", "mtp=other.gguf,confidence=0",
    )  # fmt: skip
    assert found.settings.dspark == (
        Knobs("direct", 0.5, None, "drafter.gguf"),
        Knobs("replay", 0.5, None, "drafter.gguf"),
        Knobs("prefix", 0.5, 2, "drafter.gguf"),
        Knobs("direct", 0.0, None, "other.gguf"),
    )
    assert found.files.mtp == ("drafter.gguf", "other.gguf")


def test_arms_may_bring_the_only_drafter() -> None:
    words = ["-m", "t.gguf", "-p", "x", "--arm", "mtp=d.gguf"]
    found = ab_command.ab_options(cli._ab_parser().parse_args(words))
    assert found.files.mtp == ("d.gguf",)


def test_only_drafters_that_an_arm_uses_are_loaded_and_the_first_arms_is_the_default() -> None:
    assert parsed("--arm", "mtp=other.gguf").files.mtp == ("other.gguf",)
    found = parsed("--arm", "mtp=other.gguf", "--arm", "commit=prefix")
    assert found.files.mtp == ("other.gguf", "drafter.gguf")
    assert [knobs.mtp for knobs in found.settings.dspark] == ["other.gguf", "drafter.gguf"]


def test_diagnosis_options() -> None:
    found = parsed(
        "--batch-ops", "indexer,compressor", "--pin", "indexer", "--perturb", "head:4",
        "--seed", "7", "--digests", "0", "--near-tie", "16", "--no-markov", "--no-repeat", "0",
    ).settings  # fmt: skip
    assert found.batch_ops == ("compressor", "indexer")
    assert found.pin == ("indexer",)
    assert found.perturb == Perturb("head", 4, 7)
    assert (found.digest_every, found.near_tie_ulps) == (0, 16)
    assert (found.markov, found.no_repeat) == (False, 0)


def test_prompts_of_a_set(tmp_path: Path) -> None:
    path = tmp_path / "set.txt"
    lines = ["plain text", "", '{"text": "{x}", "chat": false, "id": "a", "category": "c"}']
    path.write_text("\n".join(lines))
    args = cli._ab_parser().parse_args(["--prompts", str(path), "--system", "be brief"])
    first, second = options.read_prompts(args)
    assert (first.prompt.text, first.prompt.chat, first.id) == ("plain text", True, "1")
    assert first.prompt.system == "be brief"
    assert (second.prompt.text, second.prompt.chat) == ("{x}", False)
    assert (second.id, second.category) == ("a", "c")


def test_a_signature_at_the_start_of_a_text_file_is_none_of_its_text(tmp_path: Path) -> None:
    path = tmp_path / "signed"
    path.write_text("What is TCP?\n", encoding="utf-8-sig")
    prompt = options.prompt_of(cli._ab_parser().parse_args(["--prompt-file", str(path)]))
    assert prompt is not None
    assert prompt.text == "What is TCP?"
    path.write_text('{"text": "What is TCP?"}\n', encoding="utf-8-sig")
    (entry,) = options.read_prompts(cli._ab_parser().parse_args(["--prompts", str(path)]))
    assert entry.prompt.text == "What is TCP?"
    path.write_text('{"prompt": [7], "ids": [5, 6]}', encoding="utf-8-sig")
    assert read_recorded(str(path)) == Recorded("signed", (5, 6), (7,))
    path.write_text("fps = 12\n", encoding="utf-8-sig")
    assert load_config(str(path)).fps == 12


def test_a_set_that_comes_with_the_program_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = cli._ab_parser().parse_args(["--prompts", "set20", "--no-chat"])
    entries = options.read_prompts(args)
    assert len(entries) == 20
    assert len({entry.category for entry in entries}) == 5
    assert not any(entry.prompt.chat for entry in entries)
    assert len(options.read_prompts(cli._ab_parser().parse_args([]))) == 10
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set20").write_text("my own")
    assert [entry.prompt.text for entry in options.read_prompts(args)] == ["my own"]


def test_run_takes_several_arms_and_their_drafters() -> None:
    words = ["-m", "t.gguf", "--mtp", "d.gguf", "--arm", "commit=prefix", "--arm", "mtp=e.gguf"]
    found = options.run_options(cli._run_parser().parse_args(words))
    assert [(knobs.commit, knobs.mtp) for knobs in found.settings.dspark] == [
        ("prefix", "d.gguf"),
        ("direct", "e.gguf"),
    ]
    assert found.files.mtp == ("d.gguf", "e.gguf")


def test_recorded_ids_are_of_one_prompt(tmp_path: Path) -> None:
    recorded, path = tmp_path / "ids.json", tmp_path / "set.txt"
    recorded.write_text("[5, 6]")
    words = ["--prompts", str(path), "--against", str(recorded)]
    path.write_text("one\n")
    assert len(ab_command.ab_options(cli._ab_parser().parse_args(words)).prompts) == 1
    path.write_text("one\ntwo\n")
    with pytest.raises(Ds4Error, match=r"holds the ids of one prompt, and --prompts has 2"):
        ab_command.ab_options(cli._ab_parser().parse_args(words))


def test_a_damaged_set_names_its_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "set.txt"
    path.write_text('fine\n{"chat": true}\n')
    args = cli._ab_parser().parse_args(["--prompts", str(path)])
    with pytest.raises(Ds4Error, match=r'set\.txt line 2 has no "text"'):
        options.read_prompts(args)


def test_a_prompt_file_may_hold_any_text(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_text("two\nlines\n", encoding="utf-8")
    args = cli._ab_parser().parse_args(["--prompt-file", str(path)])
    prompt = options.prompt_of(args)
    assert prompt is not None
    assert prompt.text == "two\nlines"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(Ds4Error, match="no UTF-8 text"):
        options.prompt_of(args)


@pytest.mark.parametrize("data", ["{}", "[1, true]", '{"ids": "x"}', "3", "[1.5]", '{"arms": []}'])
def test_a_file_without_ids_is_refused(tmp_path: Path, data: str) -> None:
    path = tmp_path / "ids.json"
    path.write_text(data)
    with pytest.raises(Ds4Error, match="holds no token ids"):
        read_recorded(str(path))
    path.write_text("{")
    with pytest.raises(Ds4Error, match="is no JSON"):
        read_recorded(str(path))


def test_help_and_version_answer_without_heavy_imports() -> None:
    program = (
        "import sys\nfrom ds4tui.cli import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "heavy = {'torch', 'numba', 'textual', 'rich', 'numpy', 'gguf'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    for word in ("--help", "--version"):
        for command in ([], ["ab"]):
            if word == "--version" and command:
                continue
            done = subprocess.run(
                [sys.executable, "-c", program, *command, word],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert (__version__ in done.stdout) == (word == "--version")


def test_the_module_runs_and_reads_no_input() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ds4tui", "--bogus"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "ds4tui: Unrecognized arguments: --bogus. See ds4tui --help.\n"


def test_a_terminal_without_our_glyphs_and_a_reader_that_leaves() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "ds4tui", "--≠"], capture_output=True, env=environment, check=False
    )
    assert done.returncode == 2
    assert b"arguments: --\\u2260" in done.stderr
    program = "import sys; from ds4tui.cli import main; sys.exit(main(['config', 'show']))"
    gone = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert gone.stdout is not None
    assert gone.stderr is not None
    gone.stdout.close()
    assert b"Traceback" not in gone.stderr.read()
    gone.wait()
    gone.stderr.close()


def test_config_path_and_show(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.toml"
    path.write_text('theme = "light"\n[keys]\nrun = "R"\n')
    assert cli.main(["config", "path", "--config", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    monkeypatch.setenv("DS4TUI_CONFIG", str(path))
    assert cli.main(["config", "show"]) == 0
    shown = capsys.readouterr().out
    assert 'theme = "light"' in shown
    assert 'run = "R"' in shown
    path.write_text('[keys]\nrum = "R"\n')
    assert 'binds "rum", which is no action' in refused(capsys, "config", "show")


def test_export_says_what_it_wrote(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from tests.engine.random_pair import SMALL, write_pair

    target, drafter = write_pair(tmp_path, SMALL, types="F16")
    words = ["export", "-m", str(target), "--mtp", str(drafter), "--out", str(tmp_path / "out")]
    assert cli.main(words) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert len(list((tmp_path / "out").iterdir())) == 2
    assert cli.main(words) == 2, "nothing is overwritten unasked"
    assert cli.main([*words, "--overwrite", "--f32"]) == 0


def test_export_says_that_llama_cpp_does_not_read_a_draft_vocabulary(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from tests.engine.random_pair import DRAFTS_SOME, SMALL, write_pair

    target, drafter = write_pair(tmp_path, SMALL, DRAFTS_SOME, "F16")
    out = str(tmp_path / "out")
    assert cli.main(["export", "-m", str(target), "--mtp", str(drafter), "--out", out]) == 0
    assert "draft vocabulary (d2t), which llama.cpp's" in capsys.readouterr().out


def test_inspect_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from tests.engine.random_pair import SMALL, write_pair

    target, drafter = write_pair(tmp_path, SMALL, types="F16")
    assert cli.main(["inspect", str(target), str(drafter), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert cli.main(["inspect", str(target), str(target)]) == 2
