"""What a confidence threshold and a block length are worth: speed against plain in the same run.

For every prompt, plain, `strict` and one arm per setting decode in turns. The runs are repeated in
rounds with the same steps, so that the fastest of each step's times is nearly free of what other
work on the machine cost. Both figures are given: as seen (the median of the rounds' ratios) and of
the fastest steps. With --cpu-time the arms' clocks count the CPU time of the engine's one thread,
for a machine that is shared. The tables go into `benchmarks/economics.md`.

    python benchmarks/sweep.py [-n 200] [--heldout-tokens 100] [--rounds 2] [--gate 0.5] [--print]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from page import head, machine, row, write
from prompt_sets import DEMO, HELDOUT, prompts

from ds4tui import options
from engine import lanes
from engine.clock import Clock
from engine.events import CycleFinished, RunStarted, TimeSplit, TokensCommitted
from engine.paths import Numerics, Policy
from engine.prompt_set import PromptEntry
from engine.session import Engine, load_engine
from engine.settings import EngineFiles, Knobs, RunRequest, Settings
from engine.stats import ids_sha256

PAGE = Path(__file__).parent / "economics.md"
THRESHOLDS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
CELLS: tuple[tuple[Numerics, Policy, tuple[float, ...]], ...] = (
    ("invariant", "prefix", THRESHOLDS),
    ("split", "direct", THRESHOLDS[::2]),
)
ARMS_AT_ONCE = 6
"""Arms of one run: more of them would push each other's states out of the caches."""
PLAIN = "plain"
PAUSED = -1
"""In place of the number proposed: a step of a pause, for which nothing was drafted."""


@dataclass
class Arm:
    """One arm over one prompt: the times of its steps in every round."""

    rounds: list[list[TimeSplit]] = field(default_factory=list)
    proposed: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    def seen(self, turn: int) -> int:
        """Nanoseconds of one round."""
        return sum(time.total for time in self.rounds[turn])

    @property
    def best(self) -> int:
        """Nanoseconds of the fastest of every step's times."""
        return sum(min(step.total for step in steps) for steps in zip(*self.rounds, strict=True))


Runs = dict[tuple[str, str], Arm]
"""By prompt and arm."""


def knobs_name(knobs: Knobs) -> str:
    """How an arm is called in the tables."""
    if knobs.commit == "strict":
        return "strict"
    name = f"{knobs.confidence:g}"
    return name if knobs.draft_max is None else f"{name}, at most {knobs.draft_max}"


def run(
    engine: Engine,
    prompts: Sequence[PromptEntry],
    numerics: Numerics,
    arms: Sequence[Knobs],
    tokens: int,
    rounds: int,
    say: str,
) -> Runs:
    """Every arm over every prompt, in groups beside a plain arm of their own, in rounds."""
    found: Runs = defaultdict(Arm)
    groups = [tuple(arms[i : i + ARMS_AT_ONCE]) for i in range(0, len(arms), ARMS_AT_ONCE)]
    for turn in range(rounds):
        for entry in prompts:
            print(f"\r{say}: round {turn + 1}, {entry.id} ".ljust(70), end="", file=sys.stderr)
            for number, group in enumerate(groups):
                settings = Settings(numerics, group, tokens, ignore_eos=True, digest_every=0)
                names = [f"{PLAIN} {number}", *(knobs_name(knobs) for knobs in group)]
                _take(engine, RunRequest(entry.prompt, settings), entry.id, names, found)
    return found


def _take(engine: Engine, request: RunRequest, prompt: str, names: list[str], found: Runs) -> None:
    """One run, its steps' times added as a round of every arm."""
    arms = [found[prompt, name] for name in names]
    for arm in arms:
        arm.rounds.append([])
        arm.proposed, arm.depths, arm.ids = [], [], []
    for event in engine.run(request):
        match event:
            case RunStarted():
                assert len(event.arms) == len(arms)
            case TokensCommitted():
                arms[event.arm].ids += event.ids
                if event.sources != ("prefill",):
                    arms[event.arm].rounds[-1].append(event.time)
            case CycleFinished():
                paused = event.clip == "pause"
                arms[event.arm].proposed.append(PAUSED if paused else event.proposed)
                arms[event.arm].depths.append(event.depth)
            case _:
                pass


@dataclass(frozen=True)
class Line:
    """What one setting is worth over a set of prompts."""

    name: str
    depth: float
    paused: float
    per_cycle: float
    accept_rate: float
    seen: float
    best: float
    worst: float
    slower: int
    same: int
    prompts: int
    ids: str


def line(runs: Runs, name: str, plain: str) -> Line:
    """Sums over the prompts of an arm and of the plain arm beside it."""
    names = sorted({prompt for prompt, _ in runs})
    arms = [runs[prompt, name] for prompt in names]
    plains = [runs[prompt, plain] for prompt in names]
    rounds = range(len(arms[0].rounds))
    ratios = [p.best / a.best for p, a in zip(plains, arms, strict=True)]
    seen = [sum(p.seen(r) for p in plains) / sum(a.seen(r) for a in arms) for r in rounds]
    paused = sum(a.proposed.count(PAUSED) for a in arms)
    cycles = sum(len(a.depths) for a in arms) - paused
    proposed = sum(sum(a.proposed) for a in arms) - PAUSED * paused
    tokens = sum(sum(a.depths) for a in arms) - paused
    accepted = tokens - cycles
    return Line(
        name,
        tokens / cycles,
        paused / (tokens + paused),
        proposed / cycles,
        accepted / proposed if proposed else 0.0,
        statistics.median(seen),
        sum(p.best for p in plains) / sum(a.best for a in arms),
        min(ratios),
        sum(ratio < 1 for ratio in ratios),
        sum(p.ids == a.ids for p, a in zip(plains, arms, strict=True)),
        len(names),
        ids_sha256([token for arm in arms for token in arm.ids])[:8],
    )


