"""Roundings of stored rows, bit for bit: E4M3 values, midpoints, neighbours; FP4; Hadamard."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels import rounding
from kernels.rounding import reference
from tests.kernels.closeness import assert_close


def e4m3_values() -> np.ndarray:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    return codes[codes.isfinite()].unique().numpy()


def test_e4m3_is_torchs_for_every_value_midpoint_and_neighbour() -> None:
    values = e4m3_values()
    middles = (values[1:] + values[:-1]) / 2
    dense = np.linspace(-448, 448, 100001, dtype=np.float32)
    tiny = np.arange(-96, 97, dtype=np.float32) * np.float32(2.0**-12)
    all_of = np.concatenate([values, middles, dense, tiny])
    near = [np.nextafter(all_of, np.float32(s)) for s in (-np.inf, np.inf)]
    cases = np.clip(np.concatenate([all_of, *near]), -448, 448).astype(np.float32)
    # 448 beside each case makes the block's scale 1.
    rows = np.stack([np.full_like(cases, 448), cases], 1)
    expected = torch.from_numpy(rows.copy()).to(torch.float8_e4m3fn).float().numpy()
    rounding.fp8_blocks(rows)
    assert rows.tobytes() == expected.tobytes()


def rows_of_all_sizes(width: int) -> np.ndarray:
    rng = np.random.default_rng(width)
    rows = rng.standard_normal((300, width)) * np.exp(rng.standard_normal((300, 1)) * 6)
    rows[0] = 0
    rows[1] *= 1e-30
    rows[2, ::2] = 448 * 2.0 ** (np.arange(len(rows[2, ::2])) % 5)
    return rows.astype(np.float32)


@pytest.mark.parametrize("width", [32, 64, 96, 128, 448])
def test_fp8_blocks_equal_reference(width: int) -> None:
    rows = rows_of_all_sizes(width)
    expected = reference.fp8_blocks(torch.from_numpy(rows.copy()))
    rounding.fp8_blocks(rows)
    assert rows.tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize("width", [32, 64, 128])
def test_fp4_blocks_equal_reference(width: int) -> None:
    rows = rows_of_all_sizes(width)
    expected = reference.fp4_blocks(torch.from_numpy(rows.copy()))
    rounding.fp4_blocks(rows)
    assert rows.tobytes() == expected.numpy().tobytes()


def test_fp4_ties_go_to_the_even_code() -> None:
    rows = np.array([[6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.25, -5, -2.5, 9]], np.float32)
    rows[:, :11] *= 2  # 9 > 6 makes the scale 2; the others are ties at it
    rounding.fp4_blocks(rows)
    assert rows[0].tolist() == [12, 0, 2, 2, 4, 4, 8, 8, -0.0, -8, -4, 8]


def test_half_rounds_to_nearest() -> None:
    rows = rows_of_all_sizes(96)[10:] % 1000
    expected = rows.astype(np.float16).astype(np.float32)
    rounding.half(rows)
    assert rows.tobytes() == expected.tobytes()


@pytest.mark.parametrize("width", [2, 8, 16, 32, 64, 128, 256])
def test_hadamard_is_orthonormal_and_its_own_inverse(width: int) -> None:
    rows = np.random.default_rng(0).standard_normal((5, width)).astype(np.float32)
    found = rows.copy()
    rounding.hadamard(found)
    assert_close("hadamard", reference.hadamard(torch.from_numpy(rows)), found, 1e-6)
    rounding.hadamard(found)
    assert_close("back", torch.from_numpy(rows), found, 1e-6)


def test_hadamard_refuses_other_widths() -> None:
    with pytest.raises(ValueError, match="found 96"):
        rounding.hadamard(np.zeros((1, 96), np.float32))


def test_nan_stays_nan() -> None:
    for apply in (rounding.fp8_blocks, rounding.fp4_blocks, rounding.half):
        rows = np.ones((1, 64), np.float32)
        rows[0, 5] = np.nan
        apply(rows)
        assert np.isnan(rows[0, 5])
