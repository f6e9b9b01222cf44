"""`ds4tui matrix`: cells, what must be identical, exit codes, on scripted engines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ds4tui import cli, matrix_command
from engine import commit, decode
from engine.events import RunFinished, RunStarted, SuiteFinished, SuiteStarted
from engine.session import Engine
from engine.settings import Knobs, Prompt, Settings
from engine.suite import MatrixRequest, SuitePrompt, matrix_arms
from engine.trace import read_trace
from engine.verdict import must_be_identical
from tests.engine.races import engine
from tests.engine.scripted import (
    ScriptedDrafter,
    ScriptedModel,
    continuation,
    path_script,
    random_script,
    spoiled,
)

FILES = ["-m", "scripted.gguf", "--mtp", "drafter.gguf"]
IDS = [2 + i * 7 % 29 for i in range(900)]


def noisy() -> Engine:
    """`split` parts on some prompts, `invariant` and `replay` on none."""
    script = random_script(12)
    return engine(ScriptedModel(script, noise=0.5), ScriptedDrafter(continuation(script)))


def calm() -> Engine:
    script = path_script(IDS, 13)
    return engine(
        ScriptedModel(script), ScriptedDrafter(spoiled(continuation(script), lambda t: len(t) % 6))
    )


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """The engine that `matrix` will get: its last entry."""
    engines: list[Engine] = []
    monkeypatch.setattr(matrix_command, "load_engine", lambda files, report: engines[-1])
    return engines


def matrix(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    prompts, out = tmp_path / "prompts.txt", tmp_path / "out.json"
    prompts.write_text('abcdefghij\nanother one\n{"id": "third", "text": "xyz"}\n')
    given = ["--prompts", str(prompts), "--json", str(out), "--ignore-eos", *words]
    code = cli.main(["matrix", *FILES, *given])
    return code, json.loads(out.read_text()) if out.exists() else {}


def test_what_the_runs_say_is_told_once(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded.append(calm())
    _, found = matrix(
        tmp_path, "-n", "20", "--commit", "strict", "--report", str(tmp_path / "m.md")
    )
    (notice,) = found["notices"]
    assert notice.startswith("Policy strict drafts nothing")
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count(notice) == (tmp_path / "m.md").read_text().count(notice) == 1


def test_every_cell_is_there_and_those_that_must_be_identical_are(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded.append(noisy())
    words = ("-n", "60", "--dspark-confidence", "0", "--dspark-confidence", "0.9")
    code, found = matrix(tmp_path, *words)
    assert code == 0
    assert found["schema"] == "ds4tui.matrix/1"
    assert found["as_required"] is True
    names = [cell["name"] for cell in found["cells"]]
    gated = [f"{p} confidence {c}" for p in ("direct", "prefix", "reproject", "replay")
             for c in ("0", "0.9")]  # fmt: skip
    expected = [f"{n} {p}" for n in ("split", "invariant") for p in (*gated, "strict")]
    assert sorted(names) == sorted(expected)
    for cell in found["cells"]:
        exact = cell["numerics"] == "invariant" or cell["commit"] in ("replay", "strict")
        assert cell["must_be_identical"] is exact
        assert cell["prompts"] == 3
        if exact:
            assert cell["identical"] == 3
            assert cell["state_equal"] is True
            assert cell["compared"] == cell["cycles"] + 3
    assert found["may_diverge"]["identical"] < found["may_diverge"]["runs"]
    assert found["required"]["identical"] == found["required"]["runs"]
    text = capsys.readouterr().out
    assert "equal after all" in text
    assert "AS REQUIRED" in text
    assert "third: " in text


def test_divergences_are_counted_by_cause_and_verdict(loaded: list[Engine], tmp_path: Path) -> None:
    loaded.append(noisy())
    _, found = matrix(tmp_path, "-n", "60", "--numerics", "split")
    parted = [cell for cell in found["cells"] if cell["identical"] < cell["prompts"]]
    assert parted
    for cell in parted:
        missing = cell["prompts"] - cell["identical"]
        assert sum(cell["causes"].values()) == sum(cell["verdicts"].values()) == missing
        first = cell["first_divergence"]
        runs = [run for p in found["prompts"] for run in p["runs"] if run["cell"] == cell["name"]]
        indexes = [r["first_divergence"]["index"] for r in runs if r["first_divergence"]]
        assert first["index"] == min(indexes)
        assert cell["speedup"]["different_work"] is True
        assert cell["state_equal"] is False


def test_speed_never_stands_without_the_hash_of_the_ids(
    loaded: list[Engine], tmp_path: Path
) -> None:
    loaded.append(noisy())
    _, found = matrix(tmp_path, "-n", "40")
    by = {plain["numerics"]: plain["ids_sha256"] for plain in found["plain"]}
    for cell in found["cells"]:
        assert cell["tokens_per_s"] > 0
        same = cell["identical"] == cell["prompts"]
        assert (cell["ids_sha256"] == by[cell["numerics"]]) is same


def test_plain_of_both_numerics_is_compared_and_no_failure(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded.append(noisy())
    code, found = matrix(tmp_path, "-n", "60")
    assert code == 0
    lines = capsys.readouterr().out.splitlines()
    for prompt in found["prompts"]:
        ids = [plain["ids"] for plain in prompt["plain"].values()]
        at = next((i for i, (a, b) in enumerate(zip(*ids, strict=True)) if a != b), None)
        assert prompt["numerics_part_at"] == at
        wanted = (
            f"{prompt['label']}: plain split and plain invariant have the same 60 ids"
            if at is None
            else f"{prompt['label']}: numerics differ: plain split against plain invariant part at "
            f"{at}"
        )
        assert wanted in lines


def test_identity_at_400_is_reported_beside_a_longer_run(
    loaded: list[Engine], tmp_path: Path
) -> None:
    loaded.append(noisy())
    words = ("--commit", "prefix", "--numerics", "split")
    _, found = matrix(tmp_path, "-n", "430", *words)
    (cell,) = found["cells"]
    assert cell["identical"] <= cell["identical_at_400"] <= cell["prompts"]
    runs = [prompt["runs"][0]["first_divergence"] for prompt in found["prompts"]]
    assert cell["identical_at_400"] == sum(d is None or d["index"] >= 400 for d in runs)
    _, short = matrix(tmp_path, "-n", "400", *words)
    assert short["cells"][0]["identical_at_400"] is None


def test_a_miss_is_exit_code_1(
    loaded: list[Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(
        decode, "accepted_prefix", lambda drafts, rows, eos_id: (len(drafts), False)
    )
    loaded.append(calm())
    code, found = matrix(tmp_path, "-n", "40", "--numerics", "invariant", "--commit", "prefix")
    assert code == 1
    assert found["as_required"] is False
    assert found["cells"][0]["logic_errors"] == 3
    text = capsys.readouterr().out
    assert "NOT AS REQUIRED" in text
    assert "MISSED" in text
    assert "LOGIC ERROR" in text


def test_equal_ids_over_an_unequal_state_are_a_miss(
    loaded: list[Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that claims to replay but keeps the verify's rows."""
    monkeypatch.setattr(commit, "replay", commit.prefix)
    monkeypatch.setitem(commit.COMMITS, "replay", commit.prefix)  # type: ignore[arg-type]
    model = ScriptedModel(path_script(IDS, 13))
    drafter = ScriptedDrafter(continuation(model.script))
    loaded.append(engine(model, drafter))
    code, found = matrix(tmp_path, "-n", "20", "--numerics", "split", "--commit", "replay")
    assert code == 1
    (cell,) = found["cells"]
    assert (cell["identical"], cell["prompts"], cell["state_equal"]) == (3, 3, False)


