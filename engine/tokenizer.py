"""Ids <-> bytes, and rendering of a conversation: the tokenizer that a GGUF file carries.

Byte-level BPE of the GPT-2 kind with the splitter of DeepSeek-V3. Text from a user is plain text:
special tokens in it become ordinary bytes unless `control_tokens` is switched on. Owns no model.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from engine.errors import Ds4Error
from engine.gguf import GGUFFile
from engine.text import decode_bytes, one_line
from engine.vocabulary import (
    ASSISTANT,
    BOS,
    END_THINK,
    EOS,
    SPECIAL_TOKENS,
    THINK,
    USER,
    token_id,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Bpe

_log = logging.getLogger(__name__)

_DEEPSEEK_V3_NAMES = ("deepseek-v3", "joyai-llm")
_PASSES = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
"""The splitter's three passes, each over the pieces that the one before left."""

_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # `tokenizer.ggml.token_type`


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation; an assistant's text is without its end token."""

    role: Literal["user", "assistant"]
    text: str


class Tokenizer:
    """The vocabulary of one file; immutable.

    Attributes:
        vocab_size: number of ids.
        bos_id, eos_id: ids of the first and the last token of a text.
        warnings: what does not match the file's own description, in sentences.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        types: Sequence[int],
        *,
        bos_id: int,
        eos_id: int,
        warnings: tuple[str, ...] = (),
        source: str = "the vocabulary",
    ) -> None:
        """Build from lists; raises Ds4Error when they contradict each other.

        Args:
            tokens: text of each id, in the byte-level alphabet; special tokens as they are.
            merges: "left right", best first.
            types: of each id, as `tokenizer.ggml.token_type` has them; those of type control (3)
                never arise from plain text, they and user-defined ones (4) are special.
            source: how errors name where the lists came from.
        """
        self.vocab_size = len(tokens)
        self.bos_id, self.eos_id = bos_id, eos_id
        self.warnings = warnings
        self._source = source
        if len(types) != len(tokens):
            raise _contradiction(source, f"{len(types)} token types for {len(tokens)} tokens")
        kinds = (_CONTROL, _USER_DEFINED)
        self._special_ids = frozenset(i for i, kind in enumerate(types) if kind in kinds)
        self._special = {tokens[i]: i for i in self._special_ids if tokens[i]}
        self._bytes = _bytes_of_tokens(tokens, self._special_ids, source)
        plain = [None if t == _CONTROL else token for t, token in zip(types, tokens, strict=True)]
        self._bpe = _build_bpe(plain, merges, source)
        longest_first = sorted(self._special, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        self._special_pattern = re.compile(f"({pattern})" if pattern else r"(?!)")

    @staticmethod
    def from_gguf(file: GGUFFile) -> Tokenizer:
        """The tokenizer of a target's or a drafter's file.

        Raises:
            Ds4Error: when it has none, or one of another kind.
        """
        model = file.get_str("tokenizer.ggml.model")
        if model != "gpt2":
            raise Ds4Error(
                "Unsupported tokenizer",
                f"{file.name}: metadata key 'tokenizer.ggml.model' is {one_line(model)!r}, "
                "expected 'gpt2'.",
                "Only byte-level BPE vocabularies are read.",
            )
        tokens = file.get_strings("tokenizer.ggml.tokens")
        warnings = _check_splitter(file)
        for warning in warnings:
            _log.warning("%s", warning)
        return Tokenizer(
            tokens,
            file.get_strings("tokenizer.ggml.merges"),
            _token_types(file, tokens),
            bos_id=token_id(file, "bos", BOS, tokens),
            eos_id=token_id(file, "eos", EOS, tokens),
            warnings=warnings,
            source=file.name,
        )

    # -- ids and bytes

    def encode(self, text: str, *, control_tokens: bool = False) -> list[int]:
        """Ids of a text, without BOS.

        Args:
            control_tokens: let special tokens in the text become their ids; otherwise they are
                plain text like everything else. Lone surrogates become U+FFFD.
        """
        text = text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")
        if not control_tokens:
            return self._encode_plain(text)
        ids: list[int] = []
        for piece in self._special_pattern.split(text):
            special = self._special.get(piece)
            ids.extend(self._encode_plain(piece) if special is None else [special])
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids if text else []
        return ids

    def token_bytes(self, token: int) -> bytes:
        """The bytes that an id stands for; a special token's are its name's."""
        if not 0 <= token < self.vocab_size:
            raise IndexError(f"token {token} of a vocabulary of {self.vocab_size}")
        return self._bytes[token]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; bytes that are no UTF-8 as `<0xE2>`."""
        return decode_bytes(b"".join(map(self.token_bytes, ids)))

    def is_special(self, token: int) -> bool:
        """Whether an id is a control or user-defined token."""
        return token in self._special_ids

    # -- conversations

    def render_chat(
        self,
        turns: Sequence[Turn],
        *,
        system: str = "",
        think: bool = False,
        control_tokens: bool = False,
    ) -> list[int]:
        """Prompt ids for the answer to the last turn, which must be a user's; BOS once, first.

        Reasoning of finished turns is dropped: each is `<｜Assistant｜></think>` answer EOS.

        Args:
            system: text before the first turn; may be empty.
            think: end with `<think>` instead of `</think>`.
            control_tokens: as in `encode`, for user and system text.

        Raises:
            ValueError: when the last turn is not a user's.
            Ds4Error: when the vocabulary lacks the tokens of a conversation.
        """
        if not turns or turns[-1].role != "user":
            raise ValueError("a conversation must end with a user's turn")
        ids = [self.bos_id, *self._without_bos(system, control_tokens)]
        for turn in turns:
            if turn.role == "user":
                ids += [self._id(USER), *self.encode(turn.text, control_tokens=control_tokens)]
            else:
                answer = turn.text.rpartition(END_THINK)[2]
                ids += [self._id(ASSISTANT), self._id(END_THINK), *self.encode(answer), self.eos_id]
        return ids + self._answer_start(think)

    def render_follow_up(
        self, text: str, *, ended: bool, think: bool = False, control_tokens: bool = False
    ) -> list[int]:
        """Ids that continue a conversation whose ids are already evaluated, by one user turn.

        Args:
            ended: whether the previous answer's last id was EOS; otherwise EOS is added.
        """
        end = [] if ended else [self.eos_id]
        user = [self._id(USER), *self.encode(text, control_tokens=control_tokens)]
        return end + user + self._answer_start(think)

    def render_raw(self, text: str, *, control_tokens: bool = False) -> list[int]:
        """Prompt ids of a text that is no conversation: BOS, once, and the text."""
        return [self.bos_id, *self._without_bos(text, control_tokens)]

    def _without_bos(self, text: str, control_tokens: bool) -> list[int]:
        """Ids of a text that may spell out the BOS that rendering adds."""
        ids = self.encode(text, control_tokens=control_tokens)
        start = next((i for i, token in enumerate(ids) if token != self.bos_id), len(ids))
        return ids[start:]

    def _answer_start(self, think: bool) -> list[int]:
        return [self._id(ASSISTANT), self._id(THINK if think else END_THINK)]

    def _id(self, special: str) -> int:
        found = self._special.get(special)
        if found is None:
            raise Ds4Error(
                "Incomplete vocabulary",
                f"{self._source} has no special token {special!r}, expected it for conversations.",
                "Use --no-chat to give the prompt as raw text.",
            )
        return found


