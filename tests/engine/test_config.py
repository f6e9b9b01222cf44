"""Targets held against what they must be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import memory
from engine.config import ModelConfig, Yarn
from engine.errors import Ds4Error
from engine.gguf import open_gguf
from engine.gguf_write import TensorData, Typed, write_gguf
from engine.synthetic import FLASH
from engine.tensor_table import target_table
from tests.engine.random_pair import (
    EMBEDDED,
    SMALL,
    target_metadata,
    target_tensors,
    write_target,
)

A = "deepseek4."


def load_target(path: Path) -> ModelConfig:
    return ModelConfig.from_gguf(open_gguf(path))


def target_refusal(path: Path) -> str:
    with pytest.raises(Ds4Error) as caught:
        load_target(path)
    assert str(path) in caught.value.message
    return caught.value.message


# -- what loads


def test_every_field_of_a_target(tmp_path: Path) -> None:
    shape = replace(EMBEDDED, yarn=(16.0, 256), vocab=300)
    own = {"ds4tui.no_repeat": 8, "ds4tui.kv_rounding_trained": "fp8"}
    path = write_target(tmp_path / "t.gguf", shape, "ds4", metadata=own)
    config = load_target(path)
    assert (config.vocab_size, config.dim, config.layers) == (300, 256, 8)
    assert config.ratios == (0, 0, 4, 128, 4, 128, 4, 128)
    assert (config.hash_layers, config.heads, config.head_dim, config.rope_dim) == (2, 8, 128, 64)
    assert (config.q_rank, config.out_groups, config.out_rank) == (128, 4, 64)
    assert (config.index_heads, config.index_dim, config.index_top_k) == (8, 128, 64)
    assert (config.experts, config.experts_used, config.expert_dim) == (16, 4, 128)
    assert (config.window, config.streams, config.sinkhorn_iterations) == (128, 4, 20)
    assert config.norm_eps == config.hc_eps == np.float32(1e-6)
    assert config.swiglu_clamp == (10.0,) * 8
    assert (config.expert_scale, config.rope_base, config.compress_rope_base) == (1.5, 1e4, 1.6e5)
    assert config.yarn == Yarn(16.0, 256, 32.0, 1.0)
    assert (config.context_length, config.bos_id, config.eos_id) == (4096, 0, 1)
    assert (config.no_repeat, config.kv_rounding_trained) == (8, "fp8")
    assert config.path == str(path)


def test_absent_keys_of_ours_mean_off(tmp_path: Path) -> None:
    target = load_target(write_target(tmp_path / "t.gguf"))
    assert (target.no_repeat, target.kv_rounding_trained, target.yarn) == (0, "", None)


BLOCK = re.findall(
    r"\w+",
    """    hc_attn_base hc_attn_fn hc_attn_scale attn_sinks attn_q_a attn_q_a_norm attn_q_b attn_kv
    attn_kv_a_norm attn_output_a attn_output_b attn_norm hc_ffn_base hc_ffn_fn hc_ffn_scale
    ffn_gate_inp ffn_norm ffn_gate_exps ffn_up_exps ffn_down_exps ffn_gate_shexp ffn_up_shexp
    ffn_down_shexp
