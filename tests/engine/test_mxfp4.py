"""MXFP4 files: codes with scales, all bits those of the same numbers in Q8_0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from engine import memory, weights
from engine.config import ModelConfig
from engine.drafter import Drafter
from engine.errors import Ds4Error
from engine.gguf import GGUFFile, open_gguf
from engine.gguf_write import TensorData, Typed, write_gguf
from engine.model import Model
from engine.paths import DECODE, Plan
from engine.weights import Tensors, load_drafter, load_target
from kernels.cpu import machine, matrix
from kernels.cpu.panels import FP4_VALUES
from tests.engine.loaded import assert_same_state, random_ids
from tests.engine.random_pair import SMALL, DrafterShape, write_drafter, write_target

VALUES = np.array(FP4_VALUES, np.int8)
LOWEST, HIGHEST = 128 - 24, 128 + 15
"""Exponents of blocks whose integers' scales float16 can hold."""


def blocks(count: int, low: int, high: int) -> np.ndarray:
    """(count, 17) random blocks with exponents low..high, both included."""
    rng = np.random.default_rng(count)
    raw = rng.integers(0, 256, (count, 17)).astype(np.uint8)
    raw[:, 0] = rng.integers(low, high + 1, count)
    raw[0, 0], raw[-1, 0] = low, high
    return raw


def opened(path: Path, **tensors: tuple[str, tuple[int, ...], np.ndarray]) -> GGUFFile:
    table = [TensorData(name, shape, kind, raw) for name, (kind, shape, raw) in tensors.items()]
    return open_gguf(write_gguf(path / "x.gguf", {}, table))


def reader(file: GGUFFile) -> Tensors:
    return Tensors(file, lambda name: name, None)


def test_codes_and_scales_are_what_the_file_says(tmp_path: Path) -> None:
    raw = blocks(5 * 24, LOWEST, HIGHEST)
    raw[7, 0], raw[7, 1:] = 0, 0  # zeros have any scale, with either sign
    raw[9, 0], raw[9, 1:] = 255, 0x80
    file = opened(tmp_path, t=("MXFP4", (5, 12, 64), raw))
    codes, scales = reader(file).matrix("t")
    assert (codes.shape, codes.dtype) == ((5, 12, 64), np.uint8)
    assert (scales.shape, scales.dtype) == ((5, 12, 2), np.float16)
    found = VALUES[codes].reshape(5, 12, 2, 32) * scales[..., None].astype(np.float32)
    raw[9, 0] = 0
    expected = dequantize(raw, GGMLQuantizationType.MXFP4).reshape(found.shape)
    assert (found == expected).all()


@pytest.mark.parametrize("exponent", [LOWEST - 1, HIGHEST + 1, 0, 254])
def test_scales_beyond_float16_make_it_float32(tmp_path: Path, exponent: int) -> None:
    raw = blocks(16, LOWEST, HIGHEST)
    raw[3] = [exponent, *[0] * 15, 1]
    file = opened(tmp_path, t=("MXFP4", (8, 64), raw))
    values = reader(file).matrix("t")
    assert isinstance(values, np.ndarray)
    assert values.dtype == np.float32
    expected = dequantize(raw, GGMLQuantizationType.MXFP4).reshape(8, 64)
    assert values.tobytes() == expected.tobytes()


def test_gate_and_up_of_different_types_become_float32(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((32, 64)).astype(np.float32) for _ in range(3)]
    table = [
        TensorData.encode(f"ffn_{part}_shexp.weight", values.reshape(shape), kind)
        for part, values, shape, kind in zip(
            ("gate", "up", "down"), parts, [(32, 64), (32, 64), (64, 32)],
            ("MXFP4", "Q8_0", "MXFP4"), strict=True,
        )
    ]  # fmt: skip
    file = open_gguf(write_gguf(tmp_path / "x.gguf", {}, table))
    gate, up = reader(file).alike([tensor.name for tensor in table[:2]])
    for tensor, found in zip(table, (gate, up), strict=False):
        assert isinstance(found, np.ndarray)
        assert (found == file.dequantise(tensor.name)).all()
    experts = reader(file).experts("", "shexp")
    assert (experts.gate_up.outputs, experts.down.outputs) == (64, 64)
    gate, down = reader(file).alike([table[0].name, table[2].name])
    assert isinstance(gate, tuple)
    assert isinstance(down, tuple)


