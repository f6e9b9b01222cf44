"""Reports on model files: what is in them, whether they fit, and that they are safe to print."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ds4tui import cli, inspect
from ds4tui.inspect import format_report, inspect_files, to_json
from engine.gguf_write import Typed, write_gguf
from tests.engine.random_pair import (
    DRAFTS_SOME,
    SMALL,
    TargetShape,
    write_drafter,
    write_pair,
    write_target,
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_pair(tmp_path_factory.mktemp("pair"), types="ds4")


def test_a_pair_that_fits(pair: tuple[Path, Path]) -> None:
    report = json.loads(to_json(inspect_files(pair)))
    assert (report["schema"], report["ok"]) == ("ds4tui.inspect/1", True)
    target, drafter = report["files"]
    assert (target["role"], drafter["role"]) == ("target", "drafter")
    assert target["architecture"] == "deepseek4"
    assert target["size"] == pair[0].stat().st_size
    assert target["sha256"] == hashlib.sha256(pair[0].read_bytes()).hexdigest()
    assert (target["config"]["layers"], target["config"]["ratios"]) == (4, [0, 0, 4, 128])
    assert "path" not in target["config"]
    (fit,) = report["pairs"]
    assert (fit["fits"], fit["reason"]) == (True, "")
    assert fit["config"]["target_layers"] == [1, 2, 3]


def test_sums_agree_with_the_tables(pair: tuple[Path, Path]) -> None:
    for entry in inspect_files(pair)["files"]:
        by_type = entry["quantisation"]
        assert {q["type"] for q in by_type} >= {"Q8_0", "F16", "F32"}
        assert sum(q["tensors"] for q in by_type) == len(entry["tensors"])
        assert sum(q["bytes"] for q in by_type) == sum(t["bytes"] for t in entry["tensors"])
        weights = sum(q["parameters"] for q in by_type if q["type"] != "I32")
        assert weights == entry["parameters"]
        assert [q["bytes"] for q in by_type] == sorted((q["bytes"] for q in by_type), reverse=True)


def test_long_arrays_are_shortened(pair: tuple[Path, Path]) -> None:
    (entry,) = inspect_files(pair[:1])["files"]
    metadata = {m["key"]: m for m in entry["metadata"]}
    tokens = metadata["tokenizer.ggml.tokens"]
    assert (tokens["length"], len(tokens["first"])) == (320, 8)
    assert metadata["deepseek4.block_count"] == {
        "key": "deepseek4.block_count",
        "kind": "u32",
        "value": 4,
    }


def test_text_says_what_the_data_says(pair: tuple[Path, Path]) -> None:
    text = format_report(inspect_files(pair))
    for part in (
        "deepseek4 (target), GGUF v3",
        "deepseek4-dspark (drafter)",
        "blk.2.indexer.proj.weight",
        "8 x 64 x 128",
        "8.50",
        f"Fits: {pair[1]} with {pair[0]}",
        "10 x 4",
        "<｜begin▁of▁sentence｜>, ",
    ):
        assert part in text


def test_a_draft_vocabulary(tmp_path: Path) -> None:
    report = inspect_files(write_pair(tmp_path, SMALL, DRAFTS_SOME))
    (fit,), text = report["pairs"], format_report(report)
    assert (fit["config"]["draft_vocabulary"], fit["vocab_size"]) == (97, 320)
    assert "  drafts from 97 of 320 tokens" in text.splitlines()
    (line,) = (line.split() for line in text.splitlines() if line.startswith("    d2t "))
    assert line == ["d2t", "I64", "97", "776"]
    without_ids = [
        q["parameters"] for q in report["files"][1]["quantisation"] if q["type"] != "I64"
    ]
    assert report["files"][1]["parameters"] == sum(without_ids)


def test_a_pair_that_does_not_fit_says_why(tmp_path: Path) -> None:
    target = write_target(tmp_path / "t.gguf")
    drafter = write_drafter(tmp_path / "d.gguf", TargetShape(vocab=400))
    report = inspect_files([drafter, target])
    (fit,) = report["pairs"]
    assert (report["ok"], fit["fits"]) == (False, False)
    for part in ("vocab_size", "400", "320", str(target), str(drafter)):
        assert part in fit["reason"]
    assert f"Does not fit: {drafter} with {target}\n  " in format_report(report)


def test_every_drafter_is_held_against_every_target(tmp_path: Path) -> None:
    other = TargetShape(vocab=400)
    targets = [
        write_target(tmp_path / "t1.gguf"),
        write_target(tmp_path / "t2.gguf", other),
    ]
    drafters = [
        write_drafter(tmp_path / "d1.gguf", dialect="dflash"),
        write_drafter(tmp_path / "d2.gguf", other),
    ]
    pairs = inspect_files([*drafters, *targets])["pairs"]
    assert [p["fits"] for p in pairs] == [True, False, False, True]


def test_a_target_as_its_own_drafter(pair: tuple[Path, Path], tmp_path: Path) -> None:
    for files, reason in (
        ((pair[0], pair[0]), "is the target itself"),
        ((pair[1], pair[1]), "is a drafter"),
        ((pair[0], write_target(tmp_path / "o.gguf", seed=3)), "is a target model"),
    ):
        report = inspect_files(files)
        assert not report["ok"]
        assert reason in report["pairs"][0]["reason"]


def test_one_file(pair: tuple[Path, Path]) -> None:
    for path in pair:
        report = inspect_files([path])
        assert (report["ok"], report["pairs"]) == (True, [])
    assert "give both files" in format_report(inspect_files(pair[1:]))


def test_other_and_broken_models_are_still_shown(tmp_path: Path) -> None:
    llama = write_gguf(tmp_path / "l.gguf", {"general.architecture": "llama", "x": 1.5}, [])
    broken = write_target(tmp_path / "b.gguf", without=["output.weight"])
    report = inspect_files([llama, broken])
    assert not report["ok"]
    first, second = report["files"]
    assert (first["role"], second["role"]) == ("other", "target")
    assert "'llama'" in first["problem"]
    assert "output.weight" in second["problem"]
    text = format_report(report)
    assert "blk.0.attn_q_a.weight" in text
    assert "output.weight" in text


def test_a_file_that_does_not_open_is_an_entry_with_its_problem(
    tmp_path: Path, pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    no_model = tmp_path / "text.gguf"
    no_model.write_text("no model")
    files = [str(no_model), str(pair[0]), str(tmp_path / "none.gguf")]
    assert cli.main(["inspect", *files, "--json", "-"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["pairs"]) == (False, [])
    assert [entry["path"] for entry in report["files"]] == files
    roles = [entry["role"] for entry in report["files"]]
    assert roles == ["unreadable", "target", "unreadable"]
    assert "does not exist" in report["files"][2]["problem"]
    assert cli.main(["inspect", *files]) == 2
    text = capsys.readouterr().out
    for entry in report["files"][::2]:
        assert f"{entry['path']}\n  problem     {entry['problem']}" in text
    assert "deepseek4 (target), GGUF v3" in text


def test_untrusted_text_is_shown_as_glyphs(tmp_path: Path) -> None:
    evil = "\x1b[2J\u202e\x9b31m\x7f\r\n[bold]"
    metadata = {
        "general.architecture": evil,
        "general.name": evil,
        evil: Typed("string", [evil] * 3),
        "odd": "\udcff",
        "nan": float("nan"),
    }
    name = evil.replace("\n", "") if os.name == "posix" else "evil"
    path = write_gguf(tmp_path / f"{name}.gguf", metadata, [])
    report = inspect_files([path, write_target(tmp_path / "t.gguf")])
    text, data = format_report(report), to_json(report)
    for forbidden in ("\x1b", "\u202e", "\x9b", "\x7f", "\r"):
        assert forbidden not in text
        assert forbidden not in data
    assert "␛[2J<U+202E><U+009B>31m␡␍␊[bold]" in text
    assert "<0xFF>" in text
    parsed = json.loads(data, parse_constant=pytest.fail)
    assert parsed["files"][0]["name"] == evil


def test_huge_files_are_not_hashed(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspect, "HASHED_BYTES", 10)
    report = inspect_files(pair[:1])
    assert report["files"][0]["sha256"] is None
    assert "not computed" in format_report(report)


def test_neither_torch_nor_gguf_is_imported(pair: tuple[Path, Path]) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom ds4tui.inspect import *\n"
        "print(len(format_report(inspect_files(map(Path, sys.argv[1:])))))\n"
        "assert not {'torch', 'numba', 'gguf', 'textual', 'tokenizers'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *map(str, pair)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert int(done.stdout) > 1000
