"""What `Y` and `e` write: one report for command and key, safe to print, with all it needs."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ds4tui import cli, exports, options, report
from ds4tui.exports import document_of, report_of, transcript, write_run
from ds4tui.report_markdown import command, markdown, quoted
from ds4tui.run_state import RunState
from ds4tui.set_figures import arm_runs, by_category
from engine.events import Event, RunStarted, TokenText
from engine.text import visible
from engine.trace import read_trace
from tests.ds4tui import streams, suite_streams
from tests.ds4tui.harness import FakeLink, make_app, make_controller, record_of, settle

HOSTILE = "a[bold]`x`|\x1b[2J\u202e'$(id)\n# head"


def hostile_run() -> list[Event]:
    out: list[Event] = []
    for event in streams.diverged_run():
        if isinstance(event, RunStarted):
            event = replace(event, prompt=HOSTILE)
        if isinstance(event, TokenText):
            event = replace(event, entries=tuple((n, b"\x1b]0;x\x07|") for n, _ in event.entries))
        out.append(event)
    return out


def complete(events: list[Event]) -> list[Event]:
    """The scripted run with every setting that an engine announces."""
    more = (("ignore_eos", "true"), ("no_repeat", "8"), ("device", "cpu"), ("threads", "1"))
    more += (("context", "4096"), ("seed", "0"), ("markov", "true"), ("kv_rounding", "fp8"))
    return [
        replace(event, settings=(*event.settings, *more))
        if isinstance(event, RunStarted)
        else event
        for event in events
    ]


def test_a_report_holds_what_a_maintainer_needs() -> None:
    record = record_of(complete(streams.diverged_run()))
    text = report_of(record)
    assert text is not None
    for part in (
        "DIVERGED at 163",
        "near-tie, margin 0.012 = 1.5 ulp F16",
        "first drift at 3, layer 2 frontier_kv, max abs 3.1e-05, 160 tokens before",
        "| direct | 46+9 | 26 | 20 | 16 | 12 | 18 | 2.71 |",
        "Prompt ids (18): 0 3 900",
        "sha256 " + record.started.files[0].sha256 if record.started else "",
        "| device | cpu |",
        "different work",
        "ds4tui ab",
        "--no-repeat 8",
    ):
        assert part in text, part
    document = document_of(record)
    assert document is not None
    assert text == markdown([document]), "the key and ab --report write the same"


def test_a_report_says_that_a_drafter_drafts_some_tokens() -> None:
    document = document_of(record_of(complete(streams.diverged_run())))
    assert document is not None
    assert "drafts from" not in markdown([document])
    document["drafters"][0]["drafted"] = 97
    (line,) = (line for line in markdown([document]).splitlines() if "drafts from" in line)
    assert line.startswith("- drafter: ")
    assert line.endswith(" parameters, drafts from 97 tokens)")


def test_a_report_on_hostile_text_is_safe_to_print() -> None:
    text = report_of(record_of(complete(hostile_run())))
    assert text is not None
    assert text == visible(text)
    assert "\\[bold\\]" in text
    assert "\n# head" not in text


def test_the_command_reproduces_the_run(tmp_path: Path) -> None:
    document = document_of(record_of(complete(streams.diverged_run())))
    assert document is not None
    document["model"]["path"] = document["drafter"]["path"] = "x y.gguf"
    words = shlex.split(command(document))
    assert words[:2] == ["ds4tui", "ab"]
    args = cli._ab_parser().parse_args(words[2:])
    assert args.prompt == streams.PROMPT
    assert (args.commit, args.confidence, args.max_tokens) == (["direct"], "0.9", "400")
    assert args.ignore_eos
    settings = options.run_settings(args, options.dspark_arms(args, args.arm, True))
    assert settings.no_repeat == 8
    assert settings.dspark[0].draft_max == 5


def test_several_arms_come_as_arm_options() -> None:
    document = document_of(record_of(complete(streams.diverged_run())))
    assert document is not None
    second = {**document["arms"][1], "commit": "prefix", "confidence": 0.3, "draft_max": None}
    document["arms"].append(second)
    text = command(document)
    assert "--arm commit=direct,confidence=0.9,draft-max=5" in text
    assert "--arm commit=prefix,confidence=0.3" in text


def test_the_settings_table_has_those_of_every_arm() -> None:
    document = document_of(record_of(complete(streams.diverged_run())))
    assert document is not None
    strict = {"name": "strict", "commit": "strict", "confidence": None, "draft_max": None}
    document["arms"].append(document["arms"][1] | strict)
    document["arms"].append(document["arms"][1] | {"name": "direct again", "role": "control"})
    table = markdown([document]).partition("## Settings")[2].splitlines()
    name = document["arms"][1]["name"]
    assert [line for line in table if line.startswith("| arm ")] == [
        f"| arm {name} | commit direct, confidence 0.9, draft_max 5 |",
        "| arm strict | commit strict, confidence none, draft_max none |",
    ]
    assert not any(line.startswith(("| commit", "| confidence", "| draft")) for line in table)


def test_the_command_has_the_arms_own_drafter_and_every_limit() -> None:
    document = document_of(record_of(complete(streams.diverged_run())))
    assert document is not None
    document["settings"] |= {"perturb": None, "seed": 0, "threads": 1, "device": "cpu"}
    left_out = ("--near-tie", "--digests", "--batch-ops", "--pin", "--perturb", "--seed",
                "--kv-rounding", "--threads", "--device")  # fmt: skip
    assert not {*left_out} & {*command(document).split()}, "a default needs no option"
    document["arms"][1]["drafter"] = "other.gguf"
    document["settings"] |= {"near_tie_ulps": 4, "digest_every": 0, "no_repeat": 0, "threads": 2,
                             "batch_ops": ["compressor"], "perturb": "hc:4", "seed": 7}  # fmt: skip
    words = shlex.split(command(document))
    settings = cli._ab_parser().parse_args(words[2:])
    assert settings.arm == ["commit=direct,confidence=0.9,draft-max=5,mtp=other.gguf"]
    assert (settings.near_tie, settings.digests, settings.threads) == ("4", "0", "2")
    assert (settings.batch_ops, settings.perturb, settings.seed) == ("compressor", "hc:4", "7")
    assert settings.no_repeat == "0", "the target's own may be another"


OTHER = "cd" * 32


def files_of(*files: tuple[str, str]) -> list[report.Document]:
    """(path, sha256) of a target and its drafters, as a document has them."""
    document = document_of(record_of(complete(streams.diverged_run())))
    assert document is not None
    return [document["model"] | {"path": path, "sha256": sha256} for path, sha256 in files]


def again(*files: tuple[str, str], arms: tuple[str, ...]) -> argparse.Namespace:
    """The options of the command of a comparison.

    Args:
        files: (path, sha256) of the target and the drafters.
        arms: the drafter of each arm.
    """
    document = document_of(record_of(complete(streams.diverged_run())))
    assert document is not None
    document["model"], *document["drafters"] = files_of(*files)
    document["drafter"] = document["drafters"][0]
    (plain, arm) = document["arms"]
    document["arms"] = [plain, *(arm | {"drafter": drafter} for drafter in arms)]
    return cli._ab_parser().parse_args(shlex.split(command(document))[2:])


def drafters_of(args: argparse.Namespace) -> list[str | None]:
    return [knobs.mtp for knobs in options.dspark_arms(args, args.arm, True)]


def test_only_the_embedded_pairs_own_files_are_left_out_of_the_command() -> None:
    target, drafter = options.embedded_hashes()
    own, embedded = f"own/{options.TARGET_FILE}", f"own/{options.DRAFTER_FILE}"
    found = again((own, OTHER), (embedded, OTHER), arms=(embedded,))
    assert (found.model, found.mtp, drafters_of(found)) == (own, embedded, [None])
    found = again((own, ""), (embedded, ""), arms=(embedded,))
    assert (found.model, found.mtp) == (own, embedded), "files too large to be hashed"
    found = again(("a.gguf", target), ("b.gguf", drafter), arms=("b.gguf",))
    assert (found.model, found.mtp, drafters_of(found)) == (None, None, [None]), "elsewhere"
    found = again(("a.gguf", target), (embedded, OTHER), arms=(embedded,))
    assert (found.model, found.mtp, drafters_of(found)) == (None, None, [embedded])


def test_the_command_names_a_drafter_that_the_embedded_one_would_replace() -> None:
    target, drafter = options.embedded_hashes()
    own = ("own.gguf", OTHER)
    found = again(("t.gguf", target), own, ("d.gguf", drafter), arms=("own.gguf", "d.gguf"))
    assert (found.model, found.mtp, drafters_of(found)) == (None, None, ["own.gguf", None])
    # Beside a target of the user's the first file is the default, whatever it is.
    found = again(("t.gguf", OTHER), own, ("d.gguf", drafter), arms=("own.gguf", "d.gguf"))
    assert (found.model, found.mtp) == ("t.gguf", "own.gguf")
    assert drafters_of(found) == [None, "d.gguf"]


@pytest.mark.parametrize("text", ["-x", "--report", "-5", "a -b"])
def test_text_that_looks_like_an_option_is_a_prompt_again(text: str) -> None:
    document = document_of(record_of(complete(streams.diverged_run())))
    assert document is not None
    document["prompt"]["text"] = document["settings"]["system"] = text
    args = cli._ab_parser().parse_args(shlex.split(command(document))[2:])
    assert (args.prompt, args.system) == (text, text)


@pytest.mark.parametrize("word", [HOSTILE, "plain", "it's", "\udce2x", "tab\there", "🙂 \\n"])
def test_a_quoted_word_is_that_word_in_a_shell(word: str) -> None:
    line = quoted(word)
    assert visible(line, keep="") == line
    script = f"printf %s {line}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.stdout == word.encode("utf-8", "surrogateescape")


def test_what_the_command_leaves_out_is_said() -> None:
    run = report.RunEvents.of(complete(streams.diverged_run()))
    run.started = replace(run.started, cached=7)
    run.changes = [{"arm": 1, "cycle": 9, "settings": {"commit": "prefix"}}]
    text = markdown([report.ab_document([run])])
    assert "A follow-up turn" in text
    assert "commit prefix at cycle 9 of direct." in text


async def test_the_report_on_a_run_of_a_set_has_the_sets_figures_by_category() -> None:
    link = FakeLink()
    controller = make_controller(link=link, prompt=None)
    app = make_app(controller)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: controller.ready is not None)
        link.waiting += complete(suite_streams.suite("set", ("split",), ("direct",)))
        await settle(pilot, lambda: not controller.is_busy and bool(controller.suites))
        await pilot.press("Y")
        await settle(pilot, lambda: bool(app._notifications))
        text = app.clipboard
        assert "split direct: 1 of 3 prompts identical" in text
        assert "## By category" in text
        facts = next(line for line in text.splitlines() if line.startswith("| facts |"))
        assert "| 0/2 | #163 |" in facts
        assert "different work" in facts
        assert text == visible(text)


def test_the_report_of_a_set_has_a_table_by_category_that_is_safe_to_print() -> None:
    document = document_of(record_of(complete(streams.diverged_run())))
    assert document is not None
    run = report.RunEvents.of(complete(streams.diverged_run()))
    found = by_category([(n, [replace(r, category=HOSTILE)]) for n, r in arm_runs(document, [run])])
    text = markdown([document], found)
    table = text.partition("## By category")[2]
    assert table.splitlines()[2].startswith("| category | arm | identical | first |")
    assert "a\\[bold\\]" in table
    assert text == visible(text)
    assert "## By category" not in markdown([document], [])


def test_no_report_before_the_end() -> None:
    assert report_of(record_of(streams.until(streams.diverged_run(), 50))) is None
    assert report_of(record_of(streams.failed_run())) is None


def test_an_export_is_a_transcript_a_trace_figures_and_a_picture(tmp_path: Path) -> None:
    record = record_of(complete(hostile_run()))
    paths = {path.suffix: path for path in write_run(record, "<svg/>", "play")}
    assert set(paths) == {".txt", ".jsonl", ".json", ".svg"}
    assert read_trace(str(paths[".jsonl"])) == list(record.events)
    assert json.loads(paths[".json"].read_text())["schema"] == report.SCHEMA
    text = paths[".txt"].read_text(encoding="utf-8")
    assert text == transcript(record) == visible(text)


async def test_keys_write_report_and_export(tmp_path: Path) -> None:
    controller = make_controller(complete(streams.diverged_run()))
    app = make_app(controller)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: controller.state is RunState.DONE)
        await pilot.press("Y", "e")
        await settle(pilot, lambda: len(app._notifications) == 2)
        names = {path.name for path in exports.exports_folder().iterdir()}
        assert "run-run-1-report.md" in names
        assert "run-run-1-play.svg" in names
        assert app.clipboard.startswith("# ds4tui ab")
        notes = [note.message for note in app._notifications]
        assert notes[0].startswith("copied the report, ")
        assert "run-run-1-events.jsonl" in notes[1]


async def test_a_full_disk_is_one_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ds4tui.app.write_run", full)
    controller = make_controller(streams.diverged_run())
    app = make_app(controller)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: controller.state is RunState.DONE)
        await pilot.press("e")
        await settle(pilot, lambda: bool(app._notifications))
        assert "No space left on device" in next(iter(app._notifications)).message
