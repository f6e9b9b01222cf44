"""The q2 recipe's names, shapes, types and sizes are those of the published files."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from engine.config import DrafterConfig, ModelConfig
from engine.errors import Ds4Error
from engine.floor import decode_floor
from engine.synthetic import SyntheticFile, ratios, synthetic_pair


@pytest.fixture(scope="module")
def pair() -> tuple[SyntheticFile, SyntheticFile]:
    return synthetic_pair("v4-flash-q2")


def test_the_target_has_the_published_files_tensors(
    pair: tuple[SyntheticFile, SyntheticFile],
) -> None:
    target = pair[0]
    kinds = Counter(info.type for info in target.tensors.values())
    assert kinds == {"F16": 359, "F32": 492, "I32": 3, "IQ2_XXS": 86, "Q2_K": 43, "Q8_0": 345}
    assert target.size == 86_714_775_900
    assert target.tensors["blk.2.indexer.attn_q_b.weight"].type == "F16"
    assert target.tensors["blk.7.ffn_down_exps.weight"].shape == (256, 4096, 2048)


def test_the_drafter_has_the_published_files_tensors(
    pair: tuple[SyntheticFile, SyntheticFile],
) -> None:
    drafter = pair[1]
    kinds = Counter(info.type for info in drafter.tensors.values())
    assert kinds == {"F32": 34, "F16": 7, "Q8_0": 31, "Q2_K": 3, "IQ2_XXS": 6}
    assert drafter.size == 5_989_108_652


def test_both_are_read_as_files(pair: tuple[SyntheticFile, SyntheticFile]) -> None:
    config = ModelConfig.from_gguf(pair[0])
    assert config.ratios == ratios(43)
    assert Counter(config.ratios) == {0: 2, 4: 21, 128: 20}
    assert config.yarn is not None
    assert config.expert_scale == 1.5
    drafter = DrafterConfig.from_gguf(pair[1], config)
    assert drafter.target_layers == (40, 41, 42)
    assert drafter.block_size == 5


def test_a_decode_reads_what_the_recipe_says(pair: tuple[SyntheticFile, SyntheticFile]) -> None:
    config = ModelConfig.from_gguf(pair[0])
    assert decode_floor(pair[0], config, 512).weights == pytest.approx(9.196e9, rel=1e-3)
    assert decode_floor(pair[0], config, 8192).weights == pytest.approx(9.559e9, rel=1e-3)


def test_fewer_layers_keep_the_order() -> None:
    target, drafter = synthetic_pair("v4-flash-q2", 5)
    config = ModelConfig.from_gguf(target)
    assert config.ratios == (0, 0, 4, 128, 4)
    assert DrafterConfig.from_gguf(drafter, config).target_layers == (2, 3, 4)


def test_contents_are_the_same_each_time_and_choices_distinct() -> None:
    target, _ = synthetic_pair("v4-flash-q2", 3)
    name = "blk.0.ffn_gate_tid2eid.weight"
    ids = target.integers(name)
    assert ids.shape == (129280, 6)
    assert ids.min() >= 0
    assert ids.max() < 256
    assert all(len(set(row)) == 6 for row in ids[:200].tolist())
    assert np.array_equal(ids, target.integers(name))
    first = target.raw("blk.0.attn_kv.weight")
    assert first.nbytes == target.tensors["blk.0.attn_kv.weight"].nbytes
    assert np.array_equal(first, target.raw("blk.0.attn_kv.weight"))


def test_every_kind_of_tensor_has_the_bytes_it_says() -> None:
    target, drafter = synthetic_pair("v4-flash-q2", 3)
    for file in (target, drafter):
        for info in file.tensors.values():
            if info.nbytes < 20_000_000:
                assert file.raw(info.name).nbytes == info.nbytes, info.name


@pytest.mark.parametrize("layers", [2, 44])
def test_layers_that_the_recipe_lacks_are_refused(layers: int) -> None:
    with pytest.raises(Ds4Error, match=f"--layers is {layers}, expected 3 to 43"):
        synthetic_pair("v4-flash-q2", layers)


def test_an_unknown_recipe_is_refused() -> None:
    with pytest.raises(Ds4Error, match="expected one of v4-flash-q2"):
        synthetic_pair("v5")
