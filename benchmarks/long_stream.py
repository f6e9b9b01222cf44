"""Scripted runs of any length: events as an engine sends them, made from arithmetic alone.

For measuring what the interface does with them; knows no interface.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator

from engine.events import (
    ArmFinished,
    ArmInfo,
    CycleFinished,
    Event,
    FileInfo,
    RunFinished,
    RunStarted,
    StateDrift,
    TimeSplit,
    TokensCommitted,
    TokenText,
)

WORDS = 2000
"""Different tokens."""
LAYERS, BLOCK = 8, 5
TENSORS = ("raw", "comp", "frontier_kv", "frontier_score")
MS = 1_000_000


def names() -> tuple[tuple[int, bytes], ...]:
    """Token texts of one to nine letters with the space before them."""
    rng = random.Random(3)
    letters = "etaoinshrdlu"
    return tuple(
        (n, (" " + "".join(rng.choices(letters, k=rng.randint(1, 9)))).encode())
        for n in range(WORDS)
    )


def started(run_id: str, tokens: int) -> RunStarted:
    """The head of a run of two arms."""
    arms = (
        ArmInfo("plain", "arm", "plain", "split", None, None, None),
        ArmInfo("direct", "arm", "dspark", "split", "direct", 0.9, BLOCK),
    )
    digest = hashlib.sha256(b"").hexdigest()
    file = FileInfo("target", "t.gguf", digest, 1, "deepseek4", "scripted", 1, ())
    settings = (("numerics", "split"), ("device", "cpu"), ("max_tokens", str(tokens)))
    head = RunStarted(
        run_id, -1, 0, (), (file,), settings, arms, "A long one.", (0, 1, 2), tokens, 2 * tokens,
        BLOCK, 8, 128, 1, (0, 4) * (LAYERS // 2),
    )  # fmt: skip
    return head


def long_run(run_id: str, tokens: int, seed: int = 1) -> Iterator[list[Event]]:
    """The events of one run, step by step: a plain token each, and a cycle where one is due.

    Both arms have equal ids; every boundary is compared and differs nowhere.
    """
    rng = random.Random(seed)
    ids = [rng.randrange(WORDS) for _ in range(tokens)]
    yield [TokenText(run_id, -1, 0, names()), started(run_id, tokens)]
    t_ns, at, cycle = 0, 1, 0
    for arm in (0, 1):
        yield [commit(run_id, arm, 0, 0, ids[:1], ("prefill",), rng, TimeSplit(prefill=MS))]
    for index in range(1, tokens):
        t_ns += 2 * MS
        time = TimeSplit(decode=2 * MS)
        step: list[Event] = []
        step.append(commit(run_id, 0, t_ns, index, ids[index : index + 1], ("plain",), rng, time))
        if index >= at:
            accepted = min(rng.randint(0, BLOCK), tokens - at - 1)
            step += dspark(run_id, t_ns, at, cycle, ids[at : at + accepted + 1], rng)
            at, cycle = at + accepted + 1, cycle + 1
        yield step
    for arm in (0, 1):
        yield [ArmFinished(run_id, arm, t_ns, "length", tokens, True if arm else None)]
    yield [RunFinished(run_id, -1, t_ns, True)]


def dspark(
    run_id: str, t_ns: int, at: int, cycle: int, ids: list[int], rng: random.Random
) -> list[Event]:
    """One cycle that accepts all but the last id, and its comparison."""
    time = TimeSplit(draft=MS, verify=3 * MS)
    accepted = len(ids) - 1
    drafts = (*ids[:accepted], *(rng.randrange(WORDS) for _ in range(BLOCK - accepted)))
    finished = CycleFinished(
        run_id, 1, t_ns, cycle, at, at + 3, ids[0], drafts, drafts, (0.95,) * BLOCK, BLOCK,
        (*ids, *drafts[accepted + 1 :]), (1.0,) * (BLOCK + 1), (), accepted, ids[-1], len(ids), 0,
        "", time,
    )  # fmt: skip
    sources = ("draft",) * accepted + ("bonus",)
    equal = tuple((layer, name, None) for layer in range(LAYERS) for name in TENSORS)
    drift = StateDrift(run_id, 1, t_ns, at + accepted, at + accepted + 3, equal)
    return [finished, commit(run_id, 1, t_ns, at, ids, sources, rng, time), drift]


def commit(
    run_id: str,
    arm: int,
    t_ns: int,
    index: int,
    ids: list[int],
    sources: tuple[str, ...],
    rng: random.Random,
    time: TimeSplit,
) -> TokensCommitted:
    """Tokens with five best of each row."""
    top = tuple(
        tuple(
            (token if n == 0 else rng.randrange(WORDS), 14.0 - n - rng.random()) for n in range(5)
        )
        for token in ids
    )
    return TokensCommitted(
        run_id,
        arm,
        t_ns,
        index,
        index + 3,
        tuple(ids),
        sources,
        top,
        time,  # type: ignore[arg-type]
    )
