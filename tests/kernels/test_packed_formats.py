"""Packed types: the reference against the `gguf` package, planes against the reference."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize

from kernels.packed.formats import BLOCKS, GRID, KINDS, MAGNITUDES, grid_codes, row_bytes
from kernels.packed.random_blocks import random_blocks
from kernels.packed.reference import dequantise
from kernels.packed.repack import CHUNK, repack

QUANTISED = ("Q8_0", "Q2_K", "Q4_K", "IQ2_XXS", "MXFP4")


def blocks_of(kind: str, rows: int, inputs: int, seed: int = 0) -> torch.Tensor:
    return random_blocks(kind, rows, inputs, torch.Generator().manual_seed(seed), 0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_block_sizes_are_the_formats(kind: str) -> None:
    assert BLOCKS[kind] == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]


def test_the_grid_is_the_formats() -> None:
    assert len(GRID.split()) == 256
    found = [MAGNITUDES[code >> 2 * j & 3] for code in grid_codes() for j in range(8)]
    assert sum(found) == 38611
    from gguf.quants import IQ2_XXS

    IQ2_XXS.init_grid()
    assert np.array_equal(np.ravel(IQ2_XXS.grid), found)


@pytest.mark.parametrize("kind", KINDS)
def test_reference_equals_ggufs_dequantiser(kind: str) -> None:
    blocks = blocks_of(kind, 7, 512)
    expected = dequantize(
        blocks.numpy().reshape(7, row_bytes(kind, 512)), gguf.GGMLQuantizationType[kind]
    )
    found = dequantise(kind, blocks, 7, 512).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", QUANTISED)
def test_random_blocks_have_about_the_size_asked_for(kind: str) -> None:
    values = dequantise(kind, blocks_of(kind, 64, 1024), 64, 1024)
    assert 0.03 < float(values.square().mean().sqrt()) < 0.08
    assert abs(float(values.mean())) < 0.01


@pytest.mark.parametrize("kind", QUANTISED)
def test_planes_take_no_more_than_they_say(kind: str) -> None:
    blocks = blocks_of(kind, 2 * 16, 512)
    found, planes = repack(kind, blocks, 2, 16, 512)
    assert found == kind
    assert all(plane.shape[0] == 2 and plane.is_contiguous() for plane in planes)
    total = sum(plane.numel() * plane.element_size() for plane in planes)
    bits = {"Q8_0": 8.5, "Q2_K": 3.125, "Q4_K": 4.625, "IQ2_XXS": 3.375, "MXFP4": 4.25}[kind]
    assert total * 8 == bits * 32 * 512


@pytest.mark.parametrize("kind", QUANTISED)
def test_planes_do_not_depend_on_the_chunks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = blocks_of(kind, 10, 256)
    whole = repack(kind, blocks, 5, 2, 256)[1]
    monkeypatch.setattr("kernels.packed.repack.CHUNK", 3 * 256)
    for plane, again in zip(whole, repack(kind, blocks, 5, 2, 256)[1], strict=True):
        assert torch.equal(plane, again)
    assert CHUNK > 3 * 256


@pytest.mark.parametrize(("kind", "inputs"), [("BF16", 48), ("MXFP4", 96)])
def test_rows_that_no_kernel_takes_become_float32(kind: str, inputs: int) -> None:
    blocks = blocks_of(kind, 4, inputs)
    found, (plane,) = repack(kind, blocks, 1, 4, inputs)
    assert found == "F32"
    assert torch.equal(plane[0], dequantise(kind, blocks, 4, inputs))


def test_refusals_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="blocks of 256, found 128"):
        row_bytes("Q2_K", 128)
    with pytest.raises(ValueError, match="type 'Q6_K'"):
        row_bytes("Q6_K", 256)
    with pytest.raises(ValueError, match="has 68 bytes, not 34"):
        repack("Q8_0", torch.zeros(34, dtype=torch.uint8), 1, 2, 32)
    with pytest.raises(ValueError, match="has 68 bytes, not 34"):
        dequantise("Q8_0", torch.zeros(34, dtype=torch.uint8), 2, 32)
