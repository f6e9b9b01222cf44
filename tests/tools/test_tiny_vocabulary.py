"""A drafter of a few tokens: which ones, what it proposes, its file, and the pair written again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ds4tui.options import model_files
from engine.errors import Ds4Error
from engine.gguf import open_gguf
from tests.tools.test_tiny_drafter import DRAFT, drafter
from tests.tools.test_tiny_target import SHAPE, random_target
from tools.tiny_model import export
from tools.tiny_model.drafter import continued, from_named, in_4_bits, propose, with_own_head
from tools.tiny_model.file_types import (
    DRAFTER_FILE,
    TARGET_FILE,
    file_type,
    load_weights,
    marked,
    rounded_like_file,
)
from tools.tiny_model.rounding import mxfp4_bytes
from tools.tiny_model.tokenizer import BOS, EOS, SPECIAL
from tools.tiny_model.vocabulary import CHAT_SHARE, most_frequent

gguf = pytest.importorskip("gguf")
TOKENS = torch.tensor([EOS, 20, 21, 40, 77, 100])


def test_mxfp4_is_read_as_ggml_reads_it_and_errs_no_more() -> None:
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    x[0] = 0
    x[1] *= 2.0**-60
    x[2, :8] = torch.tensor([0.25, 0.75, -2.5, 5.0, -5.0, 7.5, 6.0, 3.5])
    kind = gguf.GGMLQuantizationType.MXFP4
    ours, theirs = (
        torch.from_numpy(gguf.quants.dequantize(stored, kind))
        for stored in (mxfp4_bytes(x), gguf.quants.quantize(x.numpy(), kind))
    )
    errors = [(x - y).square().unflatten(-1, (-1, 32)).sum(-1) for y in (ours, theirs)]
    assert bool((errors[0] <= errors[1] * (1 + 1e-6)).all())
    assert float(errors[0].sum()) < 0.97 * float(errors[1].sum())
    assert np.array_equal(mxfp4_bytes(ours), mxfp4_bytes(x))


def test_4_bits_of_a_drafter_are_those_of_its_file_and_let_gradients_pass() -> None:
    made = drafter()
    names = marked(made.named(), ("mtp.*", "main_proj"))
    assert "mtp.1.ffn_gate_exps" in names
    assert "main_proj" in names
    assert not {"mtp.0.hc_attn_fn", "mtp.0.attn_norm", "markov_head.markov_w2"} & set(names)
    small = in_4_bits(made, names)
    kind = gguf.GGMLQuantizationType.MXFP4
    for name, tensor in small.named().items():
        whole = made.named()[name].detach()
        if name not in names:
            assert tensor.equal(whole)
            continue
        stored = mxfp4_bytes(whole)
        assert np.array_equal(tensor.detach().numpy(), gguf.quants.dequantize(stored, kind))
        kept = rounded_like_file({name: tensor})[name]  # as trained weights travel
        assert np.array_equal(mxfp4_bytes(kept), mxfp4_bytes(tensor.detach()))
        assert not tensor.detach().equal(whole)
    sum(small.named()[name].sum() for name in names).backward()  # type: ignore[union-attr]
    assert all(made.named()[name].grad.eq(1).all() for name in names)  # type: ignore[union-attr]
    assert in_4_bits(made, ()).named().keys() == made.named().keys()


def test_frequent_tokens_are_kept_and_of_the_special_ones_the_end_token() -> None:
    corpus = torch.tensor([BOS] * 50 + [20] * 30 + [21] * 15 + [22] * 5)
    chat = torch.tensor([SPECIAL.index("<｜User｜>")] * 60 + [30] * 30 + [21] * 10)
    assert 0 < CHAT_SHARE < 0.5
    assert most_frequent(corpus, chat, 64, 4).tolist() == [EOS, 20, 21, 30]
    assert most_frequent(corpus, chat, 64, 6).tolist() == [EOS, 9, 20, 21, 22, 30]


def test_proposals_are_the_best_of_the_kept_tokens() -> None:
    whole, output = drafter(), random_target().top["output"]
    rng = torch.Generator().manual_seed(6)
    with torch.no_grad():
        whole.top["markov_head.markov_w2"].copy_(
            torch.randn(SHAPE.vocab, DRAFT.markov_rank, generator=rng)
        )
        some = from_named(SHAPE, DRAFT, with_own_head(whole.named(), output, TOKENS))
        u = torch.randn(9, DRAFT.block, SHAPE.dim, generator=rng)
        anchors, none = torch.arange(9) + 30, torch.full((9, DRAFT.block, 1), -1)
        gone = torch.tensor([t for t in range(SHAPE.vocab) if t not in TOKENS.tolist()])
        bans = gone.expand(9, DRAFT.block, -1)
        for markov in (True, False):
            wanted = propose(u, whole.top, output, anchors, bans, markov)
            found = propose(u, some.top, output, anchors, none, markov)
            assert found[0].equal(wanted[0])
            torch.testing.assert_close(found[1], wanted[1])
            assert not found[0].equal(propose(u, whole.top, output, anchors, none, markov)[0])


def test_it_cannot_be_cut_again_or_trained() -> None:
    output = random_target().top["output"]
    some = with_own_head(drafter().named(), output, TOKENS)
    with pytest.raises(ValueError, match="a head of 6 tokens of its own"):
        with_own_head(some, output, TOKENS)
    with pytest.raises(ValueError, match="a head of 6 tokens of its own"):
        continued(SHAPE, some, DRAFT.expert_dim)


def test_a_head_of_all_tokens_needs_no_table_and_can_be_trained_and_cut() -> None:
    named, output = drafter().named(), random_target().top["output"]
    whole = with_own_head(named, output, torch.arange(SHAPE.vocab))
    assert whole.keys() - named.keys() == {"draft_head"}
    assert whole["draft_head"].equal(output)
    made = continued(SHAPE, whole, DRAFT.expert_dim)
    assert made.top["draft_head"].requires_grad
    some = with_own_head(made.named(), torch.zeros_like(output), TOKENS)
    assert some["draft_head"].equal(output[TOKENS])


def test_its_file_gives_the_tensors_back(tmp_path: Path) -> None:
    some = with_own_head(drafter().named(), random_target().top["output"], TOKENS)
    path = tmp_path / DRAFTER_FILE
    export.write(path, "deepseek4-dspark", {}, some, DRAFT.stages, ("mtp.*_exps", "draft_head"))
    stored = open_gguf(path).tensors
    assert (stored["d2t"].type, stored["output.weight"].shape) == ("I64", (6, SHAPE.dim))
    kinds = {name: file_type(name, tensor) for name, tensor in some.items()}
    assert kinds["mtp.0.ffn_down_shexp"] == kinds["main_proj"] == "Q8_0"
    assert kinds["mtp.1.hc_attn_fn"] == kinds["mtp.1.ffn_gate_inp"] == "F16"
    small = {name for name in some if name.endswith("_exps") or name == "draft_head"}
    kinds |= dict.fromkeys(small, "MXFP4")
    assert {stored[export.file_name(n, DRAFT.stages)].type == k for n, k in kinds.items()} == {True}
    found = load_weights(tmp_path, "drafter2_", "cpu")
    assert found.keys() == some.keys()
    for name, tensor in rounded_like_file(some).items():
        if name not in small:
            assert found[name].float().equal(tensor.float()), name
            continue
        written = gguf.quants.dequantize(mxfp4_bytes(some[name]), gguf.GGMLQuantizationType.MXFP4)
        assert np.array_equal(found[name].numpy(), written), name


def test_the_embedded_pair_is_what_an_export_of_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        target, drafters, _ = model_files(None, None)
    except Ds4Error as error:
        pytest.skip(error.message)
    folder, file = Path(target).parent, open_gguf(target)
    tokens = file.get_strings("tokenizer.ggml.tokens")
    merges = file.get_strings("tokenizer.ggml.merges")
    model = {"vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}), encoding="utf-8")
    arguments = [folder, tmp_path, tmp_path / "out", "--stages", "3", "--confidence", "0.5"]
    arguments += ["--mxfp4", "mtp.*", "main_proj", "markov_head.markov_w2", "draft_head"]
    monkeypatch.setattr(sys, "argv", ["export", *map(str, arguments)])
    export.main()
    for name, path in ((TARGET_FILE, target), (DRAFTER_FILE, drafters[0])):
        assert (tmp_path / "out" / name).read_bytes() == Path(path).read_bytes(), name
