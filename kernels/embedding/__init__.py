"""Token embedding, copied into every hyper-connection stream."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def _cpu() -> Any:
    from kernels.embedding import cpu_kernel

    return cpu_kernel.embed


def embed(ids: np.ndarray, table: np.ndarray, streams: np.ndarray) -> None:
    """streams[r] = row ids[r] of the table, once per stream.

    Args:
        ids: (n,) int64, each in 0..V - 1.
        table: (V, C) float32.
        streams: (n, copies * C) float32, written.
    """
    _cpu()(ids, table, streams)
