"""A target, its state and a drafter whose logits and proposals a test gives.

The state behaves like the real one where it matters: it remembers the tokens evaluated and the path
that each took, its digests hash both, going back is a change of position, and what is written above
the position is garbage. The logits of a row depend on its tokens, on its own path, and on the paths
that its history took.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.paths import Plan

VOCAB = 32
EOS = 1
BLOCK = 5
NOISE = 8

Logits = np.ndarray
Script = Callable[[tuple[int, ...]], Logits]
"""Tokens evaluated so far, the row's own last -> (V,) logits of exact arithmetic."""


def seeded(*parts: object) -> np.random.Generator:
    """A generator that depends on the parts only."""
    data = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(data, "little"))


def random_script(seed: int, memory: int = 3, vocab: int = VOCAB) -> Script:
    """Logits that depend on the last `memory` tokens."""

    def logits(tokens: tuple[int, ...]) -> Logits:
        return seeded(seed, tokens[-memory:]).normal(0, 4, vocab).astype(np.float32)

    return logits


def path_script(
    ids: Sequence[int], prompt: int, gap: float = 5.0, level: float = 0.0, vocab: int = VOCAB
) -> Script:
    """Logits that choose `ids` after a prompt of so many tokens, each by `gap` over `level`."""

    def logits(tokens: tuple[int, ...]) -> Logits:
        row = np.full(vocab, level, np.float32)
        index = len(tokens) - prompt
        row[ids[index] if 0 <= index < len(ids) else 0] += gap
        return row

    return logits


@dataclass
class ScriptedState:
    """Tokens and the path word of each; `position` of them are live."""

    context: int = 4096
    position: int = 0
    tokens: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def snapshot(self) -> int:
        return self.position

    def restore(self, snapshot: int) -> None:
        self.install_prefix(snapshot, 0)

    def install_prefix(self, snapshot: int, rows: int) -> None:
        assert snapshot + rows <= self.position
        self.position = snapshot + rows

    def reproject(self, snapshot: int, rows: int) -> None:
        """Nothing here is compressed, so there is nothing more to make anew."""
        self.install_prefix(snapshot, rows)

    def clone(self) -> ScriptedState:
        return ScriptedState(self.context, self.position, list(self.tokens), list(self.paths))

    def append(self, token: int, path: str) -> None:
        del self.tokens[self.position :], self.paths[self.position :]
        self.tokens.append(token)
        self.paths.append(path)
        self.position += 1

    def live(self, layer: int, tensor: str) -> np.ndarray:
        rows = {"raw": 8, "frontier_kv": self.position % 4 + 4}[tensor]
        first = max(0, self.position - rows)
        rounded = [path == "batch" for path in self.paths[first : self.position]]
        tokens = np.array(self.tokens[first : self.position], np.float32)
        return tokens + np.array(rounded, np.float32) * 2.0**-12

    def names(self) -> tuple[tuple[int, str], ...]:
        return (0, "raw"), (1, "raw"), (1, "frontier_kv")

    def digest(self) -> dict[tuple[int, str], bytes]:
        return {
            name: hashlib.blake2b(self.live(*name), digest_size=16).digest()
            for name in self.names()
        }


