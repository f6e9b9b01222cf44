"""Products with quantised weights that stay packed, in Triton: decode, verify, prefill and drafts.

Weights keep about the bytes that a GGUF file gives them, laid out anew by `pack`. Three numerics:

- `invariant`: activations rounded to F16, tensor cores with F32 sums, tiles that depend on the
  matrix only: row r of n rows has the bits that it has alone.
- `vector`: one row, F32 activations, multiply-adds in F32.
- `batch`: activations rounded to F16, blocks summed in the opposite order, in one piece.

Every call launches a number of kernels that shapes decide, allocates nothing and reads nothing
back, so that it can be captured in a CUDA graph. Knows no model. Source of the formats: ggml's
dequantisers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from kernels.packed.formats import GROUP, KINDS, PANEL, block_of, packed_bytes
from kernels.packed.matrix import MAX_ROWS, PackedMatrix, Workspace
from kernels.packed.tiles import EXPERT_TILES, ExpertTiles, Tile, tile_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "KINDS",
    "MAX_ROWS",
    "Numerics",
    "PackedMatrix",
    "Workspace",
    "experts",
    "experts_pieces",
    "gather",
    "matmul",
    "pack",
    "packed_bytes",
    "pieces_of",
]

Numerics = Literal["invariant", "vector", "batch"]

ONE_LINE: AbstractContextManager[None] = nullcontext()
WHOLE_FROM = 5
"""Rows from which on a program of gate and up takes both shares of the inputs: with fewer rows too
few experts are chosen for programs of twice the length to fill the machine."""
EXACT_ROWS = 8
"""Rows of an `invariant` launch: kernels of 16 lanes group a block's inputs differently."""


@cache
def _kernels() -> Any:
    from kernels.packed import experts_kernel, matmul_kernel

    return matmul_kernel, experts_kernel


def pack(kind: str, blocks: Tensor, count: int, outputs: int, inputs: int) -> PackedMatrix:
    """Lay out a stack of matrices for the kernels, on the blocks' device.

    Args:
        blocks: uint8, the bytes as a GGUF file has them: `count` matrices of `outputs` rows.
    Returns:
        The packed stack. Its kind is F32 where a type's rows are not whole units of its kernel.
    Raises:
        ValueError: for an unknown type, rows that are not whole blocks, or a wrong number of bytes.
    """
    from kernels.packed.repack import repack

    kind, planes = repack(kind, blocks, count, outputs, inputs)
    return PackedMatrix(kind, count, outputs, inputs, planes)


def pieces_of(weight: PackedMatrix, numerics: Numerics) -> int:
    """Shares of the inputs that a product is split into: the pieces that `matmul` can leave."""
    tile = tile_of(weight.kind, weight.count, weight.outputs, weight.inputs)
    return 1 if numerics == "batch" else tile.split


