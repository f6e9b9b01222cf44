"""Weights from packed words, in registers: F16 operands for the tensor cores.

Every function has two bodies that give the same numbers: PTX that decodes two to four weights in
one 32-bit register, and plain Triton (`FAST` false) for the interpreter. Small integers q become
F16 numbers by their bits alone: q * 2^-24, exact, as subnormals; or by a multiplication that lands
on the bits of 8, 25 and 43: 0x4800 + 800 c for c = 0, 2, 3.
"""

from __future__ import annotations

import triton
import triton.language as tl

SUBNORMAL = tl.constexpr(16777216.0)
"""2^24: what the integer bits of a subnormal F16 are divided by."""

_WIDEN = tl.constexpr(
    "{ .reg .b32 a, b, c; mov.b32 c, 0x64806480; prmt.b32 a, $2, 0x64646464, 0x4140;"
    " prmt.b32 b, $2, 0x64646464, 0x4342; sub.f16x2 $0, a, c; sub.f16x2 $1, b, c; }"
)
_SPREAD = tl.constexpr(
    "{ .reg .b32 z; mov.b32 z, 0; prmt.b32 $0, $2, z, 0x1404; prmt.b32 $1, $2, z, 0x3424; }"
)
_DOWN = tl.constexpr(tuple(f"shr.u32 $0, $1, {bits};" for bits in range(16)))
_AND = tl.constexpr(tuple(f"and.b32 $0, $1, {mask | mask << 16};" for mask in range(1024)))


def _signed_magnitude(field: int) -> str:
    """Field 0..7: code at bit 2 (field mod 3) of a word shifted down, sign at bit 8 + field."""
    at = field % 3
    return (
        f"{{ .reg .b32 t, u; and.b32 t, $1, {0x00030003 << 2 * at};"
        f" mad.lo.u32 t, t, {800 >> 2 * at}, 0x48004800;"
        f" shl.b32 u, $2, {7 - field}; and.b32 u, u, 0x80008000; xor.b32 $0, t, u; }}"
    )


def _fp4(field: int) -> str:
    """Field 0..3: sign and three bits of an E2M1 number to where F16 has them."""
    down = (
        f"shr.b32 u, $1, {4 * field - 9};" if 4 * field > 9 else f"shl.b32 u, $1, {9 - 4 * field};"
    )
    return (
        f"{{ .reg .b32 t, u; shl.b32 t, $1, {12 - 4 * field}; {down}"
        " and.b32 t, t, 0x80008000; and.b32 u, u, 0x0E000E00; or.b32 $0, t, u; }"
    )


def _two(pair: int, low: int, high: int) -> str:
    """Two bytes as the lower ones of F16 numbers, 1024 and more (each / its 4^k), minus those."""
    base = 0x64006400 - (low << 11) - (high << 27)
    select = 0x7050 + 0x202 * pair + 0x100
    return (
        f"{{ .reg .b32 t, u; prmt.b32 t, $1, {base}, {select};"
        f" mov.b32 u, {base}; sub.f16x2 $0, t, u; }}"
    )


_TWO = tl.constexpr(
    tuple(_two(pair, low, high) for low in range(5) for high in range(5) for pair in range(2))
)
_SIGNED = tl.constexpr(tuple(_signed_magnitude(field) for field in range(8)))
_FP4 = tl.constexpr(tuple(_fp4(field) for field in range(4)))


@triton.jit
def widen(q, FAST: tl.constexpr):
    """uint8 q -> float16 q - 128."""
    if FAST:
        return tl.inline_asm_elementwise(_WIDEN, "=r,=r,r", [q], tl.float16, True, 4)
    else:
        return (q.to(tl.int32) - 128).to(tl.float16)


@triton.jit
def spread(signs, FAST: tl.constexpr):
    """uint8 -> int16, in the upper byte."""
    if FAST:
        return tl.inline_asm_elementwise(_SPREAD, "=r,=r,r", [signs], tl.int16, True, 4)
    else:
        return (signs.to(tl.int32) << 8).to(tl.int16)


@triton.jit
def down(words, BITS: tl.constexpr, FAST: tl.constexpr):
    """int16 words, shifted down; what comes in from above is not defined."""
    if FAST:
        return tl.inline_asm_elementwise(_DOWN[BITS], "=r,r", [words], tl.int16, True, 2)
    else:
        return (words.to(tl.int32) >> BITS).to(tl.int16)


@triton.jit
def integer(words, MASK: tl.constexpr, FAST: tl.constexpr):
    """(int16 & MASK) * 2^-24 as float16; MASK below 1024."""
    if FAST:
        return tl.inline_asm_elementwise(_AND[MASK], "=r,r", [words], tl.float16, True, 2)
    else:
        return (words & MASK).to(tl.float16, bitcast=True)


@triton.jit
def signed_magnitude(words, signs, FIELD: tl.constexpr, FAST: tl.constexpr):
    """Codes of a field and signs (as `spread` leaves them) -> +-8, +-25, +-43 float16.

    `words` are shifted down by 6 for the fields 3..5, by 12 for 6 and 7.
    """
    if FAST:
        return tl.inline_asm_elementwise(
            _SIGNED[FIELD], "=r,r,r", [words, signs], tl.float16, True, 2
        )
    else:
        size = 0x4800 + ((words.to(tl.int32) >> (2 * (FIELD % 3))) & 3) * 800
        sign = (signs.to(tl.int32) << (7 - FIELD)) & 0x8000
        return (size | sign).to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def fp4(words, FIELD: tl.constexpr, FAST: tl.constexpr):
    """E2M1 codes of a field -> value * 2^-14 as float16."""
    if FAST:
        return tl.inline_asm_elementwise(_FP4[FIELD], "=r,r", [words], tl.float16, True, 2)
    else:
        code = words.to(tl.int32) >> (4 * FIELD)
        return (((code & 8) << 12) | ((code & 7) << 9)).to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def two_numbers(
    words, PAIR: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, FAST: tl.constexpr
):
    """A pair of bytes of int32 words as two F16 numbers, the lower / 4^LOW, the other / 4^HIGH."""
    if FAST:
        return tl.inline_asm_elementwise(
            _TWO[10 * LOW + 2 * HIGH + PAIR], "=r,r", [words], tl.int32, True, 1
        )
    else:
        low = ((words >> (16 * PAIR)) & 255).to(tl.float32) * (1.0 / (1 << (2 * LOW)))
        high = ((words >> (16 * PAIR + 8)) & 255).to(tl.float32) * (1.0 / (1 << (2 * HIGH)))
        bits = low.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        return bits | (high.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) << 16)


@triton.jit
def low_number(words):
    """F16 in the lower half of int32 words."""
    return (words & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def high_number(words):
    """F16 in the upper half of int32 words."""
    return ((words >> 16) & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def low_half(words):
    """F16 in the lower half of int32 words, as float32."""
    return low_number(words).to(tl.float32)


@triton.jit
def high_half(words):
    """F16 in the upper half of int32 words, as float32."""
    return high_number(words).to(tl.float32)


@triton.jit
def times(x, y, FAST: tl.constexpr):
    """x * y of float16 tiles of one shape."""
    if FAST:
        return tl.inline_asm_elementwise(
            "mul.f16x2 $0, $1, $2;", "=r,r,r", [x, y], tl.float16, True, 2
        )
    else:
        return x * y


@triton.jit
def byte(words, AT: tl.constexpr):
    """Byte AT of int32 words, as float32."""
    return ((words >> (8 * AT)) & 255).to(tl.float32)
