"""Row primitives that several Triton kernels are built from; each touches one row only.

Tiles are padded to powers of two; what lies past the row's width is zero. Sums run in the order of
the tile, whatever else is in the batch: a program sees one row.
"""

# Functions here are typed by Triton at compile time.

from __future__ import annotations

import triton
import triton.language as tl

FP8_BLOCK = tl.constexpr(64)
FP4_BLOCK = tl.constexpr(32)
_MAGIC = tl.constexpr(12582912.0)


@triton.jit
def inverse_rms(squares, width, epsilon):
    """1 / sqrt(squares / width + epsilon)."""
    return tl.rsqrt(squares / width + epsilon)


@triton.jit
def sigmoid(x):
    """1 / (1 + e^-x)."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def to_half(x):
    """The nearest float16 values."""
    return x.to(tl.float16).to(tl.float32)


@triton.jit
def _power_of_two(exponent):
    """2^exponent, for exponents of normal floats."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _nearest(x):
    """The nearest integer of a float below 2^22, ties to even."""
    return (x + _MAGIC) - _MAGIC


@triton.jit
def _exponent(x):
    """floor(log2 |x|) of a normal float."""
    return ((x.to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127


@triton.jit
def _scale_exponent(largest, top, mantissa):
    """Exponent of the least power of two s with largest / s <= top = mantissa * 2^k, exactly."""
    fraction = (largest.to(tl.int32, bitcast=True) & 0x7FFFFF) | 0x3F800000
    above = fraction.to(tl.float32, bitcast=True) > mantissa
    return _exponent(largest) - top + above.to(tl.int32)


@triton.jit
def fp8_tile(x, inside):
    """E4M3 values of every block (last axis), with one power-of-two scale per block.

    Args:
        x: (..., blocks, 64) tile. inside: which elements are rounded; the others stay.
    """
    largest = tl.max(tl.where(inside, tl.abs(x), 0.0), axis=1, keep_dims=True)
    scale = _scale_exponent(tl.maximum(largest, 1e-4), 8, 1.75)
    v = tl.minimum(tl.maximum(x * _power_of_two(-scale), -448.0), 448.0)
    step = tl.maximum(_exponent(v), -6) - 3
    rounded = _nearest(v * _power_of_two(-step)) * _power_of_two(step) * _power_of_two(scale)
    return tl.where(inside, rounded, x)


@triton.jit
def fp4_tile(x):
    """E2M1 values of every block of 32 (last axis), with one power-of-two scale per block."""
    largest = tl.max(tl.abs(x), axis=1, keep_dims=True)
    scale = _scale_exponent(tl.maximum(largest, 7.052966e-38), 2, 1.5)
    v = tl.minimum(tl.maximum(x * _power_of_two(-scale), -6.0), 6.0)
    step = tl.maximum(_exponent(v), 0) - 1
    return _nearest(v * _power_of_two(-step)) * _power_of_two(step) * _power_of_two(scale)


@triton.jit
def row_turns(turns, width, size, sign, WIDE: tl.constexpr):
    """Cosine and sine for every pair of a row of `width`, whose last `size` elements turn."""
    pair = tl.arange(0, WIDE // 2) - (width - size) // 2
    inside = (pair >= 0) & (pair < size // 2)
    c = tl.load(turns + 2 * pair, mask=inside, other=1.0)
    return c, tl.load(turns + 2 * pair + 1, mask=inside, other=0.0) * sign


@triton.jit
def rotate_row(x, c, s, WIDE: tl.constexpr):
    """A row (WIDE,) turned by `row_turns`, which is better loaded early."""
    a, b = tl.split(tl.reshape(x, [WIDE // 2, 2]))
    return tl.reshape(tl.join(a * c - b * s, a * s + b * c), [WIDE])


@triton.jit
def hadamard_tile(x, ROWS: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr):
    """Orthonormal Walsh-Hadamard transform of every row of a (ROWS, WIDTH = 2^STAGES) tile.

    Every stage takes the lowest bit of the index and puts it on top: after all of them the order is
    the natural one.
    """
    for _ in tl.static_range(STAGES):
        a, b = tl.split(tl.reshape(x, [ROWS, WIDTH // 2, 2]))
        both = tl.permute(tl.join(a + b, a - b), [0, 2, 1])
        x = tl.reshape(both, [ROWS, WIDTH])
    return x / tl.sqrt(WIDTH * 1.0)


@triton.jit
def float_ranks(x):
    """int32 in the order of floats."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def float_of_rank(rank):
    """The float that has a rank."""
    return tl.where(rank < 0, rank ^ 0x7FFFFFFF, rank).to(tl.float32, bitcast=True)


@triton.jit
def mixed(word):
    """The finaliser of splitmix64, of uint64."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB
    return word ^ (word >> 31)
