"""Routing against the reference: top-k, ties, hash tables, forced experts; rows bit-exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.linear import pack
from kernels.mode import EXACT
from kernels.router import Router, route
from kernels.router.reference import route as reference
from tests.kernels.closeness import assert_close, assert_rows_exact

DIM = 40


def run(
    x: np.ndarray, gate: np.ndarray, bias: np.ndarray, k: int,
    table: np.ndarray | None = None, ids: np.ndarray | None = None,
    forced: np.ndarray | None = None,
) -> list[np.ndarray]:  # fmt: skip
    n = len(x)
    table = np.zeros((0, 0), np.int32) if table is None else table
    weights = Router(pack([gate]), bias, table)
    experts, out = np.zeros((n, k), np.int32), np.zeros((n, k), np.float32)
    gaps = np.zeros(n, np.float32)
    route(
        x, np.zeros(n, np.int64) if ids is None else ids, weights,
        np.full((n, k), -1, np.int32) if forced is None else forced, 1.5, experts, out, gaps,
        np.arange(n), EXACT,
    )  # fmt: skip
    return [experts, out, gaps]


@pytest.mark.parametrize(("experts", "k"), [(16, 4), (8, 2), (4, 4), (70, 6)])
def test_top_k(experts: int, k: int) -> None:
    rng = np.random.default_rng(experts)
    x = rng.standard_normal((9, DIM)).astype(np.float32) * 3
    gate = rng.standard_normal((experts, DIM)).astype(np.float32)
    bias = rng.standard_normal(experts).astype(np.float32)
    chosen, weights, gaps = run(x, gate, bias, k)
    expected, expected_weights = reference(
        torch.from_numpy(x), torch.from_numpy(gate), torch.from_numpy(bias), k, 1.5
    )
    assert (chosen == expected.numpy()).all()
    assert_close("weights", expected_weights, weights, 2e-6)
    assert np.isinf(gaps).all() == (experts == k)
    assert (gaps > 0).all()
    assert_rows_exact(lambda part: run(x[part], gate, bias, k), 9)


def test_ties_go_to_the_lower_expert() -> None:
    chosen, weights, gaps = run(
        np.ones((1, DIM), np.float32), np.zeros((8, DIM), np.float32), np.zeros(8, np.float32), 3
    )
    assert chosen.tolist() == [[0, 1, 2]]
    assert np.allclose(weights, 0.5)
    assert gaps[0] == 0


def test_table_and_forced_experts_override_the_scores() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, DIM)).astype(np.float32)
    gate = rng.standard_normal((8, DIM)).astype(np.float32)
    table = np.array([[7, 2], [0, 5], [3, 1]], np.int32)
    none = np.zeros(0, np.float32)
    chosen, weights, gaps = run(x, gate, none, 2, table, np.array([2, 0, 1]))
    assert chosen.tolist() == [[1, 3], [2, 7], [0, 5]]
    assert np.isinf(gaps).all()
    _, expected = reference(
        torch.from_numpy(x), torch.from_numpy(gate), torch.zeros(8), 2, 1.5,
        torch.from_numpy(chosen.astype(np.int64)),
    )  # fmt: skip
    assert_close("weights", expected, weights, 2e-6)
    forced = np.array([[6, 4], [-1, -1], [2, 3]], np.int32)
    chosen, _, _ = run(x, gate, none, 2, table, np.array([2, 0, 1]), forced)
    assert chosen.tolist() == [[4, 6], [2, 7], [2, 3]]


def test_vanishing_scores_are_divided_by_the_floor() -> None:
    gate = np.full((4, DIM), -10, np.float32)
    _, weights, _ = run(np.ones((1, DIM), np.float32), gate, np.zeros(4, np.float32), 2)
    assert np.isfinite(weights).all()
    assert weights.max() < 1e-3


def test_a_table_may_name_an_expert_twice() -> None:
    table = np.array([[3, 3]], np.int32)
    chosen, weights, _ = run(
        np.ones((1, DIM), np.float32), np.zeros((4, DIM), np.float32), np.zeros(0, np.float32), 2,
        table, np.zeros(1, np.int64),
    )  # fmt: skip
    assert chosen.tolist() == [[3, 3]]
    assert np.allclose(weights, 0.75)
