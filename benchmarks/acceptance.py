"""How deep the embedded pair's drafts are accepted: with and without the no-repeat rule, FP8 rows
and the Markov bias; confidence; loops. The table goes into `benchmarks/acceptance.md`.

The gate is open (threshold 0), the policy is `prefix`, the numerics are `invariant`, so that every
accepted draft is what plain decode says. Tokens inside a repeated 8-gram are left out of the
figures named so; both are shown.

    python benchmarks/acceptance.py [-n 400] [--ignore-eos] [--prompts 40]
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from page import head, machine, row, write
from prompt_sets import DEMO, HELDOUT, prompts

from ds4tui import options
from ds4tui.calibration import samples_of
from engine.prompt_set import PromptEntry
from engine.session import Engine, load_engine
from engine.settings import EngineFiles, Knobs, KvRounding, RunRequest, Settings
from engine.stats import ArmTally, repeated, tally, without_loops

PAGE = Path(__file__).parent / "acceptance.md"


@dataclass
class Total:
    """Sums over the prompts of one set under one setting."""

    tokens: int = 0
    looped: int = 0
    depths: list[int] = field(default_factory=list)
    outside_tokens: int = 0
    outside_cycles: float = 0.0
    accepted: list[int] = field(default_factory=list)
    judged: list[tuple[float, bool]] = field(default_factory=list)

    def add(self, arm: ArmTally) -> None:
        """Take the finished DSpark arm of one prompt."""
        inside = repeated(arm.ids)
        self.tokens += len(inside)
        self.looped += sum(inside)
        self.judged += samples_of(arm.cycles)
        for cycle in arm.cycles:
            self.depths.append(cycle.depth)
            self.accepted.append(cycle.accepted)
        found = without_loops(arm)
        if found.mean_depth is not None:
            outside = inside[1:].count(False)  # the first token comes from prefill
            self.outside_tokens += outside
            self.outside_cycles += outside / found.mean_depth

    def cells(self, block: int) -> list[str]:
        """Depth, depth outside loops, P(at least k accepted), AUC, share of looped tokens."""
        depth = sum(self.depths) / len(self.depths)
        outside = self.outside_tokens / self.outside_cycles
        accepted = np.array(self.accepted)
        reach = [f"{np.mean(accepted >= k + 1):.3f}" for k in range(block)]
        return [
            f"{depth:.2f}",
            f"{outside:.2f}",
            " ".join(reach),
            f"{auc(self.judged):.3f}",
            f"{self.looped / self.tokens:.2f}",
            str(len(self.depths)),
        ]


def auc(pairs: list[tuple[float, bool]]) -> float:
    """Probability that an accepted draft has the higher confidence; ties count half."""
    scores = np.array([score for score, _ in pairs])
    labels = np.array([label for _, label in pairs])
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    good, bad = int(labels.sum()), int((~labels).sum())
    return (
        float((ranks[labels].sum() - good * (good + 1) / 2) / (good * bad)) if good and bad else 0
    )


def measure(
    engine: Engine, prompts: tuple[PromptEntry, ...], settings: Settings, say: str
) -> Total:
    """One setting over one set."""
    total = Total()
    for entry in prompts:
        print(f"\r{say}: {entry.id} ".ljust(70), end="", file=sys.stderr)
        events = list(engine.run(RunRequest(entry.prompt, settings)))
        total.add(tally(events)[1])
    return total


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-n", type=int, default=400, help="most tokens of a prompt")
    parser.add_argument("--ignore-eos", action="store_true")
    parser.add_argument("--prompts", type=int, help="only so many of each set")
    parser.add_argument("--print", action="store_true", help="instead of writing the page")
    found = parser.parse_args()
    target, drafters, _ = options.model_files(None, None)
    sets = {
        title: prompts(name)[: found.prompts]
        for title, name in (("demo", DEMO), ("held-out", HELDOUT))
    }
    out = [
        f"`python benchmarks/acceptance.py {' '.join(sys.argv[1:])}`".replace(" `", "`")
        + f" on {machine()}.",
        "",
        *head(
            "prompts", "rows", "no-repeat rule", "Markov", "mean depth", "outside loops",
            "P(at least 1, 2, ... accepted)", "AUC", "looped tokens", "cycles",
        ),
    ]  # fmt: skip
    roundings: tuple[KvRounding, ...] = ("fp8", "none")
    for rounding in roundings:
        engine = load_engine(EngineFiles(target, drafters, kv_rounding=rounding))
        block = engine.ready().block_size
        for rule, markov in ((8, True), (0, True), (8, False)):
            if rounding == "none" and not markov:
                continue
            settings = Settings(
                "invariant", (Knobs("prefix", 0.0),), found.n, ignore_eos=found.ignore_eos,
                no_repeat=rule, markov=markov, digest_every=0,
            )  # fmt: skip
            for title, entries in sets.items():
                names = (title, rounding, rule or "off", "on" if markov else "off")
                cells = measure(engine, entries, settings, " ".join(map(str, names))).cells(block)
                out.append(row(*names, *cells))
    print(file=sys.stderr)
    if found.print:
        print("\n".join(out))
    else:
        write(PAGE, "eos ignored" if found.ignore_eos else "to eos", out)


if __name__ == "__main__":
    main()
