"""Heads of a drafter in every storage type: they draft, or are refused with tensor and type."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine.drafter import Drafter
from engine.errors import Ds4Error
from engine.gguf import open_gguf
from engine.quant_types import INTEGERS, SUPPORTED
from engine.weights import load_drafter
from tests.engine.loaded import model
from tests.engine.random_pair import PRESETS, DrafterShape, TargetShape, write_drafter

SHAPE = TargetShape(dim=256, expert_dim=256)
OWN = DrafterShape(rank=256)
"""Rows of all heads fill blocks of 256."""
HEADS = (
    "mtp.0.main_proj.weight",
    "mtp.1.markov_head.markov_w1.weight",
    "mtp.1.markov_head.markov_w2.weight",
    "mtp.1.confidence_head.proj.weight",
)
FOREIGN = {"Q4_0": 2, "Q6_K": 14, "IQ4_XS": 23, "TQ1_0": 34, "99": 99}
"""Types that no kernel reads, and one that nobody knows, by what the sentence calls them."""


def written(path: Path, kind: str) -> Path:
    return write_drafter(path, SHAPE, OWN, types=PRESETS["ds4"] | {"heads": kind})


@cache
def taps(width: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((10, width)).astype(np.float32)


@pytest.mark.parametrize("kind", [name for name in SUPPORTED if name not in INTEGERS])
def test_heads_of_every_supported_type_draft(tmp_path: Path, kind: str) -> None:
    """Confidences and the Markov bias act, so there are proposals; near the file's own values."""
    target = model(SHAPE)
    file = open_gguf(written(tmp_path / "d.gguf", kind))
    made = Drafter(load_drafter(file, target.config), target)
    context = made.new_context()
    made.extend(context, taps(3 * SHAPE.dim), 0)
    block = made.block(context, 5, 10)
    assert 0 < block.confidence(0, 5) < 1
    w1, w2 = (np.array(file.dequantise(name), np.float64) for name in HEADS[1:3])
    for row in range(made.block_size):
        bias = block.scores(row, 5) - np.array(block.logits(row))
        expected = w2 @ w1[5]
        assert np.abs(bias - expected).max() < 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_head_of_a_type_that_is_not_read_is_refused(
    tmp_path: Path, name: str, foreign: str
) -> None:
    path = written(tmp_path / "d.gguf", "F32")
    data = bytearray(path.read_bytes())
    after_name = data.index(name.encode()) + len(name)
    axes = struct.unpack_from("<I", data, after_name)[0]
    struct.pack_into("<I", data, after_name + 4 + 8 * axes, FOREIGN[foreign])
    path.write_bytes(data)
    with pytest.raises(Ds4Error) as caught:
        load_drafter(open_gguf(path), model(SHAPE).config)
    for part in (name, foreign, "Q8_0"):
        assert part in caught.value.message
