"""Roundings of stored rows and of weights, with straight-through gradients.

Owns the FP8, FP4 and Q8_0 value grids as ds4 applies them, and MXFP4. Does not know which tensors
they are applied to.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

FP8_MAX = 448.0
"""Largest finite E4M3FN value."""
FP4_SIZES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""E2M1 values without their sign."""
FP4_MAX = FP4_SIZES[-1]


def _straight_through(x: Tensor, rounded: Tensor) -> Tensor:
    return x + (rounded - x).detach()


def fp8_block(x: Tensor) -> Tensor:
    """Rounds blocks of 64 along the last dimension to E4M3FN times a power of two.

    Source: DeepSeek-V4's quantisation simulation as ds4 applies it to KV rows: the scale is
    2^ceil(log2(amax / 448)) with amax >= 1e-4.
    """
    blocks = x.float().unflatten(-1, (-1, 64))
    amax = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-4)
    scale = torch.exp2(torch.ceil(torch.log2(amax / FP8_MAX)))
    scaled = (blocks / scale).clamp(-FP8_MAX, FP8_MAX)
    return (scaled.to(torch.float8_e4m3fn).float() * scale).flatten(-2).to(x.dtype)


def fp8_row(x: Tensor, rope_dim: int, *, half: bool) -> Tensor:
    """A KV row: FP8 on all but the last `rope_dim` elements; then F16 on all when `half`."""
    rounded = torch.cat([fp8_block(x[..., :-rope_dim]), x[..., -rope_dim:]], -1)
    if half:
        rounded = rounded.half().to(x.dtype)
    return _straight_through(x, rounded)


def fp4_block(x: Tensor) -> Tensor:
    """Rounds blocks of 32 along the last dimension to E2M1 times a power of two, ties to even."""
    blocks = x.float().unflatten(-1, (-1, 32))
    amax = blocks.abs().amax(-1, keepdim=True).clamp_min(FP4_MAX * 2.0**-126)
    scale = torch.exp2(torch.ceil(torch.log2(amax / FP4_MAX)))
    v = (blocks / scale).clamp(-FP4_MAX, FP4_MAX)
    size = v.abs()
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    rounded = torch.round(v / step) * step
    return _straight_through(x, (rounded * scale).flatten(-2).to(x.dtype))


def mxfp4_codes(x: Tensor) -> tuple[Tensor, Tensor]:
    """E2M1 codes (..., blocks, 32) and exponents (..., blocks, 1) of MXFP4, both int64.

    A code is the place of the size on the grid, plus 8 for a negative value. ggml takes the largest
    power of two that leaves the largest size at 4 or more, which cuts sizes over 6. Here it is that
    one or a neighbour, whichever has the least squared error; the smaller one on ties.
    """
    blocks = x.float().unflatten(-1, (-1, 32))
    grid = torch.tensor(FP4_SIZES, device=x.device)
    halves = (grid[1:] + grid[:-1]) / 2
    amax = blocks.abs().amax(-1, keepdim=True).clamp_min(2.0**-100)
    first = torch.floor(torch.log2(amax)).long() - 2
    found = []
    for exponent in (first - 1, first, first + 1):
        scale = torch.exp2(exponent.float())
        places = torch.bucketize(blocks.abs() / scale, halves)
        error = (grid[places] * scale - blocks.abs()).square().sum(-1, keepdim=True)
        found.append((error, places, exponent))
    errors, places, exponents = (torch.stack(parts) for parts in zip(*found, strict=True))
    best = errors.argmin(0, keepdim=True)
    places = places.gather(0, best.expand(1, *places.shape[1:]))[0]
    return places + 8 * ((blocks < 0) & (places > 0)), exponents.gather(0, best)[0]


def mxfp4(x: Tensor) -> Tensor:
    """The values that `x` has in MXFP4."""
    codes, exponents = mxfp4_codes(x)
    sizes = torch.tensor(FP4_SIZES, device=x.device)[codes & 7] * torch.exp2(exponents.float())
    rounded = torch.where(codes > 7, -sizes, sizes).flatten(-2).to(x.dtype)
    return _straight_through(x, rounded)


def mxfp4_bytes(x: Tensor) -> np.ndarray:
    """`x` as a file stores it, uint8 (..., blocks * 17): the exponent with a bias of 127, then the
    codes, the second half of them in the upper four bits."""
    codes, exponents = mxfp4_codes(x)
    packed = codes[..., :16] | codes[..., 16:] << 4
    stored: np.ndarray = torch.cat([exponents + 127, packed], -1).flatten(-2).numpy()
    return stored.astype(np.uint8)


def hadamard(size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The (size, size) Walsh-Hadamard matrix in Sylvester order over sqrt(size), size <= 256.

    Entry i, j has the sign of the parity of i & j, which needs nothing but device arithmetic.
    """
    i = torch.arange(size, device=device)
    parity = i[:, None] & i[None]
    for shift in (4, 2, 1):
        parity = parity ^ (parity >> shift)
    return ((1 - 2 * (parity & 1)) / size**0.5).to(dtype)


def q8_0_codes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integer codes (..., blocks, 32) and scales (..., blocks, 1) of Q8_0, both float32.

    The scale is rounded to F16 after the codes were made with the unrounded one, as ggml does.
    """
    blocks = x.float().unflatten(-1, (-1, 32))
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    scaled = blocks * inverse
    codes = torch.trunc(scaled + torch.copysign(torch.full_like(scaled, 0.5), scaled))
    return codes, scale.half().float()


def q8_0(x: Tensor) -> Tensor:
    """The values that `x` has after a round trip through Q8_0."""
    codes, scales = q8_0_codes(x)
    return (codes * scales).flatten(-2)
