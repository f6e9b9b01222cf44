"""Loops that threads share: a kernel hands out the pieces of a job.

The kernel's thread posts a job. Whoever is free takes the next piece, the kernel's thread too, so
that a worker that sleeps, or that other programs keep from running, costs no more than its help.
Pieces write to different places, so a result does not depend on who computes which.

The ticket is one word: the job's number, and how many pieces nobody has taken. What the job is
changes only while no piece is left or under way. So whoever replaces the ticket that it read by one
of a piece less has read the right job.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels.cpu.compiling import inline, kernel, shared
from kernels.cpu.emit import I32, I64, Value
from kernels.cpu.lanes import numba_intrinsic, on_stack, word_at, words_at
from kernels.threads import AWAKE, DONE, JOB, SHARED, THREADS, TICKET

WORDS = 24
"""Most arguments of a job."""

PIECES = (1 << 32) - 1
"""The bits of a ticket that count pieces."""

SPINS, LOOKS = 2_000, 10_000
"""Looks at the ticket, one after the other, before a worker lets other threads run between two;
and before it sleeps, after some milliseconds."""

_SHARED_NAME = "ds4tui_shared_words"
llvm.add_symbol(_SHARED_NAME, SHARED.ctypes.data)


def address_of(name: str) -> Any:
    """An intrinsic: the address of a `shared` function, or of another symbol of the process."""

    @intrinsic
    def found(typing_context: Any) -> Any:
        return numba_intrinsic(types.intp, 0, lambda b: b.ptrtoint(_function(b, name), I64))

    return found


_shared_words = address_of(_SHARED_NAME)


def _function(b: Any, name: str, result: Any = None, arguments: tuple[Any, ...] = ()) -> Value:
    """A function of the process, declared in the module that is being written."""
    kind = ir.FunctionType(result or ir.VoidType(), arguments)
    return b.module.globals.get(name) or ir.Function(b.module, kind, name)


def _place(b: Any, base: Value, index: Value) -> Value:
    return b.inttoptr(b.add(base, b.mul(index, I64(8))), I64.as_pointer())


@intrinsic
def shared_word(typing_context: Any, base_at: Any, index: Any) -> Any:
    """A word that other threads write, and after it all that they wrote before it."""

    def emit(b: Any, base: Value, index: Value) -> Value:
        return b.load_atomic(_place(b, base, index), "acquire", 8)

    return numba_intrinsic(types.intp, 2, emit)


@intrinsic
def _set(typing_context: Any, base_at: Any, index: Any, value: Any) -> Any:
    """Write a word that other threads read, after all that was written before it."""

    def emit(b: Any, base: Value, index: Value, value: Value) -> None:
        b.store_atomic(value, _place(b, base, index), "release", 8)

    return numba_intrinsic(types.void, 3, emit)


@intrinsic
def add_to_word(typing_context: Any, base_at: Any, index: Any, value: Any) -> Any:
    """Add to a word that other threads add to."""

    def emit(b: Any, base: Value, index: Value, value: Value) -> None:
        b.atomic_rmw("add", _place(b, base, index), value, "seq_cst")

    return numba_intrinsic(types.void, 3, emit)


@intrinsic
def _replaced(typing_context: Any, base_at: Any, index: Any, old: Any, new: Any) -> Any:
    """Write `new` if the word still is `old`; whether it was."""

    def emit(b: Any, base: Value, index: Value, old: Value, new: Value) -> Value:
        found = b.cmpxchg(_place(b, base, index), old, new, "seq_cst", "acquire")
        return b.zext(b.extract_value(found, 1), I64)

    return numba_intrinsic(types.intp, 4, emit)


@intrinsic
def _pause(typing_context: Any) -> Any:
    """Wait for a moment without giving the processor away."""

    def emit(b: Any) -> None:
        processor = llvm.get_default_triple().split("-")[0]
        if processor == "x86_64":
            b.call(_function(b, "llvm.x86.sse2.pause"), [])
        elif processor in ("aarch64", "arm64"):
            b.call(_function(b, "llvm.aarch64.hint", None, (I32,)), [I32(1)])

    return numba_intrinsic(types.void, 0, emit)


@intrinsic
def _yield(typing_context: Any) -> Any:
    """Let another thread run here."""

    def emit(b: Any) -> None:
        windows = "windows" in llvm.get_default_triple()
        b.call(_function(b, "SwitchToThread" if windows else "sched_yield", I32), [])

    return numba_intrinsic(types.void, 0, emit)


@intrinsic
def _call(typing_context: Any, function_at: Any, arguments_at: Any, piece: Any, who: Any) -> Any:
    """Do a piece."""

    def emit(b: Any, function: Value, arguments: Value, piece: Value, who: Value) -> None:
        kind = ir.FunctionType(ir.VoidType(), [I64] * 3)
        b.call(b.inttoptr(function, kind.as_pointer()), [arguments, piece, who])

    return numba_intrinsic(types.void, 4, emit)


@intrinsic
def spare_words(typing_context: Any) -> Any:
    """Address of WORDS words on the stack."""
    return on_stack(8 * WORDS)


@intrinsic
def set_words(typing_context: Any, base_at: Any, values: Any) -> Any:
    """Write a tuple of words to an address."""

    def generate(context: Any, b: Any, _signature: Any, arguments: Any) -> Value:
        base, found = arguments
        for i in range(len(values)):
            b.store(b.extract_value(found, i), _place(b, base, I64(i)))
        return context.get_dummy_value()

    return types.void(types.intp, values), generate


@shared("ds4tui_take_pieces", types.intp, types.intp)
def _take_pieces(who: int) -> int:
    """Do pieces of the posted job until none is left; how many this thread did."""
    words, did = _shared_words(), 0
    while True:
        ticket = shared_word(words, TICKET)
        left = ticket & PIECES
        if left == 0:
            return did
        function, arguments, pieces = words_at(words + 8 * JOB, 3)
        if _replaced(words, TICKET, ticket, ticket - 1):
            _call(function, arguments, pieces - left, who)
            add_to_word(words, DONE, 1)
            did += 1


@inline
def threads():  # type: ignore[no-untyped-def]
    """How many threads share work."""
    return word_at(_shared_words(), THREADS)


@shared("ds4tui_parallel", types.void, *[types.intp] * 3)
def parallel(function: int, arguments: int, pieces: int) -> None:
    """Do pieces 0..pieces - 1 of a job, together with the workers that are awake.

    Args:
        function: address of a `shared` function of (arguments, piece, who), who = 0..threads - 1,
            the thread that it runs on. It calls `parallel` for a single piece only, and takes no
            memory that could be refused: an error on a worker would wait for Python's lock, which
            the kernel's thread holds.
        arguments: what it gets; all that this points to stays where it is until the end.
    """
    words = _shared_words()
    if pieces < 2 or shared_word(words, AWAKE) == 0:
        for piece in range(pieces):
            _call(function, arguments, piece, 0)
        return
    set_words(words + 8 * JOB, (function, arguments, pieces))
    _set(words, DONE, 0)
    number = (shared_word(words, TICKET) >> 32) + 1
    _set(words, TICKET, (number << 32) | pieces)
    _take_pieces(0)
    while shared_word(words, DONE) < pieces:
        _pause()


@kernel("void(intp)", nogil=True)
def work(number: int) -> None:
    """A worker's loop: until no job has come for a while, or there is one worker too many."""
    words, looks = _shared_words(), 0
    add_to_word(words, AWAKE, 1)
    while looks < LOOKS and number < word_at(words, THREADS):
        looks = 0 if _take_pieces(number) else looks + 1
        if looks < SPINS:
            _pause()
        else:
            _yield()
    add_to_word(words, AWAKE, -1)
