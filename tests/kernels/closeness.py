"""Comparing a kernel with its reference, and a batch with its rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch


def assert_close(name: str, reference: torch.Tensor, found: np.ndarray, ratio: float) -> None:
    """Root of the mean squared error, relative to the reference's, is at most `ratio`."""
    expected = reference.detach().numpy().astype(np.float64)
    assert expected.shape == found.shape, (name, expected.shape, found.shape)
    error = np.abs(expected - found)
    relative = np.sqrt((error**2).mean()) / max(np.sqrt((expected**2).mean()), 1e-30)
    assert relative <= ratio, f"{name}: max abs {error.max():.3g}, relative rms {relative:.3g}"


def assert_rows_exact(run: Callable[[slice], list[np.ndarray]], rows: int) -> None:
    """Every run of rows gives what each of its rows gives alone, bit for bit.

    Args:
        run: evaluates the rows of a slice and returns arrays whose first axis is those rows.
    """
    single = [run(slice(r, r + 1)) for r in range(rows)]
    for count in range(2, rows + 1):
        for start in {0, rows - count}:
            for i, array in enumerate(run(slice(start, start + count))):
                for r in range(count):
                    alone = single[start + r][i][0]
                    assert array[r].tobytes() == alone.tobytes(), (i, count, start, r)
