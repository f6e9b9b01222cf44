"""Queries and key-value rows against the reference, rows bit-exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.rope import rope_turns
from kernels.linear import pack
from kernels.mode import EXACT
from kernels.qkv import Qkv, Rounding, kv_rows, qkv
from kernels.qkv import reference as ref
from tests.kernels.closeness import assert_close, assert_rows_exact

DIM, RANK, HEADS, EPS = 64, 48, 3, 1e-6


def make(width: int) -> tuple[Qkv, list[torch.Tensor]]:
    g = torch.Generator().manual_seed(width)
    q_a = torch.randn(RANK, DIM, generator=g) / 8
    q_b = torch.randn(HEADS * width, RANK, generator=g) / 7
    kv = torch.randn(width, DIM, generator=g) / 8
    q_norm, kv_norm = torch.rand(RANK, generator=g) + 0.5, torch.rand(width, generator=g) + 0.5
    packed = [pack([t.numpy()]) for t in (q_a, q_b, kv)]
    weights = Qkv(packed[0], q_norm.numpy(), packed[1], packed[2], kv_norm.numpy())
    return weights, [q_a, q_norm, q_b, kv, kv_norm]


@pytest.mark.parametrize("rounding", ["none", "fp8", "fp8+f16"])
@pytest.mark.parametrize(("width", "rope"), [(64, 32), (128, 64), (96, 16), (32, 6)])
def test_projections(width: int, rope: int, rounding: Rounding) -> None:
    weights, (q_a, q_norm, q_b, kv, kv_norm) = make(width)
    turns = rope_turns(300, rope, 10000.0, None)
    x = np.random.default_rng(1).standard_normal((7, DIM)).astype(np.float32)
    positions = np.arange(250, 257)

    def run(part: slice) -> list[np.ndarray]:
        n = part.stop - part.start
        qr, q = np.zeros((n, RANK), np.float32), np.zeros((n, HEADS * width), np.float32)
        ring = np.zeros((40, width), np.float32)
        at = positions[part]
        qkv(x[part], at, weights, turns, EPS, HEADS, rounding, qr, q, ring, 3, EXACT)
        only = np.zeros((40, width), np.float32)
        kv_rows(x[part], at, weights, turns, EPS, rounding, only)
        assert only[at % 40].tobytes() == ring[(at - 3) % 40].tobytes()
        return [qr, q, ring[(at - 3) % 40]]

    qr, q, rows = run(slice(0, 7))
    own = torch.from_numpy(turns[positions])
    inputs = torch.from_numpy(x)
    expected_qr, expected_q = ref.queries(inputs, q_a, q_norm, q_b, own, HEADS, EPS)
    assert_close("qr", expected_qr, qr, 2e-6)
    assert_close("q", expected_q.flatten(1), q, 2e-6)
    expected = ref.kv_rows(inputs, kv, kv_norm, own, EPS, rounding == "fp8+f16")
    if rounding == "fp8":
        assert_close("rotated part", expected[:, width - rope :], rows[:, width - rope :], 1e-3)
    else:
        # A last-bit difference may round to the next FP8 value.
        assert_close("rows", expected, rows, 3e-6 if rounding == "none" else 2e-2)
    assert_rows_exact(run, 7)


def test_rotation_back_is_the_inverse() -> None:
    turns = torch.from_numpy(rope_turns(50, 32, 160000.0, None)[40:44])
    x = torch.randn(4, 2, 64)
    assert torch.allclose(ref.rotate(ref.rotate(x, turns), turns, -1), x, atol=1e-6)
