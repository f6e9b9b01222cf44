"""Scripted runs: the events that an engine would send, made from nothing but arithmetic.

The default run has the numbers of one real-looking case, and they add up: 1 token from prefill and
399 in 147 cycles; depths 55, 26, 20, 16, 12, 18; 252 of 297 drafts accepted; 53 replayed rows.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from engine.events import (
    ArmFinished,
    ArmInfo,
    CycleFinished,
    Diverged,
    Event,
    FileInfo,
    FirstDrift,
    LoadProgress,
    Notice,
    RunFailed,
    RunFinished,
    RunStarted,
    SettingsChanged,
    Source,
    StateDrift,
    TimeSplit,
    TokensCommitted,
    TokenText,
)

PROMPT = "Explain the TCP three-way handshake."
PROMPT_IDS = (0, 3, *range(900, 914), 4, 6)
PARTING = 163
TOKENS = 400
MS = 1_000_000

SHARED = (
    "TCP opens a connection with a three-way handshake, so that both sides know that the other "
    "one can send and receive. Before it, the server is listening on a port and the client picks "
    "a random number to start from. The client first sends a segment with the SYN flag set; it "
    "carries the initial sequence number of the client. The server answers with a segment that "
    "has both SYN and ACK set: it acknowledges the number of the client and carries a sequence "
    "number of its own. The client then sends an ACK and the connection is established. The "
    "whole exchange takes one round trip and a half. Each number is chosen anew for every "
    "connection, so that old segments that are still in the network cannot be taken for new "
    "ones. After that, data can be sent in both directions. If the server does not"
)
PLAIN = (
    " reply within the timeout, the client sends the SYN again. After several attempts it gives "
    "up and reports an error to the application. The three steps are needed because each side "
    "has to learn the first number of the other one and has to know that its own number has "
    "arrived. Two steps would not be enough, since the server could not tell whether its answer "
    "was received. While it waits for the last ACK, the server keeps a small record of the half "
    "open connection, and it drops the record when no ACK arrives in time.\n\nClosing works in a "
    "similar way. One side sends a FIN, the other one acknowledges it and later sends a FIN of "
    "its own. The side that closed first then waits for twice the lifetime of a segment, so "
    "that a late copy of the last ACK cannot disturb a new connection on the same two ports. A "
    "reset ends the connection at once: the receiver forgets it and reports an error. Most "
    "systems also send a probe now and then on an idle connection, and they close it when the "
    "other side no longer answers. All of this is done by the kernel, and a program sees only a "
    "stream of bytes that arrives in order and without gaps, or an error when that is no longer "
    "possible for whatever reason. The same holds for every stream on top of it, encrypted or not."
)
DSPARK = (
    " respond, the client waits and sends the SYN again, each time with a longer delay. The "
    "number of attempts is set by the system and is often five or six. When all of them fail, "
    "the call that opens the connection returns an error, and the program decides whether to "
    "try another address. A server that is up but does not listen on the port answers with a "
    "reset instead, so that the client learns at once that nobody is there. A firewall may "
    "also drop the segment without any answer, which looks like a lost one.\n\nDuring the "
    "handshake both sides also agree on options. The maximum segment size tells the other side "
    "how much fits into one packet, the window scale allows more data in flight, and selective "
    "acknowledgements name the blocks that have arrived. These options are only sent with the "
    "SYN flag, which is why they cannot be changed later. A server under attack can encode them "
    "in its first number and keep no record at all until the last ACK comes back; this is known "
    "as a SYN cookie. It costs a little precision, since only a few bits are left for each of "
    "the options, but it keeps the server reachable while a flood of requests from forged "
    "addresses goes on. Otherwise the table of waiting connections would soon be full and no "
    "honest client could connect any more until some of the entries time out."
)

# (drafts proposed, drafts accepted) -> cycles
CYCLES = {
    (0, 0): 46,
    (1, 0): 4,
    (1, 1): 21,
    (2, 0): 2,
    (2, 1): 2,
    (2, 2): 16,
    (3, 0): 1,
    (3, 1): 2,
    (3, 2): 1,
    (3, 3): 13,
    (4, 0): 1,
    (4, 2): 1,
    (4, 3): 2,
    (4, 4): 10,
    (5, 0): 1,
    (5, 1): 1,
    (5, 2): 2,
    (5, 3): 1,
    (5, 4): 2,
    (5, 5): 18,
}
VERIFY_MS = (2.49, 3.10, 3.60, 4.10, 4.60, 5.10)
LAYER_KINDS = (0, 0, 4, 128, 4, 128, 4, 128)
FULL_SIZE = (0, 0, *(4, 128) * 20, 4)
"""Layers of the target that the embedded one is a small likeness of: 43."""

_WORDS = re.compile(r"\n+| ?[A-Za-z]+| ?[^A-Za-z\s]")


def words(text: str) -> list[str]:
    """Text cut to tokens: a word with the space before it, or a sign."""
    return _WORDS.findall(text)


class Vocabulary:
    """Ids for words as they are met, from 1000 on."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.sent: set[int] = set()

    def id(self, word: str) -> int:
        return self.ids.setdefault(word, 1000 + len(self.ids))

    def unsent(self, ids: Sequence[int]) -> tuple[tuple[int, bytes], ...]:
        """Entries of a TokenText for ids that no event has carried yet."""
        names = {number: word for word, number in self.ids.items()}
        fresh = [number for number in dict.fromkeys(ids) if number not in self.sent]
        self.sent.update(fresh)
        return tuple((number, names[number].encode()) for number in fresh)


