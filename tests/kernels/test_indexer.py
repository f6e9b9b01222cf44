"""Selection of compressed rows: each row by its own count, ties to the lower index."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.rope import rope_turns
from kernels.indexer import Indexer, select_rows
from kernels.indexer.reference import index_scores, select
from kernels.linear import pack
from kernels.mode import EXACT, Mode
from kernels.qkv.reference import rotate
from kernels.rounding.reference import fp4_blocks, hadamard
from tests.kernels.closeness import assert_rows_exact

DIM, RANK, WIDTH, RATIO, ROPE = 32, 64, 64, 4, 32


def make(heads: int) -> tuple[Indexer, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(heads)
    q_b = torch.randn(heads * WIDTH, RANK, generator=g) / 8
    proj = torch.randn(heads, DIM, generator=g) / 6
    return Indexer(pack([q_b.numpy()]), pack([proj.numpy()])), q_b, proj


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(("heads", "k"), [(8, 5), (32, 16), (3, 1)])
def test_selection(heads: int, k: int, rounded: bool) -> None:
    weights, q_b, proj = make(heads)
    rng = np.random.default_rng(k)
    rows = 13
    positions = np.arange(4 * k - 3, 4 * k - 3 + rows)  # counts from k - 1 up
    x = rng.standard_normal((rows, DIM)).astype(np.float32)
    qr = rng.standard_normal((rows, RANK)).astype(np.float32)
    index = rng.standard_normal((60, WIDTH)).astype(np.float32)
    if rounded:
        index = fp4_blocks(torch.from_numpy(index)).numpy()
    turns = rope_turns(200, ROPE, 160000.0, None)

    def run(part: slice, mode: Mode = EXACT) -> list[np.ndarray]:
        n = part.stop - part.start
        selected, counts = np.zeros((n, k), np.int32), np.zeros(n, np.int32)
        gaps = np.zeros(n, np.float32)
        select_rows(
            x[part], qr[part], positions[part], weights, turns, heads, RATIO, k, rounded, index,
            selected, counts, gaps, mode,
        )  # fmt: skip
        return [selected, counts, gaps]

    selected, counts, gaps = run(slice(0, rows))
    for r, position in enumerate(positions):
        visible = (position + 1) // RATIO
        if visible <= k:
            assert counts[r] == -1
            assert np.isinf(gaps[r])
            continue
        q = rotate((torch.from_numpy(qr[r]) @ q_b.T).view(1, heads, WIDTH),
                   torch.from_numpy(turns[position])[None])[0]  # fmt: skip
        q = fp4_blocks(hadamard(q)) if rounded else hadamard(q)
        head_weights = torch.from_numpy(x[r]) @ proj.T
        scores = index_scores(q, head_weights, torch.from_numpy(index[:visible]))
        ordered = scores.sort(descending=True).values
        assert counts[r] == k
        if ordered[k - 1] - ordered[k] > 1e-4:
            assert selected[r].tolist() == select(scores, k).tolist()
            assert abs(gaps[r] - float(ordered[k - 1] - ordered[k])) < 1e-4
    assert (counts > 0).any()
    assert_rows_exact(run, rows)
    if not rounded:
        batch = run(slice(0, rows), Mode(batch=True, round_rows=True))
        assert (batch[1] == counts).all()


def test_ties_go_to_the_lower_index() -> None:
    weights, _, _ = make(8)
    index = np.zeros((40, WIDTH), np.float32)  # all scores are 0
    selected, counts = np.zeros((1, 7), np.int32), np.zeros(1, np.int32)
    gaps = np.ones(1, np.float32)
    select_rows(
        np.ones((1, DIM), np.float32), np.ones((1, RANK), np.float32), np.array([159]), weights,
        rope_turns(200, ROPE, 160000.0, None), 8, RATIO, 7, False, index, selected, counts, gaps,
        EXACT,
    )  # fmt: skip
    assert selected[0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert gaps[0] == 0
