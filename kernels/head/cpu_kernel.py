"""CPU kernels of `kernels.head`."""

from __future__ import annotations

import numpy as np

from kernels.cpu.compiling import inline, kernel
from kernels.cpu.lanes import address
from kernels.cpu.matrix import product
from kernels.cpu.row_lanes import scale_by_row, sum_squares
from kernels.cpu.rows import inverse_rms, perturb


@inline
def head_rows(x, rows, width, norm, words, epsilon, logits, vocab, space, flags):  # type: ignore[no-untyped-def]
    """Logits of rows: the product of the normed ones; all arrays by address."""
    for r in range(rows):
        offset = 4 * width * r
        scale = inverse_rms(x + offset, width, epsilon)
        scale_by_row(x + offset, width, scale, norm, space + offset)
    product(words, rows, space, width, logits, vocab, flags)


@kernel(
    "int64(float32[:,::1], float32[::1], int64[:,::1], float32, float32[:,::1], int64[::1],"
    " float32[::1], int64[::1])"
)
def head(x, norm, words, epsilon, logits, positions, space, mode):  # type: ignore[no-untyped-def]
    rows, vocab = logits.shape
    head_rows(
        address(x), rows, x.shape[1], address(norm), address(words), epsilon, address(logits),
        vocab, address(space), mode[0],
    )  # fmt: skip
    perturb(address(logits), vocab, rows, vocab, positions, mode)
    for r in range(rows):
        if not np.isfinite(sum_squares(address(logits) + 4 * r * vocab, vocab)):
            return r
    return -1
