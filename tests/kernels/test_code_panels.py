"""Weights of 4 bits: the bits of the same integers stored as int8, in every op's numerics."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.cpu.matrix import KIND
from kernels.cpu.panels import FP4, FP4_VALUES, Q8
from kernels.experts import Experts, mix_experts
from kernels.linear import keeps_codes, pack
from kernels.mode import EXACT, Mode
from kernels.threads import set_threads
from tests.kernels.closeness import assert_rows_exact
from tests.kernels.products import elsewhere, product, rows

MODES = {
    "float32": EXACT,
    "16 bits": Mode(fixed=16),
    "8 bits": Mode(fixed=8),
    "rounded, in halves": Mode(batch=True, round_rows=True),
}
SHAPES = [(64, 32), (8, 64), (33, 96), (130, 256), (200, 320), (1, 128)]

Pair = tuple[np.ndarray, np.ndarray]


def codes(outputs: int, inputs: int, low: int = -9, high: int = -3) -> Pair:
    """Random codes, and powers of two from 2^low to 2^high as their scales."""
    rng = np.random.default_rng([outputs, inputs])
    scales = np.ldexp(1.0, rng.integers(low, high + 1, (outputs, inputs // 32)))
    values = rng.integers(0, 16, (outputs, inputs)).astype(np.uint8)
    return values, scales.astype(np.float16)


def integers(pair: Pair) -> Pair:
    """The same matrix as int8."""
    return np.array(FP4_VALUES, np.int8)[pair[0]], pair[1]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
def test_codes_give_the_bits_of_their_integers(outputs: int, inputs: int, mode: Mode) -> None:
    pair = codes(outputs, inputs)
    small, large = pack([pair]), pack([integers(pair)])
    for count in range(1, 14):
        x = rows(count, inputs)
        y = product(x, small, mode)
        assert y.tobytes() == product(x, large, mode).tobytes(), count
    assert_rows_exact(lambda part: [product(x[part], small, mode)], 13)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_scales_reach_to_both_ends_of_float16(mode: Mode) -> None:
    pair = codes(130, 256, low=-24, high=15)
    pair[1][::3, ::2] = 0
    assert {2.0**-24, 2.0**15} <= set(pair[1].ravel().tolist())
    x = rows(6, 256)
    y = product(x, pack([pair]), mode)
    assert y.tobytes() == product(x, pack([integers(pair)]), mode).tobytes()
    assert np.isfinite(y).all()


def test_threads_share_a_product() -> None:
    pair = codes(1000, 512)
    weight, x = pack([pair]), rows(3, 512)
    alone = [product(x, weight, mode) for mode in MODES.values()]
    set_threads(2)
    try:
        shared = [product(x, weight, mode) for mode in MODES.values()]
    finally:
        set_threads(1)
    assert np.array(shared).tobytes() == np.array(alone).tobytes()


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("small", [(True, True), (True, False), (False, True)],
                         ids=["both", "gate and up", "down"])  # fmt: skip
def test_experts_take_codes_in_either_product(small: tuple[bool, bool], mode: Mode) -> None:
    width, hidden, count = 96, 64, 4
    ups = [codes(2 * hidden, width, -9 + e, -6) for e in range(count)]
    downs = [codes(width, hidden, -9 + e, -6) for e in range(count)]
    x = rows(5, width)
    chosen = np.array([[0, 3], [1, 2], [0, 1], [2, 3], [0, 2]], np.int32)
    factors = np.full(chosen.shape, 0.5, np.float32)

    def run(as_codes: tuple[bool, bool]) -> bytes:
        parts = [
            pack(pairs if codes else [integers(pair) for pair in pairs])
            for pairs, codes in zip((ups, downs), as_codes, strict=True)
        ]
        y = np.zeros((5, width), np.float32)
        mix_experts(x, chosen, factors, Experts(*parts), 10.0, y, False, np.arange(5), mode)
        assert y.any()
        return y.tobytes()

    assert run(small) == run((False, False))


def test_half_the_memory_where_the_machine_can_look_up() -> None:
    pair = codes(128, 256)
    small, large = pack([pair]), pack([integers(pair)])
    assert small.words[0, KIND] == (FP4 if keeps_codes() else Q8)
    assert large.memory[0].nbytes == (2 if keeps_codes() else 1) * small.memory[0].nbytes
    assert small.memory[1].tobytes() == large.memory[1].tobytes()


def test_pack_refuses_codes_of_more_than_four_bits() -> None:
    values, scales = codes(4, 64)
    values[2, 5] = 16
    with pytest.raises(ValueError, match="codes of 4 bits, found 16"):
        pack([(values, scales)])


def sixteen_bits() -> np.ndarray:
    return product(rows(7, 256), pack([codes(130, 256)]), Mode(fixed=16))


def test_machines_without_look_ups_get_the_same_bits() -> None:
    assert elsewhere("test_code_panels", "sixteen_bits") == sixteen_bits().tobytes()
