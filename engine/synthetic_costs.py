"""What a synthetic model's steps cost on a GPU, beside the bytes that they must read.

Decodes, verifies and drafts at several contexts, a run whose accepted depths follow a given
distribution, the same bits with and without batching, and every product beside the fastest
single-row kernel. States hold random rows: tokens mean nothing. Reads costs, knows no reports.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.costs import in_turns, quartiles, timed
from engine.floor import decode_floor
from engine.paths import DECODE, Plan
from engine.synthetic import SyntheticFile, synthetic_pair

DEPTHS = (0.248, 0.186, 0.140, 0.106, 0.079, 0.241)
"""Shares of the depths 1 to 6: a draft of 5 whose every token is accepted at 75 %, mean 3.3."""
CONTEXTS = (512, 8192, 65536)
"""Tokens before the steps."""
CURVE = (1024, 2048, 4096, 16384, 32768)
"""Tokens before further decodes, whose cost is to be seen growing."""
CYCLES, IN_A_ROW = 60, 10
"""Cycles of the drafting run, and how many are taken before as many plain tokens."""
BATCHES = (2, 3, 4, 5, 6, 1, 2, 3, 4)
"""Rows of the batches whose bits are compared with those of single tokens."""
COPIED = 4 << 30
ROOM = 1024
"""Positions after the longest context: what the drafting run needs."""
PROFILED = 4
"""Decodes whose kernels are timed one by one."""
WARM_UP = 3
"""Calls before a step is a captured graph: the first compiles, the second captures."""

Report = Callable[[str, int, int], None]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SyntheticRequest:
    """What to measure.

    Args:
        depths: shares of the depths 1, 2, ... of a drafting cycle; at most the block and one.
        contexts: tokens before the steps, ascending.
        curve: tokens before decodes that are measured beside them.
    """

    recipe: str
    layers: int | None
    depths: tuple[float, ...]
    contexts: tuple[int, ...]
    curve: tuple[int, ...]
    repeat: int
    seed: int

    @property
    def mean_depth(self) -> float:
        """Tokens a cycle emits on average."""
        return sum(d * share for d, share in enumerate(self.depths, 1)) / sum(self.depths)


def measure_synthetic(
    request: SyntheticRequest, report: Report | None = None
) -> Iterator[tuple[str, Any]]:
    """Build the models and measure; parts of a document, each as soon as it is found.

    Yields:
        `built` (names, bytes, seconds, copy bandwidth), `context` of each position, `curve`,
        `bits`, `run`, `products`, `kernels`: numbers only, in milliseconds, bytes, tokens per
        second where no other unit is in the name.
    Raises:
        Ds4Error: for an unknown recipe, no usable GPU, or too little of its memory.
    """
    target_file, drafter_file = synthetic_pair(request.recipe, request.layers)
    from engine.cuda.check import require_cuda

    require_cuda("--synthetic", instead="")
    from engine.cuda.arrays import DeviceArrays
    from engine.cuda.synthetic import build, require_device_memory

    require_device_memory((target_file, drafter_file))
    arrays = DeviceArrays()
    copy = copy_bytes_per_s(arrays.device)
    began = time.perf_counter()
    model, drafter = build(target_file, drafter_file, arrays, max(request.contexts) + ROOM, report)
    arrays.settle()
    yield (
        "built",
        {
            "model": target_file.name,
            "drafter": drafter_file.name,
            "file_bytes": [target_file.size, drafter_file.size],
            "build_s": time.perf_counter() - began,
            "copy_bytes_per_s": copy,
        },
    )
    bench = Bench(model, drafter, request)
    first = request.contexts[0]
    found = bench.steps()
    floors = {position: bench.floor(target_file, position, copy) for position in found}
    for position in request.contexts:
        yield "context", found[position] | floors[position]
    yield (
        "curve",
        [
            {"position": position, **found[position]["steps"][0], **floors[position]}
            for position in sorted(found)
        ],
    )
    yield "bits", [bench.differing_bits(position) for position in bench.checked()]
    steps = found[first] | floors[first]
    yield "run", bench.drafting_run(first) | _ceiling(bench, target_file, steps, request)
    yield "products", bench.products()
    yield "kernels", bench.kernel_times(first)  # last: a profile slows every later launch


def copy_bytes_per_s(device: str) -> float:
    """Bytes read and written per second by copying a large tensor."""
    import torch

    source = torch.empty(COPIED, dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    taken = [device_ns(lambda: target.copy_(source)) for _ in range(7)]
    return 2e9 * COPIED / sorted(taken)[len(taken) // 2]


def device_ns(work: Callable[[], object]) -> float:
    """Nanoseconds that work takes on the device, between two events."""
    import torch

    event: Any = torch.cuda.Event
    first, last = event(enable_timing=True), event(enable_timing=True)
    first.record()
    work()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) * 1e6


class Bench:
    """Steps of one pair of models, on states that begin at a position."""

    def __init__(self, model: Any, drafter: Any, request: SyntheticRequest) -> None:
        self.model, self.drafter, self.request = model, drafter, request
        self._rng = random.Random(request.seed)
        self._block = drafter.block_size
        self._ids = [self._rng.randrange(model.config.vocab_size) for _ in range(4096)]

    def state(self, position: int) -> tuple[Any, Any]:
        """A timeline of random rows that stands at a position, and a drafter's context of it."""
        state, context = self.model.new_state(), self.drafter.new_context()
        state.memory.normal_()
        context.memory.normal_()
        self._place(state, context, position)
        return state, context

    def _place(self, state: Any, context: Any, position: int) -> None:
        """All rows are random: those before any position are there."""
        state.position = position
        context.start, context.end = max(0, position - self.drafter.config.window), position

    def steps(self) -> dict[int, Document]:
        """Medians and quartiles of every kind of step, by tokens before it.

        All are taken in shuffled turns of one loop, those at different positions too: what slows
        the machine for a while does not look like the cost of a context.
        """
        request, width = self.request, self._block + 1
        state, context = self.state(request.contexts[0])
        kinds: dict[tuple[str, int], Callable[[], int]] = {
            ("decode", 1): partial(self._forward, state, 1, DECODE["invariant"]),
            ("draft", self._block): partial(self._draft, context, state),
            ("split decode", 1): partial(self._forward, state, 1, DECODE["split"]),
        }
        for rows in range(2, width + 1):  # a single row is a decode
            kinds["verify", rows] = partial(self._forward, state, rows, Plan("invariant"))
        kinds["split verify", width] = partial(self._forward, state, width, Plan("batch"))

        def step(position: int, kind: tuple[str, int]) -> int:
            self._place(state, context, position)
            return kinds[kind]()

        keys = [(position, kind) for position in request.contexts for kind in kinds]
        keys += [(position, ("decode", 1)) for position in request.curve]
        steps = {key: partial(step, *key) for key in keys}
        for one in steps.values():
            for _ in range(WARM_UP):
                one()
        found = in_turns(steps, request.repeat, request.seed)
        return {
            position: self._document(
                position, {kind: taken for (at, kind), taken in found.items() if at == position}
            )
            for position in (*request.contexts, *request.curve)
        }

    def _document(self, position: int, found: Mapping[tuple[str, int], list[int]]) -> Document:
        decode = quartiles(found["decode", 1])[1]
        return {
            "position": position,
            "steps": [
                {
                    "kind": kind,
                    "rows": rows,
                    **_times(taken),
                    "in_decodes": quartiles(taken)[1] / decode,
                }
                for (kind, rows), taken in found.items()
            ],
            "tokens_per_s": 1e9 / decode,
        }

    def floor(self, file: SyntheticFile, position: int, copy: float) -> Document:
        """Bytes that one decode at `position` must read, and what copying them would take."""
        floor = decode_floor(file, self.model.config, position)
        return {
            "bytes_per_token": floor.total,
            "weight_bytes": floor.weights,
            "row_bytes": floor.rows,
            "floor_ms": floor.total / copy * 1e3,
        }

    def verify_bytes(self, file: SyntheticFile, rows: int, position: int) -> float:
        """Bytes of a verify whose rows choose their experts independently."""
        c = self.model.config
        used, experts = c.experts_used, c.experts
        distinct = experts * (1 - (1 - used / experts) ** rows)
        routed = sum(info.nbytes for name, info in file.tensors.items() if "_exps." in name)
        more = float(routed * (distinct - used) / experts)
        return decode_floor(file, c, position).total + more

    def drafting_run(self, position: int) -> Document:
        """Plain decode and drafting cycles whose depths follow the request's distribution.

        Each is taken as it comes in a run, some in a row, and both in turns.
        """
        state, context = self.state(position)
        alone, _ = self.state(position)
        plan = Plan("invariant")
        taps = self._rows(state, 1, DECODE["invariant"]).taps
        depths = self._rng.choices(
            range(1, len(self.request.depths) + 1), self.request.depths, k=CYCLES
        )

        def cycle(depth: int) -> None:
            snapshot = state.snapshot()
            self.drafter.extend(context, taps[:1], state.position - 1)
            self.drafter.draft(context, self._ids[0], state.position)
            rows = self._rows(state, self._block + 1, plan)
            self._choose(rows)
            state.install_prefix(snapshot, depth)
            self.drafter.extend(context, rows.taps[:depth], snapshot.position)

        def token() -> None:
            self._choose(self._rows(alone, 1, DECODE["invariant"]))

        for depth in (2, *range(1, self._block + 2), *range(1, self._block + 2)):
            cycle(depth)
            token()
        self.model.arrays.settle()
        drafting = plain = 0
        for first in range(0, CYCLES, IN_A_ROW):
            some = depths[first : first + IN_A_ROW]
            drafting += sum(self._timed(partial(cycle, depth)) for depth in some)
            plain += sum(self._timed(token) for _ in some)
        tokens = sum(depths)
        return {
            "cycles": CYCLES,
            "mean_depth": tokens / CYCLES,
            "tokens_per_s": tokens * 1e9 / drafting,
            "plain_tokens_per_s": CYCLES * 1e9 / plain,
            "speedup": (tokens / drafting) / (CYCLES / plain),
        }

    def checked(self) -> list[int]:
        """Positions from which bits are compared: the contexts, and where the indexer begins."""
        begins = 4 * self.model.config.index_top_k - sum(BATCHES) // 2
        return sorted({*self.request.contexts, begins})

    def differing_bits(self, position: int) -> Document:
        """Logits and state of one token at a time, against the same tokens in batches."""
        state, _ = self.state(position)
        other = state.clone()
        alone, batched = [], []
        for at in range(sum(BATCHES)):
            rows = self.model.forward(state, self._ids[at : at + 1], DECODE["invariant"])
            alone.append(rows.logits.copy())
        at = 0
        for rows in BATCHES:
            found = self.model.forward(other, self._ids[at : at + rows], Plan("invariant"))
            batched.append(found.logits.copy())
            at += rows
        import numpy as np

        left, right = np.concatenate(alone).view(np.int32), np.concatenate(batched).view(np.int32)
        tensors = sum(
            not np.array_equal(state.live(layer, name), other.live(layer, name))
            for layer in range(self.model.config.layers)
            for name in state.tensors(layer)
        )
        return {
            "position": position,
            "tokens": len(left),
            "differing_logits": int((left != right).sum()),
            "differing_tensors": tensors,
        }

    def kernel_times(self, position: int) -> list[Document]:
        """Every kernel of a decode: launches and microseconds per token, longest first."""
        from torch.profiler import ProfilerActivity, profile

        state, _ = self.state(position)
        for _ in range(WARM_UP):
            self._forward(state, 1, DECODE["invariant"])
        with profile(activities=[ProfilerActivity.CUDA]) as taken:
            for _ in range(PROFILED):
                self._forward(state, 1, DECODE["invariant"])
        found = [
            {
                "kernel": event.key,
                "launches": event.count / PROFILED,
                "us": event.self_device_time_total / PROFILED,
            }
            for event in taken.key_averages()
        ]
        return sorted((f for f in found if f["us"] > 0), key=lambda f: -f["us"])

    def products(self) -> list[Document]:
        """Every shape of product: invariant beside the single-row kernel, one row."""
        from engine.cuda.product_costs import product_costs

        return product_costs(self.model, self.drafter)

    def _forward(self, state: Any, rows: int, plan: Plan) -> int:
        """A forward of so many rows, its choices read back; the state stays where it is."""
        snapshot = state.snapshot()
        spent = self._timed(lambda: self._choose(self._rows(state, rows, plan)))
        state.restore(snapshot)
        return spent

    def _rows(self, state: Any, rows: int, plan: Plan) -> Any:
        at = state.position % (len(self._ids) - rows)
        return self.model.forward(state, self._ids[at : at + rows], plan)

    def _choose(self, rows: Any) -> list[int]:
        """The rows' next tokens, on the host."""
        found = rows.processed([()] * len(rows.values))
        return [row.best[0][0] for _, row in found]

    def _draft(self, context: Any, state: Any) -> int:
        """A block of drafts behind the state's position, from the anchor to the ids."""
        return self._timed(lambda: self.drafter.draft(context, self._ids[0], state.position))

    def _timed(self, step: Callable[[], object]) -> int:
        return timed(step, self.model.arrays.settle)


