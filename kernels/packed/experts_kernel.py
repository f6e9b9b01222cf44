"""Triton kernels of `kernels.packed.experts`: gate and up, then down, the shared expert by itself.

A routed program belongs to a place (row, j) of the table of choices. It works only if no earlier
row chose the same expert, and then for all rows that did: every distinct expert is read once, and
which rows share it changes no row's numbers. The first products leave the means of what they make
too, where the last ones need them; those leave pieces that whoever reads the sum adds up in the
table's order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.packed.early import inputs_ready
from kernels.packed.means import GROUP, group_means
from kernels.packed.product import in_order, product


@triton.jit
def members(chosen_ptr, n, row, j, CHOICES: tl.constexpr, PADDED: tl.constexpr, R: tl.constexpr):
    """The expert at (row, j), whether this is its first row, and per row: has it, where."""
    r, c = tl.arange(0, R), tl.arange(0, PADDED)
    expert = tl.load(chosen_ptr + row * CHOICES + j)
    inside = (r < n)[:, None] & (c < CHOICES)[None, :]
    table = tl.load(chosen_ptr + (r * CHOICES)[:, None] + c[None, :], mask=inside, other=-1)
    same = (table == expert).to(tl.int32)
    has = tl.sum(same, 1)
    leads = tl.sum(tl.where(r < row, has, 0)) == 0
    return expert, leads, has > 0, tl.sum(same * c[None, :], 1)


@triton.jit
def gated(acc, clamp, BN: tl.constexpr, R: tl.constexpr):
    """(BN, R) gate rows over up rows -> (BN / 2, R) silu(min(gate, clamp)) * clamped up."""
    gate, up = tl.split(tl.permute(tl.reshape(acc, (2, BN // 2, R)), (1, 2, 0)))
    gate = tl.minimum(gate, clamp)
    up = tl.minimum(tl.maximum(up, -clamp), clamp)
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit
def keep(
    h, slot, tile, live, h_ptr, hm_ptr, F, MEANS: tl.constexpr, BN: tl.constexpr, R: tl.constexpr
):
    """Store a tile of gated products (BN / 2, R) in slots (1, R), and its means where MEANS."""
    o = tile * (BN // 2) + tl.arange(0, BN // 2)
    h = h.to(h_ptr.dtype.element_ty)
    tl.store(h_ptr + slot * F + o[:, None], h, mask=(o < F)[:, None] & live)
    if MEANS:
        groups: tl.constexpr = BN // 2 // GROUP
        g = tile * groups + tl.arange(0, groups)
        out = slot * (F // GROUP) + g[:, None]
        tl.store(hm_ptr + out, group_means(h, groups, R), mask=(g < F // GROUP)[:, None] & live)


@triton.jit(do_not_specialize=["n"])
def shared_gate_up_kernel(
    x_ptr, xm_ptr, h_ptr, hm_ptr, part_ptr, counter_ptr, p0, p1, p2, p3,
    n, F, C, width, x_row, clamp,
    KIND: tl.constexpr, CHOICES: tl.constexpr, BN: tl.constexpr, R: tl.constexpr, BK: tl.constexpr,
    SPLIT: tl.constexpr, MEANS: tl.constexpr, STAGES: tl.constexpr, BACKWARDS: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """h[r, CHOICES] = the shared expert's gated product; a tile is BN / 2 gate and up rows."""
    tile, share, r = tl.program_id(0), tl.program_id(1), tl.arange(0, R)
    i = tl.arange(0, BN)
    f = tile * (BN // 2) + i % (BN // 2)
    rows = tl.minimum(f, F - 1) + (i // (BN // 2)) * F
    live = (r < n)[None, :]
    acc = product(
        x_ptr, (r * x_row)[None, :], xm_ptr, (r * (C // GROUP))[None, :], live, p0, p1, p2, p3,
        rows, 2 * F, width, C // BK * share // SPLIT, C // BK * (share + 1) // SPLIT, KIND, BN, R,
        BK, STAGES, BACKWARDS, FAST,
    )  # fmt: skip
    acc, done = in_order(
        acc, live, part_ptr + tile * (SPLIT * BN * R), counter_ptr + tile, share, SPLIT, BN, R
    )
    if done:
        slot = (r * (CHOICES + 1) + CHOICES)[None, :]
        keep(gated(acc, clamp, BN, R), slot, tile, live, h_ptr, hm_ptr, F, MEANS, BN, R)


@triton.jit(do_not_specialize=["n"])
def gate_up_kernel(
    x_ptr, xm_ptr, chosen_ptr, weights_ptr, h_ptr, hm_ptr, part_ptr, counter_ptr, p0, p1, p2, p3,
    n, F, C, width, x_row, size0, size1, size2, size3, clamp,
    KIND: tl.constexpr, CHOICES: tl.constexpr, PADDED: tl.constexpr, BN: tl.constexpr,
    R: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, WHOLE: tl.constexpr,
    MEANS: tl.constexpr, STAGES: tl.constexpr, BACKWARDS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """h[r, j] = weight of the choice * gated product.

    Programs: (tile by tile of every place in the table, share of the inputs), or where WHOLE both
    shares by one program. A tile is BN / 2 gate rows and their up rows.
    """
    inputs_ready()
    number, share, r = tl.program_id(0), tl.program_id(1), tl.arange(0, R)
    tiles = tl.cdiv(F, BN // 2)
    place, tile = number // tiles, number % tiles
    row, j = place // CHOICES, place % CHOICES
    expert, leads, has, where = members(chosen_ptr, n, row, j, CHOICES, PADDED, R)
    if leads:
        e = expert.to(tl.int64)
        i = tl.arange(0, BN)
        f = tile * (BN // 2) + i % (BN // 2)
        rows = tl.minimum(f, F - 1) + (i // (BN // 2)) * F
        live = has[None, :]
        blocks, at, m_at = C // BK, (r * x_row)[None, :], (r * (C // GROUP))[None, :]
        q0, q1, q2, q3 = p0 + e * size0, p1 + e * size1, p2 + e * size2, p3 + e * size3
        if WHOLE:
            acc, rest = product(
                x_ptr, at, xm_ptr, m_at, live, q0, q1, q2, q3, rows, 2 * F, width, 0, blocks, KIND,
                BN, R, BK, STAGES, BACKWARDS, FAST, blocks // 2, True,
            )  # fmt: skip
            acc += rest
            done = True
        else:
            acc = product(
                x_ptr, at, xm_ptr, m_at, live, q0, q1, q2, q3, rows, 2 * F, width,
                blocks * share // SPLIT, blocks * (share + 1) // SPLIT, KIND, BN, R, BK, STAGES,
                BACKWARDS, FAST,
            )  # fmt: skip
            acc, done = in_order(
                acc, live, part_ptr + number * (SPLIT * BN * R), counter_ptr + number, share,
                SPLIT, BN, R,
            )  # fmt: skip
        if done:
            factor = tl.load(weights_ptr + r * CHOICES + where, mask=has, other=0.0)
            h = gated(acc, clamp, BN, R) * factor[None, :]
            slot = (r * (CHOICES + 1) + where)[None, :]
            keep(h, slot, tile, live, h_ptr, hm_ptr, F, MEANS, BN, R)


@triton.jit(do_not_specialize=["n"])
def shared_down_kernel(
    h_ptr, hm_ptr, y_ptr, p0, p1, p2, p3, n, C, F, width,
    KIND: tl.constexpr, CHOICES: tl.constexpr, SLOTS: tl.constexpr, SHARES: tl.constexpr,
    BN: tl.constexpr, R: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
    BACKWARDS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """y[r, the last SHARES slots] = the shared expert's down projection, share by share."""
    tile, share, r = tl.program_id(0), tl.program_id(1), tl.arange(0, R)
    rows = tile * BN + tl.arange(0, BN)
    live = (r < n)[None, :]
    blocks, slot = F // BK, (r * (CHOICES + 1) + CHOICES)[None, :]
    acc = product(
        h_ptr, slot * F, hm_ptr, slot * (F // GROUP), live, p0, p1, p2, p3,
        tl.minimum(rows, C - 1), C, width, blocks * share // SHARES,
        blocks * (share + 1) // SHARES, KIND, BN, R, BK, STAGES, BACKWARDS, FAST,
    )  # fmt: skip
    out = ((r * SLOTS + SLOTS - SHARES + share) * C)[None, :] + rows[:, None]
    tl.store(y_ptr + out, acc, mask=(rows < C)[:, None] & live)


@triton.jit(do_not_specialize=["n"])
def down_kernel(
    h_ptr, hm_ptr, chosen_ptr, y_ptr, p0, p1, p2, p3, n, C, F, width, size0, size1, size2, size3,
    KIND: tl.constexpr, CHOICES: tl.constexpr, PADDED: tl.constexpr, SLOTS: tl.constexpr,
    BN: tl.constexpr, R: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, BACKWARDS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """y[r, slot of (j, share)] = a share of down(h[r, j]), in the order in which they are added.

    Programs: (every place's tiles, share of the inputs). The choices are read before the kernel
    before has ended: it waited for them too.
    """
    share, r = tl.program_id(1), tl.arange(0, R)
    tiles = tl.cdiv(C, BN)
    place, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    rows = tile * BN + tl.arange(0, BN)
    row, j = place // CHOICES, place % CHOICES
    expert, leads, has, where = members(chosen_ptr, n, row, j, CHOICES, PADDED, R)
    inputs_ready()
    if leads:
        e = expert.to(tl.int64)
        live = has[None, :]
        blocks, slot = F // BK, (r * (CHOICES + 1) + where)[None, :]
        acc = product(
            h_ptr, slot * F, hm_ptr, slot * (F // GROUP), live, p0 + e * size0, p1 + e * size1,
            p2 + e * size2, p3 + e * size3, tl.minimum(rows, C - 1), C, width,
            blocks * share // SPLIT, blocks * (share + 1) // SPLIT, KIND, BN, R, BK, STAGES,
            BACKWARDS, FAST,
        )  # fmt: skip
        slot = where * SPLIT + share
        if BACKWARDS:
            slot = CHOICES * SPLIT - 1 - slot
        out = ((r * SLOTS + slot) * C)[None, :] + rows[:, None]
        tl.store(y_ptr + out, acc, mask=(rows < C)[:, None] & live)
