"""Checks the committed texts: chat questions and answers, demo prompts, held-out prompts.

Does not check that held-out prompts are absent from the training corpus: that needs the corpus.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHAT = ROOT / "tools" / "tiny_model" / "chat"
DEMO = ROOT / "ds4tui" / "prompts" / "demo.jsonl"
SET20 = ROOT / "ds4tui" / "prompts" / "set20.jsonl"
HELD_OUT = ROOT / "tools" / "tiny_model" / "heldout_prompts.jsonl"
CATEGORIES = {"facts", "howto", "code", "prose", "manual"}


def _load_expander() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chat_expand", CHAT / "expand.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _grams(text: str, n: int) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


expander = _load_expander()
QUESTIONS = _rows(CHAT / "questions.jsonl")
subjects = pytest.mark.parametrize("entry", QUESTIONS, ids=lambda entry: entry["id"])


def test_subjects_and_wordings_are_distinct() -> None:
    assert len({entry["id"] for entry in QUESTIONS}) == len(QUESTIONS) >= 16
    wordings = [wording for entry in QUESTIONS for wording in entry["questions"]]
    assert len(set(wordings)) == len(wordings)
    assert QUESTIONS[0]["questions"][0] == "Explain the TCP three-way handshake."


@subjects
def test_subject_is_well_formed(entry: dict[str, Any]) -> None:
    assert set(entry) == {"id", "category", "questions", "skeleton"}
    assert entry["category"] in CATEGORIES
    assert len(entry["questions"]) >= 12
    assert "".join([*entry["questions"], entry["skeleton"]]).isascii()
    places = expander.alternatives(entry["skeleton"])
    assert len(places) >= 6
    for options in places:
        assert 2 <= len(options) <= 4
        # A different first word puts the choice on one token.
        assert len({option.split()[0] for option in options}) == len(options)


@subjects
def test_every_variant_reads_as_one_answer(entry: dict[str, Any]) -> None:
    for seed in range(4):
        for text in expander.expand(entry["skeleton"], 12, seed):
            assert 190 <= len(text.split()) <= 300
            assert not re.search(r"[{}|]|[^\S\n]{2}| [.,;:]|[^\n]\n[^\n]|\n{3}", text)
            assert text[0].isupper()
            assert text.endswith(".")
            # The decoder forbids a repeated 8-gram of tokens; answers must not need one.
            assert max(_grams(text, 6).values()) == 1


@subjects
def test_alternatives_are_equally_frequent(entry: dict[str, Any]) -> None:
    skeleton = "|".join(f"{{{'|'.join(o)}}}" for o in expander.alternatives(entry["skeleton"]))
    rows = [text.split("|") for text in expander.expand(skeleton, 24, 3)]
    for column in zip(*rows, strict=True):
        counts = Counter(column)
        assert max(counts.values()) - min(counts.values()) <= 1
        assert len(counts) > 1
    assert len({tuple(row) for row in rows}) > 12


def test_expansion_is_deterministic_and_keeps_the_fixed_text() -> None:
    skeleton = "A {b|c} d {e|f|g}."
    assert expander.expand(skeleton, 6, 1) == expander.expand(skeleton, 6, 1)
    assert all(re.fullmatch(r"A [bc] d [efg]\.", text) for text in expander.expand(skeleton, 6, 1))
    assert expander.expand("No place.", 2, 0) == ["No place.", "No place."]


@pytest.mark.parametrize(("path", "count"), [(DEMO, 10), (SET20, 20), (HELD_OUT, 40)])
def test_prompt_files(path: Path, count: int) -> None:
    rows = _rows(path)
    assert len(rows) == len({row["id"] for row in rows}) == len({row["text"] for row in rows})
    assert len(rows) == count
    for row in rows:
        assert set(row) == {"id", "category", "text", "chat"}
        assert isinstance(row["chat"], bool)
        assert row["text"].isascii()
    assert {row["category"] for row in rows} == CATEGORIES


def test_demo_has_four_trained_prompts_and_opens_the_larger_set() -> None:
    demo = _rows(DEMO)
    trained = {wording for entry in QUESTIONS for wording in entry["questions"]}
    assert [row["id"] for row in demo if row["text"] in trained] == [
        "virtual-memory",
        "tcp-handshake",
        "hash-table",
        "mutex",
    ]
    assert _rows(SET20)[:10] == demo
    assert not {row["text"] for row in _rows(SET20)[10:]} & trained


def test_held_out_prompts_are_balanced_and_share_no_13_gram() -> None:
    held_out = _rows(HELD_OUT)
    assert set(Counter(row["category"] for row in held_out).values()) == {8}
    others = [row["text"] for row in _rows(SET20)]
    for entry in QUESTIONS:
        others += [*entry["questions"], *expander.expand(entry["skeleton"], 12, 0)]
    known = {gram for text in others for gram in _grams(text, 13)}
    seen: set[tuple[str, ...]] = set()
    for row in held_out:
        assert 10 <= len(row["text"].split()) <= 60, row["id"]
        grams = set(_grams(row["text"], 13))
        assert not grams & (known | seen), row["id"]
        seen |= grams
