"""Products with packed weights as a `Mode` asks for them, and fault injection on their results."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kernels.cuda import lanes
from kernels.cuda.rows import mixed
from kernels.cuda.workspace import scratch, split_space
from kernels.mode import Mode
from kernels.packed import PackedMatrix, matmul, pieces_of

SMALL = 8 << 20
"""Bytes of a product that always gains by an early launch."""
TILE_ROWS, BATCH_ROWS = 8, 32
"""Rows of one launch: of tiles, whose bits are those of this one compiled width; of `batch`."""


def numerics(mode: Mode) -> str:
    """The packed products' word for a mode; without rounded rows there is no `batch` on CUDA."""
    if mode.tiles:
        return "invariant"
    return "batch" if mode.batch and mode.round_rows else "vector"


def row_parts(rows: int, mode: Mode) -> list[slice]:
    """The launches of a product: single rows by the decode path, else tiles."""
    size = {"vector": 1, "invariant": TILE_ROWS, "batch": BATCH_ROWS}[numerics(mode)]
    return [slice(first, min(first + size, rows)) for first in range(0, rows, size)]


def product(
    x: Any, weight: PackedMatrix, y: Any, mode: Mode, add: Any = None, soon: bool = False
) -> None:
    """y = x @ W^T (+ add), for any number of rows; y may take pieces, as `matmul` says.

    Args:
        soon: launch it before the kernel before it has ended, though it is large; never on a lane.
    """
    space, name = split_space(x.device, lanes.current()), numerics(mode)
    soon = (soon or weight.nbytes < SMALL) and not lanes.current()
    for part in row_parts(x.shape[0], mode):
        rest = None if add is None else add[part]
        matmul(x[part], weight, y[part], space, name, add=rest, soon=soon)


def product_pieces(
    x: Any, weight: PackedMatrix, name: str, positions: Any, mode: Mode, *, perturbed: int = 0,
    soon: bool = False,
) -> Any:  # fmt: skip
    """x @ W^T in scratch memory of a name, (n, S, outputs): its reader adds the pieces in order.

    Faults are injected into the outputs from `perturbed` on; a sum with faults is one piece.
    """
    count = 1 if mode.ulps else pieces_of(weight, numerics(mode))
    y = scratch(x.device, name, x.shape[0], count, weight.count * weight.outputs)
    product(x, weight, y[:, 0] if count == 1 else y, mode, soon=soon)
    perturb(y[:, 0, perturbed:], positions, mode)
    return y


def pieces(y: Any) -> Any:
    """A sum as its pieces (n, S, C); one whole row is one piece."""
    return y[:, None] if y.dim() == 2 else y


@triton.jit(do_not_specialize=["ulps", "salt_low", "salt_high"])
def _perturb(y, stride, width, positions, ulps, salt_low, salt_high, WIDE: tl.constexpr):
    row = tl.program_id(1)
    i = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    place = y + row * stride + i
    value = tl.load(place, mask=i < width, other=0.0)
    position = tl.load(positions + row).to(tl.uint64)
    salt = (salt_high.to(tl.uint64) << 32) | salt_low.to(tl.uint64)
    base = mixed(salt + position * 0x9E3779B97F4A7C15)
    word = mixed(base + (i + 1).to(tl.uint64) * 0xD1B54A32D192ED03)
    u = (word >> 11).to(tl.float64) * 2.220446049250313e-16 - 1.0
    exponent = tl.maximum((value.to(tl.int32, bitcast=True) >> 23) & 0xFF, 1).to(tl.int64)
    ulp = ((exponent - 150 + 1023) << 52).to(tl.float64, bitcast=True)
    noisy = value.to(tl.float64) + u * ulps * ulp
    tl.store(place, noisy.to(tl.float32), mask=i < width)


def perturb(y: Any, positions: Any, mode: Mode) -> None:
    """y + u * ulps * ulp(y) in place, u in [-1, 1] from a hash of (salt, position, index)."""
    if not mode.ulps:
        return
    rows, width = y.shape
    salt = mode.salt % 2**64
    low, high = salt & 0xFFFFFFFF, salt >> 32
    _perturb[(triton.cdiv(width, 1024), rows)](
        y, y.stride(0), width, positions, mode.ulps, low, high, WIDE=1024
    )
