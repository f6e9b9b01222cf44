"""Rows of a forward that stay on the GPU: the host reads which tokens are best, and why.

Logits are copied to the host only when someone looks at all of them. Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from engine.greedy import TOP, Top
from kernels.top import best_of


def staged(values: np.ndarray, device: str) -> torch.Tensor:
    """Host values in memory from which a copy to the device does not wait for it."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor.pin_memory() if device.startswith("cuda") else tensor


class DeviceRow:
    """One row of logits (V,), a snapshot on the device; `numpy.asarray` copies it to the host.

    Args:
        best: the best ids with their logits, best first, where they are known.
    """

    def __init__(self, values: torch.Tensor, best: Top = (), excluded: Sequence[int] = ()) -> None:
        self._values = values
        self._excluded = list(excluded)
        self.best = best
        self.shape = tuple(values.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The row on the host, excluded tokens at -inf."""
        row: np.ndarray = self._values.cpu().numpy()
        if self._excluded:
            row[self._excluded] = -np.inf
        return row if dtype is None else row.astype(dtype)

    def __getitem__(self, token: int) -> float:
        """One token's logit."""
        return float("-inf") if token in self._excluded else float(self._values[token])


class DeviceRows:
    """Result of a forward: `engine.rows.Rows`, whose logits come to the host when asked for."""

    def __init__(
        self,
        values: torch.Tensor,
        taps: torch.Tensor,
        bad: torch.Tensor | int,
        failure: Callable[[], Exception],
    ) -> None:
        self.values = values
        self.taps = taps
        self._bad = bad
        self._failure = failure

    @property
    def logits(self) -> np.ndarray:
        """(n, V) on the host.

        Raises:
            Ds4Error: when they are not finite.
        """
        if isinstance(self._bad, torch.Tensor) and bool(self._bad.any()):
            raise self._failure()
        found: np.ndarray = self.values.cpu().numpy()
        return found

    def processed(self, excluded: Sequence[Sequence[int]]) -> list[tuple[DeviceRow, DeviceRow]]:
        """Every row as it is, and without its excluded tokens; one read of the device for all.

        Raises:
            Ds4Error: when they are not finite.
        """
        assert isinstance(self._bad, torch.Tensor)
        rows = self.values.shape[0]
        width = max(1, *(len(row) for row in excluded))
        table = [[*row, *[-1] * (width - len(row))] for row in excluded]
        device = self.values.device
        out = staged(np.array(table, np.int64), str(device)).to(device, non_blocking=True)
        ids = torch.empty((rows, TOP), dtype=torch.int64, device=device)
        best = torch.empty((rows, TOP), device=device)
        best_of(self.values, out, ids, best)
        kept = self.values.clone()
        bad = self._bad.long().view(-1, 1)
        found = torch.cat([ids, best.view(torch.int32).long(), bad], 1).cpu()
        if bool(found[:, -1].any()):
            raise self._failure()
        names = found[:, :TOP].tolist()
        logits = found[:, TOP:-1].int().contiguous().view(torch.float32).tolist()
        made = []
        for r in range(rows):
            pairs = zip(names[r], logits[r], strict=True)
            top = tuple(pair for pair in pairs if pair[1] != float("-inf"))
            made.append((DeviceRow(kept[r]), DeviceRow(kept[r], top, excluded[r])))
        return made
