"""Triton kernels of `kernels.packed.experts`: gate and up, then down, each in one launch.

A routed program belongs to a place (row, j) of the table of choices. It works only if no earlier
row chose the same expert, and then for all rows that did: every distinct expert is read once, and
which rows share it changes no row's numbers. Rows meet their experts' results in the table's order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.packed.product import product


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


@triton.jit(do_not_specialize=["n"])
def gate_up_kernel(
    x_ptr, chosen_ptr, weights_ptr, h_ptr, p0, p1, p2, p3, s0, s1, s2, s3,
    n, F, C, width, s_width, x_row, size0, size1, size2, size3, clamp, shared_tiles,
    KIND: tl.constexpr, S_KIND: tl.constexpr, CHOICES: tl.constexpr, PADDED: tl.constexpr,
    BN: tl.constexpr, S_BN: tl.constexpr, R: tl.constexpr, BK: tl.constexpr, S_BK: tl.constexpr,
    STAGES: tl.constexpr, S_STAGES: tl.constexpr, BACKWARDS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """h[r, j] = weight of the choice * gated product; h[r, CHOICES] = the shared expert's.

    Programs: first the shared expert's tiles, then tile by tile of every place in the table. A tile
    is BN / 2 gate rows and their up rows.
    """
    p = tl.program_id(0)
    r = tl.arange(0, R)
    x_at = (r * x_row)[None, :]
    if p < shared_tiles:
        if S_KIND != "":
            i = tl.arange(0, S_BN)
            f = p * (S_BN // 2) + i % (S_BN // 2)
            rows = tl.minimum(f, F - 1) + (i // (S_BN // 2)) * F
            live = (r < n)[None, :]
            acc = product(
                x_ptr, x_at, live, s0, s1, s2, s3, rows, 2 * F, s_width, 0, C // S_BK, S_KIND,
                S_BN, R, S_BK, S_STAGES, BACKWARDS, FAST,
            )  # fmt: skip
            h = gated(acc, clamp, S_BN, R)
            o = p * (S_BN // 2) + tl.arange(0, S_BN // 2)
            out = ((r * (CHOICES + 1) + CHOICES) * F)[None, :] + o[:, None]
            mask = (o < F)[:, None] & live
            tl.store(h_ptr + out, h.to(h_ptr.dtype.element_ty), mask=mask)
    else:
        q = p - shared_tiles
        tiles = tl.cdiv(F, BN // 2)
        place, tile = q // tiles, q % tiles
        row, j = place // CHOICES, place % CHOICES
        expert, leads, has, where = members(chosen_ptr, n, row, j, CHOICES, PADDED, R)
        if leads:
            e = expert.to(tl.int64)
            i = tl.arange(0, BN)
            f = tile * (BN // 2) + i % (BN // 2)
            rows = tl.minimum(f, F - 1) + (i // (BN // 2)) * F
            live = has[None, :]
            acc = product(
                x_ptr, x_at, live, p0 + e * size0, p1 + e * size1, p2 + e * size2, p3 + e * size3,
                rows, 2 * F, width, 0, C // BK, KIND, BN, R, BK, STAGES, BACKWARDS, FAST,
            )  # fmt: skip
            factor = tl.load(weights_ptr + r * CHOICES + where, mask=has, other=0.0)
            h = gated(acc, clamp, BN, R) * factor[None, :]
            o = tile * (BN // 2) + tl.arange(0, BN // 2)
            out = ((r * (CHOICES + 1) + where) * F)[None, :] + o[:, None]
            mask = (o < F)[:, None] & live
            tl.store(h_ptr + out, h.to(h_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n"])
def down_kernel(
    h_ptr, chosen_ptr, y_ptr, part_ptr, counter_ptr, p0, p1, p2, p3, s0, s1, s2, s3,
    n, C, F, width, s_width, y_row, size0, size1, size2, size3,
    KIND: tl.constexpr, S_KIND: tl.constexpr, CHOICES: tl.constexpr, PADDED: tl.constexpr,
    SHARES: tl.constexpr, BN: tl.constexpr, R: tl.constexpr, BK: tl.constexpr, S_BK: tl.constexpr,
    STAGES: tl.constexpr, S_STAGES: tl.constexpr, BACKWARDS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """y[r] = sum over j of down(h[r, j]), then the shared expert's SHARES sums.

    Programs: first the shared expert's (tile, share), then every place's tiles. Each stores its
    sums at its rows' places; the last one of a tile adds them up in the table's order.
    """
    p = tl.program_id(0)
    r = tl.arange(0, R)
    tiles = tl.cdiv(C, BN)
    tile = p % tiles
    turn = p // tiles
    rows = tile * BN + tl.arange(0, BN)
    inside = tl.minimum(rows, C - 1)
    cell = rows[:, None]
    slots: tl.constexpr = CHOICES + SHARES
    if turn < SHARES:
        if S_KIND != "":
            live = (r < n)[None, :]
            at = ((r * (CHOICES + 1) + CHOICES) * F)[None, :]
            blocks = F // S_BK
            acc = product(
                h_ptr, at, live, s0, s1, s2, s3, inside, C, s_width, blocks * turn // SHARES,
                blocks * (turn + 1) // SHARES, S_KIND, BN, R, S_BK, S_STAGES, BACKWARDS, FAST,
            )  # fmt: skip
            out = ((r * slots + CHOICES + turn) * C)[None, :] + cell
            tl.store(part_ptr + out, acc, mask=(rows < C)[:, None] & live)
    else:
        place = turn - SHARES
        row, j = place // CHOICES, place % CHOICES
        expert, leads, has, where = members(chosen_ptr, n, row, j, CHOICES, PADDED, R)
        if leads:
            e = expert.to(tl.int64)
            live = has[None, :]
            at = ((r * (CHOICES + 1) + where) * F)[None, :]
            acc = product(
                h_ptr, at, live, p0 + e * size0, p1 + e * size1, p2 + e * size2, p3 + e * size3,
                inside, C, width, 0, F // BK, KIND, BN, R, BK, STAGES, BACKWARDS, FAST,
            )  # fmt: skip
            out = ((r * slots + where) * C)[None, :] + cell
            tl.store(part_ptr + out, acc, mask=(rows < C)[:, None] & live)
    tl.debug_barrier()
    finished = tl.atomic_add(counter_ptr + tile, 1, sem="acq_rel")
    if finished == SHARES + n * CHOICES - 1:
        wanted = (rows < C)[:, None] & (r < n)[None, :]
        base = part_ptr + (r * (slots * C))[None, :] + cell
        total = tl.zeros((BN, R), tl.float32)
        for i in tl.static_range(CHOICES):
            at_slot = (CHOICES - 1 - i) * C if BACKWARDS else i * C
            total += tl.load(base + at_slot, mask=wanted, other=0.0, cache_modifier=".cg")
        for i in tl.static_range(SHARES):
            total += tl.load(base + (CHOICES + i) * C, mask=wanted, other=0.0, cache_modifier=".cg")
        tl.store(y_ptr + (r * y_row)[None, :] + cell, total, mask=wanted)
        tl.store(counter_ptr + tile, 0)
