"""Scripted suites: the events of a matrix or a set over three prompts, from scripted runs."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from engine.events import (
    ArmInfo,
    Event,
    LoadProgress,
    RunFinished,
    RunStarted,
    SuiteFinished,
    SuiteStarted,
    TokenText,
)
from tests.ds4tui import streams
from tests.ds4tui.streams import MS, Script

PROMPTS = (("tcp-handshake", "facts"), ("mutex", "facts"), ("quicksort", "code"))
TEXTS = ("Explain the TCP three-way handshake.", "What is a mutex?", "Explain quicksort.")
POLICIES = ("direct", "prefix", "reproject", "replay", "strict")
SPEEDS = {"direct": 1.0, "prefix": 0.8, "reproject": 0.85, "replay": 2.1, "strict": 1.04}
PARTED = frozenset(
    (cell, prompt)
    for cell, prompts in (("split direct", (0, 1)), ("split prefix", (0,)))
    for prompt in prompts
)
"""(cell, prompt) pairs whose ids part from plain's."""
TOKENS = 200


def suite(
    kind: str = "matrix",
    numerics: Sequence[str] = ("split", "invariant"),
    policies: Sequence[str] = POLICIES,
    parted: Collection[tuple[str, int]] = PARTED,
    suite_id: str = "5u17e",
    start_ms: int = 0,
) -> list[Event]:
    """All events of a suite.

    Args:
        parted: (cell, prompt) pairs whose ids part.
    """
    cells = tuple(f"{n} {policy}" for n in numerics for policy in policies)
    t_ns = start_ms * MS
    events: list[Event] = [
        SuiteStarted(
            "",
            -1,
            t_ns,
            suite_id,
            kind,  # type: ignore[arg-type]  # one of the kinds
            cells,
            runs=len(PROMPTS) * len(numerics),
            prompts=PROMPTS,
            name="demo",
            max_tokens=TOKENS,
        )
    ]
    for prompt in range(len(PROMPTS)):
        for name in numerics:
            run = list(_run(name, policies, prompt, parted, suite_id))
            first = run[0].t_ns
            events += [replace(event, t_ns=event.t_ns - first + t_ns) for event in run]
            t_ns = events[-1].t_ns + MS
    events.append(SuiteFinished("", -1, t_ns, suite_id, events[0].kind, cells))  # type: ignore[attr-defined]
    return events


def _run(
    numerics: str,
    policies: Sequence[str],
    prompt: int,
    parted: Collection[tuple[str, int]],
    suite_id: str,
) -> Iterator[Event]:
    run_id = f"{suite_id}-{numerics}-{prompt}"
    arms = []
    for arm, policy in enumerate(policies, start=1):
        parts = (f"{numerics} {policy}", prompt) in parted
        script = Script(
            run_id=run_id,
            policy=policy,
            numerics=numerics,
            diverges=parts,
            drifts=numerics == "split" and policy in ("direct", "prefix", "reproject"),
            tokens=TOKENS,
            speed=SPEEDS[policy],
            no_drafts=policy == "strict",
            large_gaps=prompt == 2,
            seed=7 + prompt,
        )
        events = streams.run(script)
        arms.append([e if e.arm < 0 else replace(e, arm=arm) for e in events if _of_arm(e)])
    plain = streams.run(Script(run_id=run_id, numerics=numerics, diverges=False, tokens=TOKENS,
                               large_gaps=prompt == 2, seed=7 + prompt))  # fmt: skip
    head = next(event for event in plain if isinstance(event, RunStarted))
    infos = tuple(_info(numerics, policy) for policy in policies)
    yield replace(
        head,
        arms=(head.arms[0], *infos),
        prompt=TEXTS[prompt],
        suite_id=suite_id,
        cell=numerics,
        prompt_index=prompt,
        category=PROMPTS[prompt][1],
    )
    kept = [
        event
        for event in plain
        if event.arm <= 0 and not isinstance(event, RunStarted | RunFinished | LoadProgress)
    ]
    merged = list(heapq.merge(sorted(kept, key=_time), *arms, key=_time))
    yield from merged
    identical = not any((f"{numerics} {policy}", prompt) in parted for policy in policies)
    yield RunFinished(run_id, -1, merged[-1].t_ns + MS, identical)


def _time(event: Event) -> int:
    return event.t_ns


def _of_arm(event: Event) -> bool:
    """The DSpark arm's own, and the texts of tokens."""
    return event.arm == 1 or isinstance(event, TokenText)


def _info(numerics: str, policy: str) -> ArmInfo:
    gate = None if policy == "strict" else 0.9
    return ArmInfo(policy, "arm", "dspark", numerics, policy, gate, None, "drafter.gguf")
