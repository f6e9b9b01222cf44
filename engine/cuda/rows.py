"""Rows of a forward that stay on the GPU: the host reads which tokens are best, and why.

The forward itself finds them and sends them to the host; logits are copied there only when someone
looks at all of them. Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from engine.greedy import TOP, Top
from kernels.cuda import lanes
from kernels.top import best_of

SPARE = 3
"""Best tokens that a forward finds beside TOP: so many excluded ones cost no second look."""


def staged(values: np.ndarray, device: str) -> torch.Tensor:
    """Host values in memory from which a copy to the device does not wait for it."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor.pin_memory() if device.startswith("cuda") else tensor


class Twin:
    """Host memory beside a tensor, from which copies do not wait for earlier work."""

    def __init__(self, target: torch.Tensor) -> None:
        self._target = target
        self._host = torch.empty_like(target, device="cpu", pin_memory=target.is_cuda)
        self._values = self._host.numpy()

    def write(self, values: Sequence[Any]) -> None:
        """Take host values, row by row; earlier ones must have left."""
        for row, value in zip(self._values, values, strict=True):
            row[...] = value

    def send(self) -> None:
        """Launch the copy; a captured one takes what is written when it is replayed."""
        self._target.copy_(self._host, non_blocking=True)


class Best:
    """The best tokens of a forward's rows, and which rows are not finite, on their way to the host.

    Static memory, so that a captured graph can write it; valid until the next forward of as many
    rows.
    """

    def __init__(self, rows: int, device: str) -> None:
        count, self._pinned = TOP + SPARE, device.startswith("cuda")
        self._block = torch.empty(rows * count * 12, dtype=torch.uint8, device=device)
        self._host = torch.empty_like(self._block, device="cpu", pin_memory=self._pinned)
        self._ids, self._values = self._views(self._block, rows, count)
        ids, values = self._views(self._host, rows, count)
        self._host_ids, self._host_values = ids.numpy(), values.numpy()
        self._none = torch.full((rows, 1), -1, dtype=torch.int64, device=device)
        self._bad: torch.Tensor | None = None

    @staticmethod
    def _views(block: torch.Tensor, rows: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids, values = block[: rows * count * 8], block[rows * count * 8 :]
        return ids.view(torch.int64).view(rows, count), values.view(torch.float32).view(rows, count)

    def find(self, logits: torch.Tensor, bad: torch.Tensor) -> None:
        """Launch the search and the copies to the host.

        Args:
            bad: (n, P) int32, not zero where a part of a row is not finite.
        """
        best_of(logits, self._none, self._ids, self._values)
        lanes.join()
        self._host.copy_(self._block, non_blocking=True)
        if self._bad is None:
            self._bad = torch.empty_like(bad, device="cpu", pin_memory=self._pinned)
        self._bad.copy_(bad, non_blocking=True)

    def read(self) -> tuple[bool, list[Top]]:
        """Whether a row is not finite, and the best TOP + SPARE tokens of each, once they came."""
        assert self._bad is not None
        pairs = zip(self._host_ids.tolist(), self._host_values.tolist(), strict=True)
        return bool(self._bad.numpy().any()), [tops(ids, values) for ids, values in pairs]


def tops(ids: Sequence[int], values: Sequence[float]) -> Top:
    """Ids with their logits; what is excluded, at -inf, is no candidate."""
    pairs = zip(ids, values, strict=True)
    return tuple(pair for pair in pairs if pair[1] != float("-inf"))


class DeviceRow:
    """One row of logits (V,), a snapshot on the device; `numpy.asarray` copies it to the host.

    Args:
        rows: (n, V), of which it is one.
        best: the best ids with their logits, best first, where they are known.
    """

    def __init__(
        self, rows: torch.Tensor, row: int, best: Top = (), excluded: Sequence[int] = ()
    ) -> None:
        self._rows = rows
        self._row = row
        self._excluded = list(excluded)
        self.best = best
        self.shape = (rows.shape[1],)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The row on the host, excluded tokens at -inf."""
        row: np.ndarray = self._rows[self._row].cpu().numpy()
        if self._excluded:
            row[self._excluded] = -np.inf
        return row if dtype is None else row.astype(dtype)

    def __getitem__(self, token: int) -> float:
        """One token's logit."""
        return float("-inf") if token in self._excluded else float(self._rows[self._row, token])


class DeviceRows:
    """Result of a forward: `engine.rows.Rows`, whose logits come to the host when asked for.

    Args:
        best: what the forward found of the rows; None where it had no head.
        arrived: waits until the forward has ended.
    """

    def __init__(
        self,
        values: torch.Tensor,
        taps: torch.Tensor,
        best: Best | None,
        failure: Callable[[], Exception],
        arrived: Callable[[], None],
    ) -> None:
        self.values = values
        self.taps = taps
        self._best = best
        self._failure = failure
        self._arrived = arrived

    @property
    def logits(self) -> np.ndarray:
        """(n, V) on the host.

        Raises:
            Ds4Error: when they are not finite.
        """
        self._arrived()
        if self._best is not None and self._best.read()[0]:
            raise self._failure()
        found: np.ndarray = self.values.cpu().numpy()
        return found

    def processed(self, excluded: Sequence[Sequence[int]]) -> list[tuple[DeviceRow, DeviceRow]]:
        """Every row as it is, and without its excluded tokens.

        Raises:
            Ds4Error: when they are not finite.
        """
        assert self._best is not None
        kept = self.values.clone()  # launched before the wait, which it does not prolong
        self._arrived()
        bad, found = self._best.read()
        if bad:
            raise self._failure()
        if max(map(len, excluded)) > SPARE:
            found = self._without(excluded)
        made = []
        for row, (best, out) in enumerate(zip(found, excluded, strict=True)):
            left = tuple(pair for pair in best if pair[0] not in out)[:TOP] if out else best[:TOP]
            made.append((DeviceRow(kept, row), DeviceRow(kept, row, left, out)))
        return made

    def _without(self, excluded: Sequence[Sequence[int]]) -> list[Top]:
        """Every row's best tokens but the excluded ones: another look at all logits."""
        rows, width = len(excluded), max(map(len, excluded))
        table = np.array([[*row, *[-1] * (width - len(row))] for row in excluded], np.int64)
        device = self.values.device
        out = staged(table, str(device)).to(device, non_blocking=True)
        ids = torch.empty((rows, TOP), dtype=torch.int64, device=device)
        best = torch.empty((rows, TOP), device=device)
        best_of(self.values, out, ids, best)
        return [tops(*pair) for pair in zip(ids.cpu().tolist(), best.cpu().tolist(), strict=True)]
