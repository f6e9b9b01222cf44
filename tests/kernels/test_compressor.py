"""The compressor token by token and in chunks against the reference over the whole sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.rope import rope_turns
from kernels.compressor import Compressor, Finish, compress
from kernels.compressor.reference import compress as reference
from kernels.linear import pack
from kernels.mode import EXACT
from tests.kernels.closeness import assert_close

DIM, WIDTH, ROPE, EPS, HEADROOM = 48, 64, 32, 1e-6, 32


def make(ratio: int) -> tuple[Compressor, list[torch.Tensor]]:
    g = torch.Generator().manual_seed(ratio)
    columns = 2 * WIDTH if ratio == 4 else WIDTH
    kv, gate = (torch.randn(columns, DIM, generator=g) / 7 for _ in range(2))
    ape = torch.randn(ratio, columns, generator=g) / 2
    norm = torch.rand(WIDTH, generator=g) + 0.5
    weights = Compressor(pack([kv.numpy()]), pack([gate.numpy()]), ape.numpy(), norm.numpy())
    return weights, [kv, gate, ape, norm]


def run(x: np.ndarray, ratio: int, finish: Finish, sizes: list[int]) -> np.ndarray:
    weights, _ = make(ratio)
    columns, overlap = weights.ape.shape[1], 2 if ratio == 4 else 1
    rings = [np.full((overlap * ratio + HEADROOM, columns), np.nan, np.float32) for _ in range(2)]
    rows = np.zeros((len(x) // ratio + 1, WIDTH), np.float32)
    turns = rope_turns(len(x), ROPE, 160000.0, None)
    start = 0
    while start < len(x):
        n = min(sizes[start % len(sizes)], len(x) - start)
        positions = np.arange(start, start + n)
        compress(
            x[start : start + n], positions, weights, turns, EPS, ratio, finish, *rings, rows, EXACT
        )
        start += n
    return rows[: len(x) // ratio]


@pytest.mark.parametrize("finish", ["plain", "fp8", "hadamard", "hadamard+fp4"])
@pytest.mark.parametrize(("ratio", "tokens"), [(4, 43), (128, 390)])
def test_rows(ratio: int, tokens: int, finish: Finish) -> None:
    x = np.random.default_rng(ratio).standard_normal((tokens, DIM)).astype(np.float32)
    _, (kv, gate, ape, norm) = make(ratio)
    turns = torch.from_numpy(rope_turns(tokens, ROPE, 160000.0, None))
    expected = reference(torch.from_numpy(x), kv, gate, ape, norm, turns, EPS, ratio, finish)
    single = run(x, ratio, finish, [1])
    # A last-bit difference may round to the next FP8 or FP4 value.
    assert_close("rows", expected, single, 3e-6 if finish in ("plain", "hadamard") else 5e-2)
    for sizes in ([5], [2, 7, 1], [32]):
        assert run(x, ratio, finish, sizes).tobytes() == single.tobytes(), sizes
