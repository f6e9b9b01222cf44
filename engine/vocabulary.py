"""Special tokens of the DeepSeek-V4 vocabulary and how a file says where they are."""

from __future__ import annotations

import hashlib

from engine.errors import Ds4Error
from engine.gguf import GGUFFile

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
END_THINK = "</think>"
DSML = "｜DSML｜"

SPECIAL_TOKENS = (BOS, EOS, USER, ASSISTANT, THINK, END_THINK, DSML)
"""Texts that are single tokens in a rendered chat; the bars are U+FF5C, the low line is U+2581."""


def token_id(file: GGUFFile, name: str, text: str, tokens: list[str]) -> int:
    """A special token's id: from `tokenizer.ggml.<name>_token_id`, else by its text.

    Raises:
        Ds4Error: when the vocabulary has neither.
    """
    key = f"tokenizer.ggml.{name}_token_id"
    if key in file.metadata:
        return file.get_int(key, 0, len(tokens) - 1)
    if text in tokens:
        return tokens.index(text)
    raise Ds4Error(
        "Incomplete vocabulary",
        f"{file.name} has no metadata key {key!r} and no token {text!r}, expected one of them.",
        "Convert the model again with its tokenizer.",
    )


def vocabulary_digest(tokens: list[str]) -> str:
    """Hex digest of a token list, to tell whether two vocabularies are one."""
    joined = "\0".join(tokens).encode("utf-8", errors="surrogateescape")
    return hashlib.sha256(joined).hexdigest()
