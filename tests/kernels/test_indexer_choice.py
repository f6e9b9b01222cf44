"""The Triton choice of the best scores against the readable one: ties, extremes, parts, rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.kernels.interpreted import CUDA, on_device, poisoned  # isort: skip

from kernels.indexer import triton_kernel as kernels
from kernels.indexer.reference import select

pytestmark = pytest.mark.gpu if CUDA else []

RATIO = 4
INF = float("inf")


def choose(scores: torch.Tensor, counts: list[int], k: int) -> list[torch.Tensor]:
    """(n, capacity) scores, of which row r has counts[r]: selected, counts and gaps."""
    n = len(counts)
    found = [
        poisoned(n, k, dtype=torch.int32),
        poisoned(n, dtype=torch.int32),
        poisoned(n),
    ]
    positions = on_device(np.array([RATIO * count + 1 for count in counts]))
    size = kernels.part_size(scores.shape[1], k)
    whole = poisoned(n, -(-scores.shape[1] // size) * size)
    whole[:, : scores.shape[1]] = on_device(scores)
    kernels.choose_rows(whole, positions, RATIO, k, size, *found)
    return [tensor.cpu() for tensor in found]


def assert_chosen(scores: torch.Tensor, counts: list[int], k: int) -> None:
    """Every row's choice, gap and count are the reference's."""
    selected, chosen, gaps = choose(scores, counts, k)
    for r, count in enumerate(counts):
        if count <= k:
            assert (chosen[r], gaps[r]) == (-1, INF), r
            continue
        assert chosen[r] == k
        seen = scores[r, :count]
        assert selected[r].tolist() == select(seen, k).tolist(), (r, count)
        ordered = seen.sort(descending=True).values
        if ordered[k - 1].isfinite() and ordered[k].isfinite():
            assert gaps[r] == ordered[k - 1] - ordered[k], (r, count)


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


@pytest.mark.parametrize("part", [4096, 16], ids=["one part", "parts"])
@pytest.mark.parametrize(("k", "count"), [(1, 39), (6, 39), (6, 33), (6, 32), (6, 7), (6, 6)])
def test_choices(part: int, k: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PART", part)
    rows = kinds(39)
    assert_chosen(rows, [count] * len(rows), k)


def test_choices_from_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PART", 16)
    rows = kinds(125)[:6]
    assert_chosen(rows, [125, 97, 96, 65, 64, 33], 6)


@pytest.mark.parametrize("capacity", [3, 513, 16641, 32768, 262145])
@pytest.mark.parametrize("k", [1, 512, 1024])
def test_parts_keep_no_more_than_one_part_holds(capacity: int, k: int) -> None:
    size = kernels.part_size(capacity, k)
    assert size > k
    assert -(-capacity // size) * k <= size


def test_rows_of_a_batch_choose_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PART", 16)
    rows, counts = kinds(50), [3, 20, 50, 17, 48, 4]
    alone = [choose(rows[r : r + 1], counts[r : r + 1], 4) for r in range(6)]
    for n in range(2, 7):
        selected, chosen, gaps = choose(rows[:n], counts[:n], 4)
        for r in range(n):
            assert torch.equal(chosen[r : r + 1], alone[r][1])
            if counts[r] > 4:
                assert torch.equal(selected[r], alone[r][0][0])
                assert torch.equal(gaps[r : r + 1], alone[r][2])


def test_equal_scores_across_parts_take_the_lower_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PART", 8)
    scores = torch.zeros(1, 40)
    scores[0, [3, 20, 39]] = 1.0
    scores[0, 5:38:2] = torch.where(scores[0, 5:38:2] > 0, 1.0, 0.5)  # 17 ties, in every part
    selected, counts, gaps = choose(scores, [40], 6)
    assert selected.tolist() == [[3, 5, 7, 9, 20, 39]]
    assert (counts.tolist(), gaps.tolist()) == ([6], [0.0])


def test_a_large_part_of_equal_scores_writes_its_own_rows_only() -> None:
    size, k = kernels.part_size(262145, 1024), 6
    around = poisoned(2 * size + k, dtype=torch.int32)
    selected = around[size + 2 : size + 2 + k].view(1, k)
    positions = on_device(np.array([RATIO * size + 1]))
    kernels.choose_rows(
        on_device(torch.zeros(1, size)), positions, RATIO, k, size, selected,
        poisoned(1, dtype=torch.int32), poisoned(1),
    )  # fmt: skip
    assert selected.tolist() == [list(range(k))]
    assert around.ne(-7).sum() == k


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
@pytest.mark.parametrize("capacity", [2300, 16384, 16641, 40000, 140000])
def test_choices_at_real_size(capacity: int) -> None:
    rows = kinds(capacity)
    for first in (0, 6):
        counts = [capacity, min(4097, capacity), capacity - 1, 513, 512, capacity // 2 + 3]
        assert_chosen(rows[first : first + 6], counts, 512)
