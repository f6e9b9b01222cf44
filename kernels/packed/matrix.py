"""A packed matrix, or a stack of them, and the scratch memory that products share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, device

MAX_ROWS = 32
"""Activation rows of one launch."""


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """`count` matrices of (outputs, inputs), in the planes that `repack` describes."""

    kind: str
    count: int
    outputs: int
    inputs: int
    planes: tuple[Tensor, ...]

    @property
    def nbytes(self) -> int:
        """Memory of the planes."""
        return sum(plane.numel() * plane.element_size() for plane in self.planes)


class Workspace:
    """Partial sums and counters of products that add up shares of their inputs; means of inputs.

    Calls that use one workspace must run one after the other. Counters are zero between calls.

    Args:
        floats: room for partial sums, means and the experts' activations; a call that needs more
            says so.
    """

    def __init__(self, device: device | str, floats: int = 1 << 23) -> None:
        import torch

        self.sums = torch.empty(floats, dtype=torch.float32, device=device)
        self.counters = torch.zeros(1 << 14, dtype=torch.int32, device=device)

    def take(self, floats: Sequence[int], counters: int) -> Sequence[Tensor]:
        """Parts of `sums`, of so many floats each; the call also needs so many counters.

        Raises:
            ValueError: when there are not as many.
        """
        total = sum(floats)
        if total > self.sums.numel() or counters > self.counters.numel():
            raise ValueError(
                f"the workspace has {self.sums.numel()} floats and {self.counters.numel()} "
                f"counters, the product needs {total} and {counters}"
            )
        return self.sums[:total].split(list(floats))
