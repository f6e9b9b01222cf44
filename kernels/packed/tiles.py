"""Tile sizes of the products: constants of type and shape, never of the number of rows.

They decide the order of summation, so that the same matrix is always read the same way.
`benchmarks/gpu.md` has the measurements that they come from.
"""

from __future__ import annotations

from typing import NamedTuple

from kernels.packed.formats import block_of


class Tile(NamedTuple):
    """Rows of a tile, inputs of a block, shares of the inputs, warps and pipeline stages."""

    rows: int
    block: int
    split: int
    warps: int
    stages: int


PROGRAMS, NARROW_PROGRAMS = 256, 512
"""Programs that a product should have, those of a warp or two for many rows more of them: two to
four on each of an H200's 132 multiprocessors."""

MOST_SHARES = 16

AT_ONCE_BLOCK = 64
"""Inputs of a block where all programs of a large product run at once: in four stages, not in three
of 128, three quarters as much of it is on its way; what runs beside it waits less."""


def tile_of(kind: str, count: int, outputs: int, inputs: int) -> Tile:
    """The tile of a product with a stack of matrices."""
    total = count * outputs
    rows = next((r for r, most in ((16, 512), (32, 2560)) if total <= most), 64)
    block = block_of(kind, inputs)
    programs, split = count * -(-outputs // rows), 1
    wide = rows < 64 or kind in ("F16", "F32")
    wanted = PROGRAMS if wide else NARROW_PROGRAMS
    while programs * split < wanted and split < MOST_SHARES and inputs // block >= 4 * split:
        split *= 2
    warps = {16: 1, 32: 2, 64: 4 if wide else 2}[rows]
    if kind == "Q8_0" and rows == 64 and programs * split <= NARROW_PROGRAMS:
        block = min(block, AT_ONCE_BLOCK)
    return Tile(rows, block, split, warps, 3 if inputs // block <= 8 * split else 4)


class ExpertTiles(NamedTuple):
    """Tiles of the launches of `experts`; their blocks are `block_of`'s."""

    up: Tile
    shared_up: Tile
    down: Tile
    shared_down: Tile


EXPERT_TILES = ExpertTiles(
    up=Tile(64, 0, 2, 2, 3),
    shared_up=Tile(64, 0, 2, 2, 4),
    down=Tile(64, 0, 2, 2, 2),
    shared_down=Tile(64, 0, 4, 2, 4),
)
"""Those of a mixture of experts of any kinds."""