def matmul(
    x: Tensor,
    weight: PackedMatrix,
    y: Tensor,
    space: Workspace,
    numerics: Numerics,
    *,
    add: Tensor | None = None,
    tile: Tile | None = None,
    soon: bool = False,
) -> None:
    """y[r] = x[r] @ W^T (+ add[r]), matrix by matrix of a stack.

    Args:
        x: (n, count * inputs) float32 or float16; matrix m of the stack takes its own inputs.
        y: (n, count * outputs) float32 or float16, written. All rows contiguous. Or (n, S,
            count * outputs) float32, S = `pieces_of`: takes what has the same bits once its reader
            has added it up in order, and is there sooner.
        add: (n, count * outputs) float32, not y itself; not with pieces.
        tile: another tile than the matrix's own, for measurements.
        soon: launch before the kernel before on the stream has ended, which must have written x.
    Raises:
        ValueError: for shapes that disagree, too many rows, or a workspace that is too small.
    """
    n, w = x.shape[0], weight
    if numerics == "invariant" and n > EXACT_ROWS:
        for part in _parts(n):
            rest = None if add is None else add[part]
            matmul(x[part], w, y[part], space, numerics, add=rest, tile=tile, soon=soon)
        return
    lanes = _lanes(n, numerics)
    t = tile or tile_of(w.kind, w.count, w.outputs, w.inputs)
    if numerics == "batch":
        t = t._replace(split=1)
    outputs, whole = w.count * w.outputs, y.dim() == 2
    if x.shape[1] != w.count * w.inputs or y.shape != ((n, *[t.split] * (not whole), outputs)):
        raise ValueError(
            f"x {tuple(x.shape)} and y {tuple(y.shape)} for {w.count} matrices of "
            f"{w.outputs} x {w.inputs} in {t.split} pieces"
        )
    tiles = -(-w.outputs // t.rows)
    shares = w.count * tiles * t.split * t.rows * lanes if whole and t.split > 1 else 0
    means, parts = space.take([_means_of(w, n, w.count * w.inputs), shares], w.count * tiles)
    from kernels.packed.early import early

    _take_means(x, means, lanes)
    planes = _planes(w)
    matmuls, _ = _kernels()
    matmuls.matmul_kernel[tiles, t.split, w.count](
        x, means, y, y if add is None else add, parts, space.counters, *planes,
        n, w.outputs, w.inputs, _width(w), x.stride(0), y.stride(0), 0 if whole else y.stride(1),
        0 if add is None else add.stride(0), *_sizes(w),
        KIND=w.kind, BN=t.rows, R=lanes, BK=t.block, SPLIT=t.split, WHOLE=whole, STAGES=t.stages,
        EVEN=w.outputs % t.rows == 0, ADD=add is not None, BACKWARDS=numerics == "batch",
        FAST=x.is_cuda, num_warps=t.warps, **(early(x.device) if soon else {}),
    )  # fmt: skip


def experts_pieces(
    choices: int, shared: bool, numerics: Numerics, tiles: ExpertTiles | None = None
) -> int:
    """Pieces that `experts` leaves of a row's sum."""
    t = _expert_tiles(numerics, tiles)
    return choices * t.down.split + (t.shared_down.split if shared else 0)


def _expert_tiles(numerics: Numerics, tiles: ExpertTiles | None) -> ExpertTiles:
    t = tiles or EXPERT_TILES
    return ExpertTiles(*(x._replace(split=1) for x in t)) if numerics == "batch" else t


def experts(
    x: Tensor,
    chosen: Tensor,
    weights: Tensor,
    gate_up: PackedMatrix,
    down: PackedMatrix,
    shared_gate_up: PackedMatrix | None,
    shared_down: PackedMatrix | None,
    clamp: float,
    y: Tensor,
    space: Workspace,
    numerics: Numerics,
    *,
    tiles: ExpertTiles | None = None,
    aside: AbstractContextManager[None] = ONE_LINE,
    join: Callable[[], None] = lambda: None,
) -> None:
    """Pieces y[r] of sum over j of weights[r, j] * expert_chosen[r, j](x[r]), then + shared(x[r]).

    Args:
        x: (n, C) float32 or float16. chosen: (n, K) int32. weights: (n, K) float32, multiplied in
            before the down projection. Both contiguous.
        gate_up: an expert's F gate rows over its F up rows, (E, 2 F, C). down: (E, C, F).
        shared_gate_up, shared_down: one more expert for every row; None = none.
        clamp: limit of gate (above) and up (both sides); inf = none.
        y: (n, S, C) float32, S = `experts_pieces`, written: their sum, in order, is the result.
        tiles: other tiles than the kinds' own, for measurements.
        aside: what the shared expert is launched in: it may run beside what made the choices.
        join: called before the last launch, whose programs would take the shared expert's room.
    Raises:
        ValueError: for shapes that disagree, too many rows, or a workspace that is too small.
    """
    import torch  # here, since importing this package must not import torch

    n, width = x.shape
    if numerics == "invariant" and n > EXACT_ROWS:
        for part in _parts(n):
            experts(
                x[part], chosen[part], weights[part], gate_up, down, shared_gate_up, shared_down,
                clamp, y[part], space, numerics, tiles=tiles,
            )  # fmt: skip
        return
    choices, hidden = chosen.shape[1], down.inputs
    if gate_up.outputs != 2 * hidden or gate_up.inputs != width or down.outputs != width:
        raise ValueError(
            f"experts of {gate_up.outputs} x {gate_up.inputs} and {down.outputs} x {down.inputs} "
            f"for rows of {width}"
        )
    lanes = _lanes(n, numerics)
    t = _expert_tiles(numerics, tiles)
    shared = shared_gate_up is not None and shared_down is not None
    slots = experts_pieces(choices, shared, numerics, tiles)
    if y.shape != (n, slots, width) or not y.is_contiguous():
        raise ValueError(f"y {tuple(y.shape)} for {n} rows of {width} in {slots} pieces")
    up_tiles = n * choices * -(-hidden // (t.up.rows // 2))
    shared_tiles = -(-hidden // (t.shared_up.rows // 2)) if shared else 0
    # The workspace: activations and their means, shares of the first products.
    floats = [
        n * (choices + 1) * hidden,
        n * (choices + 1) * hidden // GROUP,
        _means_of(gate_up, n, width),
        up_tiles * t.up.split * t.up.rows * lanes if t.up.split > 1 else 0,
        0 if shared_gate_up is None else _means_of(shared_gate_up, n, width),
        shared_tiles * t.shared_up.split * t.shared_up.rows * lanes if t.shared_up.split > 1 else 0,
    ]
    h, h_means, up_means, up_parts, shared_means, shared_parts = space.take(
        floats, up_tiles + shared_tiles
    )
    if numerics != "vector":
        h = h.view(torch.float16)
    from kernels.packed.early import early

    _, mixture = _kernels()
    same: dict[str, Any] = {"CHOICES": choices, "R": lanes, "BACKWARDS": numerics == "batch"}
    same["FAST"] = x.is_cuda
    if shared_gate_up is not None and shared_down is not None:
        first, second = shared_gate_up, shared_down
        with aside:
            _take_means(x, shared_means, lanes)
            mixture.shared_gate_up_kernel[shared_tiles, t.shared_up.split](
                x, shared_means, h, h_means, shared_parts, space.counters[up_tiles:],
                *_planes(first), n, hidden, width, _width(first), x.stride(0), clamp,
                KIND=first.kind, BN=t.shared_up.rows, BK=block_of(first.kind, width),
                SPLIT=t.shared_up.split, MEANS=second.kind == "Q2_K", STAGES=t.shared_up.stages,
                num_warps=t.shared_up.warps, **same,
            )  # fmt: skip
            mixture.shared_down_kernel[-(-width // t.shared_down.rows), t.shared_down.split](
                h, h_means, y, *_planes(second), n, width, hidden, _width(second),
                KIND=second.kind, SLOTS=slots, SHARES=t.shared_down.split, BN=t.shared_down.rows,
                BK=block_of(second.kind, hidden), STAGES=t.shared_down.stages,
                num_warps=t.shared_down.warps, **same,
            )  # fmt: skip
    same["PADDED"] = 1 << (choices - 1).bit_length()
    whole = numerics == "invariant" and n >= WHOLE_FROM and t.up.split == 2
    _take_means(x, up_means, lanes)
    mixture.gate_up_kernel[up_tiles, 1 if whole else t.up.split](
        x, up_means, chosen, weights, h, h_means, up_parts, space.counters, *_planes(gate_up),
        n, hidden, width, _width(gate_up), x.stride(0), *_sizes(gate_up), clamp,
        KIND=gate_up.kind, BN=t.up.rows, BK=block_of(gate_up.kind, width), SPLIT=t.up.split,
        WHOLE=whole, MEANS=down.kind == "Q2_K", STAGES=t.up.stages, num_warps=t.up.warps, **same,
        **early(x.device),
    )  # fmt: skip
    join()
    down_tiles = -(-width // t.down.rows) * n * choices
    mixture.down_kernel[down_tiles, t.down.split](
        h, h_means, chosen, y, *_planes(down), n, width, hidden, _width(down), *_sizes(down),
        KIND=down.kind, SLOTS=slots, BN=t.down.rows, BK=block_of(down.kind, hidden),
        SPLIT=t.down.split, STAGES=t.down.stages, num_warps=t.down.warps, **same, **early(x.device),
    )  # fmt: skip


def gather(weight: PackedMatrix, ids: Tensor, y: Tensor) -> None:
    """y[r] = row ids[r] of a single matrix, as numbers.

    Args:
        weight: F32, F16 or Q8_0. ids: (n,) int32 or int64. y: (n, inputs) float32, written.
    Raises:
        ValueError: for another kind or a wrong shape.
    """
    w = weight
    if w.kind not in ("F32", "F16", "Q8_0") or w.count != 1:
        raise ValueError(
            f"gather takes one matrix of F32, F16 or Q8_0, found {w.count} of {w.kind}"
        )
    if y.shape != (ids.shape[0], w.inputs):
        raise ValueError(f"y {tuple(y.shape)} for {ids.shape[0]} rows of {w.inputs}")
    matmuls, _ = _kernels()
    p0, p1, *_ = _planes(w)
    matmuls.gather_kernel[ids.shape[0], -(-w.inputs // 1024)](
        ids, y, p0, p1, w.outputs, w.inputs, y.stride(0), KIND=w.kind, WIDTH=1024,
    )  # fmt: skip


def _means_of(w: PackedMatrix, n: int, width: int) -> int:
    """Means of n rows of inputs that a product with w takes."""
    return n * width // GROUP if w.kind == "Q2_K" else 0


def _take_means(x: Tensor, means: Tensor, lanes: int) -> None:
    """Write those of x, rounded as the product does, if there is room for any."""
    if len(means):
        from kernels.packed.means import means_kernel

        rows = x.shape[0]
        groups = len(means) // rows
        means_kernel[-(-groups // 64), rows](
            x, means, groups, x.stride(0), ROUND=lanes > 1, GROUPS=64
        )


def _parts(n: int) -> list[slice]:
    """Rows of one launch each."""
    return [slice(first, first + EXACT_ROWS) for first in range(0, n, EXACT_ROWS)]


def _lanes(n: int, numerics: Numerics) -> int:
    """Rows that a launch pads n rows to; 1 = activations in F32."""
    if numerics == "vector":
        if n != 1:
            raise ValueError(f"the vector kernels take one row, found {n}")
        return 1
    if not 1 <= n <= MAX_ROWS:
        raise ValueError(f"{n} rows, expected 1 to {MAX_ROWS}")
    return next(lanes for lanes in (8, 16, 32) if n <= lanes)


def _planes(w: PackedMatrix) -> tuple[Tensor, ...]:
    """Four planes, the last one repeated."""
    return (*w.planes, *[w.planes[-1]] * (4 - len(w.planes)))


def _sizes(w: PackedMatrix) -> tuple[int, ...]:
    """Elements of one matrix in each of the four planes."""
    return tuple(plane.stride(0) for plane in _planes(w))


def _width(w: PackedMatrix) -> int:
    """Elements of the first plane for one row."""
    return w.planes[0].stride(1) // (1 if w.kind in ("F32", "F16") else PANEL)
