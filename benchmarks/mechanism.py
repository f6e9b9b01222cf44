"""Why `split` parts: divergences by cause, by op class, by pinned choice, by size of a fault.

Every prompt of the demo set is decoded once by plain and by one DSpark arm per question, all from
one prefill, each with its own verify plan; an arm stops where it parts. The tables go into
`benchmarks/exactness.md`.

    python benchmarks/mechanism.py [-n 800] [--prompts N] [--fault-prompts N] [--fault-tokens N]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from page import head, machine, row, write
from prompt_sets import DEMO, prompts

from ds4tui import options
from engine.ab import Race, RaceRules
from engine.arms import ArmPlan
from engine.choices import Choices
from engine.decode import Control
from engine.events import ArmInfo, CycleFinished, Diverged, StateDrift
from engine.greedy import Rules
from engine.lanes import LaneMaker, evaluate_prompt, prefill_plan
from engine.load import load_parts
from engine.parts import Parts
from engine.paths import OP_CLASSES, Numerics, Perturb, Plan, Policy
from engine.prompt_set import PromptEntry
from engine.run import render
from engine.settings import NEAR_TIE_ULPS, EngineFiles, Knobs
from engine.timeline import Target

PAGE = Path(__file__).parent / "exactness.md"
PART = "mechanism"
BUCKETS = (25, 50, 100, 200, 400, 800)
SIZES = tuple(4**k for k in range(11))
"""ULPS of the faults tried, 1 to 2^20."""
KINDS = (
    "raw", "comp", "index", "frontier_kv", "frontier_score", "index_frontier_kv",
    "index_frontier_score", "logits",
)  # fmt: skip
FAULT_PROMPTS = ("manual-page", "virtual-memory", "story", "python-stack", "mutex")
"""The first ones are those of the smallest top-2 gaps."""


@dataclass(frozen=True)
class Question:
    """One DSpark arm: its policy and what its verifies do."""

    policy: Policy
    plan: Plan
    pin: tuple[str, ...] = ()


@dataclass
class Answer:
    """What became of one arm on every prompt.

    `rows` counts verify rows that were decoded again, `flipped` those that then chose another
    token.
    """

    parted: list[Diverged] = field(default_factory=list)
    firsts: Counter[str] = field(default_factory=Counter)
    drift: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    runs: int = 0
    equal: int = 0
    rows: int = 0
    flipped: int = 0


def batch(*classes: str) -> Plan:
    """A `split` verify with these op classes in the batch path."""
    return Plan("batch", frozenset(classes))


def replays() -> dict[str, Question]:
    """Verifies on states that are bit-equal to plain's: what their own rounding alone flips."""
    asked = {"all classes": Question("replay", batch(*OP_CLASSES))}
    asked["compressor alone"] = Question("replay", batch("compressor"))
    for pin in (("router",), ("indexer",)):
        asked[f"all classes, pinned {pin[0]}"] = Question("replay", batch(*OP_CLASSES), pin)
    return asked


def questions() -> dict[str, Question]:
    """By label, in the order of the tables."""
    asked = {}
    for policy in ("direct", "prefix", "reproject"):
        asked[f"all classes, {policy}"] = Question(policy, batch(*OP_CLASSES))
    for policy in ("direct", "prefix", "reproject"):
        asked[f"compressor alone, {policy}"] = Question(policy, batch("compressor"))
    for name in OP_CLASSES:
        if name != "compressor":
            asked[f"{name} alone, prefix"] = Question("prefix", batch(name))
    for name in OP_CLASSES:
        others = [other for other in OP_CLASSES if other != name]
        asked[f"all but {name}, prefix"] = Question("prefix", batch(*others))
    for pin in (("router",), ("indexer",), ("router", "indexer")):
        label = f"all classes, pinned {' and '.join(pin)}, prefix"
        asked[label] = Question("prefix", batch(*OP_CLASSES), pin)
    return asked


