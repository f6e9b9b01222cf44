"""Roundings, weight files, n-gram checks and the exported GGUF pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tools.test_tiny_drafter import DRAFT
from tests.tools.test_tiny_target import SHAPE, random_target
from tools.tiny_model import tokens
from tools.tiny_model.drafter import fresh_drafter
from tools.tiny_model.export import drafter_metadata, file_name, target_metadata, write
from tools.tiny_model.file_types import file_type, load_weights, rounded_like_file, save_weights
from tools.tiny_model.rounding import fp4_block, fp8_row, hadamard, q8_0
from tools.tiny_model.tokenizer import NOISE, SPECIAL, blank, chat_prompt, train

gguf = pytest.importorskip("gguf")


def test_q8_0_equals_ggml() -> None:
    x = torch.randn(8, 256, generator=torch.Generator().manual_seed(0))
    kind = gguf.GGMLQuantizationType.Q8_0
    wanted = gguf.quants.dequantize(gguf.quants.quantize(x.numpy(), kind), kind)
    assert np.array_equal(q8_0(x).numpy(), wanted)


def test_fp4_takes_the_grid_with_ties_to_even() -> None:
    row = torch.tensor([0.25, 0.75, 1.75, 2.5, 3.5, 5.0, -5.5, 6.0] * 4)
    wanted = torch.tensor([0.0, 1.0, 2.0, 2.0, 4.0, 4.0, -6.0, 6.0] * 4)
    assert torch.equal(fp4_block(row), wanted)


def test_fp8_spares_the_rotated_part_and_passes_gradients() -> None:
    x = torch.randn(3, 128, generator=torch.Generator().manual_seed(1), requires_grad=True)
    rounded = fp8_row(x, 64, half=False)
    assert torch.equal(rounded[:, 64:], x[:, 64:])
    error = ((rounded - x) / x).detach()[:, :64].abs().max()
    assert 0 < float(error) < 0.07
    rounded.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones_like(x))


def test_hadamard_is_orthonormal() -> None:
    h = hadamard(128, torch.device("cpu"), torch.float32)
    assert torch.allclose(h @ h, torch.eye(128), atol=1e-6)


def test_weights_come_back_as_the_file_holds_them(tmp_path: Path) -> None:
    named = random_target().named()
    save_weights(named, tmp_path, "target", 2)
    again = load_weights(tmp_path, "target", "cpu")
    wanted = rounded_like_file(named)
    assert again.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(again[name].float(), tensor.float()), name
    with pytest.raises(FileNotFoundError, match="drafter"):
        load_weights(tmp_path, "drafter", "cpu")


def test_exported_drafter_has_every_tensor_in_its_type(tmp_path: Path) -> None:
    made = fresh_drafter(random_target(), DRAFT, 3)
    path = tmp_path / "drafter.gguf"
    metadata = drafter_metadata(SHAPE, DRAFT, 0.5)
    write(path, "deepseek4-dspark", metadata, made.named(), DRAFT.stages)
    reader = gguf.GGUFReader(path)
    found = {t.name: t for t in reader.tensors}
    assert len(found) == 24 * DRAFT.stages + 2 + 7
    wanted = rounded_like_file(made.named())
    for name, tensor in made.named().items():
        stored = found[file_name(name, DRAFT.stages)]
        assert stored.tensor_type.name == file_type(name, tensor)
        value = gguf.quants.dequantize(stored.data, stored.tensor_type)
        assert np.array_equal(value.reshape(tensor.shape), wanted[name].numpy()), name
    assert reader.fields["dspark.target_layer_ids"].contents() == [1, 2, 3]


def test_target_metadata_keeps_the_special_tokens_first(tmp_path: Path) -> None:
    tokenizer = train(["the cat sat on the mat and the dog sat on the log"] * 20, 290)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    shape = type(SHAPE)(vocab=size)
    metadata = target_metadata(shape, tmp_path / "tokenizer.json", "fp8")
    stored = metadata["tokenizer.ggml.tokens"]
    assert stored[: len(SPECIAL)] == list(SPECIAL)
    assert len(stored) == size
    assert stored[NOISE] == "<｜place▁holder▁no▁0｜>"
    assert len(metadata["tokenizer.ggml.merges"]) == size - 256 - len(SPECIAL)
    assert chat_prompt(tokenizer, "the cat")[:2] == [0, 3]


def test_digits_are_cut_in_threes() -> None:
    pieces = blank().pre_tokenizer.pre_tokenize_str("x 12345!foo")
    assert [text for text, _ in pieces] == ["x", "Ġ", "123", "45", "!foo"]


def test_paragraphs_that_share_an_ngram_are_dropped() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(20, 8000, 300).astype(np.uint16)
    end = 15
    ids[[99, 199]] = end
    keys = np.unique(tokens.hashes(ids[120:140]))
    bad = tokens.shared(ids, keys)
    assert np.flatnonzero(bad).tolist() == list(range(120, 140))
    ends = np.zeros(8192, bool)
    ends[end] = True
    kept = tokens.drop_paragraphs(ids, bad, ends)
    assert np.array_equal(kept, np.concatenate([ids[:100], ids[200:]]))
