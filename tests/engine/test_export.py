"""What is written in llama.cpp's dialect is the same model, with that dialect's names and keys."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.config import DrafterConfig, ModelConfig
from engine.drafter import Drafter
from engine.errors import Ds4Error
from engine.export import Exported, Form, export_pair
from engine.gguf import GGUFFile, open_gguf
from engine.gguf_write import TensorData, write_gguf
from engine.model import Model
from engine.quant_types import INTEGERS
from engine.tokenizer import Tokenizer
from engine.weights import load_drafter, load_target
from tests.engine.random_pair import (
    DRAFTS_SOME,
    K_QUANT,
    PRESETS,
    SMALL,
    DrafterShape,
    drafter_metadata,
    drafter_tensors,
    write_drafter,
    write_pair,
    write_target,
)

DRAFTER = DrafterShape(expert_dim=256, default_confidence=0.5)


def opened(pair: tuple[Path, Path]) -> tuple[GGUFFile, GGUFFile]:
    return open_gguf(pair[0]), open_gguf(pair[1])


def same(ours: GGUFFile, name: str, theirs: GGUFFile, other: str) -> None:
    if ours.tensors[name].type in INTEGERS:
        np.testing.assert_array_equal(ours.integers(name), theirs.integers(other))
    else:
        a, b = ours.dequantise(name), theirs.dequantise(other)
        np.testing.assert_array_equal(a.reshape(-1), b.reshape(-1))


@pytest.mark.parametrize("form", ["f32", "quantised"])
@pytest.mark.parametrize("dialect", ["dspark", "dflash"])
@pytest.mark.parametrize("types", ["ds4", "ds4-q2", "F32"])
def test_it_loads_back_as_the_same_model(
    tmp_path: Path, types: str, dialect: str, form: Form
) -> None:
    shape = replace(K_QUANT, yarn=(16.0, 256))
    target, drafter = opened(write_pair(tmp_path, shape, DRAFTER, types, dialect))
    first, second = export_pair(target, drafter, tmp_path / "out" / "deeper", form=form)
    assert (first.role, second.role) == ("target", "drafter")
    assert first.path == tmp_path / "out" / "deeper" / f"target.llama-{form}.gguf"
    assert (first.size, second.size) == (first.path.stat().st_size, second.path.stat().st_size)
    new_target, new_drafter = open_gguf(first.path), open_gguf(second.path)
    config, new_config = ModelConfig.from_gguf(target), ModelConfig.from_gguf(new_target)
    assert replace(new_config, path=config.path) == config
    own = DrafterConfig.from_gguf(drafter, config)
    new_own = DrafterConfig.from_gguf(new_drafter, new_config)
    assert replace(new_own, path=own.path, dialect=own.dialect) == own
    assert new_own.dialect == "dflash"
    assert set(new_target.tensors) == set(target.tensors)
    for name in target.tensors:
        same(target, name, new_target, name)
    assert len(new_drafter.tensors) == len(drafter.tensors)
    for e in own.table(config):
        same(drafter, own.tensor_name(e.name), new_drafter, new_own.tensor_name(e.name))


@pytest.mark.parametrize("types", ["ds4", "F16", PRESETS["ds4"] | {"heads": "MXFP4"}])
@pytest.mark.parametrize("own", [DRAFTS_SOME, DrafterShape(own_head=True)])
@pytest.mark.parametrize("dialect", ["dspark", "dflash"])
def test_a_head_of_its_own_drafts_the_same_afterwards(
    tmp_path: Path, dialect: str, own: DrafterShape, types: str | dict[str, str]
) -> None:
    """But for tokens without a row, which have the logit 0 then."""
    target, drafter = opened(write_pair(tmp_path, SMALL, own, types, dialect))
    config = ModelConfig.from_gguf(target)
    paths = [one.path for one in export_pair(target, drafter, tmp_path)]
    written = open_gguf(paths[1])
    assert written.tensors["output.weight"].type == drafter.tensors["output.weight"].type
    assert "d2t" not in written.tensors
    if own.drafted is not None:
        tokens = drafter.integers("d2t")
        for name in ("output.weight", next(n for n in written.tensors if "markov_w2" in n)):
            rows = written.dequantise(name)
            assert len(rows) == SMALL.vocab
            assert not np.delete(rows, tokens, 0).any()
            assert np.abs(rows[tokens]).max(-1).all()
    drafts = []
    for target_file, file in ((target, drafter), (open_gguf(paths[0]), written)):
        weights = load_drafter(file, config)
        made = Drafter(weights, Model(load_target(target_file), config))
        context = made.new_context()
        rng = np.random.default_rng(0)
        made.extend(context, rng.standard_normal((9, 3 * SMALL.dim)).astype(np.float32), 0)
        drafts.append([made.draft(context, anchor, 9) for anchor in range(20, 60)])
    same = 0
    for (before, sure), (after, sure_too) in zip(*drafts, strict=True):
        pairs = enumerate(zip(before, after, strict=True))
        first = next((row for row, (one, other) in pairs if one != other), len(before))
        assert sure[: first + 1] == sure_too[: first + 1]
        same += first
    whole = sum(len(tokens) for tokens, _ in drafts[0])
    assert same == whole if own.drafted is None else same > 0.3 * whole
    assert len({token for tokens, _ in drafts[0] for token in tokens}) > 5


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Exported]]:
    directory = tmp_path_factory.mktemp("export")
    target, drafter = opened(write_pair(directory, types="ds4"))
    return {
        form: export_pair(target, drafter, directory, form=form)  # type: ignore[arg-type]
        for form in ("f32", "quantised")
    }


def test_storage_types(exported: dict[str, list[Exported]]) -> None:
    for one in exported["f32"]:
        assert {t.type for t in open_gguf(one.path).tensors.values()} <= {"F32", "I32"}
    for one in exported["quantised"]:
        types = {name: t.type for name, t in open_gguf(one.path).tensors.items()}
        for name, kind in types.items():
            if any(part in name for part in ("hc_", "_ape", "norm", "sinks", "exp_probs_b")):
                assert kind == "F32", name
        assert types["blk.0.attn_q_a.weight"] == types["blk.0.ffn_up_exps.weight"] == "Q8_0"
        assert types.get("blk.2.attn_compressor_kv.weight", "F16") == "F16"


TARGET_KEYS = """
context_length embedding_length block_count attention.head_count attention.head_count_kv
attention.key_length attention.value_length rope.dimension_count rope.freq_base
attention.layer_norm_rms_epsilon attention.q_lora_rank attention.sliding_window expert_count
expert_used_count expert_feed_forward_length expert_shared_count expert_weights_scale
expert_weights_norm expert_gating_func swiglu_clamp_exp attention.indexer.head_count
attention.indexer.key_length attention.indexer.top_k attention.output_group_count
attention.output_lora_rank attention.compress_ratios attention.compress_rope_freq_base
hyper_connection.count hyper_connection.sinkhorn_iterations hyper_connection.epsilon
hash_layer_count
"""
NOT_OF_DRAFTERS = ("indexer", "compress_rope", "hash_layer_count")
TOKENIZER_KEYS = "model pre tokens token_type merges bos_token_id eos_token_id"


def test_every_key_that_llama_cpp_requires(exported: dict[str, list[Exported]]) -> None:
    target, drafter = (open_gguf(one.path) for one in exported["quantised"])
    for key in TARGET_KEYS.split():
        assert f"deepseek4.{key}" in target.metadata
        if not any(part in key for part in NOT_OF_DRAFTERS):
            assert f"dflash.{key}" in drafter.metadata
    for file in (target, drafter):
        for key in TOKENIZER_KEYS.split():
            assert f"tokenizer.ggml.{key}" in file.metadata
    assert target.get_ints("deepseek4.attention.compress_ratios", 0, 128) == SMALL.ratios
    assert target.kinds["tokenizer.ggml.token_type"] == "array of 320 i32"


def test_keys_of_the_drafter(exported: dict[str, list[Exported]]) -> None:
    drafter = open_gguf(exported["f32"][1].path)
    assert drafter.architecture == "dflash"
    assert drafter.get_ints("dflash.target_layers", 0, 99) == (2, 3, 4)
    assert drafter.get_int("dflash.block_size", 0, 99) == 5
    assert drafter.get_int("tokenizer.ggml.mask_token_id", 0, 99) == 8
    assert drafter.get_int("dflash.block_count", 0, 99) == 2
    assert drafter.get_ints("dflash.attention.compress_ratios", 0, 99) == (0, 0)
    assert drafter.tensors["conf_proj.weight"].shape == (1, 160)
    assert drafter.get_int("general.file_type", 0, 99) == 0
    assert not any(key.startswith("dspark.") for key in drafter.metadata)


def test_the_vocabulary_is_complete_in_both(exported: dict[str, list[Exported]]) -> None:
    target, drafter = (Tokenizer.from_gguf(open_gguf(e.path)) for e in exported["quantised"])
    text = "the tin<think> 2026"
    assert drafter.encode(text) == target.encode(text)
    assert drafter.render_raw(text, control_tokens=True) == target.render_raw(
        text, control_tokens=True
    )


def test_odd_shapes_are_put_right_and_own_keys_stay(tmp_path: Path) -> None:
    path = write_target(
        tmp_path / "t.gguf", metadata={"ds4tui.no_repeat": 8, "general.alignment": 32}
    )
    bias = TensorData.encode("conf_proj.bias", np.array([-0.25]), "F16")
    flat = [
        replace(t, shape=t.shape[-1:]) if "conf_proj" in t.name else t
        for t in drafter_tensors(SMALL, DrafterShape(), "dflash")
    ]
    metadata = drafter_metadata(SMALL, DrafterShape(), "dflash")
    drafter = write_gguf(tmp_path / "d.gguf", metadata, [*flat, bias])
    first, second = export_pair(open_gguf(path), open_gguf(drafter), tmp_path)
    config = ModelConfig.from_gguf(open_gguf(first.path))
    assert config.no_repeat == 8
    again = open_gguf(second.path)
    assert again.tensors["conf_proj.weight"].shape == (1, 160)
    assert DrafterConfig.from_gguf(again, config).confidence_bias == -0.25


def test_a_target_alone(tmp_path: Path) -> None:
    target = open_gguf(write_target(tmp_path / "t.gguf"))
    seen: list[tuple[str, int, int]] = []
    (only,) = export_pair(
        target, None, tmp_path, form="f32", progress=lambda *step: seen.append(step)
    )
    assert only.role == "target"
    total = len(target.tensors)
    assert seen == [("t.llama-f32.gguf", i + 1, total) for i in range(total)]


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    pair = opened(write_pair(tmp_path))
    (first, _) = export_pair(*pair, tmp_path)
    first.path.write_bytes(b"precious")
    with pytest.raises(Ds4Error, match=r"target\.llama-quantised\.gguf exists already"):
        export_pair(*pair, tmp_path)
    assert first.path.read_bytes() == b"precious"
    assert export_pair(*pair, tmp_path, overwrite=True)[0].size == first.size


@pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")
def test_a_source_is_never_overwritten(tmp_path: Path) -> None:
    name = tmp_path / "t.llama-f32.gguf"
    write_target(tmp_path / "t.gguf")
    (tmp_path / "t.gguf").rename(name)
    link = tmp_path / "t.gguf"
    link.symlink_to(name)
    with pytest.raises(Ds4Error, match="is the file that is being exported"):
        export_pair(open_gguf(link), None, tmp_path, form="f32", overwrite=True)


def test_two_files_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    target = open_gguf(write_target(tmp_path / "x.gguf"))
    drafter = open_gguf(write_drafter(tmp_path / "a" / "x.gguf"))
    with pytest.raises(Ds4Error, match="would be written twice"):
        export_pair(target, drafter, tmp_path)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    target = open_gguf(write_target(tmp_path / "t.gguf"))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Ds4Error, match="cannot be written"):
        export_pair(target, None, tmp_path / "file")


def test_a_pair_that_does_not_fit_is_not_exported(tmp_path: Path) -> None:
    target = open_gguf(write_target(tmp_path / "t.gguf"))
    drafter = open_gguf(write_drafter(tmp_path / "d.gguf", replace(SMALL, dim=64)))
    with pytest.raises(Ds4Error, match="does not fit"):
        export_pair(target, drafter, tmp_path / "out")
    assert not (tmp_path / "out").exists()
