"""Torch tensors on a GPU, memory of timelines that is used again, and captured CUDA graphs.

A graph holds addresses: timelines take their memory from a pool, whose blocks are never freed, and
a graph's key names the block. Imports torch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from engine.arrays import Array
from engine.cuda.rows import Best, DeviceRows, Twin, staged
from kernels.cuda.lanes import open_lanes

if TYPE_CHECKING:
    from engine.block import Blocks
    from engine.drafter import Drafter

Result = TypeVar("Result")


class DeviceArrays:
    """Tensors of one device.

    Args:
        device: a CUDA device; any other runs the kernels interpreted, for tests.
        graphs: capture work that is done a second time.
    """

    def __init__(self, device: str = "cuda", *, graphs: bool = True) -> None:
        self.device = device
        self._graphs = graphs and device.startswith("cuda")
        self._free: dict[int, list[torch.Tensor]] = {}
        self._seen: set[Hashable] = set()
        self._captured: dict[Hashable, tuple[torch.cuda.CUDAGraph, Any]] = {}
        self._twins: dict[int, Twin] = {}
        self._best: dict[int, Best] = {}
        event: Any = torch.cuda.Event
        self._ended = event() if device.startswith("cuda") else None
        self._waited = True

    def zeros(self, shape: Sequence[int], kind: str = "float32") -> Array:
        """A new tensor."""
        return torch.zeros(tuple(shape), dtype=getattr(torch, kind), device=self.device)

    def empty(self, shape: Sequence[int]) -> Array:
        """A new float32 tensor to be written."""
        return torch.empty(tuple(shape), device=self.device)

    def take(self, values: np.ndarray) -> Array:
        """A host array, on the device."""
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device, copy=True)

    def put(self, target: Array, values: Any) -> None:
        """Overwrite `target` by host values."""
        target.copy_(staged(np.asarray(values), self.device), non_blocking=True)

    def write(self, target: Array, values: Sequence[Any]) -> None:
        """Host values, row by row, that `send` takes to `target`."""
        place = target.data_ptr()
        twin = self._twins.get(place)
        if twin is None:
            twin = self._twins[place] = Twin(target)
        self._arrived()
        twin.write(values)

    def send(self, target: Array) -> None:
        """Overwrite `target` by what was written last, when this is done or replayed."""
        self._twins[target.data_ptr()].send()

    def host(self, array: Array) -> np.ndarray:
        """The tensor's values on the host."""
        found: np.ndarray = array.cpu().numpy()
        return found

    def memory(self, owner: Any, like: int | Array) -> Array:
        """A float32 vector that `owner` has while it lives; afterwards another may get it."""
        size = like if isinstance(like, int) else like.numel()
        free = self._free.setdefault(size, [])
        block = free.pop() if free else torch.empty(size, device=self.device)
        if isinstance(like, int):
            block.zero_()
        else:
            block.copy_(like)
        weakref.finalize(owner, free.append, block)
        return block

    def scalar(self, value: int, place: Array | None = None) -> Any:
        """A (1,) int64 tensor."""
        if place is None:
            return torch.full((1,), value, dtype=torch.int64, device=self.device)
        place.fill_(value)
        return place

    def run(self, key: Hashable, work: Callable[[], Result]) -> Result:
        """Do `work`; capture it at the second call with a key, replay it from then on."""
        if key is None:  # looked at on the way, so in one line
            return work()
        found = self._captured.get(key)
        if found is None:
            if not self._graphs or key not in self._seen:
                self._seen.add(key)  # compiles kernels and makes their scratch memory
                with open_lanes(self.device):
                    return work()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph), open_lanes(self.device):
                result = work()
            found = self._captured[key] = (graph, result)
        found[0].replay()
        result = found[1]
        return result

    def found(self, logits: Array, bad: Array) -> Any:
        """The best tokens of every row, sent to the host; `bad` is what the head returned."""
        best = self._best.get(len(logits))
        if best is None:
            best = self._best[len(logits)] = Best(len(logits), self.device)
        best.find(logits, bad)
        return best

    def rows(self, logits: Array, taps: Array, found: Any, failure: Callable[[], Exception]) -> Any:
        """A forward's result, still on the device."""
        if self._ended is not None:
            self._ended.record()
            self._waited = False
        return DeviceRows(logits, taps, found, failure, self._arrived)

    def _arrived(self) -> None:
        """Wait until the last forward has ended."""
        if self._ended is not None and not self._waited:
            self._ended.synchronize()
            self._waited = True

    def blocks(self, drafter: Drafter, hidden: Array) -> Blocks:
        """Makes a drafter's blocks: hidden rows, head, Markov chain, confidences in one go."""
        from engine.cuda.blocks import DeviceBlocks

        return DeviceBlocks(drafter, self, hidden)

    def settle(self) -> None:
        """Wait until all work is done."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()
