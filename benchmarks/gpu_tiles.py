"""Tiles of the packed products on a GPU: microseconds and bytes per second of each, 1 and 6 rows.

Every product is timed as a captured graph over copies of its weights that no cache holds; bytes are
those of the file. `kernels/packed/tiles.py` was chosen from this.

    python benchmarks/gpu_tiles.py [NAME ...]
"""

from __future__ import annotations

import sys

import torch

from engine.cuda.product_costs import microseconds
from kernels.packed import PackedMatrix, Workspace, experts, experts_pieces, matmul, pack
from kernels.packed.formats import block_of, row_bytes
from kernels.packed.random_blocks import random_blocks
from kernels.packed.tiles import EXPERT_TILES, ExpertTiles, Tile, tile_of

SHAPES = {
    "q_a + kv": ("Q8_0", 1, 1536, 4096),
    "q_b": ("Q8_0", 1, 32768, 1024),
    "out_a": ("Q8_0", 8, 1024, 4096),
    "out_b": ("Q8_0", 1, 4096, 8192),
    "head": ("Q8_0", 1, 129280, 4096),
    "compressor 4": ("F16", 1, 2560, 4096),
    "compressor 128": ("F16", 1, 1024, 4096),
    "indexer q_b": ("F16", 1, 8192, 1024),
    "router": ("F16", 1, 256, 4096),
}
"""Kind, matrices, outputs and inputs."""
ROWS_SPLITS_WARPS_STAGES = (
    (32, 8, 2, 4),
    (64, 1, 2, 4),
    (64, 4, 4, 4),
    (64, 8, 2, 4),
    (128, 1, 4, 4),
)
EXPERTS, USED, WIDTH, HIDDEN = 64, 6, 4096, 2048
ONE_EXPERT, SHARED = 7_077_888, 26_738_688
"""Bytes of a routed expert and of the shared one in a q2 file."""
UNCACHED = 400e6


def blocks(kind: str, rows: int, inputs: int, seed: int) -> torch.Tensor:
    """Random weights on the device."""
    generator = torch.Generator("cuda").manual_seed(seed)
    return random_blocks(kind, rows, inputs, generator, inputs**-0.5)


def measure_matmul(name: str, space: Workspace) -> None:
    """All tiles of one shape."""
    kind, count, outputs, inputs = SHAPES[name]
    size = count * outputs * row_bytes(kind, inputs)
    copies = max(2, min(24, round(UNCACHED / size)))
    stacks = [
        pack(kind, blocks(kind, count * outputs, inputs, i), count, outputs, inputs)
        for i in range(copies)
    ]
    own, block = tile_of(kind, count, outputs, inputs), block_of(kind, inputs)
    for tile in (own, *(Tile(r, block, s, w, st) for r, s, w, st in ROWS_SPLITS_WARPS_STAGES)):
        found = []
        for rows in (1, 6):
            x = torch.randn(rows, count * inputs, device="cuda").half()
            y = torch.empty(rows, count * outputs, device="cuda")

            def call(w: PackedMatrix, x=x, y=y, tile=tile) -> None:
                matmul(x, w, y, space, "invariant", tile=tile)

            calls = [lambda w=w, call=call: call(w) for w in stacks] * max(1, 24 // copies)
            taken = microseconds(calls)
            found.append(f"{taken:7.1f} us {size / taken / 1e3:5.0f} GB/s")
        print(
            f"{name:16s} {'own' if tile is own else '':4s}{tuple(tile)!s:24s}", *found, flush=True
        )


def measure_experts(space: Workspace) -> None:
    """Tiles of the mixture of experts, one pair of launches."""

    def made(kind: str, count: int, outputs: int, inputs: int, seed: int) -> PackedMatrix:
        return pack(kind, blocks(kind, count * outputs, inputs, seed), count, outputs, inputs)

    sets = [
        (
            made("IQ2_XXS", EXPERTS, 2 * HIDDEN, WIDTH, i),
            made("Q2_K", EXPERTS, WIDTH, HIDDEN, i),
            made("Q8_0", 1, 2 * HIDDEN, WIDTH, i),
            made("Q8_0", 1, WIDTH, HIDDEN, i),
        )
        for i in range(3)
    ]
    others = [
        ExpertTiles(up, up._replace(stages=4), down, down._replace(stages=4))
        for up, down in (
            (Tile(64, 0, 1, 4, 3), Tile(64, 0, 1, 2, 3)),
            (Tile(128, 0, 1, 4, 3), Tile(64, 0, 1, 2, 3)),
            (Tile(32, 0, 1, 2, 3), Tile(64, 0, 1, 2, 3)),
            (Tile(64, 0, 1, 2, 3), Tile(32, 0, 1, 1, 3)),
        )
    ]
    for tiles in (EXPERT_TILES, *others):
        found = []
        for rows in (1, 6):
            calls, distinct = [], 0
            for i in range(24):
                chosen = torch.stack(
                    [torch.randperm(EXPERTS)[:USED].sort()[0] for _ in range(rows)]
                )
                distinct += len(chosen.unique())
                chosen, weights = chosen.int().cuda(), torch.rand(rows, USED, device="cuda")
                x = torch.randn(rows, WIDTH, device="cuda").half()
                pieces = experts_pieces(USED, True, "invariant", tiles)
                y = torch.empty(rows, pieces, WIDTH, device="cuda")

                def call(c=chosen, f=weights, x=x, y=y, s=sets[i % 3], tiles=tiles) -> None:
                    experts(x, c, f, *s, 10.0, y, space, "invariant", tiles=tiles)

                calls.append(call)
            taken = microseconds(calls)
            size = distinct / 24 * ONE_EXPERT + SHARED
            found.append(f"{taken:7.1f} us {size / taken / 1e3:5.0f} GB/s")
        print(
            "experts",
            "own" if tiles is EXPERT_TILES else tuple(tuple(t) for t in tiles[:4]),
            *found,
            flush=True,
        )


def main() -> None:
    """All shapes, or those named."""
    if not torch.cuda.is_available():
        sys.exit("needs a CUDA device")
    space = Workspace("cuda")
    names = sys.argv[1:] or [*SHAPES, "experts"]
    for name in names:
        if name == "experts":
            measure_experts(space)
        else:
            measure_matmul(name, space)


if __name__ == "__main__":
    main()
