"""Token embedding, copied into every hyper-connection stream."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def _cpu() -> Any:
    from kernels.embedding import cpu_kernel

    return cpu_kernel.embed


@cache
def _cuda() -> Any:
    from kernels.embedding import triton_kernel

    return triton_kernel


def embed(ids: np.ndarray, table: Any, streams: np.ndarray) -> None:
    """streams[r] = row ids[r] of the table, once per stream.

    Args:
        ids: (n,) int64, each in 0..V - 1.
        table: (V, C) float32; packed on CUDA.
        streams: (n, copies * C) float32, written.
    """
    if not isinstance(ids, np.ndarray):
        _cuda().embed(ids, table, streams)
        return
    _cpu()(ids, table, streams)
