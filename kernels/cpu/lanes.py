"""The smallest pieces that kernels call, as numba intrinsics written as LLVM IR.

Addresses, bits and scalar functions; `row_lanes` and `key_lanes` hold the vector code. Arguments
called `..._at` are addresses (`address(array)`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.emit import F16, F32, I8, I32, I64, Emitter, Value

HEAD_LANES = 8
"""Attention heads that one vector holds; buffers of scores and queries are padded to it."""

KEY_BLOCK = 8
"""Keys whose scores are computed together; score buffers are padded to it."""


def numba_intrinsic(
    result: Any, count: int, emit: Callable[..., Value | None], floats: tuple[int, ...] = ()
) -> Any:
    """What an `@intrinsic` returns: `count` integer arguments, those in `floats` float32.

    `emit(builder, *arguments)` writes the code and returns the result, or None for void.
    """
    kinds = [types.float32 if i in floats else types.intp for i in range(count)]
    signature = result(*kinds)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Value:
        value = emit(builder, *arguments)
        return context.get_dummy_value() if value is None else value

    return signature, generate


def on_stack(size: int) -> Any:
    """What an intrinsic returns whose result is the address of `size` bytes on the stack."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Value:
        with builder.goto_entry_block():
            space = builder.alloca(ir.ArrayType(I8, size))
        space.align = 64
        return builder.ptrtoint(space, I64)

    return types.intp(), generate


@intrinsic
def address(typing_context: Any, array: Any) -> Any:
    """Address of an array's first element. It keeps no array alive: see `keep`."""
    signature = types.intp(array)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Value:
        proxy = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(proxy.data, I64)

    return signature, generate


@intrinsic
def keep(typing_context: Any, array: Any) -> Any:
    """Keep an array that the kernel allocated until here: its address alone does not."""
    signature = types.void(array)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Value:
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def word_at(typing_context: Any, base_at: Any, index: Any) -> Any:
    """64-bit integer `index` of an array at an address."""

    def emit(b: Any, base: Value, index: Value) -> Value:
        e = Emitter(b, 1)
        return e.load_int(e.at(base, index, 8))

    return numba_intrinsic(types.intp, 2, emit)


@intrinsic
def set_word(typing_context: Any, base_at: Any, index: Any, value: Any) -> Any:
    """Write 64-bit integer `index` of an array at an address."""

    def emit(b: Any, base: Value, index: Value, value: Value) -> None:
        b.store(value, b.inttoptr(Emitter(b, 1).at(base, index, 8), I64.as_pointer()))

    return numba_intrinsic(types.void, 3, emit)


@intrinsic
def int_at(typing_context: Any, base_at: Any, index: Any) -> Any:
    """32-bit integer `index` of an array at an address."""

    def emit(b: Any, base: Value, index: Value) -> Value:
        e = Emitter(b, 1)
        place = b.inttoptr(e.at(base, index, 4), I32.as_pointer())
        return b.sext(b.load(place, align=4), I64)

    return numba_intrinsic(types.intp, 2, emit)


@intrinsic
def set_int(typing_context: Any, base_at: Any, index: Any, value: Any) -> Any:
    """Write 32-bit integer `index` of an array at an address."""

    def emit(b: Any, base: Value, index: Value, value: Value) -> None:
        place = b.inttoptr(Emitter(b, 1).at(base, index, 4), I32.as_pointer())
        b.store(b.trunc(value, I32), place, align=4)

    return numba_intrinsic(types.void, 3, emit)


@intrinsic(prefer_literal=True)
def words_at(typing_context: Any, base_at: Any, count: Any) -> Any:
    """The first `count` 64-bit integers of an array at an address, as a tuple."""
    size = count.literal_value
    signature = types.UniTuple(types.intp, size)(types.intp, count)

    def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Value:
        e = Emitter(b, 1)
        words = [e.load_int(b.add(arguments[0], I64(8 * i))) for i in range(size)]
        return context.make_tuple(b, signature.return_type, words)

    return signature, generate


@intrinsic
def float_at(typing_context: Any, base_at: Any, index: Any) -> Any:
    """Float `index` of an array at an address."""

    def emit(b: Any, base: Value, index: Value) -> Value:
        e = Emitter(b, 1)
        return e.load(e.at(base, index, 4))

    return numba_intrinsic(types.float32, 2, emit)


@intrinsic
def set_float(typing_context: Any, base_at: Any, index: Any, value: Any) -> Any:
    """Write float `index` of an array at an address."""

    def emit(b: Any, base: Value, index: Value, value: Value) -> None:
        e = Emitter(b, 1)
        e.store(value, e.at(base, index, 4))

    return numba_intrinsic(types.void, 3, emit, floats=(2,))


def _float_intrinsic(count: int, emit: Callable[..., Value]) -> Any:
    """A function of float32 values that loops over it can be vectorised through."""
    signature = types.float32(*[types.float32] * count)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Value:
        return emit(Emitter(builder, 1), *arguments)

    return signature, generate


@intrinsic
def fma(typing_context: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding, float32."""
    return _float_intrinsic(3, lambda e, x, y, z: e.fma(x, y, z))


@intrinsic
def exp(typing_context: Any, x: Any) -> Any:
    """e^x, float32 (see `Emitter.exp`)."""
    return _float_intrinsic(1, lambda e, x: e.exp(x))


@intrinsic
def to_half(typing_context: Any, x: Any) -> Any:
    """The nearest float16, as a float32."""
    return _float_intrinsic(1, lambda e, x: e.b.fpext(e.b.fptrunc(x, F16), F32))


@intrinsic
def bits_of(typing_context: Any, x: Any) -> Any:
    """The 32 bits of a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Value:
        return builder.bitcast(arguments[0], I32)

    return types.int32(types.float32), generate


@intrinsic
def from_bits(typing_context: Any, x: Any) -> Any:
    """The float32 of 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Value:
        return builder.bitcast(arguments[0], F32)

    return types.float32(types.int32), generate
