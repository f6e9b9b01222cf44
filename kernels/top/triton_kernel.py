"""Triton kernels of `kernels.top`: the best of every chunk of a row, then the best of those."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.workspace import scratch

CHUNK = 4096


@triton.jit
def _chunk_kernel(
    logits, excluded, ids, values, size, exclusions, chunks, K: tl.constexpr, CHUNK: tl.constexpr
):
    chunk, row = tl.program_id(0), tl.program_id(1)
    at = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(logits + row * size + at, mask=at < size, other=float("-inf"))
    x = tl.where(x == x, x, float("inf"))
    for j in range(exclusions):
        out = tl.load(excluded + row * exclusions + j)
        x = tl.where(at == out, float("-inf"), x)
    place = (row * chunks + chunk) * K
    for k in tl.static_range(K):
        best = tl.max(x, 0)
        index = tl.min(tl.where(x == best, at, 2147483647), 0)
        tl.store(ids + place + k, index.to(tl.int64))
        tl.store(values + place + k, best)
        x = tl.where(at == index, float("-inf"), x)


@triton.jit
def _final_kernel(
    ids, values, best_ids, best_values, tokens, size, count, NAMED: tl.constexpr, K: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    i = tl.arange(0, SIZE)
    x = tl.load(values + row * count + i, mask=i < count, other=float("-inf"))
    at = tl.load(ids + row * count + i, mask=i < count, other=2147483647)
    for k in tl.static_range(K):
        best = tl.max(x, 0)
        index = tl.min(tl.where(x == best, at, 2147483647), 0)
        named = index
        if NAMED:
            named = tl.load(tokens + index, mask=index < size, other=index)
        tl.store(best_ids + row * K + k, named)
        tl.store(best_values + row * K + k, best)
        x = tl.where(at == index, float("-inf"), x)


def best_of(logits: Any, excluded: Any, ids: Any, values: Any, tokens: Any = None) -> None:
    """As `kernels.top.best_of`."""
    (rows, size), k = logits.shape, ids.shape[1]
    chunks, lane = triton.cdiv(size, CHUNK), lanes.current()
    some_ids = scratch(logits.device, f"top ids {lane}", rows, chunks * k, dtype=torch.int64)
    some = scratch(logits.device, f"top values {lane}", rows, chunks * k)
    _chunk_kernel[(chunks, rows)](
        logits, excluded, some_ids, some, size, excluded.shape[1], chunks, K=k, CHUNK=CHUNK,
        num_warps=8,
    )  # fmt: skip
    _final_kernel[(rows,)](
        some_ids, some, ids, values, ids if tokens is None else tokens, size, chunks * k,
        NAMED=tokens is not None, K=k, SIZE=max(16, triton.next_power_of_2(chunks * k)),
        num_warps=1,
    )  # fmt: skip