def lines(runs: Runs, arms: Sequence[Knobs]) -> list[Line]:
    """One line per arm, against the plain arm of its own group."""
    return [
        line(runs, knobs_name(knobs), f"{PLAIN} {number // ARMS_AT_ONCE}")
        for number, knobs in enumerate(arms)
    ]


def table(found: Iterable[Line]) -> list[str]:
    """Markdown of some lines."""
    out = head(
        "threshold", "depth", "tokens in pauses", "proposed a cycle", "accepted",
        "speed-up, fastest steps", "as seen", "worst prompt", "prompts slower than plain",
        "ids as plain's", "sha256",
    )  # fmt: skip
    for one in found:
        out.append(
            row(
                one.name,
                f"{one.depth:.2f}",
                f"{one.paused:.2f}",
                f"{one.per_cycle:.2f}",
                f"{one.accept_rate:.2f}",
                f"{one.best:.2f}",
                f"{one.seen:.2f}",
                f"{one.worst:.2f}",
                f"{one.slower} of {one.prompts}",
                f"{one.same} of {one.prompts}",
                one.ids,
            )
        )
    return out


def cycle_table(runs: Runs) -> list[str]:
    """What cycles cost by the number of drafts proposed, and the depth that pays."""
    kinds = ("draft", "verify", "replay", "commit", "decode")
    cost: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    depths: dict[int, list[int]] = defaultdict(list)
    decodes: list[int] = []
    for (_, name), arm in runs.items():
        for number, steps in enumerate(zip(*arm.rounds, strict=True)):
            if name.startswith(PLAIN):
                decodes.append(min(step.decode for step in steps))
                continue
            if name == "strict":
                continue
            fastest = min(steps, key=lambda step: step.total)
            proposed = arm.proposed[number]
            depths[proposed].append(arm.depths[number])
            for kind in kinds:
                cost[proposed][kind].append(getattr(fastest, kind))
    decode = statistics.median(decodes)
    out = head(
        "proposed", "cycles", "draft", "verify", "replay", "commit", "decode",
        "whole = break-even depth", "mean depth", "gain",
    )  # fmt: skip
    for proposed in sorted(cost):
        parts = [statistics.median(cost[proposed][kind]) / decode for kind in kinds]
        depth = statistics.fmean(depths[proposed])
        out.append(
            row(
                "pause" if proposed == PAUSED else proposed,
                len(depths[proposed]),
                *(f"{part:.2f}" for part in parts),
                f"{sum(parts):.2f}",
                f"{depth:.2f}",
                f"{depth / sum(parts):.2f}",
            )
        )
    about = f"In decodes of {decode / 1e6:.3f} ms; medians of the fastest of each step's times:"
    return [about, "", *out]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-n", type=int, default=200, help="tokens of a demo prompt")
    parser.add_argument("--heldout-tokens", type=int, default=100, help="0 leaves them out")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--gate", type=float, default=0.5, help="threshold of the block lengths")
    parser.add_argument("--prompts", type=int, help="only so many of each set")
    parser.add_argument("--exact-only", action="store_true", help="invariant + prefix only")
    parser.add_argument("--threads", type=int, default=1, help="that kernels share")
    parser.add_argument("--cpu-time", action="store_true", help="not the time on the wall")
    parser.add_argument("--print", action="store_true", help="instead of writing the page")
    found = parser.parse_args()
    if found.cpu_time:
        lanes.Clock = partial(Clock, time.thread_time_ns)  # type: ignore[assignment,misc]
    target, drafters, _ = options.model_files(None, None)
    engine = load_engine(EngineFiles(target, drafters, threads=found.threads))
    sets = {
        title: (prompts(name)[: found.prompts], tokens)
        for title, name, tokens in (
            ("Demo prompts", DEMO, found.n),
            ("Held-out prompts", HELDOUT, found.heldout_tokens),
        )
        if tokens
    }
    out = [
        f"`python benchmarks/sweep.py {' '.join(sys.argv[1:])}`".replace(" `", "`")
        + f" on {machine()}; rounds: {found.rounds}."
    ]
    for numerics, commit, thresholds in CELLS[: 1 if found.exact_only else None]:
        arms = [Knobs("strict"), *(Knobs(commit, threshold) for threshold in thresholds)]
        for title, (entries, tokens) in sets.items():
            what = f"{title}, `{numerics}` + `{commit}`"
            runs = run(engine, entries, numerics, arms, tokens, found.rounds, what)
            out += ["", f"### {what}, {tokens} tokens", "", *table(lines(runs, arms))]
            out += ["", *cycle_table(runs)]
    numerics, commit, _ = CELLS[0]
    arms = [Knobs(commit, found.gate, length) for length in range(1, engine.ready().block_size + 1)]
    for title, (entries, tokens) in sets.items():
        what = f"{title}, block length, `{numerics}` + `{commit}`"
        runs = run(engine, entries, numerics, arms, tokens, found.rounds, what)
        out += ["", f"### {what}, {tokens} tokens", "", *table(lines(runs, arms))]
    print(file=sys.stderr)
    if found.print:
        print("\n".join(out))
    else:
        write(PAGE, "measured", out)


if __name__ == "__main__":
    main()
