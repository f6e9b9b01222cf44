"""Packed products against the reference: interpreted on the CPU, compiled where there is a GPU."""

from __future__ import annotations

import pytest
import torch

CUDA = torch.cuda.is_available()
pytest.importorskip("triton", reason="triton is not installed")
pytestmark = pytest.mark.gpu if CUDA else []

from kernels.packed import (  # noqa: E402
    WHOLE_FROM,
    Numerics,
    PackedMatrix,
    Workspace,
    experts,
    experts_pieces,
    gather,
    matmul,
    pack,
    pieces_of,
)
from kernels.packed.random_blocks import random_blocks  # noqa: E402
from kernels.packed.reference import dequantise  # noqa: E402
from kernels.packed.tiles import ExpertTiles, Tile, tile_of  # noqa: E402

DEVICE = "cuda" if CUDA else "cpu"
KINDS = ("F32", "F16", "Q8_0", "Q2_K", "Q4_K", "IQ2_XXS", "MXFP4")
ROUNDED, EXACT = 1e-3, 3e-6
"""Relative error with activations rounded to F16, and in F32."""


def generator(seed: int) -> torch.Generator:
    return torch.Generator(DEVICE).manual_seed(seed)


def made(kind: str, count: int, outputs: int, inputs: int) -> tuple[PackedMatrix, torch.Tensor]:
    """A random stack and its numbers in float64."""
    size = inputs**-0.5
    blocks = random_blocks(kind, count * outputs, inputs, generator(outputs + inputs), size)
    numbers = dequantise(kind, blocks, count * outputs, inputs)
    whole = numbers.reshape(count, outputs, inputs).double()
    return pack(kind, blocks, count, outputs, inputs), whole


