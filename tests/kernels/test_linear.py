"""Products: every element type against the reference, rows bit-exact, the batch path apart."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from kernels.cpu.panels import FP4_VALUES
from kernels.linear import linear, linear_norm, pack
from kernels.linear.reference import linear as reference
from kernels.mode import EXACT, Mode
from kernels.qkv.reference import rms_norm
from tests.kernels.closeness import assert_close, assert_rows_exact
from tests.kernels.products import elsewhere, product, rows

BATCH = Mode(batch=True, round_rows=True)
SHAPES = [(8, 64), (24, 1024), (33, 96), (64, 256), (100, 32), (129, 160), (200, 320)]
ODD = [(5, 123), (70, 1), (64, 6)]


def matrix(kind: str, outputs: int, inputs: int) -> tuple[object, torch.Tensor]:
    rng = np.random.default_rng([outputs, inputs])
    if kind in ("q8", "codes"):
        scales = (rng.random((outputs, inputs // 32)) / 99).astype(np.float16)
        values = rng.integers(-128, 128, (outputs, inputs)).astype(np.int8)
        packed = pack([(values, scales)])
        if kind == "codes":
            places = (values & 15).astype(np.uint8)
            values, packed = np.array(FP4_VALUES)[places], pack([(places, scales)])
        whole = values.reshape(outputs, -1, 32) * scales[..., None].astype(np.float64)
        return packed, torch.from_numpy(whole.reshape(outputs, inputs))
    values = rng.standard_normal((outputs, inputs)).astype(kind)
    return pack([values]), torch.from_numpy(values.astype(np.float64))


CASES = [(kind, *shape) for kind in ("q8", "codes", "float16", "float32") for shape in SHAPES]
CASES += [(kind, *shape) for kind in ("float16", "float32") for shape in ODD]


@pytest.mark.parametrize(("kind", "outputs", "inputs"), CASES)
def test_equals_reference_and_rows_are_exact(kind: str, outputs: int, inputs: int) -> None:
    weight, whole = matrix(kind, outputs, inputs)
    x = rows(17, inputs)
    y = np.full((18, outputs), 7, np.float32)
    linear(x, weight, y[:17], EXACT)
    assert_close("y", reference(torch.from_numpy(x).double(), whole), y[:17], 2e-6)
    assert (y[17] == 7).all()  # nothing is written beyond the rows
    assert_rows_exact(lambda part: [product(x[part], weight, EXACT)], 17)


@pytest.mark.parametrize("kind", ["q8", "float16", "float32"])
@pytest.mark.parametrize("outputs", [24, 96])
def test_batch_differs_by_the_rounding_of_rows(kind: str, outputs: int) -> None:
    weight, whole = matrix(kind, outputs, 256)
    x = rows(6, 256)
    exact, batch, reordered = (product(x, weight, m) for m in (EXACT, BATCH, Mode(batch=True)))
    half = torch.from_numpy(x).half().double()
    assert_close("rounded", reference(half, whole), batch, 2e-6)
    assert_close(
        "in another order", reference(torch.from_numpy(x).double(), whole), reordered, 2e-6
    )
    assert (batch != exact).mean() > 0.9
    assert (reordered != exact).any()


def test_batch_order_of_a_row_does_not_depend_on_the_batch() -> None:
    weight, _ = matrix("q8", 130, 256)
    x = rows(9, 256)
    assert_rows_exact(lambda part: [product(x[part], weight, BATCH)], 9)


@pytest.mark.parametrize(("bits", "error"), [(16, 4e-5), (8, 1e-2)])
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_fixed_point_rounds_rows_by_blocks(
    outputs: int, inputs: int, bits: Literal[8, 16], error: float
) -> None:
    weight, whole = matrix("q8", outputs, inputs)
    x = rows(9, inputs)
    x[3] = 0
    x[4, :32] *= 1e6
    y = product(x, weight, Mode(fixed=bits))
    expected = reference(torch.from_numpy(x).double(), whole)
    assert_close("y", expected[5:], y[5:], error)
    assert_close("outlier", expected[4:5], y[4:5], error)
    assert not y[3].any()
    assert_rows_exact(lambda part: [product(x[part], weight, Mode(fixed=bits))], 9)


def rounded(x: np.ndarray) -> np.ndarray:
    """Rows as 16-bit fixed point holds them, in double precision."""
    blocks = x.reshape(len(x), -1, 32)
    largest = np.abs(blocks).max(-1, keepdims=True)
    integers = np.rint(blocks * (np.float32(32639) / largest))
    return (integers * (largest.astype(np.float64) / 32639)).reshape(x.shape)


def test_fixed_point_of_16_bits_is_what_it_says() -> None:
    weight, whole = matrix("q8", 96, 160)
    x = rows(5, 160)
    y = product(x, weight, Mode(fixed=16))
    assert_close("y", torch.from_numpy(rounded(x)) @ whole.T, y, 4e-7)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_fixed_point_hides_no_bad_number(bad: float) -> None:
    weight, _ = matrix("q8", 96, 64)
    x = rows(3, 64)
    x[1, 40] = bad
    y = product(x, weight, Mode(fixed=16))
    assert not np.isfinite(y[1]).any()
    assert np.isfinite(y[[0, 2]]).all()


def sixteen_bits() -> np.ndarray:
    return product(rows(7, 256), matrix("q8", 130, 256)[0], Mode(fixed=16))


def test_fixed_point_of_16_bits_is_the_same_without_dot_products_of_bytes() -> None:
    assert elsewhere("test_linear", "sixteen_bits") == sixteen_bits().tobytes()


def test_fixed_point_leaves_other_types_alone() -> None:
    weight, _ = matrix("float16", 40, 64)
    x = rows(3, 64)
    assert (product(x, weight, EXACT) == product(x, weight, Mode(fixed=16))).all()


def test_norm_follows_the_product() -> None:
    weight, whole = matrix("float32", 96, 64)
    x, norm = rows(3, 64), rows(1, 96)[0]
    y = np.zeros((3, 96), np.float32)
    linear_norm(x, weight, norm, 1e-6, y, EXACT)
    product = reference(torch.from_numpy(x), whole.float())
    assert_close("y", rms_norm(product, torch.from_numpy(norm), 1e-6), y, 2e-6)


def test_pack_refuses_what_it_cannot_lay_out() -> None:
    good = np.zeros((4, 64), np.float32)
    with pytest.raises(ValueError, match="float16 or float32, found float64"):
        pack([good.astype(np.float64)])
    with pytest.raises(ValueError, match="one shape"):
        pack([good, good[:2]])
    with pytest.raises(ValueError, match="scales of shape"):
        pack([(good.astype(np.int8), np.zeros((4, 3), np.float16))])
    with pytest.raises(ValueError, match="float16 scales, found float32"):
        pack([(good.astype(np.int8), np.zeros((4, 2), np.float32))])
    with pytest.raises(ValueError, match="blocks of 32"):
        pack([(np.zeros((4, 48), np.int8), np.zeros((4, 1), np.float16))])
