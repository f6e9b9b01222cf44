"""Scratch memory of the CPU kernels: one growing buffer, reused by every call of one thread."""

from __future__ import annotations

import threading

import numpy as np

_local = threading.local()


def workspace(floats: int) -> np.ndarray:
    """An uninitialised float32 array of at least `floats` elements, valid until the next call."""
    space: np.ndarray | None = getattr(_local, "space", None)
    if space is None or space.size < floats:
        space = np.empty(max(floats, 1 << 16), np.float32)
        _local.space = space
    return space
