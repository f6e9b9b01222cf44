"""Drafters of both dialects held against their target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.config import DrafterConfig, ModelConfig
from engine.errors import Ds4Error
from engine.gguf import open_gguf
from engine.gguf_write import TensorData, write_gguf
from engine.synthetic import FLASH
from engine.tensor_table import drafter_name, drafter_table
from tests.engine.random_pair import (
    DRAFTS_SOME,
    EMBEDDED,
    EMBEDDED_DRAFTER,
    K_QUANT,
    PRESETS,
    SMALL,
    DrafterShape,
    TargetShape,
    drafter_metadata,
    drafter_tensors,
    write_drafter,
    write_pair,
    write_target,
)
from tests.engine.test_config import BLOCK, load_target, target_refusal


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    return load_target(write_target(tmp_path_factory.mktemp("target") / "target.gguf"))


def load_drafter(path: Path, target: ModelConfig) -> DrafterConfig:
    return DrafterConfig.from_gguf(open_gguf(path), target)


def drafter_refusal(path: Path, target: ModelConfig) -> str:
    with pytest.raises(Ds4Error) as caught:
        load_drafter(path, target)
    assert str(path) in caught.value.message
    return caught.value.message


# -- what loads


@pytest.mark.parametrize("dialect", ["dspark", "dflash"])
@pytest.mark.parametrize("types", PRESETS)
def test_every_storage_type_loads(tmp_path: Path, types: str, dialect: str) -> None:
    shape, drafter = SMALL, DrafterShape()
    if types in ("ds4-q2", "ds4-q4"):
        shape, drafter = K_QUANT, DrafterShape(expert_dim=256)
    paths = write_pair(tmp_path, shape, drafter, types, dialect)
    config = load_drafter(paths[1], load_target(paths[0]))
    assert config.dialect == dialect


@pytest.mark.parametrize("dialect", ["dspark", "dflash"])
def test_every_field_of_a_drafter(tmp_path: Path, dialect: str) -> None:
    shape, drafter = replace(EMBEDDED, vocab=300), replace(EMBEDDED_DRAFTER, default_confidence=0.5)
    paths = write_pair(tmp_path, shape, drafter, "ds4", dialect)
    config = load_drafter(paths[1], load_target(paths[0]))
    assert (config.stages, config.block_size, config.markov_rank, config.noise_id) == (3, 5, 64, 8)
    assert config.target_layers == (5, 6, 7)
    assert (config.experts, config.experts_used, config.expert_dim) == (8, 4, 128)
    assert (config.window, config.default_confidence) == (128, 0.5)
    assert config.swiglu_clamp == (10.0,) * 3
    assert (config.has_confidence, config.confidence_bias) == (True, 0.0)
    assert config.path == str(paths[1])


def test_default_confidence_of_a_users_file(tmp_path: Path, target: ModelConfig) -> None:
    assert load_drafter(write_drafter(tmp_path / "d.gguf"), target).default_confidence == 0.9


DSPARK_HEADS = {
    "mtp.0.main_proj.weight": "fc.weight",
    "mtp.0.main_norm.weight": "enc.output_norm.weight",
    "mtp.1.norm.weight": "output_norm.weight",
    "mtp.1.hc_head_fn.weight": "output_hc_fn.weight",
    "mtp.1.hc_head_base.weight": "output_hc_base.weight",
    "mtp.1.hc_head_scale.weight": "output_hc_scale.weight",
    "mtp.1.markov_head.markov_w1.weight": "markov_w1.weight",
    "mtp.1.markov_head.markov_w2.weight": "markov_w2.weight",
    "mtp.1.confidence_head.proj.weight": "conf_proj.weight",
}


def test_names_are_those_of_the_released_files(tmp_path: Path) -> None:
    """Spelt out here, not taken from the table that the loader uses."""
    blocks = {f"mtp.{s}.{name}.weight" for s in (0, 1) for name in BLOCK}
    blocks |= {f"mtp.{s}.exp_probs_b.bias" for s in (0, 1)}
    path = write_drafter(tmp_path / "d.gguf")
    assert set(open_gguf(path).tensors) == blocks | set(DSPARK_HEADS)


def test_names_of_the_other_dialect(tmp_path: Path, target: ModelConfig) -> None:
    dspark = open_gguf(write_drafter(tmp_path / "a.gguf"))
    dflash = open_gguf(write_drafter(tmp_path / "b.gguf", dialect="dflash"))
    config = DrafterConfig.from_gguf(dflash, target)
    for name in dspark.tensors:
        other = config.tensor_name(name)
        assert other == DSPARK_HEADS.get(name, name.replace("mtp.", "blk."))
        np.testing.assert_array_equal(dspark.dequantise(name), dflash.dequantise(other))


def test_the_released_shapes() -> None:
    """81 tensors, by the inventory of the released support files."""
    table = drafter_table(FLASH, 3, 3, 256)
    assert len(table) == 81
    shapes = {e.name: e.shape for e in table}
    assert shapes["mtp.0.main_proj.weight"] == (4096, 12288)
    assert shapes["mtp.2.confidence_head.proj.weight"] == (1, 4352)
    assert shapes["mtp.2.markov_head.markov_w2.weight"] == (129280, 256)


def test_shapes_of_the_same_bytes_are_as_good(tmp_path: Path, target: ModelConfig) -> None:
    def reshaped(tensor: TensorData) -> TensorData:
        flat = "confidence_head" in tensor.name or "hc_head_scale" in tensor.name
        return replace(tensor, shape=tensor.shape[-1:]) if flat else tensor

    tensors = [reshaped(t) for t in drafter_tensors(SMALL, DrafterShape())]
    metadata = drafter_metadata(SMALL, DrafterShape(), "dspark")
    load_drafter(write_gguf(tmp_path / "d.gguf", metadata, tensors), target)


@pytest.mark.parametrize("prefix", ["dspark.", "deepseek4.dspark.", "deepseek4.dspark_"])
def test_aliases_of_the_drafters_keys(tmp_path: Path, target: ModelConfig, prefix: str) -> None:
    plain = drafter_metadata(SMALL, DrafterShape(), "dspark")
    keys = {
        k.replace("dspark.", prefix, 1) if k.startswith("dspark.") else k: v
        for k, v in plain.items()
    }
    keys["dspark.source.revision"] = "7872f01b"
    path = write_gguf(tmp_path / "d.gguf", keys, drafter_tensors(SMALL, DrafterShape()))
    assert load_drafter(path, target).target_layers == (1, 2, 3)


def test_other_dialects_layers_are_one_more(tmp_path: Path, target: ModelConfig) -> None:
    path = write_drafter(tmp_path / "d.gguf", dialect="dflash")
    assert open_gguf(path).metadata["dflash.target_layers"].tolist() == [2, 3, 4]
    assert load_drafter(path, target).target_layers == (1, 2, 3)


def test_a_drafter_without_confidence_head(tmp_path: Path, target: ModelConfig) -> None:
    path = write_drafter(tmp_path / "d.gguf", dialect="dflash", without=["conf_proj.weight"])
    assert load_drafter(path, target).has_confidence is False


def test_the_confidence_head_may_have_a_bias(tmp_path: Path, target: ModelConfig) -> None:
    bias = TensorData.encode("conf_proj.bias", np.array([-0.5]), "F32")
    tensors = [*drafter_tensors(SMALL, DrafterShape(), "dflash"), bias]
    metadata = drafter_metadata(SMALL, DrafterShape(), "dflash")
    path = write_gguf(tmp_path / "d.gguf", metadata, tensors)
    assert load_drafter(path, target).confidence_bias == -0.5


# -- what is refused


@pytest.mark.parametrize("dialect", ["dspark", "dflash"])
@pytest.mark.parametrize(
    ("shape", "key", "found", "expected"),
    [
        (replace(SMALL, vocab=300), "vocab_size", "300", "320"),
        (replace(SMALL, dim=64), "embedding_length", "64", "128"),
        (replace(SMALL, heads=8), "attention.head_count", "8", "4"),
        (replace(SMALL, head_dim=64), "attention.key_length", "64", "128"),
        (replace(SMALL, q_rank=32), "attention.q_lora_rank", "32", "64"),
    ],
)
def test_geometry_that_does_not_fit(
    tmp_path: Path,
    target: ModelConfig,
    dialect: str,
    shape: TargetShape,
    key: str,
    found: str,
    expected: str,
) -> None:
    path = write_drafter(tmp_path / "d.gguf", shape, dialect=dialect)
    message = drafter_refusal(path, target)
    for part in (target.path, "does not fit", found, expected):
        assert part in message
    assert key in message or (dialect, key) == ("dflash", "vocab_size")


def test_sizes_that_only_a_shape_tells(tmp_path: Path, target: ModelConfig) -> None:
    path = write_drafter(tmp_path / "d.gguf", replace(SMALL, out_rank=64))
    message = drafter_refusal(path, target)
    for part in ("attn_output_a.weight", "[128, 256]", "[64, 256]"):
        assert part in message


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"dspark.noise_token_id": 320}, ("noise_token_id", "320", "under 320")),
        ({"dspark.target_layer_ids": [1, 2, 4]}, ("[1, 2, 4]", "0 to 3")),
        ({"dspark.target_layer_ids": [3, 2, 1]}, ("[3, 2, 1]", "rising")),
        ({"dspark.target_layer_ids": []}, ("target_layer_ids", "1 to 8")),
        ({"dspark.target_layer_ids": 3}, ("target_layer_ids", "an array")),
        ({"dspark.target_layer_ids": [2, 3]}, ("main_proj.weight", "[128, 256]")),
        ({"dspark.markov_rank": 64}, ("markov_rank", "64", "32")),
        ({"dspark.block_size": 17}, ("block_size", "'17'", "1 to 16")),
        ({"dspark.block_size": 0}, ("block_size", "'0'")),
        ({"dspark.block_size": None}, ("dspark.block_size", "an integer")),
        ({"dspark.stage_count": 9}, ("stage_count", "'9'", "1 to 8")),
        ({"dspark.stage_count": 3, "dspark.n_layers": 3}, ("mtp.2.attn_q_a.weight", "missing")),
        ({"dspark.n_layers": 1}, ("n_layers", "1", "2")),
        ({"ds4tui.default_confidence": 1.5}, ("default_confidence", "1.5")),
        ({"general.architecture": "deepseek4_mtp_support"}, ("one-stage MTP",)),
        ({"general.architecture": "llama"}, ("no DSpark drafter", "'llama'")),
        ({"general.architecture": "dflash"}, ("without the Markov head",)),
    ],
)
def test_wrong_drafter_metadata(
    tmp_path: Path, target: ModelConfig, change: dict[str, object], parts: tuple[str, ...]
) -> None:
    path = write_drafter(tmp_path / "d.gguf", metadata=change)
    message = drafter_refusal(path, target)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"dflash.target_layers": [0, 1, 2]}, ("[0, 1, 2]", "1 to 4")),
        ({"dflash.target_layers": [2, 3, 5]}, ("[2, 3, 5]", "1 to 4")),
        ({"dflash.sample_from_anchor": False}, ("sample_from_anchor", "false", "true")),
        ({"dflash.attention.causal": True}, ("attention.causal", "true", "false")),
        ({"dflash.attention.compress_ratios": [0, 4]}, ("compress_ratios", "zeros")),
        ({"dflash.hyper_connection.count": None}, ("hyper-connections",)),
        ({"dflash.rope.freq_base": 5e5}, ("rope.freq_base", "500000", "10000")),
        ({"dflash.expert_count": 8}, ("expert_count", "8", "4")),
        ({"dflash.expert_used_count": 5}, ("expert_used_count", "1 to 4")),
        ({"tokenizer.ggml.mask_token_id": 999}, ("mask_token_id", "999", "320")),
        ({"tokenizer.ggml.tokens": [f"t{i}" for i in range(320)]}, ("another list",)),
        ({"tokenizer.ggml.tokens": ["a", "b"]}, ("2 tokens", "320")),
    ],
)
def test_wrong_metadata_of_the_other_dialect(
    tmp_path: Path, target: ModelConfig, change: dict[str, object], parts: tuple[str, ...]
) -> None:
    path = write_drafter(tmp_path / "d.gguf", dialect="dflash", metadata=change)
    message = drafter_refusal(path, target)
    for part in parts:
        assert part in message


@pytest.mark.parametrize("dialect", ["dspark", "dflash"])
@pytest.mark.parametrize(
    ("drafted", "parts"),
    [
        ([5, 4, 9], ("the order of tensor 'd2t'", "5 before 4", "rising")),
        ([5, 9, 9], ("the order of tensor 'd2t'", "9 before 9", "each once")),
        ([5, 9, 320], ("an id of tensor 'd2t'", "320", "0 to 319")),
        ([-1, 9, 10], ("an id of tensor 'd2t'", "-1", "0 to 319")),
        ([5, 9], ("the shape of tensor 'd2t'", "[2]", "[3] for the rows of 'output.weight'")),
        ([[5, 9, 12]], ("the shape of tensor 'd2t'", "[1, 3]", "[3]")),
        ([5.0, 9.0, 12.0], ("the type of tensor 'd2t'", "F32", "I64")),
    ],
)
def test_a_draft_vocabulary_that_cannot_be(
    tmp_path: Path,
    target: ModelConfig,
    dialect: str,
    drafted: list[object],
    parts: tuple[str, ...],
) -> None:
    shape, ids = DrafterShape(own_head=True, drafted=3), np.array(drafted)
    wrong = TensorData.encode("d2t", ids, "I64" if ids.dtype == np.int64 else "F32")
    kept = [t for t in drafter_tensors(SMALL, shape, dialect) if t.name != "d2t"]
    metadata = drafter_metadata(SMALL, shape, dialect)
    message = drafter_refusal(write_gguf(tmp_path / "d.gguf", metadata, [*kept, wrong]), target)
    for part in (*parts, target.path):
        assert part in message


@pytest.mark.parametrize("dialect", ["dspark", "dflash"])
def test_parts_of_a_draft_vocabulary_that_are_missing(
    tmp_path: Path, target: ModelConfig, dialect: str
) -> None:
    whole = write_drafter(tmp_path / "d.gguf", SMALL, DRAFTS_SOME, dialect)
    config = load_drafter(whole, target)
    assert (config.own_head, config.draft_vocabulary) == (True, 97)
    markov = config.tensor_name("mtp.1.markov_head.markov_w2.weight")
    for name, part in (
        ("output.weight", "in the file without 'output.weight'"),
        ("d2t", f"{markov!r} has shape [97, 32], expected [320, 32]"),
    ):
        path = write_drafter(tmp_path / "w.gguf", SMALL, DRAFTS_SOME, dialect, without=[name])
        assert part in drafter_refusal(path, target)
    full = drafter_tensors(SMALL, DrafterShape(), dialect)
    some = drafter_tensors(SMALL, DRAFTS_SOME, dialect)
    metadata = drafter_metadata(SMALL, DRAFTS_SOME, dialect)
    mixed = [*full, *(t for t in some if t.name in ("output.weight", "d2t"))]
    message = drafter_refusal(write_gguf(tmp_path / "m.gguf", metadata, mixed), target)
    assert f"'d2t' is [97], expected [320] for the rows of {markov!r}" in message
    lone = [*full, *(t for t in some if t.name == "output.weight")]
    message = drafter_refusal(write_gguf(tmp_path / "l.gguf", metadata, lone), target)
    assert "'output.weight' has shape [97, 128], expected [320, 128]" in message


@pytest.mark.parametrize(("drafted", "shape"), [(1, (SMALL.dim,)), (3, (1, 3, SMALL.dim))])
def test_a_head_with_more_or_fewer_axes_of_one(
    tmp_path: Path, target: ModelConfig, drafted: int, shape: tuple[int, ...]
) -> None:
    own = DrafterShape(own_head=True, drafted=drafted)
    kept = [t for t in drafter_tensors(SMALL, own) if t.name != "output.weight"]
    output = TensorData.encode("output.weight", np.ones(shape), "F16")
    metadata = drafter_metadata(SMALL, own, "dspark")
    path = write_gguf(tmp_path / "d.gguf", metadata, [*kept, output])
    assert load_drafter(path, target).draft_vocabulary == drafted


@pytest.mark.parametrize("dialect", ["dspark", "dflash"])
@pytest.mark.parametrize("canonical", ["output.weight", "mtp.1.markov_head.markov_w2.weight"])
def test_a_head_stored_transposed_is_what_is_named(
    tmp_path: Path, target: ModelConfig, dialect: str, canonical: str
) -> None:
    tensors = drafter_tensors(SMALL, DRAFTS_SOME, dialect)
    name = drafter_name(canonical, dialect)
    (right,) = (tensor for tensor in tensors if tensor.name == name)
    rows, width = right.shape
    wrong = TensorData.encode(name, np.ones((width, rows)), "F16")
    kept = [tensor for tensor in tensors if tensor is not right]
    metadata = drafter_metadata(SMALL, DRAFTS_SOME, dialect)
    message = drafter_refusal(write_gguf(tmp_path / "d.gguf", metadata, [*kept, wrong]), target)
    assert f"{name!r} has shape [{width}, {rows}], expected [{rows}, {width}]" in message


@pytest.mark.parametrize("dialect", ["dspark", "dflash"])
def test_a_head_of_its_own_for_all_tokens(
    tmp_path: Path, target: ModelConfig, dialect: str
) -> None:
    path = write_drafter(tmp_path / "d.gguf", SMALL, DrafterShape(own_head=True), dialect)
    config = load_drafter(path, target)
    assert (config.own_head, config.draft_vocabulary) == (True, None)


@pytest.mark.parametrize(
    ("name", "dialect"),
    [("token_embd.weight", "dspark"), ("token_embd.weight", "dflash"), ("fc.scale", "dflash")],
)
def test_what_the_other_dialect_allows_is_not_dropped(
    tmp_path: Path, target: ModelConfig, name: str, dialect: str
) -> None:
    extra = TensorData.encode(name, np.array([2.0]), "F32")
    tensors = [*drafter_tensors(SMALL, DrafterShape(), dialect), extra]
    metadata = drafter_metadata(SMALL, DrafterShape(), dialect)
    path = write_gguf(tmp_path / "d.gguf", metadata, tensors)
    assert repr(name) in drafter_refusal(path, target)


@pytest.mark.parametrize("dialect", ["dspark", "dflash"])
def test_missing_drafter_tensors(tmp_path: Path, target: ModelConfig, dialect: str) -> None:
    names = ["mtp.0.main_proj.weight", "mtp.1.hc_head_fn.weight", "mtp.0.exp_probs_b.bias"]
    gone = [drafter_name(name, dialect) for name in names]
    path = write_drafter(tmp_path / "d.gguf", dialect=dialect, without=gone)
    message = drafter_refusal(path, target)
    for part in (*gone, "3 tensors are missing"):
        assert part in message


def test_each_given_in_the_others_place(tmp_path: Path) -> None:
    target_path, drafter_path = write_pair(tmp_path)
    config = load_target(target_path)
    assert "is the target itself, given as drafter" in drafter_refusal(target_path, config)
    other = write_target(tmp_path / "other.gguf", seed=5)
    assert "is a target model, given as drafter" in drafter_refusal(other, config)
    assert "is a drafter" in target_refusal(drafter_path)
    dflash = write_drafter(tmp_path / "d.gguf", dialect="dflash")
    assert "is a drafter" in target_refusal(dflash)


@pytest.mark.parametrize("meant", [0.6, 0.9, 0.5, 0.0, 1.0, 0.05])
def test_the_default_confidence_is_the_decimal_that_was_meant(
    tmp_path: Path, target: ModelConfig, meant: float
) -> None:
    path = write_drafter(tmp_path / "d.gguf", shape=DrafterShape(default_confidence=meant))
    assert load_drafter(path, target).default_confidence == meant