@pytest.mark.parametrize("has_tables", [True, False])
def test_needed_memory_counts_the_bits_that_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_tables: bool
) -> None:
    monkeypatch.setattr(machine, "HAS_TABLES", has_tables)
    monkeypatch.setattr(matrix, "HAS_TABLES", has_tables)
    file = opened(tmp_path, t=("MXFP4", (128, 256), blocks(128 * 8, LOWEST, HIGHEST)))
    packed = reader(file).packed("t").memory
    bits = 8 * packed[0].nbytes / (128 * 256)
    assert bits == (4 if has_tables else 8)
    size = sum(part.nbytes for part in packed)
    assert size <= weights._needed_bytes(file) <= 1.1 * size


def test_a_matrix_that_becomes_float32_is_refused_where_it_no_longer_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide, size = blocks(16, LOWEST, HIGHEST + 1), (8, 64)
    kept, other = ("MXFP4", size, blocks(16, LOWEST, HIGHEST)), ("MXFP4", size, wide)
    file = opened(tmp_path, a=kept, b=other, c=other)
    needed = weights._needed_bytes(file) + 4 * 8 * 64  # one of the two
    monkeypatch.setattr(memory, "total_memory", lambda: needed)
    tensors = reader(file)
    for name in ("a", "b"):
        tensors.matrix(name)
    with pytest.raises(Ds4Error, match=f"does not fit in memory.* found {needed} "):
        tensors.matrix("c")


def in_q8_0(path: Path) -> GGUFFile:
    """The same file with every MXFP4 tensor written as Q8_0, without a rounding."""
    file, table = open_gguf(path), []
    for name, info in file.tensors.items():
        kind, raw = info.type, file.raw(name)
        if kind == "MXFP4":
            own = raw.reshape(-1, 17)
            scales = np.ldexp(1.0, own[:, :1].astype(np.int32) - 128).astype("<f2")
            codes = np.concatenate([own[:, 1:] & 15, own[:, 1:] >> 4], 1)
            kind, raw = (
                "Q8_0",
                np.concatenate([scales.view(np.uint8), VALUES[codes].view(np.uint8)], 1),
            )
        table.append(TensorData(name, info.shape, kind, raw))
    metadata = {
        key: Typed(file.kinds[key].rpartition(" ")[2], value)
        for key, value in file.metadata.items()
    }
    return open_gguf(write_gguf(path.with_suffix(".q8.gguf"), metadata, table))


@pytest.mark.parametrize("types", ["MXFP4", "ds4-mxfp4"])
def test_a_pair_has_the_bits_of_its_numbers_in_q8_0(tmp_path: Path, types: str) -> None:
    target = write_target(tmp_path / "target.gguf", SMALL, types)
    drafter = write_drafter(tmp_path / "drafter.gguf", SMALL, DrafterShape(), types=types)
    pairs = []
    for target_file, drafter_file in (
        (open_gguf(target), open_gguf(drafter)),
        (in_q8_0(target), in_q8_0(drafter)),
    ):
        config = ModelConfig.from_gguf(target_file)
        own = load_drafter(drafter_file, config)
        model = Model(load_target(target_file), config, tap_layers=own.config.target_layers)
        pairs.append((model, Drafter(own, model)))
    ids = random_ids(60)
    states = [model.new_state() for model, _ in pairs]
    steps = [(40, Plan("batch")), (1, DECODE["split"]), (6, Plan("invariant")),
             (1, DECODE["invariant"]), (6, Plan("batch"))]  # fmt: skip
    at = 0
    for count, plan in steps:
        found = [
            model.forward(state, ids[at : at + count], plan)
            for (model, _), state in zip(pairs, states, strict=True)
        ]
        assert found[0].logits.tobytes() == found[1].logits.tobytes(), plan
        at += count
    assert_same_state(*states)
    drafts = []
    for (_, drafter_), result in zip(pairs, found, strict=True):
        context = drafter_.new_context()
        drafter_.extend(context, result.taps, at - count)
        block = drafter_.block(context, 11, at)
        drafts.append([np.array(block.logits(k)).tobytes() for k in range(drafter_.block_size)])
    assert drafts[0] == drafts[1]
