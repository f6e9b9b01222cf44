"""Numeric primitives: one folder per op, each with a readable reference. Knows no model.

An op's folder holds `reference.py` (plain torch, float32), `cpu_kernel.py` (compiled by numba) and
`triton_kernel.py` (for CUDA). The public functions in its `__init__.py` take numpy arrays, for the
CPU, or CUDA tensors. Importing this package imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

CPU_KERNELS = (
    "cpu.matrix",
    "attention.cpu_kernel",
    "attn_out.cpu_kernel",
    "compressor.cpu_kernel",
    "embedding.cpu_kernel",
    "experts.cpu_kernel",
    "head.cpu_kernel",
    "hyper_connections.cpu_kernel",
    "indexer.cpu_kernel",
    "linear.cpu_kernel",
    "markov.cpu_kernel",
    "qkv.cpu_kernel",
    "rounding.cpu_kernel",
    "router.cpu_kernel",
)
"""Modules whose import compiles their kernels, or loads them from numba's cache."""


def compile_all(progress: Callable[[int, int, str], None] | None = None) -> None:
    """Compile every CPU kernel now.

    Args:
        progress: called with (modules done, modules in all, name of the next one or "").
    """
    for done, name in enumerate(CPU_KERNELS):
        if progress is not None:
            progress(done, len(CPU_KERNELS), name.split(".")[0].replace("_", " "))
        import_module(f"kernels.{name}")
    if progress is not None:
        progress(len(CPU_KERNELS), len(CPU_KERNELS), "")