@dataclass(frozen=True)
class Script:
    """What a scripted run shall be."""

    run_id: str = "run-1"
    prompt: str = PROMPT
    policy: str = "direct"
    numerics: str = "split"
    diverges: bool = True
    drifts: bool = True
    tokens: int = TOKENS
    confidence: float = 0.9
    seed: int = 7
    speed: float = 1.0
    fails_at: int | None = None
    no_drafts: bool = False
    logic_error: bool = False
    large_gaps: bool = False
    layer_kinds: Sequence[int] = LAYER_KINDS


def load_steps() -> list[Event]:
    """What the engine says before the first run."""
    steps = [("reading", 1), ("repacking", 8), ("compiling kernels", 23), ("self-test", 4)]
    events: list[Event] = []
    t_ns = 0
    for stage, total in steps:
        for done in range(total + 1):
            t_ns += 20 * MS
            events.append(LoadProgress("", -1, t_ns, stage, done, total))
    return events


def _file(role: str, architecture: str, parameters: int) -> FileInfo:
    digest = hashlib.sha256(role.encode()).hexdigest()
    return FileInfo(role, f"{role}.gguf", digest, parameters, architecture, "tiny", parameters, ())


def tensor_names(layer_kinds: Sequence[int] = LAYER_KINDS) -> list[tuple[int, str]]:
    """(layer, tensor) of everything whose live bits are compared, logits last."""
    names: list[tuple[int, str]] = []
    for layer, ratio in enumerate(layer_kinds):
        names.append((layer, "raw"))
        if ratio:
            names += [(layer, "comp"), (layer, "frontier_kv"), (layer, "frontier_score")]
        if ratio == 4:
            names += [(layer, "index"), (layer, "index_frontier_kv")]
            names += [(layer, "index_frontier_score")]
    return [*names, (-1, "logits")]


def cycle_plan(script: Script) -> list[tuple[int, int]]:
    """The (proposed, accepted) of each cycle, so arranged that the ids part inside one."""
    if script.no_drafts:
        return [(0, 0)] * (script.tokens - 1)
    rng = random.Random(script.seed)
    rest = [pair for pair, count in CYCLES.items() for _ in range(count)]
    rest.remove((2, 2))
    rest.remove((4, 3))
    while True:
        rng.shuffle(rest)
        plan, index = [(2, 2)], 4
        for at, pair in enumerate(rest):
            if index == PARTING - 2:
                return [*plan, (4, 3), *rest[at:]]
            plan.append(pair)
            index += pair[1] + 1


def run(script: Script = Script()) -> list[Event]:
    """All events of one run."""
    return list(_Run(script).events())