def _times(taken: Sequence[int]) -> Document:
    low, median, high = (value / 1e6 for value in quartiles(taken))
    return {"median_ms": median, "low_ms": low, "high_ms": high, "best_ms": min(taken) / 1e6}


def _step(steps: Sequence[Mapping[str, Any]], kind: str, rows: int) -> float:
    return next(float(s["median_ms"]) for s in steps if (s["kind"], s["rows"]) == (kind, rows))


def _ceiling(
    bench: Bench, file: SyntheticFile, at: Mapping[str, Any], request: SyntheticRequest
) -> Document:
    """What bytes alone would allow, and what exactness costs by replaying instead."""
    block, steps, depth = bench.drafter.block_size, at["steps"], request.mean_depth
    verify = bench.verify_bytes(file, block + 1, at["position"])
    by_bytes = verify / at["bytes_per_token"]
    draft = _step(steps, "draft", block)
    replayed = draft + _step(steps, "split verify", block + 1)
    decode = _step(steps, "split decode", 1)
    return {
        "verify_bytes": verify,
        "verify_in_decodes_by_bytes": by_bytes,
        "ceiling": depth / (by_bytes + 0.2),
        "predicted_speedup": depth
        * _step(steps, "decode", 1)
        / (draft + _step(steps, "verify", block + 1)),
        "split_replay_tokens_per_s": 1e3 * depth / (replayed + depth * decode),
        "split_plain_tokens_per_s": 1e3 / decode,
    }