class Bench:
    """The loaded pair; races of one prompt's arms."""

    def __init__(self, files: EngineFiles) -> None:
        self.parts: Parts = load_parts(files, lambda event: None)

    def race(
        self,
        entry: PromptEntry,
        numerics: Numerics,
        asked: Sequence[Question],
        tokens: int,
        every: int,
    ) -> Iterator[tuple[int, Diverged | StateDrift | CycleFinished]]:
        """What happens to the arms of one prompt: (question, event)."""
        parts = self.parts
        target = Target(parts.model, numerics, Plan("invariant"), None)
        start = evaluate_prompt(
            target,
            parts.new_state(),
            render(parts, entry.prompt),
            prefill_plan(numerics, "fp8"),
            parts.drafter_window,
        )
        path, drafter = next(iter(parts.drafters.items()))
        plans = [ArmPlan(ArmInfo("plain", "arm", "plain", numerics, None, None, None))]
        knobs = {}
        for arm, question in enumerate(asked, start=1):
            info = ArmInfo(str(arm), "arm", "dspark", numerics, question.policy, 0.0, None, path)
            knobs[arm] = Knobs(question.policy, 0.0, None, path)
            plans.append(ArmPlan(info, drafter, knobs[arm], 0.0))
        maker = LaneMaker(
            "mechanism",
            target,
            Rules(parts.no_repeat, parts.eos_id),
            plans,
            [start] * len(plans),
            Control(tokens, knobs),
            markov=True,
        )
        pins = {pin: Choices(pin) for pin in {question.pin for question in asked} if pin}
        for choices in pins.values():
            maker.record_plain(choices, lambda done, total: None)
        lanes = [maker.lane(0)]
        for arm, question in enumerate(asked, start=1):
            own = replace(target, verify=question.plan, pin=pins.get(question.pin))
            lanes.append(maker.lane(arm, own))
        rules = RaceRules(every, NEAR_TIE_ULPS, "F16")
        for event in Race("mechanism", lanes, Control(tokens, knobs), rules).events():
            if isinstance(event, Diverged | StateDrift | CycleFinished):
                yield event.arm - 1, event
            if isinstance(event, Diverged):
                lanes[event.arm].timeline.reason = "length"


def study(
    bench: Bench,
    entries: Sequence[PromptEntry],
    asked: Sequence[Question],
    tokens: int,
    say: Callable[[str], None],
) -> list[Answer]:
    """All questions in `split`, over all prompts, states compared after every cycle."""
    answers = [Answer() for _ in asked]
    for entry in entries:
        say(entry.id)
        drifted: set[int] = set()
        for number, event in bench.race(entry, "split", asked, tokens, 1):
            answer = answers[number]
            match event:
                case Diverged():
                    answer.parted.append(event)
                case CycleFinished():
                    pairs = list(zip(event.verify_ids, event.replay_ids, strict=False))
                    answer.rows += len(pairs)
                    answer.flipped += sum(verified != decoded for verified, decoded in pairs)
                case StateDrift():
                    _note_drift(answer, event, number not in drifted)
                    if any(layer >= 0 and value for layer, _, value in event.tensors):
                        drifted.add(number)
        for number, answer in enumerate(answers):
            answer.runs += 1
            answer.equal += number not in drifted
    return answers


def _note_drift(answer: Answer, event: StateDrift, first: bool) -> None:
    """The first tensor that differs, and the largest difference per kind in a range of tokens."""
    state = [(layer, name) for layer, name, value in event.tensors if layer >= 0 and value]
    if first and state:
        layer, name = state[0]
        answer.firsts[f"L{layer} {name}"] += 1
    bucket = next((b for b in BUCKETS if event.index <= b), BUCKETS[-1])
    for kind in KINDS:
        values = [value or 0.0 for _, name, value in event.tensors if name == kind]
        answer.drift[kind, bucket].append(max(values, default=0.0))


def faults(
    bench: Bench,
    entries: Sequence[PromptEntry],
    tokens: int,
    say: Callable[[str], None],
) -> dict[tuple[str, Policy], list[int]]:
    """Prompts that part in `invariant`, per class, policy and size of the fault."""
    policies: tuple[Policy, ...] = ("direct", "prefix", "replay")
    found: dict[tuple[str, Policy], list[int]] = {}
    for name in OP_CLASSES:
        say(f"faults in {name}")
        asked = [
            Question(policy, Plan("invariant", perturb=Perturb(name, ulps, 0)))
            for policy in policies
            for ulps in (SIZES if policy != "replay" else SIZES[-1:])
        ]
        parted = [0] * len(asked)
        for entry in entries:
            for number, event in bench.race(entry, "invariant", asked, tokens, 0):
                parted[number] += isinstance(event, Diverged)
        found[name, "direct"] = parted[: len(SIZES)]
        found[name, "prefix"] = parted[len(SIZES) : 2 * len(SIZES)]
        found[name, "replay"] = parted[2 * len(SIZES) :]
    return found


def study_table(labels: Sequence[str], answers: Sequence[Answer]) -> Iterator[str]:
    """Divergences by cause, verdicts, first drift; one line per question."""
    yield from head(
        "verify's batch path, policy", "parted", "cause state", "cause verify_row",
        "first at (median)", "near-tie", "large-margin", "state equal throughout",
        "first tensor to drift",
    )  # fmt: skip
    for label, answer in zip(labels, answers, strict=True):
        parted = answer.parted
        causes, verdicts = Counter(p.cause for p in parted), Counter(p.verdict for p in parted)
        middle = f"{statistics.median(p.index for p in parted):.0f}" if parted else "-"
        firsts = ", ".join(f"{name} ({n})" for name, n in answer.firsts.most_common(3))
        yield row(
            label, f"{len(parted)} of {answer.runs}", causes["state"], causes["verify_row"],
            middle, verdicts["near-tie"] + verdicts["exact-tie"], verdicts["large-margin"],
            f"{answer.equal} of {answer.runs}", firsts or "-",
        )  # fmt: skip