def test_in_80_columns_the_table_by_prompt_is_several(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    model = ScriptedModel(path_script(IDS, 13))  # no id parts, but the states differ
    loaded.append(engine(model, ScriptedDrafter(continuation(model.script))))
    gates = [word for gate in ("0", "0.25", "0.5") for word in ("--dspark-confidence", gate)]
    matrix(tmp_path, "-n", "20", "--numerics", "split", *gates)
    lines = capsys.readouterr().out.splitlines()
    heads = [at for at, line in enumerate(lines) if line.startswith("prompt ")]
    assert len(heads) == 2
    assert "dir 0.25" in lines[heads[0]]
    assert "str" in lines[heads[1]]
    for at in heads:
        labels = [line.split()[0] for line in lines[at + 1 : at + 4]]
        assert labels == ["1", "2", "third"]
    assert lines[heads[0] + 3].split()[2:5] == ["~", "~", "~"], "identical ids of other states"
    assert lines[heads[1] + 3].split()[-1] == "=", "strict"
    assert "~ identical ids, but the state differs" in " ".join(lines)


def test_faults_void_what_invariant_promises_only(loaded: list[Engine], tmp_path: Path) -> None:
    loaded.append(calm())
    _, found = matrix(tmp_path, "-n", "20", "--perturb", "head:64")
    promised = {cell["name"] for cell in found["cells"] if cell["must_be_identical"]}
    assert promised == {f"{n} {p}" for n in ("split", "invariant") for p in ("replay", "strict")}
    for commits in ("replay", "strict"):
        assert must_be_identical("split", commits, perturbed=True)
    assert must_be_identical("invariant", "prefix", perturbed=False)
    assert not must_be_identical("split", "prefix", perturbed=False)


def test_states_that_were_not_compared_are_not_called_equal(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded.append(calm())
    code, found = matrix(tmp_path, "-n", "20", "--digests", "0")
    assert code == 0, "the ids are as they must be; nothing else was asked"
    assert {cell["state_equal"] for cell in found["cells"]} == {None}
    shown = capsys.readouterr().out
    assert re.search(r"^AS REQUIRED: \d+ of \d+ runs identical that must be; states not compared",
                     shown, re.M)  # fmt: skip
    assert "differs in" not in shown


def test_a_verdict_says_at_how_many_boundaries_states_were_compared(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded.append(noisy())
    code, found = matrix(tmp_path, "-n", "60", "--digests", "4")
    assert code == 0
    must = [cell for cell in found["cells"] if cell["must_be_identical"]]
    sums = [sum(cell[name] for cell in must) for name in ("compared", "state_boundaries")]
    assert sums[0] < sums[1]
    shown = " ".join(capsys.readouterr().out.split())
    must_be = f"runs identical that must be; states equal at {sums[0]} of {sums[1]} boundaries;"
    assert must_be in shown
    assert {cell["states_differ"] for cell in must} == {0}
    assert "equal after all" not in shown
    matrix(tmp_path, "-n", "60")
    shown = " ".join(capsys.readouterr().out.split())
    assert "that must be; states equal after every cycle;" in shown


def test_of_nothing_that_must_be_identical_nothing_is_said(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded.append(noisy())
    words = ("-n", "60", "--numerics", "split", "--commit", "prefix")
    code, found = matrix(tmp_path, *words, "--report", str(tmp_path / "m.md"))
    assert code == 0
    runs, same = found["may_diverge"]["runs"], found["may_diverge"]["identical"]
    said = f"NOTHING REQUIRED: {runs - same} of {runs} that may diverge did"
    assert capsys.readouterr().out.splitlines()[-1] == said
    assert f"**{said}**" in (tmp_path / "m.md").read_text()


def test_the_heading_names_what_is_not_the_default(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded.append(calm())
    words = ("-n", "20", "--no-markov", "--dspark-confidence", "0.25", "--think", "--digests", "3")
    _, found = matrix(tmp_path, *words)
    assert found["rendering"]["think"] is True
    head = " ".join(capsys.readouterr().out.split())
    said = "confidence 0.25, ignore_eos, no markov, digest_every 3, "
    assert head.startswith(f"matrix: at most 20 tokens, {said}")
    assert "think, 3 prompts" in head


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*FILES, "-p", "a", "--batch-ops", "head"), "Give --numerics split"),
        ((*FILES, "-p", "a", "--pin", "router"), "choose as plain does unless --perturb"),
        ((*FILES, "-p", "a", "--dspark-strict", "--commit", "prefix"), "exclude each other"),
        (
            (*FILES, "-p", "a", "--commit", "fast"),
            "some of direct, prefix, reproject, replay, strict",
        ),
        ((*FILES, "-p", "a", "--numerics", "exact"), "some of split, invariant"),
        ((*FILES, "-p", "a", "--dspark-confidence", "2"), "a number from 0 (no gate) to 1"),
        ((*FILES,), "matrix was given no prompt"),
        ((*FILES, "-p", "a", "--arm", "commit=direct"), "runs every arm by every policy"),
        ((*FILES, "-p", "a", "--prompts", "b"), "exclude each other"),
        (("-m", "scripted.gguf", "-p", "a"), "without a drafter"),
        ((*FILES, "-p", "a", "--json", "/nowhere/x.json"), "folder that does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["matrix", *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("tokens", ["1", "2"])
def test_short_runs_have_no_rate_and_no_crash(
    loaded: list[Engine], tmp_path: Path, tokens: str
) -> None:
    loaded.append(calm())
    code, found = matrix(tmp_path, "-n", tokens)
    assert code == 0
    assert all(cell["identical"] == 3 for cell in found["cells"])


def test_every_arm_is_a_base_of_all_policies(loaded: list[Engine], tmp_path: Path) -> None:
    script = path_script(IDS, 13)
    wrong = spoiled(continuation(script), lambda tokens: 0)
    loaded.append(
        engine(ScriptedModel(script), ScriptedDrafter(continuation(script)), ScriptedDrafter(wrong))
    )
    code, found = matrix(
        tmp_path, "-n", "30", "--numerics", "split", "--commit", "prefix", "--commit", "strict",
        "--arm", "mtp=drafter.gguf", "--arm", "mtp=drafter1.gguf,confidence=0",
    )  # fmt: skip
    assert code == 0
    cells = {cell["drafter"]: cell for cell in found["cells"] if cell["commit"] == "prefix"}
    assert set(cells) == {"drafter.gguf", "drafter1.gguf"}
    assert cells["drafter.gguf"]["accept_rate"] == 1.0
    assert cells["drafter1.gguf"]["accept_rate"] == 0.0
    assert [cell["commit"] for cell in found["cells"]].count("strict") == 1


def test_the_drafters_of_arms_are_loaded_too() -> None:
    args = cli._matrix_parser().parse_args(["-m", "t.gguf", "-p", "a", "--arm", "mtp=d2.gguf"])
    assert matrix_command.matrix_options(args).files.mtp == ("d2.gguf",)


def test_figures_by_category_add_up(loaded: list[Engine], tmp_path: Path) -> None:
    loaded.append(noisy())
    prompts, out = tmp_path / "p.jsonl", tmp_path / "o.json"
    rows = [("abcdefghij", "x"), ("another one", "y"), ("third of it", "x")]
    prompts.write_text("".join(json.dumps({"text": t, "category": c}) + "\n" for t, c in rows))
    words = ["--prompts", str(prompts), "--json", str(out), "-n", "60", "--numerics", "split"]
    cli.main(["matrix", *FILES, *words])
    found = json.loads(out.read_text())
    for cell in found["cells"]:
        mine = [c for c in found["categories"] if c["arm"] == cell["name"]]
        assert [c["category"] for c in mine] == ["x", "y"]
        assert [c["prompts"] for c in mine] == [2, 1]
        assert sum(c["identical"] for c in mine) == cell["identical"]
        replayed = sum(c["time_ms"]["replay"] for c in mine)
        assert replayed == pytest.approx(cell["replay_ms"])
    assert found["set"] == "p"


def test_json_alone_goes_to_standard_output(
    loaded: list[Engine], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    loaded.append(calm())
    words = ["matrix", *FILES, "-p", "abc", "-n", "20", "--json", "-"]
    report, trace = tmp_path / "r.md", tmp_path / "t.jsonl"
    code = cli.main([*words, "--report", str(report), "--trace", str(trace)])
    captured = capsys.readouterr()
    assert code == 0
    assert json.loads(captured.out)["complete"] is True
    assert "AS REQUIRED" in captured.err
    assert "| direct | ! |" in report.read_text()
    kinds = [type(event) for event in read_trace(str(trace))]
    assert (kinds[0], kinds[-1]) == (SuiteStarted, SuiteFinished)


def test_the_suites_events_name_every_cell_and_run() -> None:
    prompts = (SuitePrompt(Prompt("abc"), "facts"), SuitePrompt(Prompt("xyz")))
    arms = matrix_arms(bases=(Knobs(confidence=0.0), Knobs(confidence=0.9)))
    assert len(arms) == 9
    request = MatrixRequest(prompts, Settings(dspark=arms, max_tokens=12))
    events = list(request.events(calm()))
    assert isinstance(events[0], SuiteStarted)
    assert isinstance(events[-1], SuiteFinished)
    assert len(events[0].cells) == len(set(events[0].cells)) == 18
    runs = [event for event in events if isinstance(event, RunStarted)]
    assert [(r.cell, r.prompt_index, r.category) for r in runs] == [
        ("split", 0, "facts"), ("invariant", 0, "facts"), ("split", 1, ""), ("invariant", 1, ""),
    ]  # fmt: skip
    assert {run.suite_id for run in runs} == {events[0].suite_id}
    named = {f"{run.cell} {arm.name}" for run in runs for arm in run.arms[1:]}
    assert named == set(events[0].cells)
    assert sum(isinstance(event, RunFinished) for event in events) == 4
