"""What a step costs on the CPU: decode, verifies of 2..n rows by both paths, draft, op classes.

All kinds are measured in turns within one run, so that a slow machine slows all of them; read the
ratios, not the milliseconds.

    python benchmarks/step_cost.py [-m TARGET.gguf --mtp DRAFTER.gguf | --random] [--position 500]
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

import kernels
import kernels.experts as experts_module
from engine import model as model_module
from engine.config import ModelConfig
from engine.costs import in_turns, quartiles, timed
from engine.drafter import Drafter
from engine.gguf import open_gguf
from engine.greedy import Rules
from engine.model import Model
from engine.paths import DECODE, Plan
from engine.propose import Chain, Limit
from engine.weights import load_drafter, load_target
from kernels import threads

OPS = {
    "embed": "head",
    "hc_pre": "hc",
    "hc_post": "hc",
    "hc_turn": "hc",
    "stream_mean": "hc",
    "qkv": "qkv",
    "compress_layer": "compressor",
    "select_rows": "indexer",
    "key_spans": "attention",
    "attention": "attention",
    "attn_out": "attn_out",
    "route": "router",
    "hc_head": "head",
    "head": "head",
}
"""Kernel calls of `engine.model` and the op class that each belongs to."""


MODELS = Path(__file__).resolve().parent.parent / "ds4tui" / "models"
"""The embedded pair."""


def load(arguments: argparse.Namespace) -> tuple[Model, Drafter]:
    """The given pair, the embedded one, or a random one of its shape."""
    if arguments.random:
        sys.path.insert(0, str(MODELS.parent.parent))
        from tests.engine.random_pair import EMBEDDED, EMBEDDED_DRAFTER, write_pair

        directory = Path(tempfile.mkdtemp(prefix="ds4tui-bench-"))
        target_path, drafter_path = write_pair(directory, EMBEDDED, EMBEDDED_DRAFTER, "ds4")
    else:
        target_path = arguments.m or MODELS / "tiny-v4.gguf"
        drafter_path = arguments.mtp or MODELS / "tiny-v4-dspark.gguf"
    file = open_gguf(target_path)
    config = ModelConfig.from_gguf(file)
    weights = load_drafter(open_gguf(drafter_path), config)
    layers = weights.config.target_layers
    target = Model(load_target(file), config, tap_layers=layers)
    return target, Drafter(weights, target)


@contextmanager
def profiled(totals: dict[str, float]) -> Iterator[None]:
    """Add up the time spent in each op class of `engine.model`."""
    saved = {(model_module, name): getattr(model_module, name) for name in OPS}
    saved[experts_module, "mix_experts"] = experts_module.mix_experts

    inside = [0.0]  # time of the calls that a call made, so that it is counted once

    def watched(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            inside.append(0.0)
            start = time.perf_counter_ns()
            result = function(*arguments, **more)
            spent = (time.perf_counter_ns() - start) / 1e3
            kind = OPS.get(name) or ("shared" if arguments[6] else "experts")
            totals[kind] = totals.get(kind, 0) + spent - inside.pop()
            inside[-1] += spent
            return result

        return call

    for (module, name), function in saved.items():
        setattr(module, name, watched(name, function))
    try:
        yield
    finally:
        for (module, name), function in saved.items():
            setattr(module, name, function)


def measure(arguments: argparse.Namespace) -> None:
    """Run and print."""
    started = time.perf_counter()
    kernels.compile_all()
    threads.set_threads(arguments.threads)
    compiled = time.perf_counter() - started
    target, drafter = load(arguments)
    vocab, position, most = target.config.vocab_size, arguments.position, arguments.rows
    rng = np.random.default_rng(0)
    ids = [int(i) for i in rng.integers(9, vocab, position + most)]
    state, context = target.new_state(), drafter.new_context()
    prefill = timed(
        lambda: drafter.extend(
            context, target.forward(state, ids[:position], Plan("batch"), all_logits=False).taps, 0
        )
    )
    snapshot = state.snapshot()
    taps = target.forward(state, ids[position : position + 1], DECODE["split"]).taps.copy()
    state.restore(snapshot)
    anchor = ids[position]

    def forward(rows: int, plan: Plan) -> int:
        spent = timed(lambda: target.forward(state, ids[position : position + rows], plan))
        state.restore(snapshot)
        return spent

    def draft(gate: float) -> None:
        block = drafter.block(context, anchor, position, gate=gate)
        rules, limit = Rules(), Limit(drafter.block_size, "")
        Chain(block, rules, anchor, markov=True, gate=gate, eos_id=None).run(limit)

    steps: dict[str, Callable[[], int]] = {
        "decode": lambda: forward(1, DECODE["split"]),
        "decode invariant": lambda: forward(1, DECODE["invariant"]),
        "draft, first confidence only": lambda: timed(lambda: draft(2.0)),
        f"draft {drafter.block_size}": lambda: timed(lambda: draft(0.0)),
        "context row": lambda: timed(lambda: drafter.extend(context.clone(), taps, position)),
        "state digest": lambda: timed(state.digest),
        "state clone": lambda: timed(state.clone),
    }
    for rows in range(2, most + 1):
        for path in ("invariant", "batch"):
            steps[f"verify {rows} {path}"] = partial(forward, rows, Plan(path))
    samples = in_turns(steps, arguments.repeat)
    samples[f"prefill {position}"] = [prefill]
    print(f"machine: {platform.machine()}, {platform.processor() or platform.platform()}")
    print(f"command: python {' '.join(sys.argv)}")
    print(f"kernels ready after {compiled:.1f} s; position {position}, {arguments.repeat} turns\n")
    print("| step | median ms | quartiles | best | in decodes | best |\n|---|---|---|---|---|---|")
    decode, fastest = quartiles(samples["decode"])[1], min(samples["decode"])
    for kind, taken in sorted(samples.items()):
        low, median, high = (value / 1e6 for value in quartiles(taken))
        best = min(taken)
        print(
            f"| {kind} | {median:.3f} | {low:.3f} - {high:.3f} | {best / 1e6:.3f} "
            f"| {median * 1e6 / decode:.2f} | {best / fastest:.2f} |"
        )
    print("\n| op class | decode us | verify us | us per further row |\n|---|---|---|---|")
    split = {
        rows: classes(partial(forward, rows, Plan("invariant")), arguments.repeat)
        for rows in (1, most)
    }
    for kind, whole in sorted(split[most].items(), key=lambda item: -item[1]):
        one = split[1][kind]
        print(f"| {kind} | {one:.0f} | {whole:.0f} | {(whole - one) / (most - 1):.0f} |")


def classes(step: Callable[[], object], repeat: int) -> dict[str, float]:
    """Median microseconds by op class."""
    runs: list[dict[str, float]] = []
    for _ in range(repeat):
        runs.append({})
        with profiled(runs[-1]):
            step()
    return {kind: float(np.median([run[kind] for run in runs])) for kind in runs[0]}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("-m", type=Path, help="target; the embedded one when absent")
    parser.add_argument("--mtp", type=Path, help="its drafter")
    parser.add_argument("--random", action="store_true", help="a random pair instead")
    parser.add_argument("--position", type=int, default=500, help="tokens before the steps")
    parser.add_argument("--rows", type=int, default=6, help="largest verify")
    parser.add_argument("--threads", type=int, default=1, help="that kernels share")
    parser.add_argument("--repeat", type=int, default=100, help="turns")
    arguments = parser.parse_args()
    if (arguments.m is None) != (arguments.mtp is None):
        parser.error("-m and --mtp go together")
    measure(arguments)


if __name__ == "__main__":
    main()
