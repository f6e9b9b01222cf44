"""CPU kernels of `kernels.head`."""

from __future__ import annotations

import numpy as np

from kernels.cpu.compiling import inline, kernel
from kernels.cpu.lanes import address
from kernels.cpu.matrix import product
from kernels.cpu.row_lanes import sum_squares
from kernels.cpu.rows import perturb, rms_norm


@inline
def head_rows(x, norm, words, epsilon, logits, space, flags):  # type: ignore[no-untyped-def]
    """logits = product of the normed rows."""
    rows, width = x.shape
    for r in range(rows):
        offset = 4 * width * r
        rms_norm(address(x) + offset, norm, epsilon, address(space) + offset)
    vocab = logits.shape[1]
    product(address(words), rows, address(space), width, address(logits), vocab, flags)


@kernel(
    "int64(float32[:,::1], float32[::1], int64[:,::1], float32, float32[:,::1], int64[::1],"
    " float32[::1], int64[::1])"
)
def head(x, norm, words, epsilon, logits, positions, space, mode):  # type: ignore[no-untyped-def]
    rows, vocab = logits.shape
    head_rows(x, norm, words, epsilon, logits, space, mode[0])
    perturb(address(logits), vocab, rows, vocab, positions, mode)
    for r in range(rows):
        if not np.isfinite(sum_squares(address(logits) + 4 * r * vocab, vocab)):
            return r
    return -1
