"""Products of random rows, here and as a machine that can do less gives them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from kernels.linear import linear
from kernels.mode import Mode


def rows(count: int, width: int) -> np.ndarray:
    """(count, width) random float32, for each width its own."""
    return np.random.default_rng(width).standard_normal((count, width)).astype(np.float32)


def product(x: np.ndarray, weight: Any, mode: Mode) -> np.ndarray:
    """The rows' outputs."""
    y = np.full((len(x), weight.outputs), 7, np.float32)
    linear(x, weight, y, mode)
    return y


PROGRAM = """
import sys
from kernels.cpu import machine
from tests.kernels.{module} import {name}
assert not (machine.HAS_DOT_BYTES or machine.HAS_TABLES)
sys.stdout.write({name}().tobytes().hex())
"""


def elsewhere(module: str, name: str) -> bytes:
    """Bytes of the array that a function of a test module returns in a process without dot
    products and look-ups of bytes."""
    # A processor that numba is told about is not asked what else it can do.
    host = llvm.get_host_cpu_name()
    environment = {**os.environ, "NUMBA_CPU_NAME": host, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = PROGRAM.format(module=module, name=name)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return bytes.fromhex(done.stdout)
