"""A tile of rows of a packed matrix times a few activation rows.

Reduction order, the same for every number of activation rows: blocks of inputs in order, inside a
block the groups in order, inside a group the tensor core's own order; F32 throughout. With R = 1
the activations stay F32 and nothing is rounded; otherwise they are rounded to F16 and padded to
R = 8, 16 or 32 rows, each of which is one column of the tensor cores' result and depends on no
other. Which inputs of a group meet in one instruction is the compiler's choice and may differ
between values of R: bits are compared at R = 8.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.packed import formats
from kernels.packed.decode import (
    SUBNORMAL,
    byte,
    down,
    fp4,
    high_half,
    high_number,
    integer,
    low_half,
    low_number,
    signed_magnitude,
    spread,
    times,
    two_numbers,
    widen,
)
from kernels.packed.means import GROUP

PANEL = tl.constexpr(formats.PANEL)


@triton.jit
def activations(x_ptr, at, live, k, R: tl.constexpr):
    """Inputs k of the rows that begin at `at`: (len(k), R) float16, or (1, len(k)) float32."""
    if R == 1:
        return tl.load(x_ptr + at + k[None, :], mask=live, other=0.0).to(tl.float32)
    else:
        return tl.load(x_ptr + at + k[:, None], mask=live, other=0.0).to(tl.float16)


@triton.jit
def accumulate(total, w, x, R: tl.constexpr):
    """total + w x: by the tensor cores, or element by element where R = 1."""
    if R == 1:
        wide = w.to(tl.float32)
        return tl.fma(wide, tl.broadcast_to(x, wide.shape), total)
    else:
        return tl.dot(w, x, total)


@triton.jit
def scaled(part, scale, total):
    """total + part * scale per row, fused: compilers differ in what they fuse by themselves."""
    return tl.fma(part, tl.broadcast_to(scale[:, None], part.shape), total)


@triton.jit
def nothing(BN: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr):
    """Zeros to accumulate in: (BN, R), or (BN, WIDTH) where R = 1."""
    if R == 1:
        return tl.zeros((BN, WIDTH), tl.float32)
    else:
        return tl.zeros((BN, R), tl.float32)


@triton.jit
def inputs_sum(x, BN: tl.constexpr, WIDTH: tl.constexpr, R: tl.constexpr):
    """The sum of a group's inputs beside every row (BN, R); where R = 1 the inputs themselves."""
    if R == 1:
        return tl.broadcast_to(x, (BN, WIDTH))
    else:
        return tl.dot(tl.full((BN, WIDTH), 1.0, tl.float16), x)


@triton.jit
def accumulate_means(total, least, m_ptr, at, live, g, R: tl.constexpr):
    """total + least m for the means m of groups g, which are taken in two F16 parts."""
    if R == 1:
        return accumulate(total, least, tl.load(m_ptr + at + g[None, :], mask=live, other=0.0), R)
    else:
        m = tl.load(m_ptr + at + g[:, None], mask=live, other=0.0)
        high = m.to(tl.float16)
        total = tl.dot(least, (m - high.to(tl.float32)).to(tl.float16), total)
        return tl.dot(least, high, total)


@triton.jit
def in_order(
    acc, live, part_ptr, counter_ptr, share, SPLIT: tl.constexpr, BN: tl.constexpr, R: tl.constexpr
):
    """The sum of what SPLIT programs have, in the order of their shares, in the last to come.

    So the result does not depend on which one that is.

    Args:
        acc: (BN, R). live: (1, R) which columns count.
        part_ptr: SPLIT * BN * R floats of this tile. counter_ptr: its counter, left at zero.
    Returns:
        The sum, and whether this program is the one that has it.
    """
    if SPLIT == 1:
        return acc, True
    else:
        base = part_ptr + tl.arange(0, BN)[:, None] + (tl.arange(0, R) * BN)[None, :]
        tl.store(base + share * (BN * R), acc, mask=live)
        tl.debug_barrier()
        done = tl.atomic_add(counter_ptr, 1, sem="acq_rel") == SPLIT - 1
        if done:
            acc = tl.load(base, mask=live, other=0.0, cache_modifier=".cg")
            for s in tl.static_range(1, SPLIT):
                acc += tl.load(base + s * (BN * R), mask=live, other=0.0, cache_modifier=".cg")
            tl.store(counter_ptr, 0)
        return acc, done


