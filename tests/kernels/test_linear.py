"""Products: every element type against the reference, rows bit-exact, the batch path apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.linear import fixed_point_copy, linear, linear_norm, pack
from kernels.linear.reference import linear as reference
from kernels.mode import EXACT, Mode
from kernels.qkv.reference import rms_norm
from tests.kernels.closeness import assert_close, assert_rows_exact

BATCH = Mode(batch=True, round_rows=True)
SHAPES = [(8, 64), (24, 1024), (33, 96), (64, 256), (100, 32), (129, 160), (200, 320)]
ODD = [(5, 123), (70, 1), (64, 6)]


def matrix(kind: str, outputs: int, inputs: int) -> tuple[object, torch.Tensor]:
    rng = np.random.default_rng([outputs, inputs])
    if kind == "q8":
        values = rng.integers(-128, 128, (outputs, inputs)).astype(np.int8)
        scales = rng.random((outputs, inputs // 32)).astype(np.float16).astype(np.float32) / 99
        whole = values.reshape(outputs, -1, 32) * scales[..., None].astype(np.float64)
        return pack([(values, scales)]), torch.from_numpy(whole.reshape(outputs, inputs))
    values = rng.standard_normal((outputs, inputs)).astype(kind)
    return pack([values]), torch.from_numpy(values.astype(np.float64))


def fixed(outputs: int, inputs: int) -> tuple[object, object, torch.Tensor]:
    rng = np.random.default_rng([outputs, inputs])
    values = rng.integers(-128, 128, (outputs, inputs)).astype(np.int8)
    scales = (rng.random((outputs, inputs // 32)) / 99).astype(np.float32)
    whole = values.reshape(outputs, -1, 32) * scales[..., None].astype(np.float64)
    packed = pack([(values, scales)] * 2, fixed_point=True)
    exact = pack([(values, scales)] * 2)
    return packed, exact, torch.from_numpy(whole.reshape(outputs, inputs))


def rows(count: int, width: int) -> np.ndarray:
    return np.random.default_rng(width).standard_normal((count, width)).astype(np.float32)


CASES = [(kind, *shape) for kind in ("q8", "float16", "float32") for shape in SHAPES]
CASES += [(kind, *shape) for kind in ("float16", "float32") for shape in ODD]


@pytest.mark.parametrize(("kind", "outputs", "inputs"), CASES)
def test_equals_reference_and_rows_are_exact(kind: str, outputs: int, inputs: int) -> None:
    weight, whole = matrix(kind, outputs, inputs)
    x = rows(17, inputs)
    y = np.full((18, outputs), 7, np.float32)
    linear(x, weight, y[:17], EXACT)
    assert_close("y", reference(torch.from_numpy(x).double(), whole), y[:17], 2e-6)
    assert (y[17] == 7).all()  # nothing is written beyond the rows

    def run(part: slice) -> list[np.ndarray]:
        out = np.zeros((part.stop - part.start, outputs), np.float32)
        linear(x[part], weight, out, EXACT)
        return [out]

    assert_rows_exact(run, 17)


@pytest.mark.parametrize("kind", ["q8", "float16", "float32"])
@pytest.mark.parametrize("outputs", [24, 96])
def test_batch_differs_by_the_rounding_of_rows(kind: str, outputs: int) -> None:
    weight, whole = matrix(kind, outputs, 256)
    x = rows(6, 256)
    exact, batch, reordered = (np.zeros((6, outputs), np.float32) for _ in range(3))
    linear(x, weight, exact, EXACT)
    linear(x, weight, batch, BATCH)
    linear(x, weight, reordered, Mode(batch=True))
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

    def run(part: slice) -> list[np.ndarray]:
        out = np.zeros((part.stop - part.start, 130), np.float32)
        linear(x[part], weight, out, BATCH)
        return [out]

    assert_rows_exact(run, 9)


@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_fixed_point_is_ten_times_closer_than_f16(outputs: int, inputs: int) -> None:
    if inputs % 32:
        pytest.skip("Q8_0 has blocks of 32")
    packed, exact, whole = fixed(outputs, inputs)
    copy = fixed_point_copy(exact)
    assert all((a == b).all() for a, b in zip(packed.memory, copy.memory, strict=True))
    x = rows(9, inputs)
    x[3] = 0
    x[4, :32] *= 1e6

    def run(part: slice) -> list[np.ndarray]:
        out = np.zeros((part.stop - part.start, outputs), np.float32)
        linear(x[part], packed, out, EXACT)
        return [out]

    (y,) = run(slice(0, 9))
    expected = reference(torch.from_numpy(x).double(), whole)
    assert_close("y", expected[5:], y[5:], 4e-5)
    assert_close("outlier", expected[4:5], y[4:5], 4e-5)
    assert not y[3].any()
    assert_rows_exact(run, 9)
    nan = x[:1].copy()
    nan[0, 5] = np.nan
    out = np.zeros((1, outputs), np.float32)
    linear(nan, packed, out, EXACT)


def test_other_types_have_no_fixed_point_layout() -> None:
    halves = np.ones((4, 64), np.float16)
    packed = pack([halves], fixed_point=True)
    assert fixed_point_copy(packed) is packed


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
        pack([(good.astype(np.int8), np.zeros((4, 3), np.float32))])
    with pytest.raises(ValueError, match="blocks of 32"):
        pack([(np.zeros((4, 48), np.int8), np.zeros((4, 1), np.float32))])