class _Run:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.rng = random.Random(script.seed + 1)
        self.vocabulary = Vocabulary()
        shared, plain = words(SHARED), words(PLAIN)
        self.plain = [self.vocabulary.id(w) for w in (shared + plain)[: script.tokens]]
        dspark = words(DSPARK) if script.diverges else plain
        self.dspark = [self.vocabulary.id(w) for w in (shared + dspark)[: script.tokens]]
        self.others = [self.vocabulary.id(f" {w}") for w in ("within", "the", "a", "which", "and")]
        self.parting = len(shared) if script.diverges else None
        self.t_ns = 1_000 * MS

    def head(self, arm: int) -> tuple[str, int, int]:
        return self.script.run_id, arm, self.t_ns

    def top(self, token: int, index: int) -> tuple[tuple[int, float], ...]:
        first = 14.0 + self.rng.random()
        gap = (1.8 if self.script.large_gaps else 0.044) + abs(self.rng.gauss(0.0, 2.0))
        second = self.others[index % 5]
        if index == PARTING and not self.script.large_gaps:
            first, gap = 14.203, 0.012
            second = (self.vocabulary.id(" respond"), self.vocabulary.id(" reply"))[
                token == self.vocabulary.id(" respond")
            ]
        rest = [other for other in self.others if other != second][:3]
        lower = tuple((o, round(first - gap - 1.3 - n, 3)) for n, o in enumerate(rest))
        return ((token, round(first, 3)), (second, round(first - gap, 3)), *lower)

    def events(self) -> Iterator[Event]:
        yield TokenText(*self.head(-1), self.prompt_text())
        yield self.started()
        for done in (0, 9, 18):
            self.t_ns += 8 * MS
            yield LoadProgress(*self.head(-1), "prefill", done, len(PROMPT_IDS))
        for arm, ids in enumerate((self.plain, self.dspark)):
            yield from self.commit(arm, 0, ids[:1], ("prefill",), TimeSplit(prefill=31 * MS))
        yield self.drift(0)
        plan = cycle_plan(self.script)
        at = [1, 1]
        cycle = 0
        while min(at[0] - len(self.plain), at[1] - len(self.dspark)) < 0:
            done = at[1] >= len(self.dspark)
            if at[0] < len(self.plain) and (at[0] <= at[1] or done):
                yield from self.plain_step(at[0])
                at[0] += 1
                if at[0] - 1 == self.parting:
                    yield self.diverged()
            else:
                proposed, accepted = plan[cycle] if cycle < len(plan) else (0, 0)
                accepted = min(accepted, len(self.dspark) - at[1] - 1)
                yield from self.cycle_step(cycle, at[1], max(proposed, accepted), accepted)
                at[1] += accepted + 1
                cycle += 1
            if self.script.fails_at is not None and min(at) > self.script.fails_at:
                return
        equal = not (self.script.drifts or self.script.diverges)
        yield ArmFinished(*self.head(0), "length", len(self.plain))
        yield ArmFinished(*self.head(1), "length", len(self.dspark), equal)
        yield RunFinished(*self.head(-1), not self.script.diverges)

    def prompt_text(self) -> tuple[tuple[int, bytes], ...]:
        pieces = {
            0: "<｜begin▁of▁sentence｜>",
            3: "<｜User｜>",
            4: "<｜Assistant｜>",
            6: "</think>",
        }
        return tuple((n, pieces.get(n, "·").encode()) for n in dict.fromkeys(PROMPT_IDS))

    def started(self) -> Event:
        script = self.script
        arms = (
            ArmInfo("plain", "arm", "plain", script.numerics, None, None, None),
            ArmInfo(
                script.policy,
                "arm",
                "dspark",
                script.numerics,
                script.policy,
                script.confidence,
                5,
            ),
        )
        files = (
            _file("target", "deepseek4", 21_000_000),
            _file("drafter", "deepseek4-dspark", 3_000_000),
        )
        settings = (
            ("numerics", script.numerics),
            ("commit", script.policy),
            ("confidence", str(script.confidence)),
            ("draft_max", "none"),
            ("max_tokens", str(script.tokens)),
            ("ignore_eos", "false"),
            ("no_repeat", "0"),
            ("perturb", "none"),
            ("pin", ""),
            ("device", "cpu"),
            ("system", ""),
            ("chat", "true"),
            ("think", "false"),
            ("control_tokens", "false"),
        )
        return RunStarted(
            *self.head(-1),
            environment=(("device", "cpu"),),
            files=files,
            settings=settings,
            arms=arms,
            prompt=script.prompt,
            prompt_ids=PROMPT_IDS,
            max_tokens=script.tokens,
            context=4096,
            block_size=5,
            noise_id=8,
            window=128,
            eos_id=1,
            layer_kinds=tuple(script.layer_kinds),
        )

    def commit(
        self, arm: int, index: int, ids: Sequence[int], sources: Sequence[Source], time: TimeSplit
    ) -> Iterator[Event]:
        self.t_ns += time.total
        top = tuple(self.top(token, index + n) for n, token in enumerate(ids))
        named = [*ids, *(token for row in top for token, _ in row)]
        entries = self.vocabulary.unsent(named)
        if entries:
            yield TokenText(*self.head(-1), entries)
        position = len(PROMPT_IDS) + index
        yield TokensCommitted(
            *self.head(arm), index, position, tuple(ids), tuple(sources), top, time
        )

    def ms(self, value: float) -> int:
        return round(value * MS * self.script.speed * self.rng.uniform(0.985, 1.015))

    def plain_step(self, index: int) -> Iterator[Event]:
        time = TimeSplit(decode=self.ms(2.4915))
        yield from self.commit(0, index, self.plain[index : index + 1], ("plain",), time)

    def cycle_step(self, cycle: int, index: int, proposed: int, accepted: int) -> Iterator[Event]:
        script = self.script
        ids = self.dspark[index : index + accepted + 1]
        drafts = list(ids[:accepted])
        while len(drafts) < proposed:
            drafts.append(self.others[(index + len(drafts)) % 5])
        replayed = script.policy == "direct" and accepted < proposed
        time = TimeSplit(
            draft=self.ms(0.85),
            verify=self.ms(VERIFY_MS[proposed]) if proposed else 0,
            decode=0 if proposed else self.ms(2.49),
            replay=sum(self.ms(2.49) for _ in range(accepted + 1)) if replayed else 0,
            commit=self.ms(0.05),
        )
        sources: list[Source] = ["draft"] * accepted + ["bonus"]
        confidences = tuple(0.99 - 0.005 * n for n in range(proposed))
        clip = "" if proposed == 5 else "confidence"
        if script.policy == "strict":
            clip, confidences = "strict", ()
        elif clip:
            confidences = (*confidences, 0.41)
        named = self.vocabulary.unsent(drafts)
        if named:
            yield TokenText(*self.head(-1), named)
        committed = list(self.commit(1, index, ids, sources, time))
        yield from committed[:-1]
        yield CycleFinished(
            *self.head(1),
            cycle=cycle,
            index=index,
            position=len(PROMPT_IDS) + index,
            anchor=self.dspark[index - 1],
            drafts=tuple(drafts),
            drafts_unbiased=tuple(drafts),
            confidences=confidences,
            proposed=proposed,
            verify_ids=(*ids, *drafts[accepted + 1 :]),
            verify_gaps=(1.0,) * (proposed + 1),
            replay_ids=tuple(ids) if replayed else (),
            accepted=accepted,
            bonus=ids[-1],
            depth=len(ids),
            recheck_cut=0,
            clip=clip,
            time=time,
        )
        yield committed[-1]
        if self.parting is None or index <= self.parting:
            yield self.drift(index + accepted)

    def drift(self, evaluated: int) -> Event:
        drifting = self.script.drifts and evaluated
        tensors = tuple(
            (
                layer,
                name,
                3.1e-5 * (1 + layer) if drifting and layer >= 2 and "kv" in name else None,
            )
            for layer, name in tensor_names(self.script.layer_kinds)
        )
        position = len(PROMPT_IDS) + evaluated
        return StateDrift(*self.head(1), evaluated, position, tensors)

    def diverged(self) -> Event:
        assert self.parting is not None
        drifting = self.script.drifts
        return Diverged(
            *self.head(1),
            index=self.parting,
            left=self.plain[self.parting],
            right=self.dspark[self.parting],
            cause="state" if drifting else "verify_row",
            margin_logits=4.2 if self.script.logic_error else 0.012,
            margin_ulps=537.6 if self.script.logic_error else 1.5,
            ulp_type="F16",
            verdict="large-margin" if self.script.logic_error else "near-tie",
            logic_error=self.script.logic_error,
            differing_choices=(),
            first_drift=FirstDrift(3, 2, "frontier_kv", 3.1e-5) if drifting else None,
        )


