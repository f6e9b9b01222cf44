"""Triton kernels in tests: compiled where there is a GPU, else interpreted on CPU tensors.

`tests/conftest.py` decides which. Import this before any kernel: without triton it skips the
module. The interpreter is right for what these tests use; bf16 arithmetic and casts to fp8 are not.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
pytest.importorskip("triton", reason="triton is not installed: nothing can run the kernels")


def on_device(array: np.ndarray | torch.Tensor) -> torch.Tensor:
    """A copy where the kernels run."""
    tensor = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
    return tensor.to(DEVICE, copy=True).contiguous()


def packed(matrix: torch.Tensor, kind: str = "F32") -> object:
    """A matrix, or a stack of them, packed as it is."""
    from kernels.packed import pack

    stack = matrix if matrix.dim() == 3 else matrix[None]
    values = stack.contiguous().to({"F32": torch.float32, "F16": torch.float16}[kind])
    return pack(kind, values.view(torch.uint8).reshape(-1).to(DEVICE), *stack.shape)


def poisoned(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Memory in which what is not written shows."""
    value = float("nan") if dtype.is_floating_point else -7
    return torch.full(shape, value, dtype=dtype, device=DEVICE)
