"""Hyper-connections against the reference, rows bit-exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.hyper_connections import HyperConnection, hc_head, hc_post, hc_pre, stream_mean
from kernels.hyper_connections import reference as ref
from kernels.linear import pack
from kernels.mode import EXACT, Mode
from kernels.qkv.reference import rms_norm
from tests.kernels.closeness import assert_close, assert_rows_exact

EPS, HC_EPS, ROUNDS = 1e-6, 1e-6, 20


def make(width: int, mixes: int, scales: int) -> tuple[HyperConnection, list[torch.Tensor]]:
    g = torch.Generator().manual_seed(width)
    fn = torch.randn(mixes, 4 * width, generator=g) / (4 * width) ** 0.5
    base = torch.randn(mixes, generator=g)
    scale = torch.rand(scales, generator=g) + 0.5
    weights = HyperConnection(pack([fn.numpy()]), base.numpy(), scale.numpy())
    return weights, [fn, base, scale]


@pytest.mark.parametrize("width", [32, 40, 256])
def test_pre_and_post(width: int) -> None:
    weights, tensors = make(width, 24, 3)
    rows = 9
    streams = torch.randn(rows, 4, width, generator=torch.Generator().manual_seed(1))
    norm = torch.rand(width) + 0.5
    flat = streams.reshape(rows, -1).numpy()

    def run(part: slice) -> list[np.ndarray]:
        n = part.stop - part.start
        x, post, comb = (np.zeros((n, size), np.float32) for size in (width, 4, 16))
        positions = np.arange(n)
        hc_pre(
            flat[part], weights, norm.numpy(), EPS, HC_EPS, ROUNDS, x, post, comb, positions, EXACT
        )
        mixed = flat[part].copy()
        hc_post(x, post, comb, HC_EPS, ROUNDS, mixed)
        return [x, post, comb, mixed]

    x, post, comb, mixed = run(slice(0, rows))
    collapsed, expected_post, expected_comb = ref.hc_pre(streams, *tensors, EPS, HC_EPS, ROUNDS)
    expected_x = rms_norm(collapsed, norm, EPS)
    assert_close("x", expected_x, x, 2e-6)
    assert_close("post", expected_post, post, 2e-6)
    assert_close("comb", expected_comb.flatten(1), comb, 2e-6)
    # Doubly stochastic, up to the epsilon of the last normalisation.
    assert np.allclose(comb.reshape(-1, 4, 4).sum(1), 1, atol=1e-4)
    expected = ref.hc_post(expected_x, streams, expected_post, expected_comb)
    assert_close("streams", expected.flatten(1), mixed, 2e-6)
    assert_rows_exact(run, rows)


def test_one_round_is_the_softmax_and_one_column_normalisation() -> None:
    weights, tensors = make(32, 24, 3)
    streams = torch.randn(1, 4, 32)
    x, post, comb = (np.zeros((1, size), np.float32) for size in (32, 4, 16))
    hc_pre(
        streams.reshape(1, -1).numpy(), weights, np.ones(32, np.float32), EPS, HC_EPS, 1, x, post,
        comb, np.zeros(1, np.int64), EXACT,
    )  # fmt: skip
    assert_close("comb", ref.hc_pre(streams, *tensors, EPS, HC_EPS, 1)[2].flatten(1), comb, 2e-6)


def test_head_and_mean() -> None:
    weights, tensors = make(48, 4, 1)
    streams = torch.randn(5, 4, 48, generator=torch.Generator().manual_seed(2))
    flat = streams.reshape(5, -1).numpy()

    def run(part: slice) -> list[np.ndarray]:
        n = part.stop - part.start
        x, mean = np.zeros((n, 48), np.float32), np.zeros((n, 100), np.float32)
        hc_head(flat[part], weights, EPS, HC_EPS, x, np.arange(n), EXACT)
        stream_mean(flat[part], mean, 48)
        return [x, mean]

    x, mean = run(slice(0, 5))
    assert_close("x", ref.hc_head(streams, *tensors, EPS, HC_EPS), x, 2e-6)
    assert_close("mean", streams.mean(1), mean[:, 48:96], 1e-6)
    assert not mean[:, :48].any()
    assert not mean[:, 96:].any()
    assert_rows_exact(run, 5)


def test_batch_rounds_the_normed_streams() -> None:
    weights, _ = make(64, 24, 3)
    streams = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
    found = []
    for mode in (EXACT, Mode(batch=True, round_rows=True)):
        x, post, comb = (np.zeros((3, size), np.float32) for size in (64, 4, 16))
        hc_pre(
            streams, weights, np.ones(64, np.float32), EPS, HC_EPS, ROUNDS, x, post, comb,
            np.arange(3), mode,
        )  # fmt: skip
        found.append(x)
    assert 0 < np.abs(found[0] - found[1]).max() < 1e-2
