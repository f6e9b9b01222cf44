"""CPU kernels of `kernels.rounding`: the row primitives of `kernels.cpu.rows`, on whole arrays."""

from __future__ import annotations

from kernels.cpu.compiling import kernel
from kernels.cpu.lanes import address
from kernels.cpu.rows import fp4_blocks, fp8_blocks, half_all
from kernels.cpu.transform_lanes import hadamard_row

FP8, FP4, HALF, HADAMARD = 0, 1, 2, 3


@kernel("void(float32[:,::1], int64, int64)")
def apply(rows, kind, block):  # type: ignore[no-untyped-def]
    width = rows.shape[1]
    for r in range(rows.shape[0]):
        row = address(rows) + 4 * width * r
        if kind == FP8:
            fp8_blocks(row, width, block)
        elif kind == FP4:
            fp4_blocks(row, width, block)
        elif kind == HALF:
            half_all(row, width)
        else:
            hadamard_row(row, width)