def diverged_run() -> list[Event]:
    """400 tokens that part at #163, cause state."""
    return run()


def identical_run() -> list[Event]:
    """The same prompt under `invariant` and `prefix`: equal ids, equal state."""
    return run(
        Script(run_id="run-2", policy="prefix", numerics="invariant", diverges=False, drifts=False)
    )


def mixed_run(*turns: tuple[int, tuple[tuple[str, str], ...]]) -> list[Event]:
    """400 equal ids under `direct`; from the first cycle at or after an index a knob is turned.

    Args:
        turns: (index, settings); none = `replay` from #120 on.
    """
    waiting = list(turns or ((120, (("commit", "replay"),)),))
    events: list[Event] = []
    for event in run(Script(run_id="run-5", diverges=False, drifts=False)):
        if waiting and isinstance(event, CycleFinished) and event.index >= waiting[0][0]:
            changed = waiting.pop(0)[1]
            events.append(SettingsChanged(event.run_id, 1, event.t_ns, event.cycle, changed))
        events.append(event)
    return events


def sampled(
    events: Sequence[Event], every: int, *, cause: str | None = "state", drift: int = 3
) -> list[Event]:
    """The same run with its states compared at every n-th boundary, 0 = never.

    Args:
        cause, drift: of the divergence, as far as it is known then; the drift's index.
    """
    out: list[Event] = []
    seen = 0
    for event in events:
        if isinstance(event, StateDrift):
            seen += 1
            if not every or (seen - 1) % every:
                continue
        elif isinstance(event, ArmFinished) and not every:
            event = replace(event, state_equal=None)
        elif isinstance(event, Diverged):
            found = event.first_drift if cause == "state" else None
            found = None if found is None else replace(found, position=drift)
            event = replace(event, cause=cause, first_drift=found)  # type: ignore[arg-type]
        out.append(event)
    return out


