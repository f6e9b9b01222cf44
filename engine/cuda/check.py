"""Whether this machine's GPU can run the engine, said before anything is loaded."""

from __future__ import annotations

import importlib.util

from engine.errors import Ds4Error

LEAST_CAPABILITY = (8, 0)
"""Compute capability of the oldest GPU: F16 matrix units with F32 sums, asynchronous copies."""
LEAST_TRITON = (3, 6)

CPU_WAY = "Use --device cpu."


def require_cuda() -> None:
    """Refuse a machine without a GPU that the kernels run on.

    Raises:
        Ds4Error: without torch's CUDA, a GPU, triton, or when one is too old.
    """
    import torch

    if torch.version.cuda is None:
        raise Ds4Error(
            "No CUDA",
            f"--device cuda needs a torch built for CUDA, found torch {torch.__version__}.",
            CPU_WAY,
        )
    if not torch.cuda.is_available():
        raise Ds4Error("No CUDA", "--device cuda needs an NVIDIA GPU, found none.", CPU_WAY)
    if importlib.util.find_spec("triton") is None:
        raise Ds4Error(
            "No triton",
            "--device cuda needs the package triton, which is not installed.",
            "Install ds4tui[gpu], or use --device cpu.",
        )
    import triton

    require_versions(
        torch.cuda.get_device_name(), torch.cuda.get_device_capability(), triton.__version__
    )


def require_versions(name: str, capability: tuple[int, int], triton: str) -> None:
    """Refuse a GPU or a triton that is too old.

    Args:
        name: of the GPU.
        triton: its version.
    """
    if capability < LEAST_CAPABILITY:
        raise Ds4Error(
            "GPU too old",
            f"{name} has compute capability {capability[0]}.{capability[1]}, expected "
            f"{LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]} or newer.",
            CPU_WAY,
        )
    found = tuple(int(part) for part in triton.split(".")[:2])
    if found < LEAST_TRITON:
        raise Ds4Error(
            "Triton too old",
            f"triton {triton} is installed, expected {LEAST_TRITON[0]}.{LEAST_TRITON[1]} or newer.",
            "Install a newer triton, or use --device cpu.",
        )
