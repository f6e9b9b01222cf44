"""`ds4tui ab --json`: the document's fields and rules, on scripted engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ds4tui import ab_command, ab_text, cli
from ds4tui.ab_text import NOTHING_DECODED
from engine.session import Engine
from tests.engine.races import engine
from tests.engine.scripted import (
    EOS,
    VOCAB,
    ScriptedDrafter,
    ScriptedModel,
    continuation,
    path_script,
    random_script,
    spoiled,
)

IDS = [2 + i * 7 % 29 for i in range(400)]
PROMPT = "abcdefghij"
LENGTH = 13
FILES = ["-m", "scripted.gguf", "--mtp", "drafter.gguf"]


def identical() -> Engine:
    script = path_script(IDS, LENGTH)
    drafter = ScriptedDrafter(spoiled(continuation(script), lambda t: len(t) % 6))
    return engine(ScriptedModel(script), drafter)


def parting() -> Engine:
    """Prefix parts, replay does not."""
    script = random_script(12)
    return engine(ScriptedModel(script, noise=0.5), ScriptedDrafter(continuation(script)))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """The engine that `ab` will get: its last entry."""
    engines: list[Engine] = []
    monkeypatch.setattr(ab_command, "load_engine", lambda files, report: engines[-1])
    return engines


def ab(tmp_path: Path, *words: str, prompt: bool = True) -> tuple[int, dict[str, Any]]:
    out = tmp_path / "out.json"
    given = ["-p", PROMPT] if prompt else []
    code = cli.main(["ab", *FILES, *given, "--json", str(out), *words])
    return code, json.loads(out.read_text()) if out.exists() else {}


def test_every_field_of_the_schema_is_there(loaded: list[Engine], tmp_path: Path) -> None:
    loaded.append(parting())
    code, found = ab(tmp_path, "--commit", "prefix", "--ignore-eos", "-n", "80")
    assert code == 1
    assert found["schema"] == "ds4tui.ab/1"
    assert found.keys() >= {
        "environment", "model", "drafter", "settings", "prompt", "arms", "identical",
        "first_divergence",
    }  # fmt: skip
    assert found["settings"].keys() >= {
        "numerics", "max_tokens", "confidence", "draft_max", "seed", "perturb", "batch_ops",
        "kv_rounding",
    }  # fmt: skip
    assert found["prompt"]["text"] == PROMPT
    assert len(found["prompt"]["ids"]) == LENGTH
    for arm in found["arms"]:
        assert arm.keys() >= {
            "name", "role", "kind", "numerics", "commit", "ids", "text", "ids_sha256",
            "text_sha256", "finish_reason", "tokens_per_s", "speedup", "time_ms", "cycles",
            "drafted", "proposed", "accepted_draft", "recheck_cut", "accept_rate",
            "accept_of_drafted", "avg_accept", "mean_depth", "depth_hist",
            "proposed_by_accepted", "accept_by_position", "state_equal", "smallest_margin",
            "first_divergence",
        }  # fmt: skip
        assert arm["time_ms"].keys() == {
            "prefill", "decode", "draft", "verify", "replay", "commit",
        }  # fmt: skip
    parted = found["first_divergence"]
    assert parted == found["arms"][1]["first_divergence"]
    assert parted.keys() >= {
        "arms", "index", "left", "right", "cause", "margin_logits", "margin_ulps", "ulp_type",
        "verdict", "logic_error", "differing_choices", "first_drift",
    }  # fmt: skip
    assert parted["arms"] == [0, 1]
    assert parted["inside_repeat"] is False
    plain, arm = found["arms"]
    index = parted["index"]
    assert plain["ids"][:index] == arm["ids"][:index]
    assert parted["left"] == {"id": plain["ids"][index], "text": f"<{plain['ids'][index]}>"}
    assert parted["right"]["id"] == arm["ids"][index]
    assert arm["speedup"]["different_work"] is True
    assert found["identical"] is False


def test_counts_add_up_and_plain_has_none(loaded: list[Engine], tmp_path: Path) -> None:
    loaded.append(identical())
    code, found = ab(tmp_path, "--commit", "direct", "--commit", "replay", "-n", "100")
    assert code == 0
    plain, *arms = found["arms"]
    assert (plain["cycles"], plain["drafted"], plain["accept_rate"]) == (0, 0, None)
    assert (plain["depth_hist"], plain["accept_by_position"]) == ({}, [])
    assert plain["proposed_by_accepted"] == []
    assert plain["speedup"] is None
    assert plain["commit"] is None
    for arm in arms:
        hist = {int(depth): n for depth, n in arm["depth_hist"].items()}
        assert sum(depth * n for depth, n in hist.items()) == len(arm["ids"]) - 1
        assert sum(hist.values()) == arm["cycles"]
        assert arm["accept_rate"] == arm["accepted_draft"] / arm["proposed"]
        assert arm["accept_of_drafted"] == arm["accepted_draft"] / arm["drafted"]
        assert arm["avg_accept"] == arm["accepted_draft"] / arm["cycles"]
        assert arm["mean_depth"] == pytest.approx(99 / arm["cycles"])
        assert len(arm["accept_by_position"]) == 5
        assert arm["state_equal"] is (arm["commit"] == "replay")
        assert arm["speedup"]["different_work"] is False
        assert arm["no_draft"] + arm["first_rejected"] == arm["depth_hist"]["1"]
    assert [arm["commit"] for arm in arms] == ["direct", "replay"]
    assert found["identical"] is True
    assert found["first_divergence"] is None
    assert found["arms"][0]["ids_sha256"] == arms[0]["ids_sha256"]
    assert found["arms"][1]["identical_kind"] == "cannot-show"


@pytest.mark.parametrize("tokens", ["1", "2"])
def test_short_runs_have_no_rate_and_no_crash(
    loaded: list[Engine], tmp_path: Path, tokens: str
) -> None:
    loaded.append(identical())
    code, found = ab(tmp_path, "-n", tokens)
    assert code == 0
    for arm in found["arms"]:
        assert len(arm["ids"]) == int(tokens)
        assert (arm["tokens_per_s"] is None) == (int(tokens) < 2)
        assert arm["finish_reason"] == "length"
    assert found["arms"][1]["accept_rate"] is None
    if tokens == "1":
        assert NOTHING_DECODED in ab_text.identical(found["arms"][1], 1)


def test_a_final_eos_is_an_id_but_no_text(loaded: list[Engine], tmp_path: Path) -> None:
    script = path_script([5, 6, 7, EOS], LENGTH)
    loaded.append(engine(ScriptedModel(script), ScriptedDrafter(continuation(script))))
    _, found = ab(tmp_path)
    for arm in found["arms"]:
        assert arm["ids"] == [5, 6, 7, EOS]
        assert arm["text"] == "<5><6><7>"
        assert arm["finish_reason"] == "eos"


def test_json_alone_goes_to_standard_output(
    loaded: list[Engine], capsys: pytest.CaptureFixture[str]
) -> None:
    loaded.append(identical())
    code = cli.main(["ab", *FILES, "-p", PROMPT, "-n", "20", "--json", "-"])
    captured = capsys.readouterr()
    assert code == 0
    assert json.loads(captured.out)["schema"] == "ds4tui.ab/1"
    assert "IDENTICAL" in captured.err


def test_numbers_that_json_cannot_hold_are_null(loaded: list[Engine], tmp_path: Path) -> None:
    script = path_script(IDS, LENGTH)
    made = engine(ScriptedModel(script), ScriptedDrafter(continuation(script)))
    loaded.append(made)
    # Only two tokens are left at the end of the vocabulary, so the runner-up is at -inf once.
    _, found = ab(tmp_path, "--no-repeat", "1", "--ignore-eos", "-n", str(VOCAB - 1))
    text = json.dumps(found)
    assert "Infinity" not in text
    assert "NaN" not in text
    assert found["arms"][0]["smallest_margin"]["logits"] is not None


def test_several_prompts_are_summed_up(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five prompts of which only the last has a near-tie."""

    class LastTilts(ScriptedModel):
        def _row(self, state, path):  # type: ignore[no-untyped-def]
            row = super()._row(state, path) + 20
            last = state.position == LENGTH + 9 and state.tokens[2] == 10 + ord("z") % 20
            if last:
                row[3] = row.max() + (0.02 if path == "batch" else -0.02)
            return row

    script = path_script(IDS, LENGTH)
    drafter = ScriptedDrafter(lambda t: [IDS[len(t) - LENGTH + i] for i in range(5)])
    loaded.append(engine(LastTilts(script), drafter))
    prompts = tmp_path / "prompts.jsonl"
    lines = ["abcdefghij"] * 4 + ['{"id": "last", "category": "odd", "text": "zbcdefghij"}']
    prompts.write_text("\n".join(lines) + "\n\n")
    code, found = ab(
        tmp_path, "--commit", "prefix", "--prompts", str(prompts), "-n", "30", prompt=False
    )
    assert code == 1
    assert found["schema"] == "ds4tui.ab-set/1"
    assert found["summary"] == {"identical": 4, "diverged": 1, "withheld": 0}
    assert found["complete"] is True
    shown = capsys.readouterr().out
    assert "4 identical, 1 diverged" in shown
    parted = found["runs"][-1]["first_divergence"]
    assert parted["index"] == 9
    assert len(parted["top2_margins"]) == 2
    assert parted["top2_margins"][0]["logits"] == pytest.approx(0.02, rel=0.01)
    assert parted["shared_prefix"] == "".join(f"<{token}>" for token in IDS[:9])
    assert "top-2 margins: plain 0.02" in shown
    assert found["runs"][-1]["category"] == "odd"
    none, odd = found["categories"]
    assert (none["category"], none["arm"], none["prompts"]) == ("none", "prefix", 4)
    assert (odd["category"], odd["identical"], odd["first_divergence"]) == ("odd", 0, 9)
    assert "by category" in shown


