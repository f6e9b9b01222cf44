"""Expert sums against the reference, whoever else is in the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.experts import Experts, mix_experts
from kernels.experts.reference import mix
from kernels.linear import pack
from kernels.mode import EXACT, Mode
from tests.kernels.closeness import assert_close, assert_rows_exact


@pytest.mark.parametrize("clamp", [0.5, float("inf")])
@pytest.mark.parametrize(("experts", "k", "width", "hidden"), [(8, 3, 48, 40), (1, 1, 64, 32)])
def test_mix(experts: int, k: int, width: int, hidden: int, clamp: float) -> None:
    g = torch.Generator().manual_seed(experts)
    gates, ups = (torch.randn(experts, hidden, width, generator=g) / 5 for _ in range(2))
    downs = torch.randn(experts, width, hidden, generator=g) / 5
    both = torch.cat([gates, ups], 1)
    weights = Experts(pack(list(both.numpy())), pack(list(downs.numpy())))
    rows = 9
    x = torch.randn(rows, width, generator=g)
    rng = np.random.default_rng(k)
    chosen = np.stack([np.sort(rng.permutation(experts)[:k]) for _ in range(rows)])
    chosen = chosen.astype(np.int32)
    factors = rng.random((rows, k)).astype(np.float32)

    def run(part: slice, mode: Mode = EXACT) -> list[np.ndarray]:
        y = np.ones((part.stop - part.start, width), np.float32)
        positions = np.arange(rows)[part]
        arguments = (x.numpy()[part], chosen[part], factors[part], weights, clamp)
        mix_experts(*arguments, y, False, positions, mode)
        added = np.ones_like(y)
        mix_experts(*arguments, added, True, positions, mode)
        assert added.tobytes() == (y + 1).tobytes()
        return [y]

    (y,) = run(slice(0, rows))
    expected = mix(
        x, torch.from_numpy(chosen.astype(np.int64)), torch.from_numpy(factors), gates, ups, downs,
        clamp,
    )  # fmt: skip
    assert_close("y", expected, y, 3e-6)
    assert_rows_exact(run, rows)
    (batch,) = run(slice(0, rows), Mode(batch=True, round_rows=True))
    assert_close("batch", expected, batch, 2e-3)
    assert (batch != y).any()


def test_a_row_may_name_an_expert_twice() -> None:
    g = torch.Generator().manual_seed(3)
    both, downs = torch.randn(4, 80, 48, generator=g), torch.randn(4, 48, 40, generator=g)
    weights = Experts(pack(list(both.numpy())), pack(list(downs.numpy())))
    x = torch.randn(1, 48, generator=g).numpy()

    def run(*experts: int) -> np.ndarray:
        chosen = np.array([experts], np.int32)
        y, factors = np.zeros((1, 48), np.float32), np.ones(chosen.shape, np.float32)
        mix_experts(x, chosen, factors, weights, 10.0, y, False, np.zeros(1, np.int64), EXACT)
        return y

    assert_close("y", torch.from_numpy(2 * run(1) + run(3)), run(1, 1, 3), 1e-6)
