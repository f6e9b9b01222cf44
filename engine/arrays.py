"""Where the engine's arrays live, and how a piece of work on them is run.

`HostArrays` are numpy arrays, worked on at once; `engine.cuda.arrays` has the same on a GPU. The
forward is written once against both: kernels choose by the type of the arrays they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from engine.rows import Rows
from kernels.threads import wake

if TYPE_CHECKING:
    from engine.block import Blocks
    from engine.drafter import Drafter

Array = Any
"""A numpy array, or a torch tensor on the GPU."""
Result = TypeVar("Result")


class Arrays(Protocol):
    """Memory of one device."""

    device: str

    def zeros(self, shape: Sequence[int], kind: str = "float32") -> Array:
        """A new array."""

    def empty(self, shape: Sequence[int]) -> Array:
        """A new float32 array to be written."""

    def take(self, values: np.ndarray) -> Array:
        """A host array, on the device."""

    def put(self, target: Array, values: Any) -> None:
        """Overwrite `target` by host values."""

    def write(self, target: Array, values: Sequence[Any]) -> None:
        """Host values, row by row, for `send` to take to `target`."""

    def send(self, target: Array) -> None:
        """Overwrite `target` by what was written last, when this is done or done again by `run`."""

    def host(self, array: Array) -> np.ndarray:
        """The array's values on the host; the array itself where it is there already."""

    def memory(self, owner: Any, like: int | Array) -> Array:
        """A float32 vector that `owner` has while it lives.

        Args:
            like: number of elements, all zero, or an array to copy.
        """

    def scalar(self, value: int, place: Array | None = None) -> Any:
        """A number that kernels read where they run; `place` is what an earlier call gave."""

    def run(self, key: Hashable, work: Callable[[], Result]) -> Result:
        """Do `work`, or again what it did at an earlier call with this key.

        The key names everything that `work` depends on besides the contents of arrays.
        """

    def found(self, logits: Array, bad: Any) -> Any:
        """What the host will ask of a forward's logits, looked up where they are.

        Args:
            bad: what the head returned of rows that are not finite.
        """

    def rows(self, logits: Array, taps: Array, found: Any, failure: Callable[[], Exception]) -> Any:
        """A forward's result from the buffers that hold it.

        Args:
            found: as the method returned it; None without logits.
            failure: the error to raise for rows that are not finite, at the latest when the host
                reads a logit.
        """

    def blocks(self, drafter: Drafter, hidden: Array) -> Blocks:
        """What makes a drafter's blocks here.

        Args:
            hidden: (B, D), where the drafter leaves a block's rows.
        """

    def settle(self) -> None:
        """Wait until all work is done."""


class HostArrays:
    """numpy arrays."""

    device = "cpu"

    def zeros(self, shape: Sequence[int], kind: str = "float32") -> Array:
        return np.zeros(shape, kind)

    def empty(self, shape: Sequence[int]) -> Array:
        return np.empty(shape, np.float32)

    def take(self, values: np.ndarray) -> Array:
        return values

    def put(self, target: Array, values: Any) -> None:
        target[...] = values

    def write(self, target: Array, values: Sequence[Any]) -> None:
        for row, value in zip(target, values, strict=True):
            row[...] = value

    def send(self, target: Array) -> None:
        return None

    def host(self, array: Array) -> np.ndarray:
        found: np.ndarray = array
        return found

    def memory(self, owner: Any, like: int | Array) -> Array:
        return np.zeros(like, np.float32) if isinstance(like, int) else like.copy()

    def scalar(self, value: int, place: Array | None = None) -> Any:
        return value

    def run(self, key: Hashable, work: Callable[[], Result]) -> Result:
        wake()
        return work()

    def found(self, logits: Array, bad: Any) -> Any:
        return bad

    def rows(self, logits: Array, taps: Array, found: Any, failure: Callable[[], Exception]) -> Any:
        if found is not None and found >= 0:
            raise failure()
        return Rows(logits, taps)

    def blocks(self, drafter: Drafter, hidden: Array) -> Blocks:
        from engine.host_blocks import HostBlocks

        return HostBlocks(drafter, hidden)

    def settle(self) -> None:
        return None


HOST = HostArrays()


def copy_of(array: Array) -> Array:
    """A copy, on the array's device."""
    return array.clone() if hasattr(array, "clone") else np.array(array)


def joined(parts: Sequence[Array]) -> Array:
    """One array of the rows of all parts, on their device."""
    if hasattr(parts[0], "clone"):
        import torch

        return torch.cat(list(parts))
    return np.concatenate(parts)
