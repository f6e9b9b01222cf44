"""Ids against an independent tokenizer, special tokens as plain text, conversations, one BOS."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from unicodedata import ucd_3_2_0

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import Ds4Error
from engine.gguf import open_gguf
from engine.gguf_write import Plain, Typed, write_gguf
from engine.tokenizer import Tokenizer, Turn
from tests.engine.random_pair import SPECIAL, tokenizer_metadata, vocabulary

BOS, EOS, _, USER, ASSISTANT, THINK, END_THINK, *_ = range(9)
SIZE = 4096


def load(path: Path, changes: Mapping[str, Plain | Typed | None] | None = None) -> Tokenizer:
    metadata = tokenizer_metadata(SIZE) | dict(changes or {})
    kept = {key: value for key, value in metadata.items() if value is not None}
    return Tokenizer.from_gguf(open_gguf(write_gguf(path / "t.gguf", kept, [])))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load(tmp_path_factory.mktemp("tokenizer"))


class Reference:
    """Byte-level BPE written out: three expressions, then the best-ranked pair at a time."""

    PASSES = tuple(
        regex.compile(pattern)
        for pattern in (
            r"\p{N}{1,3}",
            "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
            r"""|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
            r"""|\s*[\r\n]+|\s+(?!\S)|\s+""",
        )
    )

    def __init__(self) -> None:
        tokens, _, merges = vocabulary(SIZE)
        self.ids = {token: i for i, token in enumerate(tokens) if i >= len(SPECIAL)}
        self.ranks = {tuple(m.split(" ")): rank for rank, m in enumerate(merges)}
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        rest = [b for b in range(256) if b not in plain]
        self.symbols = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}

    def pieces(self, text: str) -> list[str]:
        found = [text]
        for pattern in self.PASSES:
            found = [part for piece in found for part in self.isolated(pattern, piece)]
        return found

    @staticmethod
    def isolated(pattern: regex.Pattern[str], text: str) -> list[str]:
        parts, at = [], 0
        for match in pattern.finditer(text):
            parts += [text[at : match.start()], match.group()]
            at = match.end()
        return [part for part in [*parts, text[at:]] if part]

    def encode(self, text: str) -> list[int]:
        ids = []
        for piece in self.pieces(text):
            word = [self.symbols[byte] for byte in piece.encode()]
            while True:
                pairs = [
                    (self.ranks.get(pair, 1 << 30), i) for i, pair in enumerate(pairwise(word))
                ]
                rank, at = min(pairs, default=(1 << 30, 0))
                if rank == 1 << 30:
                    break
                word[at : at + 2] = [word[at] + word[at + 1]]
            ids += [self.ids[symbol] for symbol in word]
        return ids


REFERENCE = Reference()
TEXTS = [
    "2026",
    "rfid501.go",
    "12345678 3.14159 1,000,000 ½ ٣٤٥ 二〇二六年",
    "The three-way handshake: SYN, SYN-ACK, ACK.",
    "don't we'll I'M 'tis \"quoted\" #hashtag @name $PATH _under",
    "naïve café Ünïcödé straße ﬁne",
    "日本語のテキストとカタカナ、漢字。中文测试。한국어",
    "mixed中文and English混合text",
    "👩‍👩‍👧‍👦 🇩🇪 ❤️ 👍🏽 🧑‍💻",
    "   leading   inner  trailing   ",
    "tabs\tand\t\tnewlines\n\n\nand\r\nreturns\r",
    "\n \n  \n   x",
    "def f(x):\n    return x**2 + 1\n",
    "é combining à marks नमस्ते",
    "\x00\x01\x1b[2J\x7f\x80\u2028\u202e\ufeff",
    "<｜Assistant｜><think></think>｜DSML｜",
    "",
    " ",
]


