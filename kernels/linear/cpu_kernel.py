"""CPU kernel of `kernels.linear`."""

from __future__ import annotations

from kernels.cpu.compiling import kernel
from kernels.cpu.lanes import address
from kernels.cpu.matrix import multiply
from kernels.cpu.rows import rms_norm


@kernel("void(float32[:,::1], int64[:,::1], float32[:,::1], int64[::1])")
def linear(x, words, y, mode):  # type: ignore[no-untyped-def]
    multiply(words, x, y, x.shape[0], mode[0])


@kernel("void(float32[:,::1], int64[:,::1], float32[::1], float32, float32[:,::1], int64[::1])")
def linear_norm(x, words, norm, epsilon, y, mode):  # type: ignore[no-untyped-def]
    multiply(words, x, y, x.shape[0], mode[0])
    for r in range(x.shape[0]):
        row = address(y) + 4 * y.shape[1] * r
        rms_norm(row, norm, epsilon, row)
