"""Triton kernels of `kernels.markov`."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.cuda.products import product
from kernels.cuda.rows import sigmoid
from kernels.cuda.workspace import scratch
from kernels.mode import TILES
from kernels.packed import gather


@triton.jit
def _confidence_kernel(hidden, embedded, weights, bias, out, width, rank, BLOCK: tl.constexpr):
    """sigmoid(weights . [hidden ; embedded] + bias)."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, width, BLOCK):
        at = start + i
        x = tl.load(hidden + at, mask=at < width, other=0.0)
        total += x * tl.load(weights + at, mask=at < width, other=0.0)
    for start in range(0, rank, BLOCK):
        at = start + i
        x = tl.load(embedded + at, mask=at < rank, other=0.0)
        total += x * tl.load(weights + width + at, mask=at < rank, other=0.0)
    tl.store(out, sigmoid(tl.sum(total, 0) + bias))


def markov_row(table: Any, previous: Any, row: Any) -> None:
    """row (1, r) = the packed table's row of the token in `previous` (1,)."""
    gather(table, previous, row)


def _row(table: Any, previous: int, device: Any) -> Any:
    row = scratch(device, "markov row", 1, table.inputs)
    markov_row(table, torch.full((1,), previous, dtype=torch.int64, device=device), row)
    return row


def add_bias(row: Any, output: Any, logits: Any, out: Any) -> None:
    """out (V,) = logits (V,) + output @ row (1, r)."""
    product(row, output, out.view(1, -1), TILES, logits.view(1, -1))


def estimate(hidden: Any, row: Any, weights: Any, bias: float, out: Any) -> None:
    """out (1,) = sigmoid(weights . [hidden (D,) ; row (1, r)] + bias)."""
    _confidence_kernel[(1,)](
        hidden, row, weights, bias, out, hidden.numel(), row.numel(), BLOCK=1024, num_warps=4
    )


def markov_scores(table: Any, previous: int, output: Any, logits: Any, out: Any) -> Any:
    """As `kernels.markov.markov_scores`; returns a tensor."""
    add_bias(_row(table, previous, out.device), output, logits, out)
    return out.argmax()


def confidence(hidden: Any, table: Any, previous: int, weights: Any, bias: float) -> Any:
    """As `kernels.markov.confidence`; returns a tensor."""
    out = torch.empty(1, device=hidden.device)
    estimate(hidden, _row(table, previous, hidden.device), weights, bias, out)
    return out