@pytest.mark.parametrize("text", TEXTS)
def test_ids_equal_the_reference(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert ids == REFERENCE.encode(text)
    assert tokenizer.decode(ids) == text


SCRIPTS = st.text(
    st.one_of(
        st.characters(codec="utf-8").filter(lambda c: ucd_3_2_0.category(c) != "Cn"),
        st.sampled_from(" \t\r\n\u3000.,'-<｜>0129aetinosZ中日ーアé\u0301👍"),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(SCRIPTS)
def test_any_text_comes_back_and_equals_the_reference(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert ids == REFERENCE.encode(text)
    assert not any(map(tokenizer.is_special, ids))


def test_numbers_split_by_three_and_punctuation_joins_letters(tokenizer: Tokenizer) -> None:
    assert REFERENCE.pieces("2026") == ["202", "6"]
    assert REFERENCE.pieces("rfid501.go") == ["rfid", "501", ".go"]
    assert [tokenizer.token_bytes(t) for t in tokenizer.encode("2026")] == [b"2", b"0", b"2", b"6"]


def test_every_id_has_its_bytes(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == SIZE
    assert [tokenizer.token_bytes(9 + b) for b in range(256)] == [bytes([b]) for b in range(256)]
    assert tokenizer.token_bytes(USER).decode() == "<｜User｜>"
    for outside in (-1, SIZE):
        with pytest.raises(IndexError):
            tokenizer.token_bytes(outside)


def test_bytes_that_are_no_text_are_hex(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([9 + 0xE2, 9 + 0x41]) == "<0xE2>A"


def test_lone_surrogates_are_replaced(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud800b\udce2")) == "a\ufffdb\ufffd"
    assert tokenizer.decode(tokenizer.encode("\ud83d\ude00")) == "😀"


# -- special tokens in a user's text


@pytest.mark.parametrize("token", SPECIAL)
def test_special_tokens_are_plain_text_unless_switched_on(tokenizer: Tokenizer, token: str) -> None:
    text = f"a{token} b"
    plain = tokenizer.encode(text)
    assert not any(map(tokenizer.is_special, plain))
    assert tokenizer.decode(plain) == text
    on = tokenizer.encode(text, control_tokens=True)
    assert on == [*tokenizer.encode("a"), SPECIAL.index(token), *tokenizer.encode(" b")]


def test_plain_everywhere_in_a_conversation(tokenizer: Tokenizer) -> None:
    text = "<｜end▁of▁sentence｜><｜Assistant｜>"
    turns = [Turn("user", text), Turn("assistant", text), Turn("user", text)]
    plain = tokenizer.render_chat(turns, system=text)
    assert plain.count(ASSISTANT) == 2
    assert plain.count(EOS) == 1
    on = tokenizer.render_chat(turns, system=text, control_tokens=True)
    assert on.count(ASSISTANT) == 2 + 3  # system and two user turns; the model's own text never


def test_types_decide_what_is_special(tmp_path: Path) -> None:
    _, types, _ = vocabulary(SIZE)
    types[THINK] = 4
    types[USER] = 1
    made = load(tmp_path, {"tokenizer.ggml.token_type": types})
    assert made.is_special(THINK)
    assert not made.is_special(USER)
    without = load(tmp_path, {"tokenizer.ggml.token_type": None})
    assert [i for i in range(SIZE) if without.is_special(i)] == [0, 1, 3, 4, 5, 6, 7]


# -- conversations


def test_rendering(tokenizer: Tokenizer) -> None:
    def e(text: str) -> list[int]:
        return tokenizer.encode(text)

    one = [Turn("user", "Hi")]
    assert tokenizer.render_chat(one) == [BOS, USER, *e("Hi"), ASSISTANT, END_THINK]
    assert tokenizer.render_chat(one, think=True)[-2:] == [ASSISTANT, THINK]
    with_system = [BOS, *e("Be brief."), USER, *e("Hi"), ASSISTANT, END_THINK]
    assert tokenizer.render_chat(one, system="Be brief.") == with_system
    more = [*one, Turn("assistant", "Hello"), Turn("user", "And?")]
    start = [BOS, USER, *e("Hi"), ASSISTANT, END_THINK, *e("Hello"), EOS, USER, *e("And?")]
    assert tokenizer.render_chat(more) == [*start, ASSISTANT, END_THINK]
    assert tokenizer.render_chat(more, think=True) == [*start, ASSISTANT, THINK]
    thought = [one[0], Turn("assistant", "Let me see.</think>Hello"), more[2]]
    assert tokenizer.render_chat(thought, think=True) == [*start, ASSISTANT, THINK]


def test_a_follow_up_continues_what_was_rendered(tokenizer: Tokenizer) -> None:
    first = tokenizer.render_chat([Turn("user", "Hi")])
    answer = tokenizer.encode("Hello")
    turns = [Turn("user", "Hi"), Turn("assistant", "Hello"), Turn("user", "And?")]
    whole = tokenizer.render_chat(turns)
    cut = tokenizer.render_follow_up("And?", ended=False)
    assert [*first, *answer, *cut] == whole
    assert [*first, *answer, EOS, *tokenizer.render_follow_up("And?", ended=True)] == whole
    assert tokenizer.render_follow_up("x", ended=True, think=True)[-1] == THINK


def test_a_conversation_ends_with_a_question(tokenizer: Tokenizer) -> None:
    for turns in ([], [Turn("user", "a"), Turn("assistant", "b")]):
        with pytest.raises(ValueError, match="end with a user's turn"):
            tokenizer.render_chat(turns)


@pytest.mark.parametrize("add_bos", [True, False, None])
@pytest.mark.parametrize("spelt", ["", "<｜begin▁of▁sentence｜>", "<｜begin▁of▁sentence｜>" * 2])
def test_one_bos(tmp_path: Path, add_bos: bool | None, spelt: str) -> None:
    template = "{{ bos_token }}{{ messages }}"
    keys = {"tokenizer.ggml.add_bos_token": add_bos, "tokenizer.chat_template": template}
    made = load(tmp_path, keys)
    for ids in (
        made.render_raw(spelt + "text", control_tokens=True),
        made.render_chat([Turn("user", "text")], system=spelt, control_tokens=True),
        made.render_raw("text"),
    ):
        assert ids[0] == BOS
        assert ids.count(BOS) == 1


def test_raw_prompts(tokenizer: Tokenizer) -> None:
    assert tokenizer.render_raw("a b") == [BOS, *tokenizer.encode("a b")]
    assert tokenizer.render_raw("") == [BOS]


# -- vocabularies that are something else


@pytest.mark.parametrize("name", ["deepseek-v3", "joyai-llm"])
def test_known_splitters_are_silent(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, {"tokenizer.ggml.pre": name}).warnings == ()


@pytest.mark.parametrize(
    "name", ["llama-bpe", "qwen2", "deepseek-llm", "default", "x\x1b[2J", None]
)
def test_other_splitters_warn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str | None
) -> None:
    with caplog.at_level(logging.WARNING, logger="engine"):
        made = load(tmp_path, {"tokenizer.ggml.pre": name})
    (warning,) = made.warnings
    for part in ("tokenizer.ggml.pre", (name or "is absent").replace("\x1b", "␛"), "may differ"):
        assert part in warning
    assert "\x1b" not in warning
    assert warning in caplog.text
    assert made.encode("2026") == REFERENCE.encode("2026")


def broken() -> dict[str, tuple[dict[str, Plain | Typed | None], str]]:
    tokens, types, merges = vocabulary(SIZE)
    t, m = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
    return {
        "kind": ({"tokenizer.ggml.model": "llama"}, "'llama', expected 'gpt2'"),
        "no kind": ({"tokenizer.ggml.model": None}, "tokenizer.ggml.model"),
        "no tokens": ({t: None}, t),
        "no merges": ({m: None}, m),
        "merges of numbers": ({m: [1, 2]}, "array of 2 i32"),
        "odd merge": ({m: ["a"]}, "merge 0, 'a'"),
        "merge of strangers": ({m: [*merges[:3], "ab\x1b cd"]}, "merge 3, 'ab␛ cd'"),
        "bytes missing": ({t: [*tokens[:20], "?", *tokens[21:]]}, "1 of 256 bytes"),
        "types of others": ({"tokenizer.ggml.token_type": types[:-1]}, "4095 token types for 4096"),
        "not text": ({t: [*tokens[:-1], "\udcff"]}, "is no UTF-8 text"),
        "no EOS": (
            {"tokenizer.ggml.eos_token_id": None, t: [tokens[0], "x", *tokens[2:]]},
            "eos_token_id",
        ),
    }


@pytest.mark.parametrize("what", broken())
def test_broken_vocabularies(tmp_path: Path, what: str) -> None:
    changes, message = broken()[what]
    with pytest.raises(Ds4Error) as caught:
        load(tmp_path, changes)
    assert message in caught.value.message


def test_no_merges_means_bytes(tmp_path: Path) -> None:
    for empty in (Typed("string", []), Typed("i32", [])):
        made = load(tmp_path, {"tokenizer.ggml.merges": empty})
        assert made.encode("ab") == [9 + ord("a"), 9 + ord("b")]


def test_a_vocabulary_without_turns_says_so(tmp_path: Path) -> None:
    tokens, types, _ = vocabulary(SIZE)
    tokens[ASSISTANT] = "<other>"
    types[ASSISTANT] = 1
    changes = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    made = load(tmp_path, changes)
    with pytest.raises(Ds4Error, match="no special token '<｜Assistant｜>'"):
        made.render_chat([Turn("user", "Hi")])
    assert made.render_raw("Hi")[0] == BOS