@triton.jit
def product(
    x_ptr, at, m_ptr, m_at, live, p0, p1, p2, p3, rows, N, width, first, last,
    KIND: tl.constexpr, BN: tl.constexpr, R: tl.constexpr, BK: tl.constexpr,
    STAGES: tl.constexpr, BACKWARDS: tl.constexpr, FAST: tl.constexpr, middle=0,
    HALVES: tl.constexpr = False,
):  # fmt: skip
    """(BN, R) float32: rows of one matrix times R activation rows, over blocks first..last - 1.

    With HALVES (R > 1) two of them, over the blocks before `middle` and from there on: the bits of
    two calls, in one pipeline.

    Args:
        at, live: where each activation row begins, and whether it counts: (1, R).
        m_ptr, m_at: means of the activations by group, and where each row's begin; for Q2_K.
        p0..p3: the matrix's planes, as `repack` lays them out. N: rows of a plane.
        rows: (BN,) rows. width: elements of p0 for one row.
        BK: inputs of a block: 32 to 256 for Q8_0, a power of two for F16 and F32, 256 for the rest
            (MXFP4: 128).
        BACKWARDS: take the blocks in descending order.
    """
    if KIND == "Q2_K":
        lanes: tl.constexpr = 16
    elif KIND == "F16" or KIND == "F32":
        lanes: tl.constexpr = BK
    else:
        lanes: tl.constexpr = 32
    lane = tl.arange(0, lanes)
    if KIND == "F16" or KIND == "F32":
        line = rows[:, None] * width + lane[None, :]
    else:
        panel = (rows // PANEL) * (PANEL * width) + (rows % PANEL) * lanes
        line = panel[:, None] + lane[None, :]
    if KIND == "Q2_K":
        panel = (rows // PANEL) * (PANEL * (width // 2)) + (rows % PANEL) * lanes
        # Loads of 16 bytes a thread here would keep those of the quants out of the pipeline.
        least_line = tl.max_contiguous(panel[:, None] + lane[None, :], [1, 8])
    acc = nothing(BN, lanes, R)
    earlier = acc
    for step in tl.range(first, last, num_stages=STAGES):
        if HALVES:
            begins = step == middle
            earlier = tl.where(begins, acc, earlier)
            acc = tl.where(begins, 0.0, acc)
        b = last - 1 - (step - first) if BACKWARDS else step
        k = b * BK
        if KIND == "F16":
            w = tl.load(p0 + line + k)
            acc = accumulate(acc, w, activations(x_ptr, at, live, k + lane, R), R)
        elif KIND == "F32":
            w = tl.load(p0 + line + k)
            x = activations(x_ptr, at, live, k + lane, R)
            if R == 1:
                acc = accumulate(acc, w, x, R)
            else:
                high = w.to(tl.float16)
                acc = tl.dot(high, x, acc)
                acc = tl.dot((w - high.to(tl.float32)).to(tl.float16), x, acc)
        elif KIND == "Q8_0":
            for j in tl.static_range(BK // 32):
                if BK == 32:
                    word = tl.load(p1 + (b // 2) * N + rows)
                    scale = tl.where(b % 2 == 0, low_half(word), high_half(word))
                elif j % 2 == 0:
                    word = tl.load(p1 + (b * (BK // 64) + j // 2) * N + rows)
                    scale = low_half(word)
                else:
                    scale = high_half(word)
                q = tl.load(p0 + line + (k * PANEL + j * (32 * PANEL)))
                x = activations(x_ptr, at, live, k + j * 32 + lane, R)
                part = accumulate(nothing(BN, lanes, R), widen(q, FAST), x, R)
                acc = scaled(part, scale, acc)
        elif KIND == "IQ2_XXS":
            w = tl.load(p0 + line + b * (32 * PANEL))
            signs = spread(tl.load(p1 + line + b * (32 * PANEL)), FAST)
            odd0 = tl.load(p2 + (b * 2) * N + rows)
            odd1 = tl.load(p2 + (b * 2 + 1) * N + rows)
            scale = tl.load(p3 + b * N + rows)
            w6 = down(w, 6, FAST)
            w12 = down(w, 12, FAST)
            block = nothing(BN, lanes, R)
            for j in tl.static_range(8):
                x = activations(x_ptr, at, live, k + j * 32 + lane, R)
                if j < 3:
                    value = signed_magnitude(w, signs, j, FAST)
                elif j < 6:
                    value = signed_magnitude(w6, signs, j, FAST)
                else:
                    value = signed_magnitude(w12, signs, j, FAST)
                part = accumulate(nothing(BN, lanes, R), value, x, R)
                if j < 4:
                    block = scaled(part, byte(odd0, j), block)
                else:
                    block = scaled(part, byte(odd1, j - 4), block)
            acc = scaled(block, scale, acc)
        elif KIND == "Q2_K":
            scales = tl.load(p3 + b * N + rows)
            block = nothing(BN, lanes, R)
            for h in tl.static_range(2):
                w = tl.load(p0 + line + (b * 2 + h) * (16 * PANEL))
                w10 = down(w, 10, FAST)
                for j in tl.static_range(8):
                    if j % 4 == 0:
                        word = tl.load(p2 + (b * 4 + h * 2 + j // 4) * N + rows)
                    if j % 2 == 0:
                        both = two_numbers(word, j // 2 % 2, j % 5, (j + 1) % 5, FAST)[:, None]
                        factor = low_number(both)
                    else:
                        factor = high_number(both)
                    x = activations(x_ptr, at, live, k + (h * 8 + j) * 16 + lane, R)
                    if j < 5:
                        value = integer(w, 3 << (2 * j), FAST)
                    else:
                        value = integer(w10, 3 << (2 * (j - 5)), FAST)
                    # Scales below 16 times quants below 4 are exact in float16.
                    value = times(value, tl.broadcast_to(factor, (BN, lanes)), FAST)
                    block = accumulate(block, value, x, R)
            least = widen(tl.load(p1 + least_line + b * (GROUP * PANEL)), FAST)
            offset = nothing(BN, lanes, R)
            offset = accumulate_means(offset, least, m_ptr, m_at, live, b * 16 + lane, R)
            acc = scaled(block, low_half(scales) * SUBNORMAL, acc)
            acc = scaled(offset, high_half(scales) * (-1.0 * GROUP), acc)
        elif KIND == "Q4_K":
            scales = tl.load(p3 + b * N + rows)
            block = nothing(BN, lanes, R)
            offset = nothing(BN, lanes, R)
            for h in tl.static_range(2):
                w = tl.load(p0 + line + (b * 2 + h) * (32 * PANEL))
                w8 = down(w, 8, FAST)
                factors = tl.load(p1 + (b * 2 + h) * N + rows)
                mins = tl.load(p2 + (b * 2 + h) * N + rows)
                for j in tl.static_range(4):
                    x = activations(x_ptr, at, live, k + (h * 4 + j) * 32 + lane, R)
                    if j < 2:
                        value = integer(w, 15 << (4 * j), FAST)
                    else:
                        value = integer(w8, 15 << (4 * (j - 2)), FAST)
                    part = accumulate(nothing(BN, lanes, R), value, x, R)
                    block = scaled(part, byte(factors, j) * (1.0 / (1 << (4 * (j % 2)))), block)
                    offset = scaled(inputs_sum(x, BN, lanes, R), byte(mins, j), offset)
            acc = scaled(block, low_half(scales) * SUBNORMAL, acc)
            acc = scaled(offset, -high_half(scales), acc)
        else:
            tl.static_assert(KIND == "MXFP4")
            w = tl.load(p0 + line + b * (32 * PANEL))
            exponents = tl.load(p1 + b * N + rows)
            for j in tl.static_range(4):
                x = activations(x_ptr, at, live, k + j * 32 + lane, R)
                part = accumulate(nothing(BN, lanes, R), fp4(w, j, FAST), x, R)
                power = (((exponents >> (8 * j)) & 255) + 14) << 23
                acc = scaled(part, power.to(tl.float32, bitcast=True), acc)
    if HALVES:
        return earlier, acc
    elif R == 1:
        return tl.sum(acc, 1)[:, None]
    else:
        return acc
