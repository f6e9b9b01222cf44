"""Text that the target writes itself: what the drafter is trained on.

Owns the mixture of prompts. Every row is continued greedily under the no-repeat rule with the
roundings of stored rows on, past end tokens, to a fixed length.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor

from tools.tiny_model.decode import Generated, Generator
from tools.tiny_model.export import NO_REPEAT
from tools.tiny_model.target import Target
from tools.tiny_model.tokenizer import BOS, END_THINK

CHAT, QUESTIONS = 0.15, 0.20
"""Share of rows that answer a trained question, and a question without a trained answer; the
other rows continue pieces of the corpus."""
PREFIX = (4, 72)
"""Tokens of corpus that a row begins with, at least and at most."""


def chat_prompts(ids: list[int]) -> list[list[int]]:
    """The distinct question turns of the packed chat examples."""
    found: dict[tuple[int, ...], None] = {}
    start = 0
    for i, token in enumerate(ids):
        if token == BOS:
            start = i
        elif token == END_THINK:
            found.setdefault(tuple(ids[start : i + 1]))
    return [list(prompt) for prompt in found]


def mixed_prompts(
    count: int, train: Tensor, chat: list[list[int]], questions: list[list[int]], seed: int
) -> list[list[int]]:
    """`count` prompts; corpus prefixes begin with BOS wherever they were cut."""
    rng = random.Random(seed)
    prompts = []
    for _ in range(count):
        kind = rng.random()
        if kind < CHAT:
            prompts.append(rng.choice(chat))
        elif kind < CHAT + QUESTIONS:
            prompts.append(rng.choice(questions))
        else:
            size = rng.randint(*PREFIX)
            at = rng.randrange(len(train) - size)
            piece = train[at : at + size].tolist()
            if BOS in piece:  # a document begins here: start with it
                begin = piece.index(BOS)
                piece = train[at + begin + 1 : at + begin + 1 + size].tolist()
            prompts.append([BOS, *piece])
    return prompts


def own_text(
    target: Target,
    prompts: list[list[int]],
    length: int,
    rows: int,
    rounding: bool = True,
    log=lambda *_: None,
) -> Generated:
    """The prompts' rows, generated `rows` at a time; tokens and bans are int16 on the CPU."""
    generator = Generator(target, rows, length, rounding=rounding, no_repeat=NO_REPEAT)
    parts = []
    for i in range(0, len(prompts), rows):
        part = generator.run(prompts[i : i + rows])
        part.tokens, part.banned = part.tokens.to(torch.int16), part.banned.to(torch.int16)
        parts.append(part)
        log("generated", sum(p.tokens.numel() for p in parts) / 1e6, "M tokens")
    return Generated(
        torch.cat([p.tokens for p in parts]),
        torch.cat([p.prompt_lengths for p in parts]),
        torch.cat([p.banned for p in parts]),
        torch.cat([p.margins for p in parts]),
    )