def byte_symbols() -> dict[int, str]:
    """The byte-level alphabet: printable bytes are themselves, the others U+0100 upward."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return {b: chr(b) for b in sorted(printable)} | {b: chr(256 + i) for i, b in enumerate(others)}


def _bytes_of_tokens(tokens: Sequence[str], special: frozenset[int], source: str) -> list[bytes]:
    of_symbol = {symbol: byte for byte, symbol in byte_symbols().items()}
    found: list[bytes] = []
    for index, token in enumerate(tokens):
        if index not in special and all(symbol in of_symbol for symbol in token):
            found.append(bytes(of_symbol[symbol] for symbol in token))
            continue
        try:
            found.append(token.encode("utf-8"))
        except UnicodeEncodeError:
            raise _contradiction(source, f"token {index} is no UTF-8 text") from None
    return found


def _build_bpe(tokens: Sequence[str | None], merges: Sequence[str], source: str) -> Bpe:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers  # slow import

    vocab: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token is not None:
            vocab.setdefault(token, index)
    missing = [byte for byte, symbol in byte_symbols().items() if symbol not in vocab]
    if missing:
        what = f"{len(missing)} of 256 bytes have no token, the first is 0x{missing[0]:02X}"
        raise _contradiction(source, what)
    pairs: list[tuple[str, str]] = []
    for index, merge in enumerate(merges):
        left, _, right = merge.partition(" ")
        if left not in vocab or right not in vocab or left + right not in vocab:
            what = f"merge {index}, {one_line(merge, 60)!r}, is not of three tokens"
            raise _contradiction(source, what)
        pairs.append((left, right))
    bpe = Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    splits = [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in _PASSES]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    return bpe


def _contradiction(source: str, what: str) -> Ds4Error:
    return Ds4Error(
        "Damaged vocabulary",
        f"{source}: {what}, expected a complete byte-level BPE vocabulary.",
        "Convert the model again with its tokenizer.",
    )


def _check_splitter(file: GGUFFile) -> tuple[str, ...]:
    """A warning when the file's text was not split as this program splits it."""
    key = "tokenizer.ggml.pre"
    found = file.get_str(key, default="")
    if found in _DEEPSEEK_V3_NAMES:
        return ()
    what = f"is {one_line(found, 60)!r}, which is not known here" if found else "is absent"
    names = " or ".join(map(repr, _DEEPSEEK_V3_NAMES))
    return (
        f"{file.name}: metadata key {key!r} {what} (expected {names}); text is split as "
        "'deepseek-v3' does, and token ids may differ from the model's own tokenizer.",
    )


def _token_types(file: GGUFFile, tokens: list[str]) -> Sequence[int]:
    """The file's own; in a file without them, by the names that DeepSeek-V4 uses."""
    key = "tokenizer.ggml.token_type"
    if key in file.metadata:
        return file.get_ints(key, 0, 1 << 16)
    return [_CONTROL if token in SPECIAL_TOKENS else _NORMAL for token in tokens]