def flip_table(labels: Sequence[str], answers: Sequence[Answer]) -> Iterator[str]:
    """Verify rows on bit-equal states whose choice the decode path does not share."""
    yield from head("verify's batch path", "rows decoded again", "flipped", "prompts parted")
    for label, answer in zip(labels, answers, strict=True):
        parted = f"{len(answer.parted)} of {answer.runs}"
        yield row(label, answer.rows, answer.flipped, parted)


def drift_table(answer: Answer, tokens: int) -> Iterator[str]:
    """Median over cycles of the largest difference per kind of tensor, by generated tokens."""
    buckets = [b for b in BUCKETS if b <= tokens] or [BUCKETS[0]]
    yield from head("tensor", *(f"to #{bucket}" for bucket in buckets))
    for kind in KINDS:
        values = [answer.drift.get((kind, bucket), []) for bucket in buckets]
        yield row(kind, *(f"{statistics.median(v):.2g}" if v else "-" for v in values))


def fault_table(found: dict[tuple[str, Policy], list[int]]) -> Iterator[str]:
    """Smallest size per class at which each policy parts on some prompt."""
    yield from head("class", "direct parts from", "prefix parts from", "replay at 2^20")
    for name in OP_CLASSES:
        cells = []
        kept: tuple[Policy, ...] = ("direct", "prefix")
        for policy in kept:
            counts = found[name, policy]
            size = next((s for s, n in zip(SIZES, counts, strict=True) if n), None)
            where = "never" if size is None else f"2^{size.bit_length() - 1} ulp"
            cells.append(f"{where} ({' '.join(map(str, counts))})")
        yield row(name, *cells, "identical" if not sum(found[name, "replay"]) else "PARTED")


def report(
    args: argparse.Namespace, labels: Sequence[str], answers: Sequence[Answer]
) -> Iterator[str]:
    """The tables of the study in `split`."""
    by = dict(zip(labels, answers, strict=True))
    yield f"{args.prompts} prompts, {args.n} tokens each, EOS ignored, confidence 0, `split`:"
    yield ""
    yield from study_table(labels, answers)
    for label in ("all classes, prefix", "compressor alone, prefix", "all classes, reproject"):
        yield ""
        yield (
            f"Growth of drift, {label}: median over cycles of the largest absolute difference, "
            "layers together, while the ids agree:"
        )
        yield ""
        yield from drift_table(by[label], args.n)


def main(argv: Sequence[str]) -> int:
    """Run the study and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("-n", type=int, default=800)
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--fault-prompts", type=int, default=3)
    parser.add_argument("--fault-tokens", type=int, default=300)
    args = parser.parse_args(argv)
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {what}", file=sys.stderr, flush=True)

    target, drafters, _ = options.model_files(None, None)
    bench = Bench(EngineFiles(target, drafters))
    entries = prompts(DEMO)[: args.prompts]
    args.prompts = len(entries)
    asked = questions()
    answers = study(bench, entries, list(asked.values()), args.n, say)
    lines = list(report(args, list(asked), answers))
    write(PAGE, PART, [*lines, "", f"Wall time so far: {time.monotonic() - began:.0f} s."])
    named = [entry for name in FAULT_PROMPTS for entry in entries if entry.id == name]
    some = named[: args.fault_prompts] or list(entries[: args.fault_prompts])
    again = replays()
    flips = study(bench, entries, list(again.values()), args.n, say)
    lines += [
        "",
        "Verify rows on states that are bit-equal to plain's (`replay`), against the same rows "
        "decoded: what a verify's own rounding flips, without any drift:",
        "",
        *flip_table(list(again), flips),
    ]
    found = faults(bench, some, args.fault_tokens, say)
    lines += [
        "",
        f"Faults in verifies (`--perturb CLASS:ULPS`), `invariant`, confidence 0, {len(some)} "
        f"prompts ({', '.join(entry.id for entry in some)}) x {args.fault_tokens} tokens. Sizes "
        "tried: 4^0 to 4^10 ulp; in brackets the prompts that parted at each size:",
        "",
        *fault_table(found),
        "",
        f"Command: `{' '.join(['python benchmarks/mechanism.py', *argv])}`.",
        f"Wall time: {time.monotonic() - began:.0f} s, other work on the machine included.",
        f"Machine: {machine()}.",
    ]
    write(PAGE, PART, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
