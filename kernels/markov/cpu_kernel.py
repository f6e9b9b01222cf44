"""CPU kernels of `kernels.markov`."""

from __future__ import annotations

import numpy as np

from kernels.cpu.compiling import kernel
from kernels.cpu.lanes import address, exp
from kernels.cpu.matrix import product
from kernels.cpu.row_lanes import add_and_find, dot
from kernels.mode import FIXED_8


@kernel("int64(float32[:,::1], int64, int64[:,::1], float32[::1], float32[::1])")
def markov_scores(table, previous, words, logits, out):  # type: ignore[no-untyped-def]
    row = address(table) + 4 * table.shape[1] * previous
    product(address(words), 1, row, table.shape[1], address(out), out.size, FIXED_8)
    return add_and_find(address(logits), out.size, address(out))


@kernel("float64(float32[::1], float32[:,::1], int64, float32[::1], float64)")
def confidence(hidden, table, previous, weights, bias):  # type: ignore[no-untyped-def]
    width, rank = hidden.size, table.shape[1]
    logit = dot(address(hidden), address(weights), width)
    logit += dot(address(table) + 4 * rank * previous, address(weights) + 4 * width, rank)
    one = np.float32(1.0)
    return one / (one + exp(-np.float32(logit + bias)))
