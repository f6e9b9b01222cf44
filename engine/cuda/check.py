"""Whether this machine's GPU can run the engine, said before anything is loaded."""

from __future__ import annotations

import importlib.util

from engine.errors import Ds4Error

LEAST_CAPABILITY = (8, 0)
"""Compute capability of the oldest GPU: F16 matrix units with F32 sums, asynchronous copies."""
LEAST_TRITON = (3, 6)

ON_THE_CPU = "use --device cpu"


def require_cuda(option: str = "--device cuda", instead: str = ON_THE_CPU) -> None:
    """Refuse a machine without a GPU that the kernels run on.

    Args:
        option: that asks for one.
        instead: what else can be done, "" = nothing.
    Raises:
        Ds4Error: without torch's CUDA, a GPU, triton, or when one is too old.
    """
    import torch

    if torch.version.cuda is None:
        raise Ds4Error(
            "No CUDA",
            f"{option} needs a torch built for CUDA, found torch {torch.__version__}.",
            _hint(instead),
        )
    if not torch.cuda.is_available():
        raise Ds4Error("No CUDA", f"{option} needs an NVIDIA GPU, found none.", _hint(instead))
    if importlib.util.find_spec("triton") is None:
        raise Ds4Error(
            "No triton",
            f"{option} needs the package triton, which is not installed.",
            _hint("install ds4tui[gpu]", instead),
        )
    import triton

    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    require_versions(name, capability, triton.__version__, instead)


def _hint(*ways: str) -> str:
    """What can be done, as a sentence; "" when there is nothing."""
    said = ", or ".join(way for way in ways if way)
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def require_versions(
    name: str, capability: tuple[int, int], triton: str, instead: str = ON_THE_CPU
) -> None:
    """Refuse a GPU or a triton that is too old.

    Args:
        name: of the GPU.
        triton: its version.
        instead: as in `require_cuda`.
    """
    if capability < LEAST_CAPABILITY:
        raise Ds4Error(
            "GPU too old",
            f"{name} has compute capability {capability[0]}.{capability[1]}, expected "
            f"{LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]} or newer.",
            _hint(instead),
        )
    found = tuple(int(part) for part in triton.split(".")[:2])
    if found < LEAST_TRITON:
        raise Ds4Error(
            "Triton too old",
            f"triton {triton} is installed, expected {LEAST_TRITON[0]}.{LEAST_TRITON[1]} or newer.",
            _hint("install a newer triton", instead),
        )
