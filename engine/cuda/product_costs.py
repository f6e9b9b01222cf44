"""Every product of a model, alone: the invariant kernel beside the single-row kernel, one row.

Each is timed as a captured graph over the layers that have it, so that no weights stay in a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from engine.quant_types import SUPPORTED
from engine.synthetic_costs import device_ns
from kernels.packed import Numerics, PackedMatrix, Workspace, experts, experts_pieces, matmul

if TYPE_CHECKING:
    from engine.drafter import Drafter
    from engine.model import Model

LEAST_BYTES = 1 << 29
"""Read by one graph: several times a large cache."""
REPLAYS = 7


def product_costs(model: Model, drafter: Drafter) -> list[dict[str, Any]]:
    """Microseconds and bytes per second of every shape, by numerics."""
    return [
        {"name": name, "shape": shape, "file_bytes": size, **costs}
        for name, shape, size, costs in _all(model, drafter)
    ]


def _all(model: Model, drafter: Drafter) -> Iterator[tuple[str, str, float, dict[str, float]]]:
    space = Workspace(model.arrays.device)
    for name, stacks in matrices(model, drafter).items():
        w = stacks[0]
        size = file_bytes(w)
        costs = {
            numerics: microseconds(_uncached([_product(s, space, numerics) for s in stacks], size))
            for numerics in ("invariant", "vector")
        }
        yield name, f"{w.kind} {w.count} x {w.outputs} x {w.inputs}", size, costs
    layers = list(model.weights.layers)
    used = model.config.experts_used
    one = layers[0].experts
    size = used * sum(file_bytes(w) / w.count for w in one)
    size += sum(file_bytes(w) for w in layers[0].shared)
    costs = {
        numerics: microseconds(
            _uncached([_mixture(model, s, space, numerics) for s in layers], size)
        )
        for numerics in ("invariant", "vector")
    }
    yield "experts", f"{used} of {one.down.count} and shared", size, costs


def matrices(model: Model, drafter: Drafter) -> dict[str, list[PackedMatrix]]:
    """The model's matrices by what they are for."""
    found: dict[str, list[PackedMatrix]] = {}

    def add(name: str, w: PackedMatrix | None) -> None:
        if w is not None:
            found.setdefault(name, []).append(w)

    for layer in model.weights.layers:
        add("q_a + kv", layer.qkv.q_a)
        add("q_b", layer.qkv.q_b)
        add("out_a", layer.attn_out.a)
        add("out_b", layer.attn_out.b)
        if layer.compressor is not None:
            add(f"compressor, ratio {layer.ratio}", layer.compressor.kv)
        if layer.indexer is not None:
            add("indexer q_b", layer.indexer.q_b)
        add("router", layer.router.gate)
    add("head", model.weights.output)
    add("drafter main_proj", drafter.weights.main_proj)
    add("Markov w2", drafter.weights.markov_output)
    return found


def file_bytes(w: PackedMatrix) -> int:
    """Bytes of a stack as the file stores it."""
    stored = SUPPORTED[w.kind]
    return w.count * w.outputs * w.inputs // stored.block * stored.block_bytes


def _product(w: PackedMatrix, space: Workspace, numerics: Numerics) -> Callable[[], None]:
    dtype = torch.float32 if numerics == "vector" else torch.float16
    x = torch.randn(1, w.count * w.inputs, device=space.sums.device).to(dtype)
    y = torch.empty(1, w.count * w.outputs, device=space.sums.device)
    return lambda: matmul(x, w, y, space, numerics)


def _mixture(model: Model, layer: Any, space: Workspace, numerics: Numerics) -> Callable[[], None]:
    c, device = model.config, space.sums.device
    dtype = torch.float32 if numerics == "vector" else torch.float16
    x = torch.randn(1, c.dim, device=device).to(dtype)
    chosen = torch.randperm(c.experts, device=device)[: c.experts_used].sort()[0].int()[None]
    weights = torch.rand(1, c.experts_used, device=device)
    routed, shared = layer.experts, layer.shared
    pieces = experts_pieces(c.experts_used, True, numerics)
    y = torch.empty(1, pieces, c.dim, device=device)
    return lambda: experts(
        x, chosen, weights, routed.gate_up, routed.down, shared.gate_up, shared.down, layer.clamp,
        y, space, numerics,
    )  # fmt: skip


def microseconds(calls: Sequence[Callable[[], None]]) -> float:
    """Median time on the device of one call, within a captured graph of all."""
    calls[0]()  # compiles
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    taken = [device_ns(graph.replay) for _ in range(REPLAYS)]
    return sorted(taken)[REPLAYS // 2] / 1e3 / len(calls)


def _uncached(calls: Sequence[Callable[[], None]], size: float) -> list[Callable[[], None]]:
    """The calls as often as it takes to read LEAST_BYTES, at most 64 times in all."""
    calls = list(calls)
    while len(calls) * size < LEAST_BYTES and len(calls) < 64:
        calls += calls
    return calls
