"""The table and the Markdown of a comparison: both rules, words, untrusted text."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ds4tui import ab_command, ab_text, cli, report, report_markdown
from ds4tui.markdown_text import escaped
from ds4tui.unusual_settings import unusual
from engine import decode
from engine.events import StateDrift
from engine.paths import Perturb
from engine.settings import EngineFiles, Knobs, Settings, as_json, as_text
from engine.stats import ids_sha256
from tests.engine.races import Outcome, engine, run
from tests.engine.scripted import (
    ScriptedDrafter,
    ScriptedModel,
    continuation,
    path_script,
    random_script,
    spoiled,
)

IDS = [2 + i * 7 % 29 for i in range(400)]
SCRIPT = path_script(IDS, 13, level=20)


def shown(*outcomes: Outcome, width: int = 200) -> str:
    runs = [report.RunEvents.of(outcome.events) for outcome in outcomes]
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    ab_text.print_document(console, report.ab_document(runs))
    return console.file.getvalue()  # type: ignore[attr-defined]


def scripted(*arms: Any, accept: int = 5, **more: Any) -> Outcome:
    drafter = ScriptedDrafter(spoiled(continuation(SCRIPT), lambda tokens: accept))
    return run(engine(ScriptedModel(SCRIPT), drafter), *arms, **more)


def test_no_speed_without_the_ids_hash() -> None:
    found = scripted("direct", "prefix", max_tokens=100)
    text = shown(found)
    for arm, name in zip(found.arms, found.names(), strict=True):
        digest = ids_sha256(arm.ids)
        speeds = [line for line in text.splitlines() if f" {arm.tokens_per_s:.0f} " in line]
        assert any(line.startswith(name) and f" {digest[:8]} " in line for line in speeds)
        assert f" {digest[:16]} " in text


def test_different_ids_are_different_work() -> None:
    script = random_script(12)
    made = engine(ScriptedModel(script, noise=0.5), ScriptedDrafter(continuation(script)))
    text = shown(run(made, "prefix", "replay", ignore_eos=True, max_tokens=120))
    prefix = [line for line in text.splitlines() if line.startswith("prefix ")]
    replay = [line for line in text.splitlines() if line.startswith("replay ")]
    assert "≠ at " in prefix[0]
    assert "different work" in prefix[1]
    assert "= ids" in replay[0]
    assert "equal" in replay[0]
    assert "different work" not in replay[1]
    assert "DIVERGED at" in text
    assert re.search(r"cause (state|verify_row)", text)


def test_a_logic_error_is_called_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "accepted_prefix", lambda drafts, rows, eos: (len(drafts), False))
    text = shown(scripted("direct", accept=4))
    assert "LOGIC ERROR at 5" in text
    assert "This is a bug, whatever the acceptance rate." in text


def test_a_copying_prompt_cannot_show_a_divergence() -> None:
    text = shown(scripted("direct"))
    assert "no top-2 gap under 1 logit in these 60 ids: cannot show a diverg" in text
    assert (
        "a divergence so far; the state differs since #6, so another prompt may part; sma" in text
    )
    assert "smallest top-2 gap 5 at 0" in text
    assert "this prompt cannot" not in text


def test_equal_states_are_said_to_be_equal() -> None:
    text = shown(scripted("replay", max_tokens=61))
    assert "replay: identical ids; the state was equal after all 10 cycles" in text
    assert re.search(r"replay +61 .* equal$", text, re.M)


def test_only_what_was_compared_is_said_to_be_equal() -> None:
    text = shown(scripted("replay", max_tokens=61, digest_every=5))
    assert "replay: identical ids; the state was equal at 3 of 11 boundaries" in text
    assert re.search(r"replay +61 .* equal 3/11$", text, re.M)
    text = shown(scripted("replay", max_tokens=61, digest_every=0))
    assert "; the state was not compared; smallest top-2 gap 5" in text
    assert "equal" not in text


@pytest.mark.parametrize("every", [0, 1, 2, 20])
def test_a_cause_is_as_certain_as_the_comparisons_make_it(every: int) -> None:
    """The ids part at 13, the states in the second cycle."""
    script = random_script(9)
    made = engine(ScriptedModel(script, noise=0.02), ScriptedDrafter(continuation(script)))
    found = run(made, "prefix", ignore_eos=True, max_tokens=120, digest_every=every)
    arm = report.ab_document([report.RunEvents.of(found.events)])["arms"][1]
    text, parted = shown(found), arm["first_divergence"]
    assert parted
    assert arm["states_compared"] == len(found.of(StateDrift, 1))
    whole = run(made, "prefix", ignore_eos=True, max_tokens=120)
    assert arm["state_boundaries"] == len(whole.of(StateDrift, 1))
    if every == 0:
        assert "cause not known: the states were not compared" in text
    elif every == 1:
        assert parted["first_drift"] == arm["first_drift"]
        assert f"cause state: since #{arm['first_drift']['position']}, where layer" in text
    elif parted["cause"] is None:
        counted = f"{arm['states_compared']} of {arm['state_boundaries']} boundaries"
        assert f"the states were compared at {counted}, not where the parting cycle began" in text
    else:
        first = parted["first_drift"]["position"]
        assert f"cause state: since #{first} at the latest, where layer" in text
        written = report_markdown.markdown(
            [report.ab_document([report.RunEvents.of(found.events)])]
        )
        assert f"prefix: first difference found at {first}, " in written
        assert "at least 1 tokens before the ids part" in written


def test_a_heading_names_every_setting_that_is_not_its_default() -> None:
    settings = Settings(no_repeat=0, digest_every=1)  # as a loaded target decides
    plain = {**as_json(as_text(settings, EngineFiles("x"))), "chat": True, "system": None}
    assert list(unusual({**plain, "context": 99})) == []
    given = as_json(
        as_text(
            Settings(
                ignore_eos=True, no_repeat=3, markov=False, batch_ops=("compressor",),
                pin=("router",), perturb=Perturb("hc", 4, 7), seed=7, controls=True,
                digest_every=0, near_tie_ulps=8,
            ),
            EngineFiles("x", device="cuda", kv_rounding="none"),
            chat=False, think=True, control_tokens=True, system="Be\x1b brief.",
        )
    )  # fmt: skip
    assert set(unusual(given)) == {
        "ignore_eos", "no_repeat 3", "no markov", "batch_ops compressor", "pin router",
        "perturb hc:4", "seed 7", "controls", "digest_every 0", "near_tie_ulps 8",
        "kv_rounding none", "device cuda", "no chat", "think", "control_tokens",
        'system "Be␛ brief."',
    }  # fmt: skip
    changed = {name for name, value in given.items() if value != plain.get(name)}
    assert len(changed) == len(list(unusual(given))), "and no other"


def test_the_heading_is_of_what_was_run() -> None:
    arms = [Knobs(policy, confidence=0.25, draft_max=2) for policy in ("direct", "replay")]
    text = shown(scripted(*arms, ignore_eos=True, markov=False))
    knobs = "confidence 0.25, draft-max 2"
    assert f"split, at most 60 tokens, {knobs}, ignore_eos, no markov\n" in text


def test_both_acceptance_rates_are_named() -> None:
    drafter = ScriptedDrafter(
        spoiled(continuation(SCRIPT), lambda tokens: 2), lambda tokens: [1, 1, 1, 0.1, 1]
    )
    found = run(engine(ScriptedModel(SCRIPT), drafter), Knobs("prefix", confidence=0.5))
    text, arm = shown(found), found.arms[1]
    assert arm.counts.accept_rate != arm.counts.accept_of_drafted
    assert "acc/proposed" in text
    assert "acc/drafted" in text
    assert f" {arm.counts.accepted}/{arm.counts.proposed} {arm.counts.accept_rate:.3f}" in text
    assert f" {arm.counts.accept_of_drafted:.3f}" in text


@pytest.mark.parametrize("width", [80, 120])
def test_no_cell_of_the_tables_is_broken(width: int) -> None:
    found = scripted(Knobs("direct", confidence=0.5), Knobs("direct"), accept=3, max_tokens=390)
    text, arm = shown(found, width=width), found.arms[1]
    assert f" {arm.counts.accepted}/{arm.counts.proposed} {arm.counts.accept_rate:.3f} " in text
    heads = [line for line in text.splitlines() if line.startswith("arm ")]
    assert len(heads) == (3 if width == 80 else 2)
    assert all(" ".join(name.split()) in " ".join(heads) for name in ab_text.WORK)
    rows = [line for line in text.splitlines() if line.startswith("direct confidence 0.5 ")]
    assert len(rows) == len(heads)


def test_nothing_proposed_is_na_and_said_with_its_cause() -> None:
    drafter = ScriptedDrafter(continuation(SCRIPT), lambda tokens: [0.1] * 5)
    text = shown(run(engine(ScriptedModel(SCRIPT), drafter), Knobs("prefix", confidence=0.9)))
    assert "0/0 n/a" in text
    assert "0 proposals in 59 cycles; stopped by confidence" in text


def test_a_nan_that_stopped_all_proposals_is_told_once() -> None:
    drafter = ScriptedDrafter(continuation(SCRIPT), lambda tokens: [float("nan")] * 5)
    text = shown(run(engine(ScriptedModel(SCRIPT), drafter), Knobs("prefix", confidence=0.9)))
    assert "0 proposals in 59 cycles; stopped by confidence" in text
    assert text.count("prefix: the drafter's confidence is NaN, which the gate never passes") == 1


def test_varying_lengths_say_that_the_depths_are_incomplete() -> None:
    drafter = ScriptedDrafter(
        continuation(SCRIPT), lambda t: [1, 1, 1, 1, 1] if len(t) % 2 else [1, 1, 0, 0, 0]
    )
    text = shown(run(engine(ScriptedModel(SCRIPT), drafter), Knobs("prefix", confidence=0.5)))
    assert "the depth alone is incomplete" in text
    assert re.search(r"2 proposed: 0 0 \d+", text)
    assert "the depth alone is incomplete" not in shown(scripted("prefix", accept=3))


def test_block_lengths_have_a_row_each_and_a_pattern() -> None:
    arms = [Knobs("replay", draft_max=n) for n in (1, 2, 3, 4, 5)]
    text = shown(scripted(*arms, max_tokens=40))
    assert all(f"replay draft-max {n}" in text for n in (1, 2, 3, 4, 5))
    assert "block lengths: identical at every block length" in text


def test_untrusted_text_is_literal() -> None:
    prompt = "[bold]x[/INST] a[i]\x1b[2J\u202e"
    made = engine(ScriptedModel(path_script(IDS, 30)), ScriptedDrafter(lambda t: [0] * 5))
    made._parts.tokenizer.token_bytes = lambda token: b"\x1b[2J[red]"  # type: ignore[method-assign]
    found = run(made, "direct", prompt=prompt)
    text = shown(found)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]x[/INST] a[i]␛[2J<U+202E>" in text
    document = report.ab_document([report.RunEvents.of(found.events)])
    written = report_markdown.markdown([document])
    assert "\x1b" not in written
    assert "\\[bold\\]x" in written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("no_repeat 8, Linux x86_64, a__b, naïve_é", None),
        ("see #6 and C# -> a<=b, 3 < 4 & 5", None),
        (r"a\b C:\Users", None),
        (r"a\*b\\", r"a\\\*b\\\\"),
        ("_a_ __b__ c_ (_d)", r"\_a\_ \_\_b\_\_ c\_ (\_d)"),
        ("# head ##", r"\# head \#\#"),
        ("> quote", r"\> quote"),
        ("<b>x</b> <https://a> <!-- -->", r"\<b>x\</b> \<https://a> \<!-- -->"),
        ("&lt;b&#62; &copy;", r"\&lt;b\&#62; \&copy;"),
        ("*a* ~~b~~ `c` [d](e) f|g", r"\*a\* \~\~b\~\~ \`c\` \[d\](e) f\|g"),
    ],
)
def test_only_what_would_be_markup_is_escaped(text: str, written: str | None) -> None:
    assert escaped(text) == (text if written is None else written)


def test_a_shared_prefix_that_is_cut_says_so() -> None:
    script = random_script(12)
    made = engine(ScriptedModel(script, noise=0.5), ScriptedDrafter(continuation(script)))
    found = run(made, "prefix", ignore_eos=True, max_tokens=120)
    arm = report.ab_document([report.RunEvents.of(found.events)])["arms"][1]
    for prefix, shown_prefix in (("ab " * 50, "…" + ("ab " * 50)[-120:]), ("ab", "ab")):
        arm["first_divergence"]["shared_prefix"] = prefix
        assert ab_text.divergence(arm)[-1] == f'  shared prefix: "{shown_prefix}"'


def test_controls_are_in_the_table_of_identity_alone() -> None:
    def said(tokens: tuple[int, ...]) -> list[float]:
        return [1.0] * (1 + len(tokens) % 3) + [0.1] * 5

    drafter = ScriptedDrafter(continuation(SCRIPT), said)
    made = engine(ScriptedModel(SCRIPT), drafter)
    found = run(made, Knobs("direct", confidence=0.5), controls=True)
    document = report.ab_document([report.RunEvents.of(found.events)])
    (arm,) = (arm for arm in document["arms"] if arm["name"] == "direct again")
    assert arm["lengths_vary"], "there would be something to say of it"
    arm["ids_sha256"] = "c0" * 32
    assert sum("direct again" in line for line in shown(found).splitlines()) == 1
    written = report_markdown.markdown([document])
    (line,) = (line for line in written.splitlines() if "direct again" in line)
    assert "c0c0c0" in line


def test_markdown_holds_the_table_and_the_verdict() -> None:
    document = report.ab_document([report.RunEvents.of(scripted("direct").events)])
    written = report_markdown.markdown([document, document])
    assert written.count("| plain |") == 6, "identity, work and time of two prompts"
    assert written.startswith("# ds4tui ab\n\n2 identical, 0 diverged (exit code 0)")


def test_the_markdown_file_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine(ScriptedModel(SCRIPT), ScriptedDrafter(continuation(SCRIPT)))
    monkeypatch.setattr(ab_command, "load_engine", lambda files, report: made)
    path = tmp_path / "out.md"
    path.write_text("old")
    words = ["ab", "-m", "x.gguf", "--mtp", "drafter.gguf", "-p", "abcdefghij"]
    assert cli.main([*words, "--report", str(path)]) == 0
    assert "IDENTICAL" in path.read_text()
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"
