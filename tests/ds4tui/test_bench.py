"""`ds4tui bench`: its document and table from given measurements, its mistakes, one short run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ds4tui import bench_command, cli
from engine import costs
from engine.events import CostKind, CostMeasured, EngineReady, FileInfo
from tests.engine.random_pair import SMALL, DrafterShape, write_pair

MS = 1_000_000
COPIED = 1 << 16


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "COPIED_BYTES", COPIED)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, ...]:
    target, drafter = write_pair(tmp_path, SMALL, DrafterShape(block_size=2))
    return ("-m", str(target), "--mtp", str(drafter))


def parsed(*words: str) -> bench_command.BenchOptions:
    return bench_command.bench_options(cli._bench_parser().parse_args(words))


def cost(kind: CostKind, rows: int, ms: float, best: float = 0) -> CostMeasured:
    low, median, high = (round(ms * MS * part) for part in (0.9, 1, 1.2))
    return CostMeasured("", -1, 0, kind, rows, median, low, high, 7, 100, round((best or ms) * MS))


def document(pair: tuple[str, ...], commit: str = "direct") -> dict[str, Any]:
    found = [
        cost("decode", 1, 2, best=1),
        cost("verify", 2, 3),
        cost("verify", 3, 4, best=2),
        cost("draft", 0, 0.5),
        cost("draft", 2, 1, best=0.5),
        cost("carry", 1, 0.2),
        cost("commit", 2, 0.5, best=0.25),
        cost("prefill", 100, 50),
        cost("copy", COPIED, 20),
    ]
    file = FileInfo("target", "t.gguf", "ab", 1, "deepseek4", "evil \x1b[2J", 5, (("F32", 1, 4),))
    ready = EngineReady("", -1, 0, (file,), 2, 0.9, 0, 1024, 1)
    return bench_command.bench_document(
        parsed(*pair, "--depths", "100", "--commit", commit), ready, found
    )


def test_ratios_floor_and_break_even(pair: tuple[str, ...]) -> None:
    whole = document(pair)
    assert whole["schema"] == "ds4tui.bench/1"
    (depth,) = whole["depths"]
    assert depth["prefill"]["tokens_per_s"] == 2000
    steps = {(step["kind"], step["rows"]): step for step in depth["steps"]}
    assert ("copy", COPIED) not in steps
    assert ("prefill", 100) not in steps
    assert steps["verify", 3]["in_decodes"] == 2
    assert steps["verify", 3]["best_in_decodes"] == 2
    assert steps["draft", 2]["low_ms"] == pytest.approx(0.9)
    assert depth["break_even"] == [
        {"proposed": 1, "depth": 2.25, "best": 3.75},
        {"proposed": 2, "depth": 2.75, "best": 2.75},
    ]
    floor = depth["floor"]
    assert floor["bytes_per_token"] == floor["weights"] + floor["rows"]
    assert floor["bytes_per_s"] == pytest.approx(2 * (COPIED) / 0.02)
    assert floor["floor_ms"] == pytest.approx(floor["bytes_per_token"] / floor["bytes_per_s"] * 1e3)
    assert floor["decode_over_floor"] == pytest.approx(2 / floor["floor_ms"])
    json.dumps(whole, allow_nan=False)


def printed(whole: dict[str, Any]) -> str:
    console = Console(width=100, record=True, markup=False, highlight=False, quiet=True)
    with console.capture() as capture:
        console.quiet = False
        bench_command.print_document(console, whole)
    return capture.get()


def test_the_table_says_all_of_it(pair: tuple[str, ...]) -> None:
    text = printed(document(pair))
    assert "\x1b[2J" not in text
    for words in (
        "numerics split, commit direct",
        "after 100 tokens",
        "prefill of 100",
        "first confidence",
        "verify 2 rows",
        "verify 3 rows",
        "1.800 - 2.400",
        "prefill 2000 tokens/s",
        "of medians: 1: 2.25, 2: 2.75",
        "floor: a decode reads",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("commit", "words"),
    [
        ("direct", "of cycles whose drafts are all accepted: direct decodes"),
        ("prefix", "break-even depth by drafts proposed, of best times: 1: 3.75, 2: 2.75"),
        ("reproject", "break-even depth by drafts proposed, of medians: 1: 2.25, 2: 2.75"),
        ("replay", "break-even depth: none, replay decodes every token again"),
        ("strict", "none, strict drafts nothing; a token costs 1.10 decodes, 0.10 of them to"),
    ],
)
def test_what_pays_is_told_by_policy(pair: tuple[str, ...], commit: str, words: str) -> None:
    whole = document(pair, commit)
    text = printed(whole)
    assert words in text
    assert bool(whole["depths"][0]["break_even"]) == ("by drafts proposed" in text)
    assert ("all accepted" in text) == (commit == "direct")


def test_a_short_run_writes_its_document(
    pair: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--depths", "12,30", "--repeat", "1", "--json", str(tmp_path / "bench.json"))
    assert cli.main(["bench", *pair, "--numerics", "invariant", "--commit", "prefix", *words]) == 0
    assert "after 30 tokens" in capsys.readouterr().out
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [depth["position"] for depth in found["depths"]] == [12, 30]
    assert found["settings"]["numerics"] == "invariant"
    assert found["drafter"]["architecture"] == "deepseek4-dspark"


def test_json_on_standard_output_is_nothing_else(
    pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--depths", "5", "--repeat", "1", "--json", "-")
    assert cli.main(["bench", *pair[:2], *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["drafter"] is None
    assert found["settings"]["commit"] is None
    assert found["depths"][0]["break_even"] == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--depths", "512,x"), '--depths is "x"; expected a whole number'),
        (("--depths", ""), '--depths is ""; expected a whole number'),
        (("--depths", "0"), "--depths has 0"),
        (("--repeat", "0"), "--repeat is 0"),
        (("--numerics", "fast"), '--numerics names "fast"'),
        (("--commit", "hope"), '--commit names "hope"; expected some of direct'),
        (("--json", "no/such/dir/x.json"), "does not exist"),
        (("--depths", "1023"), "holds 1024. Give smaller --depths: the target was made for at"),
        (
            ("--depths", "99", "--ctx", "100"),
            "holds 100. Give smaller --depths, or give --ctx 102 or more, up to 1024.",
        ),
        (("-p", "x"), "Unrecognized arguments"),
    ],
)
def test_a_mistake_is_one_sentence(
    pair: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    sentence: str,
) -> None:
    assert cli.main(["bench", *pair, *words]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") <= 2


def test_a_policy_needs_a_drafter(
    pair: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *pair[:2], "--commit", "prefix"]) == 2
    assert "--commit prefix was given without a drafter" in capsys.readouterr().err