def test_controls_that_disagree_withhold_the_verdict(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = random_script(1)
    loaded.append(engine(ScriptedModel(script, flaky=3.0), ScriptedDrafter(continuation(script))))
    code, found = ab(tmp_path, "--controls", "--ignore-eos", "-n", "40")
    assert code == 2
    assert found["identical"] is None
    assert [arm["role"] for arm in found["arms"]] == ["arm", "arm", "control", "control"]
    assert "this arm disagrees with itself" in found["withheld"]
    assert "WITHHELD" in capsys.readouterr().out


def test_repeats_must_agree(loaded: list[Engine], tmp_path: Path) -> None:
    loaded.append(identical())
    code, found = ab(tmp_path, "--repeat", "3", "-n", "40")
    assert code == 0
    assert found["repeats"] == 3
    script = random_script(1)
    loaded.append(engine(ScriptedModel(script, flaky=3.0), ScriptedDrafter(continuation(script))))
    code, found = ab(tmp_path, "--repeat", "2", "--ignore-eos", "-n", "40")
    assert code == 2
    assert "repeats of this arm have different ids" in found["withheld"]


@pytest.mark.parametrize("form", ["list", "prompt", "ab"])
def test_recorded_ids_in_every_form(loaded: list[Engine], tmp_path: Path, form: str) -> None:
    loaded.append(identical())
    ids = [*IDS[:12], 3, *IDS[13:30]]
    prompt = [0, 3, *(10 + ord(c) % 20 for c in PROMPT), 4]
    data: Any = {
        "list": ids,
        "prompt": {"prompt": {"ids": prompt}, "ids": ids},
        "ab": {"prompt": {"ids": prompt}, "arms": [{"ids": ids}, {"ids": [1]}]},
    }[form]
    recorded = tmp_path / "ids.json"
    recorded.write_text(json.dumps(data))
    code, found = ab(tmp_path, "--against", str(recorded), "-n", "30")
    assert code == 1
    arm = found["arms"][2]
    assert (arm["kind"], arm["ids"]) == ("recorded", ids)
    assert (arm["tokens_per_s"], arm["speedup"], arm["state_equal"]) == (None, None, None)
    assert arm["first_divergence"]["index"] == 12
    assert arm["first_divergence"]["cause"] is None
    assert arm["accept_by_position"] == []


def test_own_output_compares_identical(loaded: list[Engine], tmp_path: Path) -> None:
    loaded.append(identical())
    _, first = ab(tmp_path, "-n", "30")
    saved = tmp_path / "first.json"
    saved.write_text(json.dumps(first))
    code, found = ab(tmp_path, "--against", str(saved), "-n", "30")
    assert code == 0
    assert found["arms"][2]["first_divergence"] is None


def test_the_set_so_far_is_written_when_a_later_prompt_fails(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded.append(identical())
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("abcdefghij\n" + "x" * 5000 + "\n")
    report = tmp_path / "r.md"
    words = ["--prompts", str(prompts), "-n", "10", "--report", str(report)]
    code, found = ab(tmp_path, *words, prompt=False)
    assert code == 2
    assert len(found["runs"]) == 1
    assert found["complete"] is False
    assert "1 identical, 0 diverged (1 not finished)" in report.read_text()
    assert "the context holds 4096" in capsys.readouterr().err


def test_a_trace_holds_every_event(loaded: list[Engine], tmp_path: Path) -> None:
    from engine.events import RunFinished
    from engine.trace import read_trace

    loaded.append(identical())
    trace = tmp_path / "run.jsonl"
    ab(tmp_path, "--trace", str(trace), "-n", "20")
    assert isinstance(read_trace(str(trace))[-1], RunFinished)


def test_an_empty_recording_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = tmp_path / "ids.json"
    for text in ("[]", '{"ids": []}', '{"arms": [{"ids": []}]}'):
        recorded.write_text(text)
        code, _ = ab(tmp_path, "--against", str(recorded))
        assert code == 2
        assert "an empty list of ids, which compares nothing" in capsys.readouterr().err


def test_a_short_recording_is_judged_by_the_ids_compared(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The near-tie that plain meets later proves nothing about it."""

    class OneNearTie(ScriptedModel):
        def _row(self, state, path):  # type: ignore[no-untyped-def]
            row = super()._row(state, path) + 20
            if state.position == LENGTH + 20:
                row[3] = row.max() - 0.02
            return row

    script = path_script(IDS, LENGTH)
    loaded.append(engine(OneNearTie(script), ScriptedDrafter(continuation(script))))
    recorded = tmp_path / "ids.json"
    recorded.write_text(json.dumps(IDS[:12]))
    code, found = ab(tmp_path, "--against", str(recorded), "-n", "30")
    assert code == 0
    plain, _, arm = found["arms"]
    assert plain["smallest_margin"]["index"] == 20
    assert (arm["compared"], arm["identical_kind"]) == (12, "cannot-show")
    assert arm["compared_margin"]["index"] < 12
    shown = " ".join(capsys.readouterr().out.split())
    assert "the first 12 are compared" in shown
    none = "no top-2 gap under 1 logit in these 12 ids: cannot show a divergence so far"
    assert f"recorded ids.json: identical ids, in the 12 ids compared; {none}" in shown
    assert "recorded ids.json 12 length" in shown
    assert "= 12 of 30 ids" in shown
    assert shown.endswith("IDENTICAL; recorded ids.json in the 12 ids compared")


def test_one_recorded_id_is_identical_in_one_id(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = path_script(IDS, LENGTH)
    loaded.append(engine(ScriptedModel(script)))
    recorded, written = tmp_path / "ids.json", tmp_path / "r.md"
    recorded.write_text(json.dumps(IDS[:1]))
    words = ["ab", "-m", "x.gguf", "-p", "abcdefghij", "--against", str(recorded), "-n", "20"]
    assert cli.main([*words, "--report", str(written)]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == "IDENTICAL in the 1 id compared"
    assert "= 1 of 20 ids" in shown
    assert "**IDENTICAL in the 1 id compared**" in written.read_text()


def test_every_drafter_is_named_with_its_hash(loaded: list[Engine], tmp_path: Path) -> None:
    from dataclasses import replace

    from engine.events import FileInfo

    script = path_script(IDS, LENGTH)
    exact = continuation(script)
    made = engine(ScriptedModel(script), ScriptedDrafter(exact), ScriptedDrafter(exact))
    files = [FileInfo("target", "scripted.gguf", "aa", 1, "deepseek4", "", 1, ())]
    for name, digest in (("drafter.gguf", "bb"), ("drafter1.gguf", "cc")):
        files.append(FileInfo("drafter", name, digest, 1, "deepseek4-dspark", "", 1, ()))
    made._parts = replace(made._parts, files=tuple(files))
    loaded.append(made)
    report = tmp_path / "r.md"
    arms = ["--arm", "mtp=drafter.gguf", "--arm", "mtp=drafter1.gguf"]
    _, found = ab(tmp_path, *arms, "-n", "20", "--report", str(report))
    assert found["drafter"]["sha256"] == "bb"
    named = {file["path"]: file["sha256"] for file in found["drafters"]}
    assert [named[arm["drafter"]] for arm in found["arms"][1:]] == ["bb", "cc"]
    assert "sha256 bb" in report.read_text()
    assert "sha256 cc" in report.read_text()


def test_a_command_that_fails_leaves_no_trace_in_its_way(
    loaded: list[Engine], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "new.jsonl"
    loaded.append(identical())
    words = ["ab", *FILES, "--trace", str(trace), "-n", "20", "-p"]
    assert cli.main([*words, "x" * 5000]) == 2
    assert "the context holds" in capsys.readouterr().err
    assert not trace.exists()
    assert cli.main([*words, PROMPT]) == 0
    assert cli.main([*words, PROMPT]) == 2
    assert "overwrites nothing" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["ab", "matrix"])
def test_a_model_that_is_missing_leaves_no_trace_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    trace = tmp_path / "new.jsonl"
    assert cli.main([command, *FILES, "-p", PROMPT, "--trace", str(trace)]) == 2
    assert "scripted.gguf" in capsys.readouterr().err
    assert not trace.exists()
