"""Readable reference of `kernels.rounding`: roundings of stored rows, simulated in float32."""

from __future__ import annotations

import torch
from torch import Tensor

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Values of FP4 e2m1, in the order of their codes."""


def _power_of_two_above(x: Tensor) -> Tensor:
    """2^ceil(log2 x), exactly."""
    mantissa, exponent = torch.frexp(x)
    exponent = torch.where(mantissa == 0.5, exponent - 1, exponent)
    return torch.ldexp(torch.ones_like(x), exponent)


def fp8_blocks(x: Tensor, block: int = 64) -> Tensor:
    """E4M3FN with one power-of-two scale per block. Source: the vendor's `act_quant`."""
    return torch.cat([_fp8(part) for part in x.split(block, -1)], -1)


def _fp8(x: Tensor) -> Tensor:
    largest = x.abs().amax(-1, keepdim=True)
    scale = _power_of_two_above(largest.clamp_min(1e-4) / 448)
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


def fp4_blocks(x: Tensor, block: int = 32) -> Tensor:
    """E2M1 with one power-of-two scale per block, ties to the even code."""
    return torch.cat([_fp4(part) for part in x.split(block, -1)], -1)


def _fp4(x: Tensor) -> Tensor:
    largest = x.abs().amax(-1, keepdim=True)
    scale = _power_of_two_above(largest.clamp_min(6 * 2.0**-126) / 6)
    v = (x / scale).clamp(-6, 6)
    values = torch.tensor(E2M1)
    distance = (v.abs()[..., None] - values).abs()
    # Odd codes lose ties: argmin takes the first of the even ones, then of the odd ones.
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    code = order[distance[..., order].argmin(-1)]
    return torch.copysign(values[code], v) * scale


def hadamard(x: Tensor) -> Tensor:
    """Walsh-Hadamard transform of the last axis (2^k), natural order, orthonormal."""
    size, matrix = x.shape[-1], torch.ones(1, 1)
    while matrix.shape[0] < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return x @ matrix / size**0.5
