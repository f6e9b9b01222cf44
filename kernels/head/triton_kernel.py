"""`kernels.head` on CUDA: the product, and which rows are finite."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.products import perturb, product
from kernels.cuda.rows import inverse_rms
from kernels.cuda.workspace import scratch
from kernels.mode import Mode

COLUMNS = 4096
"""Logits that a program checks."""


@triton.jit
def norm_kernel(x, stride, norm, y, width, epsilon, WIDE: tl.constexpr):
    """y = x / rms(x) * norm, a row a program; y may be x."""
    row = tl.program_id(0)
    i = tl.arange(0, WIDE)
    inside = i < width
    value = tl.load(x + row * stride + i, mask=inside, other=0.0)
    weight = tl.load(norm + i, mask=inside, other=0.0)
    value = value * inverse_rms(tl.sum(value * value, 0), width, epsilon) * weight
    tl.store(y + row * width + i, value, mask=inside)


@triton.jit
def _bad_kernel(logits, bad, size, COLUMNS: tl.constexpr):
    """1 for a part of a row with a logit that is not finite."""
    part, row = tl.program_id(0), tl.program_id(1)
    i = part * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.abs(tl.load(logits + row * size + i, mask=i < size, other=0.0))
    fine = x < float("inf")  # a NaN is below nothing
    tl.store(bad + row * tl.num_programs(0) + part, 1 - tl.min(fine.to(tl.int32), 0))


def head(
    x: Any, norm: Any, output: Any, epsilon: float, logits: Any, positions: Any, mode: Mode
) -> Any:
    """As `kernels.head.head`; returns (n, P) int32, 1 for parts that are not finite."""
    rows, width = x.shape
    normed = scratch(x.device, "head", rows, width)
    norm_kernel[(rows,)](
        x, x.stride(0), norm, normed, width, epsilon, WIDE=triton.next_power_of_2(width)
    )
    product(normed, output, logits, mode)
    perturb(logits, positions, mode)
    parts = triton.cdiv(logits.shape[1], COLUMNS)
    bad = scratch(x.device, "bad parts", rows, parts, dtype=torch.int32)
    lanes.ready(logits)
    with lanes.aside(logits, lanes.SHARED):
        _bad_kernel[(parts, rows)](logits, bad, logits.shape[1], COLUMNS=COLUMNS)
    return bad
