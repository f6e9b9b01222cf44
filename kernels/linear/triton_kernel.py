"""`kernels.linear` on CUDA."""

from __future__ import annotations

from typing import Any

import triton

from kernels.cuda.products import product
from kernels.head.triton_kernel import norm_kernel
from kernels.mode import Mode


def linear_norm(x: Any, weight: Any, norm: Any, epsilon: float, y: Any, mode: Mode) -> None:
    """As `kernels.linear.linear_norm`."""
    product(x, weight, y, mode)
    width = y.shape[1]
    norm_kernel[(y.shape[0],)](
        y, y.stride(0), norm, y, width, epsilon, WIDE=triton.next_power_of_2(width)
    )
