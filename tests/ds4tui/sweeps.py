"""Scripted sweeps: several arms a run, made from nothing but arithmetic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from engine.events import (
    ArmFinished,
    ArmInfo,
    CycleFinished,
    Diverged,
    Event,
    FileInfo,
    RunFinished,
    RunStarted,
    Source,
    SuiteFinished,
    SuiteStarted,
    TimeSplit,
    TokensCommitted,
    TokenText,
)

MS = 1_000_000
GROUPS: tuple[tuple[str, ...], ...] = (
    ("confidence 0", "confidence 0.5", "confidence 0.9", "strict"),
    ("confidence 0.3", "confidence 0.7", "confidence 0.8", "confidence 0.95", "confidence 0.99"),
)
BLOCKS = (("block 1", "block 3", "block 5", "strict"), ("block 2", "block 4"))
CYCLES: Mapping[str, tuple[float, int, int, float]] = {
    "strict": (1.0, 0, 0, 2.76),
    "confidence 0": (3.21, 5, 2, 6.13),
    "confidence 0.3": (3.16, 4, 2, 5.67),
    "confidence 0.5": (3.05, 3, 2, 5.27),
    "confidence 0.7": (2.94, 3, 2, 4.97),
    "confidence 0.8": (2.84, 2, 2, 4.80),
    "confidence 0.9": (2.71, 2, 2, 4.60),
    "confidence 0.95": (2.41, 2, 1, 4.25),
    "confidence 0.99": (1.82, 1, 1, 3.87),
    "block 1": (1.8, 1, 1, 4.2),
    "block 2": (2.5, 2, 2, 4.6),
    "block 3": (2.9, 3, 2, 5.0),
    "block 4": (3.1, 4, 2, 5.6),
    "block 5": (3.21, 5, 2, 6.13),
}
"""By cell: mean depth, drafts proposed, most accepted, milliseconds of a cycle."""


@dataclass(frozen=True)
class SweepScript:
    """What a scripted sweep shall be.

    Args:
        differs: first unequal index by cell.
        pace: factor of the machine's times by run.
        noise: standard deviation of a step's time, as a share.
        settings: more of what every run announces.
    """

    groups: Sequence[Sequence[str]] = GROUPS
    prompts: int = 1
    repeats: int = 1
    tokens: int = 200
    plain_ms: float = 2.64
    differs: Mapping[str, int] = field(default_factory=dict)
    pace: Sequence[float] = ()
    noise: float = 0.02
    cycles: Mapping[str, tuple[float, int, int, float]] = field(default_factory=lambda: CYCLES)
    suite_id: str = "s1"
    numerics: str = "invariant"
    policy: str = "prefix"
    settings: Sequence[tuple[str, str]] = ()


def sweep(script: SweepScript = SweepScript(), until_run: int | None = None) -> list[Event]:
    """All events of a sweep, or its first runs only with the last one half done."""
    events = list(_events(script))
    if until_run is None:
        return events
    starts = [at for at, event in enumerate(events) if isinstance(event, RunStarted)]
    first = starts[until_run]
    last = starts[until_run + 1] if until_run + 1 < len(starts) else len(events)
    return events[: first + (last - first) // 2]


def stopped(script: SweepScript = SweepScript(), after: int = 1) -> list[Event]:
    """A sweep that was stopped after so many runs."""
    events = list(_events(script))
    starts = [at for at, event in enumerate(events) if isinstance(event, RunStarted)]
    return [*events[: starts[after]], events[-1]]


def _events(script: SweepScript) -> Iterator[Event]:
    cells = ("strict", *sorted({c for group in script.groups for c in group} - {"strict"}, key=_at))
    prompts = tuple((f"prompt {n}", "open") for n in range(script.prompts))
    runs = len(script.groups) * script.prompts * script.repeats
    head = "", -1, 0
    yield SuiteStarted(*head, script.suite_id, "sweep", cells, runs, prompts, "", script.tokens)
    number = 0
    for _ in range(script.repeats):
        for group in script.groups:
            for prompt in range(script.prompts):
                yield from _Run(script, group, prompt, number).events()
                number += 1
    yield SuiteFinished(*head, script.suite_id, "sweep", cells)


def _at(cell: str) -> float:
    return float(cell.split(" ")[1])


class _Run:
    def __init__(self, script: SweepScript, group: Sequence[str], prompt: int, number: int) -> None:
        self.script, self.group, self.prompt, self.number = script, group, prompt, number
        self.run_id = f"{script.suite_id}-{number}"
        self.rng = random.Random(number + 1)
        self.pace = script.pace[number] if number < len(script.pace) else 1.0
        self.t_ns = (1 + number) * 5_000 * MS
        self.ids = [1000 + (n * 7 + prompt) % 50 for n in range(script.tokens)]

    def head(self, arm: int) -> tuple[str, int, int]:
        return self.run_id, arm, self.t_ns

    def ns(self, ms: float) -> int:
        return round(ms * MS * self.pace * max(0.2, self.rng.gauss(1.0, self.script.noise)))

    def info(self, cell: str) -> ArmInfo:
        numerics, policy = self.script.numerics, self.script.policy
        if cell == "strict":
            return ArmInfo("strict", "arm", "dspark", numerics, "strict", None, None)
        axis, text = cell.split(" ")
        gate, most = (float(text), None) if axis == "confidence" else (0.4, int(text))
        return ArmInfo(f"{policy} {cell}", "arm", "dspark", numerics, policy, gate, most)

    def events(self) -> Iterator[Event]:
        script = self.script
        arms = (
            ArmInfo("plain", "arm", "plain", script.numerics, None, None, None),
            *(self.info(cell) for cell in self.group),
        )
        files = (FileInfo("target", "t.gguf", "ab" * 32, 1, "deepseek4", "tiny", 21_000_000, ()),)
        settings = (
            *(("numerics", script.numerics), ("commit", script.policy), ("chat", "true")),
            *(("max_tokens", str(script.tokens)), *script.settings),
        )
        prompt_ids = tuple(range(900, 918))
        words = tuple((n, f" w{n}".encode()) for n in sorted({*self.ids, 2000}))
        yield TokenText(*self.head(-1), words)
        yield RunStarted(
            *self.head(-1), (("python", "3.11"), ("cpu", "test")), files, settings, arms,
            "Explain the TCP three-way handshake." if not self.prompt else f"Prompt {self.prompt}",
            prompt_ids, script.tokens, 4096, 5, 8, 128, 1, (0, 4), script.suite_id,
            ", ".join(self.group), self.prompt, "open",
        )  # fmt: skip
        ids = [self.ids, *(self._ids(cell) for cell in self.group)]
        at = [1] * len(ids)
        carried = [0.0] * len(ids)
        for arm, own in enumerate(ids):
            yield self.tokens(arm, 0, own[:1], ("prefill",), TimeSplit(prefill=20 * MS))
        parted: set[int] = set()
        cycle = 0
        while min(at) < script.tokens:
            arm = at.index(min(at))
            if arm == 0:
                time = TimeSplit(decode=self.ns(script.plain_ms))
                yield self.tokens(0, at[0], ids[0][at[0] : at[0] + 1], ("plain",), time)
                at[0] += 1
                continue
            depth, proposed, _, ms = script.cycles[self.group[arm - 1]]
            carried[arm] += depth
            accepted = max(0, min(int(carried[arm]) - 1, proposed, script.tokens - at[arm] - 1))
            carried[arm] -= accepted + 1
            yield from self.cycle(cycle, arm, at[arm], ids[arm], (proposed, accepted, ms))
            at[arm] += accepted + 1
            cycle += 1
            where = script.differs.get(self.group[arm - 1])
            if where is not None and at[arm] > where and arm not in parted and at[0] > where:
                parted.add(arm)
                yield self.diverged(arm, where)
        for arm, own in enumerate(ids):
            where = script.differs.get(self.group[arm - 1]) if arm else None
            if where is not None and arm not in parted:
                yield self.diverged(arm, where)
            yield ArmFinished(*self.head(arm), "length", len(own), None)
        yield RunFinished(*self.head(-1), not any(c in script.differs for c in self.group))

    def _ids(self, cell: str) -> list[int]:
        where = self.script.differs.get(cell)
        return self.ids if where is None else [*self.ids[:where], *[2000] * len(self.ids[where:])]

    def tokens(
        self, arm: int, index: int, ids: Sequence[int], sources: tuple[Source, ...], time: TimeSplit
    ) -> Event:
        self.t_ns += time.total
        top = tuple(((token, 12.0), (2000, 10.5)) for token in ids)
        return TokensCommitted(*self.head(arm), index, 18 + index, tuple(ids), sources, top, time)

    def cycle(
        self, number: int, arm: int, index: int, ids: Sequence[int], plan: tuple[int, int, float]
    ) -> Iterator[Event]:
        proposed, accepted, ms = plan
        own = ids[index : index + accepted + 1]
        drafts = (*own[:accepted], *[2000] * (proposed - accepted))
        whole = self.ns(ms)
        draft, commit = whole // 5, whole // 50
        rest = whole - draft - commit
        time = TimeSplit(
            draft=draft,
            verify=rest if proposed else 0,
            decode=0 if proposed else rest,
            commit=commit,
        )
        sources: tuple[Source, ...] = (*(["draft"] * accepted), "bonus")
        said = tuple(round(0.4 + 0.55 * self.rng.random(), 3) for _ in range(proposed))
        yield CycleFinished(
            *self.head(arm), number, index, 18 + index, ids[index - 1], drafts, drafts, said,
            proposed, (*own, *drafts[accepted + 1 :]), (1.0,) * (proposed + 1), (), accepted,
            own[-1], len(own), 0, "" if proposed else "confidence", time,
        )  # fmt: skip
        yield self.tokens(arm, index, own, sources, time)

    def diverged(self, arm: int, index: int) -> Event:
        return Diverged(
            *self.head(arm), index, self.ids[index], 2000, "state", 0.012, 1.5, "F16", "near-tie",
            False, (), None,
        )  # fmt: skip
