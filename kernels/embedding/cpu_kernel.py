"""CPU kernel of `kernels.embedding`."""

from __future__ import annotations

from kernels.cpu.compiling import kernel
from kernels.cpu.lanes import address
from kernels.cpu.row_lanes import copy_row


@kernel("void(int64[::1], float32[:,::1], float32[:,::1])")
def embed(ids, table, streams):  # type: ignore[no-untyped-def]
    width = table.shape[1]
    for r in range(ids.size):
        row = address(table) + 4 * width * ids[r]
        for column in range(0, streams.shape[1], width):
            copy_row(row, width, address(streams) + 4 * (r * streams.shape[1] + column))
