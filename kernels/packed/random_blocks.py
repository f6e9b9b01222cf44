"""Random valid blocks of the packed types: weights of a wanted size, made where they are used."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kernels.packed.formats import BLOCKS, row_bytes

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch import device as Device

_SIZE = {"Q8_0": 73.9, "Q2_K": 13.9, "Q4_K": 258.0, "IQ2_XXS": 53.0, "MXFP4": 2.93}
"""Root mean square of a block's values at block scale 1, all bits random (and mins at _MIN)."""

_MIN = {"Q2_K": 1.5, "Q4_K": 7.5}
"""Scale of the mins over that of the quants that makes the mean zero."""

_AT = {"Q8_0": 0, "IQ2_XXS": 0, "Q2_K": 80, "Q4_K": 0}
"""Byte of the block's F16 scale; that of the mins comes after it."""


def random_blocks(kind: str, rows: int, inputs: int, generator: Generator, size: float) -> Tensor:
    """Blocks with all bits random but the scales.

    Args:
        generator: decides the device, too.
        size: root mean square of the weights, about.
    Returns:
        uint8, the bytes of `rows` rows.
    Raises:
        ValueError: for an unknown type or rows that are not whole blocks.
    """
    import torch

    total, device = rows * row_bytes(kind, inputs), generator.device
    if kind in ("F32", "F16", "BF16"):
        values = torch.empty(rows * inputs, device=device).normal_(0, size, generator=generator)
        dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
        return values.to(dtype).view(torch.uint8)
    words = torch.empty(-(-total // 8), dtype=torch.int64, device=device)
    words.random_(-(2**63), None, generator=generator)
    blocks = words.view(torch.uint8)[:total]
    by_block = blocks.view(-1, BLOCKS[kind][1])
    scale = size / _SIZE[kind]
    if kind == "MXFP4":
        by_block[:, 0] = 127 + round(math.log2(scale))
        return blocks
    at = _AT[kind]
    by_block[:, at : at + 2] = _half_bytes(scale, device)
    if kind in _MIN:
        by_block[:, at + 2 : at + 4] = _half_bytes(scale * _MIN[kind], device)
    return blocks


def _half_bytes(value: float, device: Device) -> Tensor:
    import torch

    return torch.tensor([value], dtype=torch.float16, device=device).view(torch.uint8)