class ScriptedChoices:
    """Expert choices per position, made up from the token and the path."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, dict[tuple[int, str], tuple[int, ...]]]] = {}

    def token(self, position: int) -> int | None:
        return self.rows[position][0] if position in self.rows else None

    def at(self, position: int) -> Mapping[tuple[int, str], tuple[int, ...]]:
        return self.rows[position][1] if position in self.rows else {}


@dataclass(frozen=True)
class ScriptedRows:
    logits: np.ndarray
    taps: np.ndarray


@dataclass
class ScriptedModel:
    """A target that answers by script.

    Args:
        noise: what the `batch` path adds to logits, in proportion to a hash of the row, per batch
            row evaluated or remembered; 0 = batch and decode agree.
        flaky: every forward answers a little differently.
    """

    script: Script
    noise: float = 0.0
    flaky: float = 0.0
    forwards: list[tuple[str, int]] = field(default_factory=list)
    pins: list[Any] = field(default_factory=list)
    vocab: int = VOCAB

    def new_state(self) -> ScriptedState:
        return ScriptedState()

    def forward(
        self,
        state: ScriptedState,
        ids: Sequence[int],
        plan: Plan,
        *,
        all_logits: bool = True,
        record: ScriptedChoices | None = None,
        pin: Any = None,
        on_rows: Callable[[int, int], None] | None = None,
    ) -> ScriptedRows:
        assert state.position + len(ids) <= state.context
        self.forwards.append((plan.path, len(ids)))
        self.pins.append(pin)
        rows = []
        for token in ids:
            if record is not None:
                record.rows[state.position] = (
                    token,
                    {(3, "router"): (token % 5, 7 if plan.path == "batch" else 6)},
                )
            state.append(token, plan.path)
            rows.append(self._row(state, plan.path))
        if on_rows:
            on_rows(len(ids), len(ids))
        taps = np.array([[float(token)] for token in ids], np.float32)
        return ScriptedRows(np.array(rows if all_logits else rows[-1:]), taps)

    def _row(self, state: ScriptedState, path: str) -> Logits:
        tokens = tuple(state.tokens[: state.position])
        row = self.script(tokens)
        rounded = state.paths[max(0, state.position - 8) : state.position].count("batch")
        if self.noise and rounded:
            random = seeded("noise", tokens[-4:], rounded)
            row = row + self.noise * rounded * random.normal(0, 1, row.size).astype(np.float32)
        if self.flaky:
            random = seeded("flaky", len(self.forwards))
            row = row + random.normal(0, self.flaky, row.size).astype(np.float32)
        return row


@dataclass
class ScriptedContext:
    """Tokens that the drafter was given, from `start` on."""

    start: int = 0
    tokens: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    def clone(self) -> ScriptedContext:
        return ScriptedContext(self.start, list(self.tokens))


Proposals = Callable[[tuple[int, ...]], Sequence[int]]
"""All committed tokens, the anchor last -> drafts of a block."""
Confidences = Callable[[tuple[int, ...]], Sequence[float]]


@dataclass
class ScriptedBlock:
    drafts: Sequence[int]
    confidences: Sequence[float]
    biased: bool
    heads: int = 0
    asked: list[int] = field(default_factory=list)

    def best(self, row: int, previous: int | None) -> int | None:
        return None

    def confidence(self, row: int, previous: int) -> float:
        self.asked.append(row)
        return self.confidences[row]

    def logits(self, row: int) -> np.ndarray:
        self.heads += 1
        logits = np.zeros(VOCAB, np.float32)
        if not self.biased:
            logits[self.drafts[row]] = 3.0
        return logits

    def scores(self, row: int, previous: int) -> np.ndarray:
        scores = self.logits(row)
        if self.biased:
            scores[self.drafts[row]] = 2.0
        return scores


@dataclass
class ScriptedDrafter:
    """A drafter that proposes by script; its context is the tokens that it was given.

    Args:
        biased: the drafts come from the Markov bias alone, so that without it all are id 0.
    """

    propose: Proposals
    confidences: Confidences = lambda tokens: [1.0] * BLOCK
    block_size: int = BLOCK
    biased: bool = False
    noise_id: int = NOISE
    window: int = 128
    blocks: list[ScriptedBlock] = field(default_factory=list)

    def new_context(self) -> ScriptedContext:
        return ScriptedContext()

    def extend(self, context: ScriptedContext, taps: np.ndarray, position: int) -> None:
        assert position >= context.end, "rows twice in the drafter's context"
        if position > context.end:  # a gap empties it
            context.start, context.tokens = position, []
        context.tokens.extend(int(tap) for tap in taps[:, 0])

    def block(
        self,
        context: ScriptedContext,
        anchor: int,
        position: int,
        rows: int | None = None,
        gate: float = 0.0,
    ) -> ScriptedBlock:
        assert position == context.end, "the context covers every token before the anchor"
        tokens = (*context.tokens, anchor)
        drafts = list(self.propose(tokens))[: self.block_size]
        drafts += [0] * (self.block_size - len(drafts))
        self.blocks.append(ScriptedBlock(drafts, self.confidences(tokens), self.biased))
        return self.blocks[-1]


def continuation(script: Script, count: int = BLOCK) -> Proposals:
    """Drafts that exact arithmetic would choose: a perfect drafter (no rules)."""

    def propose(tokens: tuple[int, ...]) -> list[int]:
        drafts: list[int] = []
        for _ in range(count):
            drafts.append(int(np.argmax(script((*tokens, *drafts)))))
        return drafts

    return propose


def spoiled(perfect: Proposals, wrong_from: Callable[[tuple[int, ...]], int]) -> Proposals:
    """Right drafts up to a row that depends on the tokens, wrong ones, never EOS, after it."""

    def wrong(draft: int) -> int:
        other = (draft + 3) % VOCAB
        return other if other != EOS else EOS + 1

    def propose(tokens: tuple[int, ...]) -> list[int]:
        right = wrong_from(tokens)
        return [draft if i < right else wrong(draft) for i, draft in enumerate(perfect(tokens))]

    return propose
