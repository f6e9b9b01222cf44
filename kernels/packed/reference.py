"""Readable reference of the packed types: from a file's blocks to float32, in torch.

Formulas as in ggml's dequantisers; tests hold them equal to the `gguf` package's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.packed.formats import BLOCKS, MAGNITUDES, grid_codes, row_bytes


def dequantise(kind: str, blocks: Tensor, rows: int, inputs: int) -> Tensor:
    """A file's blocks as numbers.

    Args:
        blocks: uint8, the bytes of `rows` rows of `inputs` elements.
    Returns:
        (rows, inputs) float32, on the blocks' device.
    Raises:
        ValueError: for an unknown type or a wrong number of bytes.
    """
    expected = rows * row_bytes(kind, inputs)
    if blocks.numel() != expected:
        raise ValueError(f"{kind} of {rows} x {inputs} has {expected} bytes, not {blocks.numel()}")
    if kind in ("F32", "F16", "BF16"):
        dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
        return blocks.contiguous().view(dtype).float().reshape(rows, inputs)
    b = blocks.reshape(-1, BLOCKS[kind][1])
    formula = {
        "Q8_0": _q8_0, "Q2_K": _q2_k, "Q4_K": _q4_k, "IQ2_XXS": _iq2_xxs, "MXFP4": _mxfp4,
    }[kind]  # fmt: skip
    return formula(b).reshape(rows, inputs)


def half(b: Tensor, at: int) -> Tensor:
    """(n, 1) float32 of the F16 at byte `at` of each block."""
    return b[:, at : at + 2].contiguous().view(torch.float16).float()


def _q8_0(b: Tensor) -> Tensor:
    return half(b, 0) * b[:, 2:].contiguous().view(torch.int8)


def q2_k_parts(b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q2_K: quants (n, 16 groups, 16), scales and mins (n, 16) as integers."""
    quants = b[:, 16:80].reshape(-1, 2, 1, 32).int()
    shifts = torch.tensor([0, 2, 4, 6], device=b.device).reshape(1, 1, 4, 1)
    values = (quants >> shifts) & 3  # (n, half, shift, 32)
    return values.reshape(-1, 16, 16), b[:, :16].int() & 15, b[:, :16].int() >> 4


def _q2_k(b: Tensor) -> Tensor:
    values, scales, mins = q2_k_parts(b)
    return (
        half(b, 80)[:, :, None] * scales[:, :, None] * values
        - half(b, 82)[:, :, None] * mins[:, :, None]
    )


def q4_k_parts(b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q4_K: quants (n, 8 groups, 32), scales and mins (n, 8) as integers."""
    s = b[:, 4:16].int()
    low, middle, high = s[:, :4], s[:, 4:8], s[:, 8:]
    scales = torch.cat([low & 63, (high & 15) | (low >> 6 << 4)], 1)
    mins = torch.cat([middle & 63, (high >> 4) | (middle >> 6 << 4)], 1)
    quants = b[:, 16:].reshape(-1, 4, 1, 32).int()
    shifts = torch.tensor([0, 4], device=b.device).reshape(1, 1, 2, 1)
    return ((quants >> shifts) & 15).reshape(-1, 8, 32), scales, mins


def _q4_k(b: Tensor) -> Tensor:
    values, scales, mins = q4_k_parts(b)
    return (
        half(b, 0)[:, :, None] * scales[:, :, None] * values
        - half(b, 2)[:, :, None] * mins[:, :, None]
    )


def iq2_xxs_parts(b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """IQ2_XXS: codes and minus signs (n, 8 groups, 32), odd scales 2 s + 1 (n, 8), integers."""
    words = b[:, 2:].reshape(-1, 8, 8)
    codes = torch.tensor(grid_codes(), dtype=torch.int32, device=b.device)
    places = torch.arange(8, device=b.device, dtype=torch.int32)
    code = (codes[words[:, :, :4].long()][..., None] >> (2 * places)) & 3  # (n, 8, 4, 8)
    signs = words[:, :, 4:].contiguous().view(torch.int32)  # (n, 8, 1)
    sevens = (signs >> (7 * places[:4])) & 127  # (n, 8, 4)
    parity = sum((sevens >> bit) & 1 for bit in range(7)) & 1
    minus = ((sevens | parity << 7)[..., None] >> places) & 1
    return code.flatten(2), minus.flatten(2), ((signs[:, :, 0] >> 28) & 15) * 2 + 1


def _iq2_xxs(b: Tensor) -> Tensor:
    code, minus, odd = iq2_xxs_parts(b)
    sizes = torch.tensor(MAGNITUDES, dtype=torch.float32, device=b.device)[code.long()]
    return half(b, 0)[:, :, None] * 0.125 * odd[:, :, None] * sizes * (1 - 2 * minus)


def mxfp4_codes(b: Tensor) -> Tensor:
    """MXFP4: (n, 32) codes of 4 bits, sign first."""
    return torch.cat([b[:, 1:] & 15, b[:, 1:] >> 4], 1)


def _mxfp4(b: Tensor) -> Tensor:
    sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=b.device)
    codes = mxfp4_codes(b).long()
    values = sizes[codes & 7] * (1 - 2 * (codes >> 3))
    return values * torch.exp2(b[:, :1].float() - 127)
