"""Means of inputs by group, which Q2_K's mins are multiplied with: one product for 16 groups."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.packed import formats

GROUP = tl.constexpr(formats.GROUP)


@triton.jit
def group_means(x, GROUPS: tl.constexpr, COLUMNS: tl.constexpr):
    """(GROUPS * 16, COLUMNS) inputs -> (GROUPS, COLUMNS) float32 means of every group.

    A sum of 16 F16 numbers is exact in float64, so that it does not depend on the tile's layout.
    """
    wide = tl.reshape(x, (GROUPS, GROUP, COLUMNS)).to(tl.float64)
    return (tl.sum(wide, 1) * (1.0 / GROUP)).to(tl.float32)


@triton.jit
def means_kernel(
    x_ptr, m_ptr, groups, x_row, ROUND: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Program (GROUPS groups, row): their means, of inputs as the product takes them."""
    row, part = tl.program_id(1), tl.program_id(0)
    g = part * GROUPS + tl.arange(0, GROUPS)
    k = part * (GROUPS * GROUP) + tl.arange(0, GROUPS * GROUP)
    x = tl.load(x_ptr + row * x_row + k, mask=k < groups * GROUP, other=0.0)
    if ROUND:
        x = x.to(tl.float16)
    m = tl.reshape(group_means(x[:, None], GROUPS, 1), [GROUPS])
    tl.store(m_ptr + row * groups + g, m, mask=g < groups)