""",
)
COMPRESSOR = [f"attn_compressor_{part}" for part in ("kv", "gate", "ape", "norm")]
INDEXER = ["indexer.attn_q_b", "indexer.proj"] + [
    f"indexer_compressor_{part}" for part in ("kv", "gate", "ape", "norm")
]


def test_names_are_those_of_the_released_files(tmp_path: Path) -> None:
    """Spelt out here, not taken from the table that the loader uses."""
    path = write_target(tmp_path / "t.gguf")
    expected = {"token_embd", "output_norm", "output", "output_hc_fn", "output_hc_base"}
    expected |= {"output_hc_scale"}
    for layer in range(4):
        own = BLOCK + (COMPRESSOR if layer >= 2 else []) + (INDEXER if layer == 2 else [])
        own += ["ffn_gate_tid2eid"] if layer == 0 else []
        expected |= {f"blk.{layer}.{name}" for name in own}
    names = {f"{name}.weight" for name in expected}
    assert set(open_gguf(path).tensors) == names | {
        f"blk.{layer}.exp_probs_b.bias" for layer in (1, 2, 3)
    }


def test_the_released_shapes() -> None:
    """The tensor list of the released 43-layer files, by the numbers of their inventory."""
    table = target_table(FLASH, (0, 0) + (4, 128) * 20 + (4,), 3)
    assert len(table) == 1328
    assert sum(e.role == "ids" for e in table) == 3
    shapes = {e.name: e.shape for e in table}
    assert shapes["blk.2.attn_compressor_ape.weight"] == (4, 1024)
    assert shapes["blk.3.attn_compressor_ape.weight"] == (128, 512)
    assert shapes["blk.2.indexer.attn_q_b.weight"] == (8192, 1024)
    assert shapes["blk.2.indexer_compressor_kv.weight"] == (256, 4096)
    assert shapes["blk.0.ffn_gate_tid2eid.weight"] == (129280, 6)
    assert shapes["blk.9.attn_output_a.weight"] == (8192, 4096)
    assert shapes["blk.9.hc_attn_fn.weight"] == (24, 16384)
    parameters = sum(int(np.prod(e.shape)) for e in table if e.role != "ids")
    assert round(parameters / 1e9, 2) == 284.33


VARIANTS: list[Mapping[str, object]] = [
    {A + "attention.compress_ratios": [0, 0, 4, 128, 0, 0]},  # the tail of dropped blocks
    {A + "attention.compress_ratios": Typed("u32", [0, 0, 4, 128])},
    {A + "expert_feed_forward_length": [64] * 4},
    {A + "expert_used_count": [2] * 4},
    {A + "swiglu_clamp_exp": 10.0},
    {A + "swiglu_clamp_exp": Typed("f64", [10.0] * 5)},
    {A + "swiglu_clamp_shexp": 10.0},
    {A + "context_length": Typed("u64", 1 << 20)},
    {A + "attention.head_count_kv": None},
    {A + "expert_gating_func": None, A + "expert_weights_norm": None, A + "vocab_size": None},
    {A + "expert_group_count": 0, A + "expert_group_used_count": 0},
    {A + "rope.scaling.type": "none", A + "rope.scaling.factor": 16.0},
    {A + "nextn_predict_layers": 1},  # said, but the block is not in the file
    {"tokenizer.ggml.eos_token_id": None, "tokenizer.ggml.bos_token_id": None},
    {"someone.else": "text", "general.file_type": 19},
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_spellings_that_are_as_good(tmp_path: Path, variant: Mapping[str, object]) -> None:
    path = tmp_path / "t.gguf"
    config = load_target(write_target(path, metadata=variant))
    assert (config.layers, config.expert_dim, config.swiglu_clamp) == (4, 64, (10.0,) * 4)
    assert (config.bos_id, config.eos_id, config.yarn) == (0, 1, None)


@pytest.mark.parametrize("kind", ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32"])
def test_any_integer_width_loads(tmp_path: Path, kind: str) -> None:
    value: float | int = 4.0 if kind == "f32" else 4
    keys = {A + "block_count": Typed(kind, value), A + "attention.head_count": Typed(kind, value)}
    config = load_target(write_target(tmp_path / "t.gguf", metadata=keys))
    assert (config.layers, config.heads) == (4, 4)


def test_a_prediction_block_at_the_end_is_left_out(tmp_path: Path) -> None:
    shape = replace(SMALL, ratios=(0, 4, 128, 0))
    extra = TensorData.encode("blk.3.nextn.eh_proj.weight", np.zeros((4, 4), np.float32), "F32")
    metadata = target_metadata(shape) | {A + "nextn_predict_layers": 1}
    path = write_gguf(tmp_path / "t.gguf", metadata, [*target_tensors(shape), extra])
    assert load_target(path).ratios == (0, 4, 128)


def test_group_projections_of_three_axes_are_the_same_bytes(tmp_path: Path) -> None:
    def reshaped(tensor: TensorData) -> TensorData:
        return replace(tensor, shape=(2, 32, 256)) if "attn_output_a" in tensor.name else tensor

    tensors = [reshaped(t) for t in target_tensors(SMALL)]
    load_target(write_gguf(tmp_path / "t.gguf", target_metadata(SMALL), tensors))


# -- targets that are refused


def test_missing_tensors_are_named_all_at_once(tmp_path: Path) -> None:
    gone = ["output.weight", "blk.0.ffn_gate_tid2eid.weight", "blk.3.exp_probs_b.bias"]
    message = target_refusal(write_target(tmp_path / "t.gguf", without=gone))
    for part in (*gone, "3 tensors are missing", "'deepseek4'"):
        assert part in message
    assert "truncated" not in message
    message = target_refusal(write_target(tmp_path / "t.gguf", without=gone[:1]))
    assert "1 tensor is missing" in message


def test_many_missing_tensors_are_still_all_named(tmp_path: Path) -> None:
    names = list(open_gguf(write_target(tmp_path / "t.gguf")).tensors)
    message = target_refusal(write_target(tmp_path / "t.gguf", without=names))
    assert f"{len(names)} tensors are missing" in message
    assert "blk.{0,1,2,3}.attn_q_a.weight" in message
    assert "blk.2.indexer.proj.weight" in message
    assert "token_embd.weight" in message


WRONG: list[tuple[dict[str, object], tuple[str, ...]]] = [
    ({"general.architecture": "llama"}, ("'llama'", "'deepseek4'")),
    ({"general.architecture": None}, ("general.architecture",)),
    ({"general.architecture": 4}, ("general.architecture", "a string")),
    ({"split.count": 3}, ("one part of a model split",)),
    ({A + "block_count": None}, ("deepseek4.block_count",)),
    ({A + "block_count": [4]}, ("deepseek4.block_count", "array of 1 i32", "1 to 512")),
    ({A + "block_count": 0}, ("'0'", "1 to 512")),
    ({A + "block_count": 9}, ("compress_ratios", "9 layers")),
    ({A + "hyper_connection.count": 2}, ("hyper_connection.count", "'2'", "4 to 4")),
    ({A + "hyper_connection.sinkhorn_iterations": 0}, ("sinkhorn_iterations", "'0'")),
    ({A + "attention.compress_ratios": [0, 0, 8, 128]}, ("8 for layer 2", "0, 4 or 128")),
    ({A + "attention.compress_ratios": [0, 0]}, ("a list of 2", "4 layers")),
    ({A + "attention.compress_ratios": 4}, ("compress_ratios", "an array of integers")),
    ({A + "expert_gating_func": 2}, ("expert_gating_func", "is 2", "4")),
    ({A + "attention.value_length": 64}, ("value_length", "64", "128", "key_length")),
    ({A + "attention.value_length": None}, ("value_length",)),
    ({A + "attention.head_count_kv": 4}, ("head_count_kv", "4", "1")),
    ({A + "attention.output_group_count": 3}, ("output_group_count", "3", "divisor of 4")),
    ({A + "attention.indexer.key_length": 96}, ("indexer.key_length", "96", "power of two")),
    ({A + "rope.dimension_count": 63}, ("rope.dimension_count", "63", "even")),
    ({A + "rope.dimension_count": 128}, ("rope.dimension_count", "'128'", "2 to 64")),
    ({A + "rope.freq_base": "high"}, ("rope.freq_base", "'high'", "a number")),
    ({A + "rope.freq_base": float("nan")}, ("rope.freq_base", "nan")),
    ({A + "rope.scaling.type": "linear", A + "rope.scaling.factor": 2.0}, ("'linear'", "'yarn'")),
    ({A + "expert_used_count": 9}, ("expert_used_count", "1 to 8")),
    ({A + "expert_used_count": [2, 2, 2, 1]}, ("expert_used_count", "one value")),
    ({A + "expert_weights_norm": False}, ("expert_weights_norm", "false", "true")),
    ({A + "expert_shared_count": 2}, ("expert_shared_count", "2", "1")),
    ({A + "expert_group_count": 4}, ("expert_group_count", "'4'")),
    ({A + "hash_layer_count": 5}, ("hash_layer_count", "'5'", "0 to 4")),
    ({A + "swiglu_clamp_exp": [10.0]}, ("swiglu_clamp_exp", "a list of 1", "4 layers")),
    ({A + "swiglu_clamp_exp": -1.0}, ("swiglu_clamp_exp", "-1")),
    ({A + "swiglu_clamp_shexp": 7.0}, ("swiglu_clamp_shexp", "swiglu_clamp_exp")),
    ({A + "vocab_size": 8192}, ("vocab_size", "8192", "320")),
    ({"tokenizer.ggml.tokens": None}, ("tokenizer.ggml.tokens", "an array of strings")),
    ({"tokenizer.ggml.tokens": [1, 2]}, ("tokenizer.ggml.tokens", "array of 2 i32")),
    ({"tokenizer.ggml.eos_token_id": 320}, ("eos_token_id", "'320'", "0 to 319")),
    ({A + "embedding_length": 64}, ("token_embd.weight", "[320, 128]", "[320, 64]")),
    ({A + "attention.q_lora_rank": 96}, ("attn_q_a.weight", "[64, 128]", "[96, 128]")),
    ({A + "expert_count": 16}, ("[16,",)),
    ({A + "hash_layer_count": 2}, ("blk.1.ffn_gate_tid2eid.weight", "missing")),
    ({"ds4tui.no_repeat": -1}, ("ds4tui.no_repeat", "'-1'")),
    ({A + "context_length": 0}, ("context_length", "'0'")),
]


@pytest.mark.parametrize(("change", "parts"), WRONG)
def test_wrong_metadata(tmp_path: Path, change: dict[str, object], parts: tuple[str, ...]) -> None:
    message = target_refusal(write_target(tmp_path / "t.gguf", metadata=change))
    for part in (*parts, "expected" if "missing" not in parts else "missing"):
        assert part in message


@pytest.mark.parametrize(
    ("name", "made", "parts"),
    [
        ("blk.1.attn_norm.weight", ("Q8_0", (128,)), ("Q8_0", "F32 or F16 or BF16")),
        ("blk.1.attn_q_a.weight", ("I32", (64, 128)), ("I32", "Q4_K")),
        ("blk.0.ffn_gate_tid2eid.weight", ("F32", (320, 2)), ("F32", "expected I32")),
        ("blk.0.ffn_gate_tid2eid.weight", ("I32", (2, 320)), ("[2, 320]", "[320, 2]")),
        ("blk.1.ffn_up_exps.weight", ("F16", (8, 64, 128)), ("ffn_gate_exps", "F16", "F32")),
        ("output_norm.weight", ("F32", (2, 128)), ("[2, 128]", "[128]")),
    ],
)
def test_wrong_tensors(
    tmp_path: Path, name: str, made: tuple[str, tuple[int, ...]], parts: tuple[str, ...]
) -> None:
    wrong = TensorData.encode(name, np.zeros(made[1], np.float32), made[0])
    tensors = [wrong if t.name == name else t for t in target_tensors(SMALL)]
    message = target_refusal(write_gguf(tmp_path / "t.gguf", target_metadata(SMALL), tensors))
    for part in (repr(name), *parts):
        assert part in message


@pytest.mark.parametrize("bad", [-1, 8, 1 << 30])
def test_expert_ids_out_of_range_never_reach_a_kernel(tmp_path: Path, bad: int) -> None:
    name = "blk.0.ffn_gate_tid2eid.weight"
    ids = np.zeros((320, 2), np.int64)
    ids[77, 1] = bad
    wrong = TensorData.encode(name, ids, "I32")
    tensors = [wrong if t.name == name else t for t in target_tensors(SMALL)]
    message = target_refusal(write_gguf(tmp_path / "t.gguf", target_metadata(SMALL), tensors))
    for part in (name, str(bad), "0 to 7"):
        assert part in message


# -- memory


def test_what_does_not_fit_names_needed_and_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "total_memory", lambda: 1 << 30)
    memory.require_memory(1 << 30, "model.gguf")
    with pytest.raises(Ds4Error) as caught:
        memory.require_memory((1 << 30) + 1, "model.gguf")
    for part in ("model.gguf", str((1 << 30) + 1), str(1 << 30), "1.0 GiB"):
        assert part in caught.value.message
    monkeypatch.setattr(memory, "total_memory", lambda: None)
    memory.require_memory(1 << 60, "model.gguf")


def test_this_machines_memory_is_plausible() -> None:
    total = memory.total_memory()
    assert total is None or 1 << 27 < total < 1 << 50
