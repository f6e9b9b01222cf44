"""CPU kernel of `kernels.experts`: rows are gathered by expert, sums run by ascending expert.

In batches they begin in the middle of the experts instead, and end there.
"""

from __future__ import annotations

import numpy as np

from kernels.cpu.compiling import kernel
from kernels.cpu.lanes import address
from kernels.cpu.matrix import OUTPUTS, product
from kernels.cpu.row_lanes import add_row, copy_row, fill_row, gate_row
from kernels.cpu.rows import perturb
from kernels.mode import BATCH_ORDER


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
    most = chosen.size  # rows of one expert: a row can name one more than once
    gathered = address(space)
    both = gathered + 4 * most * width
    middle = both + 8 * most * hidden
    result = middle + 4 * most * hidden
    total = result + 4 * most * width
    members, factors = np.empty(most, np.int64), np.empty(most, np.float32)
    fill_row(total, rows * width, np.float32(0.0))
    for turn in range(count):
        e = (turn + count // 2) % count if batch else turn
        size = 0
        for r in range(rows):
            for j in range(chosen.shape[1]):
                if chosen[r, j] == e:
                    members[size] = r
                    factors[size] = weights[r, j]
                    copy_row(address(x) + 4 * width * r, width, gathered + 4 * width * size)
                    size += 1
        if size == 0:
            continue
        up = address(up_words) + 8 * up_words.shape[1] * e
        product(up, size, gathered, width, both, 2 * hidden, flags)
        for m in range(size):
            gate = both + 8 * hidden * m
            row = middle + 4 * hidden * m
            gate_row(gate, gate + 4 * hidden, hidden, clamp, factors[m], row)
        down = address(down_words) + 8 * down_words.shape[1] * e
        product(down, size, middle, hidden, result, width, flags)
        for m in range(size):
            add_row(result + 4 * width * m, width, total + 4 * width * members[m])
    perturb(total, width, rows, width, positions, mode)
    if add:
        add_row(total, rows * width, address(y))
    else:
        copy_row(total, rows * width, address(y))
