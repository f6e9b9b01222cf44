"""What the CPU's products cost by type, numerics and rows: weights in a cache, and from memory.

Microseconds per million weights, a fifth percentile. The matrices of a set are taken in turns: one
of 8192 x 256 stays in a cache, as many as COLD of them do not.

    python benchmarks/cpu_products.py [--repeat 60]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from kernels.linear import linear, pack
from kernels.mode import EXACT, Mode

OUTPUTS, INPUTS = 8192, 256
COLD = 40
"""Matrices that no cache holds together: 89 MB of Q8_0."""

KINDS = {
    "Q8_0, float32": ("q8", EXACT),
    "Q8_0, 16 bits": ("q8", Mode(fixed=16)),
    "Q8_0, 8 bits": ("q8", Mode(fixed=8)),
    "MXFP4, float32": ("fp4", EXACT),
    "MXFP4, 16 bits": ("fp4", Mode(fixed=16)),
    "MXFP4, 8 bits": ("fp4", Mode(fixed=8)),
    "F16, float32": ("f16", EXACT),
}


def matrix(kind: str, rng: np.random.Generator) -> object:
    """A packed random matrix."""
    if kind == "f16":
        return pack([rng.standard_normal((OUTPUTS, INPUTS)).astype(np.float16)])
    if kind == "fp4":
        values = rng.integers(0, 16, (OUTPUTS, INPUTS)).astype(np.uint8)
    else:
        values = rng.integers(-128, 128, (OUTPUTS, INPUTS)).astype(np.int8)
    return pack([(values, np.full((OUTPUTS, INPUTS // 32), 0.01, np.float16))])


def cost(matrices: list[object], mode: Mode, rows: int, repeat: int) -> float:
    """Microseconds per million weights of one product after the other."""
    x, y = np.ones((rows, INPUTS), np.float32), np.empty((rows, OUTPUTS), np.float32)
    spent = []
    for turn in range(repeat + len(matrices)):
        began = time.perf_counter_ns()
        linear(x, matrices[turn % len(matrices)], y, mode)
        if turn >= len(matrices):
            spent.append(time.perf_counter_ns() - began)
    return float(np.percentile(spent, 5)) / 1e3 / (OUTPUTS * INPUTS / 1e6)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeat", type=int, default=60, help="products of each kind")
    repeat = parser.parse_args().repeat
    rng = np.random.default_rng(0)
    rows = range(1, 7)
    print("| weights, rows | from | " + " | ".join(map(str, rows)) + " |")
    print("|---" * (len(rows) + 2) + "|")
    for name, (kind, mode) in KINDS.items():
        matrices = [matrix(kind, rng) for _ in range(COLD)]
        for place, some in (("cache", matrices[:1]), ("memory", matrices)):
            found = [f"{cost(some, mode, n, repeat):.0f}" for n in rows]
            print(f"| {name} | {place} | " + " | ".join(found) + " |", flush=True)


if __name__ == "__main__":
    main()
