"""CPU kernel of `kernels.experts`: rows are gathered by expert, sums run by ascending expert.

In batches they begin in the middle of the experts instead, and end there. All first products come
before all second ones: threads share the former by expert and the latter by columns, so that every
sum is one thread's.
"""

from __future__ import annotations

import numpy as np
from numba import types

from kernels.cpu.compiling import kernel, shared
from kernels.cpu.lanes import address, bits_of, float_at, from_bits, keep, word_at, words_at
from kernels.cpu.matrix import (
    OUTPUTS,
    PREPARED_FLOATS,
    columns_of_piece,
    multiply_columns,
    prepare,
    prepared_bytes,
)
from kernels.cpu.row_lanes import add_row, copy_row, fill_row, gate_row
from kernels.cpu.rows import perturb
from kernels.cpu.threads import address_of, parallel, set_words, spare_words, threads
from kernels.mode import BATCH_ORDER

GROUP = 3
"""Words of a group, rows that chose one expert: the expert, the place of the group's first choice
among those of all groups, their number."""


@shared("ds4tui_experts_up", types.void, *[types.intp] * 3)
def _up(arguments: int, piece: int, _who: int) -> None:
    """One group's hidden rows, prepared for the second product."""
    (groups, members, factors, rows, step, first_words, word_step, gathered, both, down, prepared,
     down_step, clamp, flags) = words_at(arguments, 14)  # fmt: skip
    expert, first, size = words_at(groups + 8 * GROUP * piece, GROUP)
    words = first_words + word_step * expert
    hidden = word_at(words, OUTPUTS) // 2
    gathered += step * first
    both += 8 * hidden * first
    for m in range(size):
        row = rows + step * word_at(members, first + m)
        copy_row(row, step // 4, gathered + step * m)
    multiply_columns(words, size, gathered, step, both, 2 * hidden, flags, 0, 2 * hidden)
    limit = from_bits(np.int32(clamp))
    for m in range(size):
        gate = both + 8 * hidden * m
        gate_row(gate, gate + 4 * hidden, hidden, limit, float_at(factors, first + m), gate)
    prepare(down, size, both, 2 * hidden, flags, prepared + down_step * first)


@shared("ds4tui_experts_down", types.void, *[types.intp] * 3)
def _down(arguments: int, piece: int, _who: int) -> None:
    """Some columns of all groups' results, added to their rows' totals in the groups' order."""
    (groups, count, members, first_words, word_step, prepared, step, result, total, width, columns,
     flags) = words_at(arguments, 12)  # fmt: skip
    begin = columns * piece
    end = min(begin + columns, width)
    for g in range(count):
        expert, first, size = words_at(groups + 8 * GROUP * g, GROUP)
        words, rows = first_words + word_step * expert, prepared + step * first
        found = result + 4 * width * first
        multiply_columns(words, size, rows, step, found, width, flags, begin, end)
        for m in range(size):
            row = total + 4 * (width * word_at(members, first + m) + begin)
            add_row(found + 4 * (width * m + begin), end - begin, row)


_up_at, _down_at = address_of("ds4tui_experts_up"), address_of("ds4tui_experts_down")


@kernel(
    "void(float32[:,::1], int32[:,::1], float32[:,::1], int64[:,::1], int64[:,::1], float32,"
    " float32[:,::1], int64, int64[::1], float32[::1], int64[::1])"
)
def experts(  # type: ignore[no-untyped-def]
    x, chosen, weights, up_words, down_words, clamp, y, add, positions, space, mode
):
    rows, width = x.shape
    count, hidden = up_words.shape[0], up_words[0, OUTPUTS] // 2
    flags, batch = mode[0], mode[0] & BATCH_ORDER
    most = chosen.size  # choices; a row can name an expert more than once
    step = prepared_bytes(address(up_words), flags)
    down_step = prepared_bytes(address(down_words), flags)
    total = address(space)
    prepared = total + 4 * rows * width
    gathered = prepared + 4 * PREPARED_FLOATS * rows * width
    both = gathered + 4 * PREPARED_FLOATS * most * width
    middle = both + 8 * most * hidden
    result = middle + 4 * PREPARED_FLOATS * most * hidden
    groups, members = np.empty((count + threads(), GROUP), np.int64), np.empty(most, np.int64)
    factors = np.empty(most, np.float32)
    limit = -(-most // threads())  # rows of a group: one expert alone is work for all threads
    found = filled = 0
    for turn in range(count):
        e = (turn + count // 2) % count if batch else turn
        first = filled
        for r in range(rows):
            for j in range(chosen.shape[1]):
                if chosen[r, j] == e:
                    members[filled], factors[filled] = r, weights[r, j]
                    filled += 1
        for begin in range(first, filled, limit):
            groups[found, 0], groups[found, 1] = e, begin
            groups[found, 2] = min(limit, filled - begin)
            found += 1
    prepare(address(up_words), rows, address(x), width, flags, prepared)
    fill_row(total, rows * width, np.float32(0.0))
    arguments = spare_words()
    set_words(
        arguments,
        (address(groups), address(members), address(factors), prepared, step, address(up_words),
         8 * up_words.shape[1], gathered, both, address(down_words), middle, down_step,
         np.int64(bits_of(clamp)), flags),
    )  # fmt: skip
    parallel(_up_at(), arguments, found)
    columns = columns_of_piece(address(down_words), most)
    set_words(
        arguments,
        (address(groups), found, address(members), address(down_words), 8 * down_words.shape[1],
         middle, down_step, result, total, width, columns, flags),
    )  # fmt: skip
    parallel(_down_at(), arguments, -(-width // columns))
    keep(groups)
    keep(members)
    keep(factors)
    perturb(total, width, rows, width, positions, mode)
    if add:
        add_row(total, rows * width, address(y))
    else:
        copy_row(total, rows * width, address(y))
