"""Kernels that are launched before the one before them on their stream has ended.

CUDA calls this programmatic dependent launch. A kernel that waits (`inputs_ready`, `all_written`)
before it reads what the kernel before may still write may be launched with the arguments `early`:
its programs are in place when their inputs are. One of its programs at least waits before it ends,
so that who waits for it has waited for the kernels before it too. In a captured graph the wait is
for the kernels that its lanes' edges come from too, also for one that has let it begin.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.language.target_info import cuda_capability_geq

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def next_may_begin():
    """The kernel after may be launched, once all programs of this one have said so or ended."""
    if not INTERPRETED and cuda_capability_geq(9, 0):
        gdc_launch_dependents()


@triton.jit
def all_written():
    """Wait until the kernels before have ended and written all."""
    if not INTERPRETED and cuda_capability_geq(9, 0):
        gdc_wait()


@triton.jit
def inputs_ready():
    """Wait until the kernels before have written all; the kernel after may be launched now."""
    all_written()
    next_may_begin()


@cache
def early(device: Any) -> dict[str, bool]:
    """Launch arguments for a kernel that waits by `inputs_ready` or `all_written`."""
    import torch

    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return {}
    return {"launch_pdl": True}
