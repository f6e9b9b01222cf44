"""The 8k byte-level BPE with DeepSeek-V3's pre-tokenizer and special tokens.

Owns the vocabulary's layout: special tokens first, then the 256 byte symbols, then merges.
Does not own the chat template's turns beyond one question and its answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜▁pad▁｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜place▁holder▁no▁0｜>",
)
"""Ids 0 to 8; the last one is the drafter's noise token."""
BOS, EOS, PAD, USER, ASSISTANT, THINK, END_THINK, DSML, NOISE = range(9)
PATTERNS = (
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
"""The three passes that llama.cpp knows as `deepseek-v3`."""


def blank() -> Tokenizer:
    """A tokenizer with the pre-tokenizer and no merges yet."""
    tokenizer = Tokenizer(models.BPE())
    steps = [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in PATTERNS]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train(texts: Iterable[str], vocab: int) -> Tokenizer:
    """Learns the merges from `texts`; byte symbols are complete whatever the texts hold."""
    tokenizer = blank()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[AddedToken(s, special=True, normalized=False) for s in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load(path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(path))


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of plain text, without BOS."""
    return tokenizer.encode(text, add_special_tokens=False).ids


def chat_prompt(tokenizer: Tokenizer, question: str) -> list[int]:
    """BOS, the question's turn and the opening of an answer without thinking."""
    return [BOS, USER, *encode(tokenizer, question), ASSISTANT, END_THINK]


def prompt_ids(tokenizer: Tokenizer, text: str, chat: bool) -> list[int]:
    """A prompt as the playground sends it: a chat turn, or BOS and the text."""
    return chat_prompt(tokenizer, text) if chat else [BOS, *encode(tokenizer, text)]
