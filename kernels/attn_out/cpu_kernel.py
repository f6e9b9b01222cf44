"""CPU kernel of `kernels.attn_out`."""

from __future__ import annotations

from kernels.cpu.compiling import kernel
from kernels.cpu.lanes import address
from kernels.cpu.matrix import OUTPUTS, product
from kernels.cpu.rows import perturb


@kernel(
    "void(float32[:,::1], int64[:,::1], int64[:,::1], float32[:,::1], int64[::1], float32[::1],"
    " int64[::1])"
)
def attn_out(o, a_words, b_words, y, positions, space, mode):  # type: ignore[no-untyped-def]
    rows, groups = o.shape[0], a_words.shape[0]
    inner, rank = o.shape[1] // groups, a_words[0, OUTPUTS]
    low = address(space)
    for g in range(groups):
        product(
            address(a_words) + 8 * a_words.shape[1] * g, rows, address(o) + 4 * inner * g,
            o.shape[1], low + 4 * rank * g, groups * rank, mode[0],
        )  # fmt: skip
    width = y.shape[1]
    product(address(b_words), rows, low, groups * rank, address(y), width, mode[0])
    perturb(address(y), width, rows, width, positions, mode)
