"""CPU kernel of `kernels.router`."""

from __future__ import annotations

import math

import numpy as np

from kernels.cpu.compiling import kernel
from kernels.cpu.lanes import address
from kernels.cpu.matrix import OUTPUTS, product
from kernels.cpu.rows import perturb

WEIGHT_FLOOR = 6.1035e-5
"""Smallest sum of chosen scores that weights are divided by; ds4's value (2^-14)."""


@kernel(
    "void(float32[:,::1], int64[:,::1], float32[::1], int32[:,::1], int64[::1], int32[:,::1],"
    " float32, int32[:,::1], float32[:,::1], float32[::1], int64[::1], float32[::1], int64[::1])"
)
def router(  # type: ignore[no-untyped-def]
    x, words, bias, table, ids, forced, scaling, experts, weights, gaps, positions, space, mode
):
    rows, k, count = x.shape[0], experts.shape[1], words[0, OUTPUTS]
    times = np.empty(count, np.int64)
    row, biased = np.empty(count, np.float32), np.empty(count, np.float32)
    product(address(words), rows, address(x), x.shape[1], address(space), count, mode[0])
    perturb(address(space), count, rows, count, positions, mode)
    for r in range(rows):
        for e in range(count):
            z = float(space[r * count + e])
            softplus = z if z > 20.0 else math.log1p(math.exp(z))
            row[e] = np.float32(math.sqrt(softplus))
            biased[e] = row[e] + bias[e] if bias.size else row[e]
            times[e] = 0
        gaps[r] = np.float32(np.inf)
        if forced[r, 0] >= 0:
            for j in range(k):
                times[forced[r, j]] += 1
        elif table.shape[0]:
            for j in range(k):
                times[table[ids[r], j]] += 1
        else:
            worst = np.float32(np.inf)
            for j in range(k + 1):
                best = -1
                for e in range(count):
                    if not times[e] and (best < 0 or biased[e] > biased[best]):
                        best = e
                if best >= 0 and j < k:
                    times[best] = 1
                    worst = biased[best]
                elif best >= 0:
                    gaps[r] = worst - biased[best]
        filled, total = 0, np.float32(0.0)
        for e in range(count):
            for _ in range(times[e]):
                experts[r, filled] = e
                weights[r, filled] = row[e]
                total += row[e]
                filled += 1
        total = max(total, np.float32(WEIGHT_FLOOR))
        for j in range(k):
            weights[r, j] = scaling * weights[r, j] / total
