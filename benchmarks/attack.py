"""A random attack on the cells that must be identical: prompts, settings, stops, turns by chance.

Draws conversations of one to three turns over the embedded pair until the time is up. In every run
the arms whose identity is promised (`invariant`: all policies; `split` and faults: `replay` and
`strict`) are compared with plain's ids and, after every cycle, with plain's state. The count goes
into `benchmarks/exactness.md`; an arm that parts ends the attack, with the seed that shows it.

    python benchmarks/attack.py [--seconds 600] [--seed 0] [--threads 1] [--only SEED]
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from page import machine, write
from prompt_sets import DEMO, HELDOUT, prompts

from ds4tui import options
from engine.decode import Control
from engine.errors import Ds4Error
from engine.events import ArmFinished, CycleFinished, Diverged, Event, RunFailed, StateDrift
from engine.paths import OP_CLASSES, POLICIES, Perturb, Policy
from engine.session import Engine, load_engine
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings
from engine.stats import tally

PAGE = Path(__file__).parent / "exactness.md"
CONTEXTS = (None, None, None, 260, 300)
"""Capacities in tokens; the small ones are run to their end."""
EXACT: tuple[Policy, ...] = ("replay", "strict")
"""Identical by construction, whatever a verify says."""


class Engines:
    """Loaded engines by rounding of rows and context."""

    def __init__(self, model: str, mtp: tuple[str, ...], threads: int) -> None:
        self._files = EngineFiles(model, mtp, threads=threads)
        self._loaded: dict[tuple[object, ...], Engine] = {}

    def get(self, **changed: object) -> Engine:
        """The engine for these fields of `EngineFiles`."""
        key = tuple(changed.values())
        if key not in self._loaded:
            self._loaded[key] = load_engine(replace(self._files, **changed))  # type: ignore[arg-type]
        return self._loaded[key]


def any_prompt(rng: random.Random, known: list[Prompt]) -> Prompt:
    """A prompt of the sets, changed by chance, or random Unicode text."""
    prompt = rng.choice(known)
    if rng.random() < 0.2:
        size = rng.randint(1, 60)
        points = (
            rng.choice((0x20, 0x370, 0x4E00, 0x1F300)) + rng.randrange(90) for _ in range(size)
        )
        prompt = Prompt("".join(map(chr, points)))
    system = rng.choice(("", "", "Answer in one sentence."))
    return replace(prompt, system=system, chat=rng.random() < 0.7, think=rng.random() < 0.2)


def any_knobs(rng: random.Random, policy: Policy) -> Knobs:
    """One arm of this policy."""
    confidence = rng.choice((0.0, 0.0, None, rng.random(), 1.0))
    return Knobs(policy, confidence, rng.choice((None, None, 1, 2, 3, 4, 5)))


def any_settings(rng: random.Random, most: int) -> Settings:
    """Numerics, arms that must be identical, and everything else that a run can be told."""
    numerics = rng.choice(("invariant", "invariant", "split"))
    fault = None
    if rng.random() < 0.25:
        fault = Perturb(rng.choice(OP_CLASSES), 2 ** rng.randint(0, 20), rng.randrange(1000))
    promised = POLICIES if numerics == "invariant" and fault is None else EXACT
    classes = OP_CLASSES
    if numerics == "split" and rng.random() < 0.5:
        chosen = set(rng.sample(OP_CLASSES, rng.randint(1, len(OP_CLASSES) - 1)))
        classes = tuple(name for name in OP_CLASSES if name in chosen)
    arms = tuple(any_knobs(rng, rng.choice(promised)) for _ in range(rng.randint(1, 3)))
    return Settings(
        numerics,
        arms,
        max_tokens=min(most, round(10 ** rng.uniform(0, 3))),
        ignore_eos=rng.random() < 0.6,
        no_repeat=rng.choice((None, None, *range(9))),
        markov=rng.random() < 0.85,
        batch_ops=classes,
        perturb=fault,
        digest_every=1,
    )


def stopping(rng: random.Random) -> Control:
    """Ends the run after a random step, sometimes."""
    control = Control(0)
    if rng.random() < 0.3:
        last, steps = rng.randint(1, 120), itertools.count()

        def checkpoint() -> None:
            control.stopped = control.stopped or next(steps) >= last

        control.checkpoint = checkpoint
    return control


def parted(events: list[Event]) -> str:
    """What shows that an arm is not plain's equal, or nothing."""
    for event in events:
        match event:
            case Diverged():
                return f"arm {event.arm} diverged at {event.index}"
            case StateDrift() if event.first_difference is not None:
                return f"arm {event.arm} drifted at position {event.position}"
            case ArmFinished() if event.state_equal is False:
                return f"arm {event.arm} ended with another state"
            case RunFailed():
                return f"the run failed: {event.message}"
    arms = tally(events)
    if any(arm.ids != arms[0].ids for arm in arms[1:]):
        return "ids of different lengths"
    return ""


def attack(engines: Engines, known: list[Prompt], seed: int, count: Counter[str]) -> str:
    """One conversation; says what parted."""
    rng = random.Random(seed)
    context = rng.choice(CONTEXTS)
    engine = engines.get(kv_rounding=rng.choice(("fp8", "fp8", "none")), context=context)
    for turn in range(rng.choice((1, 1, 2, 3))):
        settings = any_settings(rng, context or 1000)
        request = RunRequest(any_prompt(rng, known), settings, follow_up=turn > 0)
        try:
            events = list(engine.run(request, stopping(rng)))
        except Ds4Error as error:
            count[f"refused: {error.title}"] += 1
            return ""
        found = parted(events)
        if found:
            return f"seed {seed}, turn {turn}: {found}; {request}"
        count["runs"] += 1
        count["follow-up turns"] += turn > 0
        count["arms"] += len(settings.dspark)
        count["runs under a fault"] += settings.perturb is not None
        count["cycles"] += sum(isinstance(event, CycleFinished) for event in events)
        count["states compared"] += sum(isinstance(event, StateDrift) for event in events)
    return ""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first conversation")
    parser.add_argument("--threads", type=int, default=1, help="that kernels share")
    parser.add_argument("--only", type=int, metavar="SEED", help="one conversation, page untouched")
    args = parser.parse_args()
    model, mtp, _ = options.model_files(None, None)
    engines = Engines(model, mtp, args.threads)
    known = [entry.prompt for name in (DEMO, "set20", HELDOUT) for entry in prompts(name)]
    count: Counter[str] = Counter()
    seeds = itertools.count(args.seed) if args.only is None else iter((args.only,))
    begun = time.monotonic()
    for seed in seeds:
        if found := attack(engines, known, seed, count):
            print(f"\nPARTED: {found}")
            return 1
        seconds = time.monotonic() - begun
        print(f"\r{seconds:.0f} s, seed {seed}, {count['runs']} runs ", end="", file=sys.stderr)
        if seconds > args.seconds:
            break
    print(file=sys.stderr)
    lines = [
        f"`python benchmarks/attack.py --seconds {args.seconds:g} --seed {args.seed} --threads "
        f"{args.threads}` on {machine()}.",
        "",
        "Nothing parted: "
        + ", ".join(f"{number:,} {name}" for name, number in sorted(count.items()))
        + ".",
    ]
    print("\n".join(lines))
    if args.only is None:
        write(PAGE, "attack", lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