def rows(n: int, width: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(n, width, device=DEVICE, generator=generator(seed))


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


def empty(*shape: int) -> torch.Tensor:
    """Poisoned, so that what is not written shows."""
    return torch.full(shape, float("nan"), device=DEVICE)


def multiply(
    x: torch.Tensor, w: PackedMatrix, y: torch.Tensor, space: Workspace, numerics: Numerics
) -> None:
    """`matmul`; interpreted, with one large tile, since programs take their time there."""
    own = tile_of(w.kind, w.count, w.outputs, w.inputs)
    matmul(x, w, y, space, numerics, tile=None if CUDA else own._replace(rows=128, split=1))


@pytest.fixture(scope="module")
def space() -> Workspace:
    return Workspace(DEVICE, 1 << 16)


@pytest.mark.parametrize("kind", KINDS)
def test_products_equal_the_reference(kind: str, space: Workspace) -> None:
    w, numbers = made(kind, 1, 40, 512)
    x = rows(3, 512)
    expected = x.double() @ numbers[0].T
    for numerics in ("invariant", "batch"):
        y = empty(3, 40)
        multiply(x, w, y, space, numerics)
        assert error(y, expected) < ROUNDED, numerics
    y = empty(1, 40)
    multiply(x[:1], w, y, space, "vector")
    assert error(y, expected[:1]) < EXACT


@pytest.mark.parametrize("kind", KINDS)
def test_invariant_rows_have_the_bits_that_they_have_alone(kind: str, space: Workspace) -> None:
    w, _ = made(kind, 1, 72, 512)
    x = rows(9, 512)
    alone = empty(9, 72)
    for r in range(9):
        multiply(x[r : r + 1], w, alone[r : r + 1], space, "invariant")
    # Interpreted products of 8 and 16 padded rows go to a library that sums them differently.
    for n in (2, 8, 9) if CUDA else (2, 8):
        y = empty(n, 72)
        multiply(x[:n], w, y, space, "invariant")
        assert torch.equal(y, alone[:n]), n
    assert not space.counters.any()


@pytest.mark.parametrize(("up_kind", "down_kind"), [("IQ2_XXS", "Q2_K"), ("Q4_K", "Q8_0")])
def test_both_shares_of_the_inputs_by_one_program(up_kind: str, down_kind: str) -> None:
    """So many rows that programs take all inputs have the bits of rows alone."""
    space = Workspace(DEVICE)
    size, tile = 768, Tile(64 if CUDA else 512, 0, 2, 2, 2)  # three blocks: the shares differ
    (up, ups), (down, downs) = made(up_kind, 3, 2 * size, size), made(down_kind, 3, size, size)
    x, weights = rows(WHOLE_FROM, size), rows(WHOLE_FROM, 2, 5).abs()
    table = [[r % 2, 2] for r in range(WHOLE_FROM)]
    chosen = torch.tensor(table, dtype=torch.int32, device=DEVICE)

    def run(some: slice) -> torch.Tensor:
        y = empty(len(x[some]), 4, size)
        experts(
            x[some], chosen[some], weights[some], up, down, None, None, 2.0, y, space, "invariant",
            tiles=ExpertTiles(tile, tile, tile, tile),
        )  # fmt: skip
        return y

    together = run(slice(0, WHOLE_FROM))
    for r in (0, 1, WHOLE_FROM - 1):
        assert torch.equal(together[r : r + 1], run(slice(r, r + 1)))
    assert error(in_order(together), mixed(x, chosen, weights, ups, downs, None, 2.0)) < 2 * ROUNDED


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
@pytest.mark.parametrize("inputs", [32, 64, 96, 160, 320])
def test_odd_shapes(kind: str, inputs: int, space: Workspace) -> None:
    w, numbers = made(kind, 1, 5, inputs)
    x = rows(2, inputs)
    for numerics in ("invariant", "vector"):
        n = 1 if numerics == "vector" else 2
        y = empty(n, 5)
        matmul(x[:n], w, y, space, numerics)
        assert error(y, x[:n].double() @ numbers[0].T) < ROUNDED


@pytest.mark.parametrize(("kind", "inputs"), [("Q8_0", 64), ("Q2_K", 256)])
def test_a_stack_takes_its_own_inputs_and_adds(kind: str, inputs: int, space: Workspace) -> None:
    w, numbers = made(kind, 3, 48, inputs)
    x, add = rows(2, 3 * inputs), rows(2, 3 * 48, 2)
    parts = x.double().split(inputs, 1)
    expected = torch.cat([part @ numbers[m].T for m, part in enumerate(parts)], 1)
    y = empty(2, 3 * 48)
    matmul(x, w, y, space, "invariant", add=add)
    assert error(y, expected + add) < ROUNDED


def test_half_rows_give_the_same_bits_and_take_rounded_results(space: Workspace) -> None:
    w, _ = made("Q8_0", 1, 48, 256)
    x = rows(2, 256)
    y, again, rounded = empty(2, 48), empty(2, 48), empty(2, 48).half()
    matmul(x, w, y, space, "invariant")
    matmul(x.half(), w, again, space, "invariant")
    matmul(x, w, rounded, space, "invariant")
    assert torch.equal(y, again)
    assert torch.equal(y.half(), rounded)


def in_order(pieces: torch.Tensor) -> torch.Tensor:
    """The sum of a row's pieces (n, S, C), one after the other."""
    total = torch.zeros_like(pieces[:, 0])
    for piece in pieces.unbind(1):
        total += piece
    return total


def test_shares_of_the_inputs_are_added_in_order(space: Workspace) -> None:
    w, numbers = made("Q8_0", 1, 16, 1024)
    assert tile_of("Q8_0", 1, 16, 1024).split > 1
    x = rows(2, 1024)
    y = empty(2, 16)
    for _ in range(2):
        matmul(x, w, y, space, "invariant")
        assert error(y, x.double() @ numbers[0].T) < ROUNDED
    pieces = empty(2, pieces_of(w, "invariant"), 16)
    matmul(x, w, pieces, space, "invariant")
    assert torch.equal(in_order(pieces), y)


def mixed(
    x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor, up: torch.Tensor,
    down: torch.Tensor, shared: tuple[torch.Tensor, torch.Tensor] | None, clamp: float,
) -> torch.Tensor:  # fmt: skip
    """The mixture in float64."""

    def expert(row: torch.Tensor, both: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        gate, up = (both @ row).chunk(2)
        gate, up = gate.clamp(max=clamp), up.clamp(-clamp, clamp)
        return out @ (torch.nn.functional.silu(gate) * up)

    y = torch.zeros(x.shape[0], down.shape[1], dtype=torch.float64, device=x.device)
    for r, row in enumerate(x.double()):
        for e, factor in zip(chosen[r].tolist(), weights[r].double(), strict=True):
            y[r] += factor * expert(row, up[e], down[e])
        if shared is not None:
            y[r] += expert(row, shared[0][0], shared[1][0])
    return y


EXPERT_KINDS = [
    ("Q8_0", "Q8_0", "Q8_0"),
    ("IQ2_XXS", "Q2_K", "Q8_0"),
    ("Q2_K", "Q2_K", "Q2_K"),
]
if CUDA:
    EXPERT_KINDS += [("Q8_0", "Q8_0", ""), ("Q4_K", "Q4_K", "Q8_0"), ("MXFP4", "MXFP4", "")]
WIDE = Tile(512, 0, 2, 4, 3), Tile(256, 0, 2, 4, 3)
TILES = None if CUDA else ExpertTiles(WIDE[0], WIDE[0], WIDE[1], WIDE[1])
"""Interpreted, few large tiles take less time."""


@pytest.mark.parametrize(("up_kind", "down_kind", "shared_kind"), EXPERT_KINDS)
def test_experts(up_kind: str, down_kind: str, shared_kind: str, space: Workspace) -> None:
    width = hidden = 256
    (up, ups), (down, downs) = (
        made(up_kind, 4, 2 * hidden, width),
        made(down_kind, 4, width, hidden),
    )
    kind, with_shared = shared_kind or "Q8_0", bool(shared_kind)
    s_up, s_down = made(kind, 1, 2 * hidden, width), made(kind, 1, width, hidden)
    shared = (s_up[0], s_down[0]) if with_shared else (None, None)
    x = rows(2, width) * 3
    chosen = torch.tensor([[0, 2], [2, 3]], dtype=torch.int32, device=DEVICE)
    weights = rows(2, 2, 5).abs()
    both = (s_up[1], s_down[1]) if with_shared else None
    expected = mixed(x, chosen, weights, ups, downs, both, 2.0)

    def run(some: slice, numerics: Numerics) -> torch.Tensor:
        pieces = experts_pieces(2, with_shared, numerics, TILES)
        y = empty(len(x[some]), pieces, width)
        experts(
            x[some], chosen[some], weights[some], up, down, *shared, 2.0, y, space, numerics,
            tiles=TILES,
        )  # fmt: skip
        return in_order(y)

    both_rows = run(slice(0, 2), "invariant")
    alone = torch.cat([run(slice(0, 1), "invariant"), run(slice(1, 2), "invariant")])
    assert torch.equal(both_rows, alone)
    assert error(both_rows, expected) < 2 * ROUNDED
    assert error(run(slice(0, 2), "batch"), expected) < 2 * ROUNDED
    one = run(slice(0, 1), "vector")
    assert error(one, expected[:1]) < 3 * EXACT
    assert not space.counters.any()


def test_experts_in_one_piece_need_no_room_for_shares() -> None:
    width = hidden = 64
    (up, ups), (down, downs) = made("Q8_0", 2, 2 * hidden, width), made("Q8_0", 2, width, hidden)
    n, tile = 3, Tile(64, 0, 2, 2, 2)
    x, weights = rows(n, width), rows(n, 1, 5).abs()
    chosen = torch.tensor([[0], [1], [0]], dtype=torch.int32, device=DEVICE)
    space, y = Workspace(DEVICE, n * 2 * hidden * 17 // 16), empty(n, 1, width)
    experts(
        x, chosen, weights, up, down, None, None, 2.0, y, space, "batch",
        tiles=ExpertTiles(tile, tile, tile, tile),
    )  # fmt: skip
    assert error(y[:, 0], mixed(x, chosen, weights, ups, downs, None, 2.0)) < 2 * ROUNDED


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_gather_takes_rows(kind: str) -> None:
    w, numbers = made(kind, 1, 20, 96)
    ids = torch.tensor([3, 19, 3], device=DEVICE)
    y = empty(3, 96)
    gather(w, ids, y)
    assert torch.equal(y, numbers[0][ids].float())


def test_refusals_name_what_is_wrong(space: Workspace) -> None:
    w, _ = made("Q8_0", 1, 64, 64)
    with pytest.raises(ValueError, match="one row, found 2"):
        matmul(rows(2, 64), w, empty(2, 64), space, "vector")
    with pytest.raises(ValueError, match="33 rows"):
        matmul(rows(33, 64), w, empty(33, 64), space, "batch")
    with pytest.raises(ValueError, match="matrices of 64 x 64"):
        matmul(rows(2, 32), w, empty(2, 64), space, "invariant")
    up, down = made("Q8_0", 2, 512, 256)[0], made("Q8_0", 2, 256, 256)[0]
    x, chosen = rows(2, 256), torch.zeros((2, 4), dtype=torch.int32, device=DEVICE)
    rest = chosen, rows(2, 4), up, down, None, None, 1.0, empty(2, 7, 256), space
    with pytest.raises(ValueError, match="2 rows of 256 in 8 pieces"):
        experts(x, *rest, "invariant")
    with pytest.raises(ValueError, match="found 1 of Q2_K"):
        gather(made("Q2_K", 1, 4, 256)[0], torch.zeros(1, dtype=torch.int64), empty(1, 256))
    tiny, wide = Workspace(DEVICE, 8), made("Q8_0", 1, 64, 2048)[0]
    with pytest.raises(ValueError, match="the workspace has 8 floats"):
        matmul(rows(1, 2048), wide, empty(1, 64), tiny, "invariant")