def plain_run() -> list[Event]:
    """A run without a DSpark arm, and the engine's word on why."""
    events: list[Event] = []
    for event in diverged_run():
        if isinstance(event, RunStarted):
            event = replace(event, arms=event.arms[:1])
            events += [event, Notice(event.run_id, -1, 0, "info", "No drafter was given.")]
        elif event.arm < 1:
            events.append(event)
    return events


def strict_run() -> list[Event]:
    """The control that drafts nothing."""
    return run(
        Script(run_id="run-6", policy="strict", diverges=False, drifts=False, no_drafts=True)
    )


def long_run(tokens: int, layer_kinds: Sequence[int] = LAYER_KINDS) -> list[Event]:
    """Equal ids and drifting states over many tokens: the scripted run's cycles again and again."""
    events = run(Script(run_id="run-7", diverges=False, layer_kinds=layer_kinds))
    body = [event for event in events if isinstance(event, TokensCommitted) and event.index]
    body += [event for event in events if isinstance(event, CycleFinished | StateDrift)]
    head = [event for event in events if event.arm < 0 and not isinstance(event, RunFinished)]
    head += [event for event in events if isinstance(event, TokensCommitted) and not event.index]
    rounds, last = -(-(tokens - 1) // (TOKENS - 1)), events[-3:]
    cycles = sum(isinstance(event, CycleFinished) for event in events)
    body.sort(key=lambda event: event.t_ns)
    out = [replace(e, max_tokens=tokens) if isinstance(e, RunStarted) else e for e in head]
    for n in range(rounds):
        shift = n * (TOKENS - 1)
        for event in body:
            moved = replace(event, index=event.index + shift, position=event.position + shift)
            if isinstance(moved, CycleFinished):
                moved = replace(moved, cycle=moved.cycle + n * cycles)
            out.append(moved)
    return [*out, *last]


def failed_run() -> list[Event]:
    """A run whose engine process dies at #204."""
    events = run(Script(run_id="run-3", diverges=False, drifts=False, fails_at=204))
    failure = RunFailed(
        "run-3",
        -1,
        events[-1].t_ns + MS,
        title="engine process ended",
        message="The engine process was ended by signal 9 at #204, perhaps out of memory.",
        hint="Run again to start a new engine.",
        detail="Killed",
    )
    return [*events, failure]


def until(events: Sequence[Event], index: int, arm: int = 1) -> list[Event]:
    """The beginning of a run, up to the event that commits a token of an arm."""
    for at, event in enumerate(events):
        here = isinstance(event, TokensCommitted) and event.arm == arm
        if here and event.index + len(event.ids) > index:
            return list(events[: at + 3])
    return list(events)


def renamed(events: Sequence[Event], run_id: str) -> list[Event]:
    """The same events as another run."""
    return [replace(event, run_id=run_id) for event in events]


def of_suite(events: list[Event], suite_id: str, cell: str, prompt_index: int) -> list[Event]:
    """The same run as one of a suite, with a run id of its own."""
    run_id = f"{suite_id}-{cell}-{prompt_index}"
    changed = [replace(event, run_id=run_id) for event in events]
    return [
        replace(event, suite_id=suite_id, cell=cell, prompt_index=prompt_index)
        if isinstance(event, RunStarted)
        else event
        for event in changed
    ]
