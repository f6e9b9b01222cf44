"""The Triton choice of the best scores against the readable one: ties, extremes, bounds, rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.kernels.interpreted import CUDA, on_device, poisoned  # isort: skip

from kernels.indexer import triton_kernel as kernels

pytestmark = pytest.mark.gpu if CUDA else []

RATIO = 4
INF = float("inf")
LOWEST = -(1 << 31)
TINY = torch.finfo(torch.float32).tiny


def ranks_of(scores: torch.Tensor) -> torch.Tensor:
    """int32 in the order of floats."""
    bits = torch.where(scores == 0, 0.0, scores).view(torch.int32)
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def bounds_of(ranks: torch.Tensor, k: int) -> torch.Tensor:
    """Of every group of one row's ranks, the one that its share of k + 1 reach, if there is one."""
    live = -(-len(ranks) // kernels.KEYS)
    share = -(-(k + 1) // live)
    found = [ranks[g::live].sort(descending=True).values for g in range(live)]
    return torch.tensor([int(f[share - 1]) if share <= len(f) else LOWEST for f in found])


def choose(
    scores: torch.Tensor, counts: list[int], k: int, bounded: bool = True
) -> list[torch.Tensor]:
    """(n, capacity) scores, of which row r has counts[r]: selected, counts and gaps."""
    n, capacity = scores.shape
    ranks = ranks_of(scores)
    bounds = poisoned(n, -(-capacity // kernels.KEYS), dtype=torch.int32)
    for r, count in enumerate(counts):
        found = bounds_of(ranks[r, :count], k)
        bounds[r, : len(found)] = on_device(found) if bounded else LOWEST
        ranks[r, count:] = 1 << 30  # not this row's
    found = [poisoned(n, k, dtype=torch.int32), poisoned(n, dtype=torch.int32), poisoned(n)]
    found[2].zero_()
    positions = on_device(np.array([RATIO * count + 1 for count in counts]))
    listed = torch.zeros_like(found[1])
    kernels.choose_rows(on_device(ranks), bounds, listed, positions, RATIO, k, *found)
    return [tensor.cpu() for tensor in found]


def assert_chosen(scores: torch.Tensor, counts: list[int], k: int, bounded: bool = True) -> None:
    """Every row's choice, gap and count are right: the best first, ties by index."""
    selected, chosen, gaps = choose(scores, counts, k, bounded)
    for r, count in enumerate(counts):
        if count <= k:
            assert (chosen[r], gaps[r]) == (-1, INF), r
            continue
        assert chosen[r] == k
        seen = scores[r, :count].sort(descending=True, stable=True)
        assert selected[r].tolist() == seen.indices[:k].tolist(), (r, count)
        worst, behind = seen.values[k - 1], seen.values[k]
        if worst.isfinite() and behind.isfinite():
            # A GPU adds in memory without numbers below the least normal one.
            assert abs(gaps[r] - (worst - behind)) <= (TINY if CUDA else 0), (r, count)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few scores a program that small rows take several, and loops."""
    sizes = {"KEYS": 4, "LISTED": 8, "OTHERS": 8, "PROGRAMS": 2, "OF_SEVERAL": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(kernels, name, value)


def kinds(capacity: int) -> torch.Tensor:
    """Rows of scores that are hard to choose from."""
    g = torch.Generator().manual_seed(capacity)
    normal = torch.randn(capacity, generator=g)
    few = torch.randint(-2, 3, (capacity,), generator=g).float()
    return torch.stack(
        [
            normal,
            few,
            torch.full((capacity,), 0.75),
            torch.where(normal > 0, 0.0, -0.0),
            torch.where(torch.arange(capacity) == capacity // 2, 3e38, few),
            torch.where(few == 2, float("nan"), normal),
            torch.where(few > 0, INF, torch.where(few < 0, -INF, normal)),
            -normal.abs(),
            normal * 1e-38,
            normal * 10.0 ** torch.randint(-30, 30, (capacity,), generator=g),
            (torch.arange(capacity).flip(0) + 0x3F800000).int().view(torch.float32),
            torch.arange(capacity).float(),
        ]
    )


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize(("k", "count"), [(1, 39), (6, 39), (6, 33), (6, 7), (6, 6)])
def test_choices(k: int, count: int, bounded: bool) -> None:
    rows = kinds(39)
    assert_chosen(rows, [count] * len(rows), k, bounded)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("k", [1, 6])
def test_choices_from_many_groups(k: int, bounded: bool, small: None) -> None:
    rows = kinds(125)
    counts = [125, 97, 96, 65, 64, 33, 32, 31, 8, 7, 6, 1]
    assert_chosen(rows, counts, k, bounded)


def test_rows_of_a_batch_choose_for_themselves(small: None) -> None:
    rows, counts = kinds(50), [3, 20, 50, 17, 48, 4]
    alone = [choose(rows[r : r + 1], counts[r : r + 1], 4) for r in range(6)]
    for n in range(2, 7):
        selected, chosen, gaps = choose(rows[:n], counts[:n], 4)
        for r in range(n):
            assert torch.equal(chosen[r : r + 1], alone[r][1])
            if counts[r] > 4:
                assert torch.equal(selected[r], alone[r][0][0])
                assert torch.equal(gaps[r : r + 1], alone[r][2])


def test_equal_scores_across_groups_take_the_lower_rows(small: None) -> None:
    scores = torch.zeros(1, 40)
    scores[0, [3, 20, 39]] = 1.0
    scores[0, 5:38:2] = torch.where(scores[0, 5:38:2] > 0, 1.0, 0.5)  # 17 ties, in every group
    selected, counts, gaps = choose(scores, [40], 6)
    assert selected.tolist() == [[3, 20, 39, 5, 7, 9]]
    assert (counts.tolist(), gaps.tolist()) == ([6], [0.0])


def test_rows_write_their_own_choice_only(small: None) -> None:
    k, count = 6, 40
    around = poisoned(3, k, dtype=torch.int32)
    listed = torch.zeros_like(around[0, :1])
    bounds = torch.full((1, 10), LOWEST, dtype=torch.int32, device=around.device)
    kernels.choose_rows(
        on_device(ranks_of(torch.zeros(1, count))), bounds, listed,
        on_device(np.array([RATIO * count + 1])), RATIO, k, around[1:2],
        poisoned(1, dtype=torch.int32), torch.zeros(1, device=around.device),
    )  # fmt: skip
    assert around[1].tolist() == list(range(k))
    assert around.ne(-7).sum() == k


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("capacity", [2300, 16384, 16641, 40000, 140000])
def test_choices_at_real_size(capacity: int, bounded: bool) -> None:
    rows = kinds(capacity)
    for first in (0, 6):
        counts = [capacity, min(4097, capacity), capacity - 1, 513, 512, capacity // 2 + 3]
        assert_chosen(rows[first : first + 6], counts, 512, bounded)
