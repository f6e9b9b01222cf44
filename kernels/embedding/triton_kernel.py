"""Triton kernel of `kernels.embedding`: the packed table's rows, then their copies."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda.workspace import scratch
from kernels.packed import gather


@triton.jit
def _copy_kernel(rows, streams, width, copies, COLUMNS: tl.constexpr):
    row = tl.program_id(1)
    i = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = i < width
    x = tl.load(rows + row * width + i, mask=inside, other=0.0)
    for copy in range(copies):
        tl.store(streams + (row * copies + copy) * width + i, x, mask=inside)


def embed(ids: Any, table: Any, streams: Any) -> None:
    """As `kernels.embedding.embed`; the table is packed (V, C)."""
    rows, width = ids.shape[0], table.inputs
    found = scratch(streams.device, "embedding", rows, width)
    gather(table, ids, found)
    _copy_kernel[(triton.cdiv(width, 256), rows)](
        found, streams, width, streams.shape[1] // width, COLUMNS=256
    )
