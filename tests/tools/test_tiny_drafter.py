"""What a drafter block sees, its losses, and the walk through speculative cycles."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.tools.test_tiny_target import SHAPE, random_ids, random_target
from tools.tiny_model.decode import Generated
from tools.tiny_model.drafter import (
    CONFIDENCE_WEIGHT,
    Drafter,
    block_bans,
    continued,
    fresh_drafter,
    losses,
    narrowed,
    propose,
    rows,
    teacher,
)
from tools.tiny_model.evaluate import auc, repeated, walk
from tools.tiny_model.export import write
from tools.tiny_model.file_types import DRAFTER_FILE, load_weights, rounded_like_file
from tools.tiny_model.shape import DraftShape
from tools.tiny_model.target import forward
from tools.tiny_model.tokenizer import EOS
from tools.tiny_model.train_drafter import own_rows

DRAFT = DraftShape(stages=2, experts=4, experts_used=2, expert_dim=32, markov_rank=32)
ANCHOR = 200


def drafter() -> Drafter:
    return fresh_drafter(random_target(), DRAFT, 3)


def block(made: Drafter, taps: Tensor, ids: Tensor) -> Tensor:
    with torch.no_grad():
        u, _ = rows(
            made,
            random_target().top,
            taps,
            ids,
            torch.tensor([[ANCHOR]]),
            rounding=False,
            dtype=torch.float32,
        )
    return u[0, 0]


@pytest.mark.parametrize(
    ("place", "seen"),
    [(ANCHOR, False), (ANCHOR - 1, True), (ANCHOR - 128, True), (ANCHOR - 129, False)],
)
def test_a_block_sees_the_window_before_its_anchor(place: int, seen: bool) -> None:
    made, ids = drafter(), random_ids(1, 256)
    taps = torch.randn(1, 256, 3 * SHAPE.dim, generator=torch.Generator().manual_seed(4))
    changed = taps.clone()
    changed[:, place] += 1.0
    difference = (block(made, taps, ids) - block(made, changed, ids)).abs().amax(-1)
    assert bool((difference > 0).all()) is seen
    assert bool((difference > 0).any()) is seen


def test_a_block_sees_its_anchor_token_and_no_other() -> None:
    made, ids = drafter(), random_ids(1, 256)
    taps = torch.randn(1, 256, 3 * SHAPE.dim, generator=torch.Generator().manual_seed(4))
    before = block(made, taps, ids)
    for place, seen in ((ANCHOR, True), (ANCHOR + 1, False), (ANCHOR - 1, False)):
        changed = ids.clone()
        changed[0, place] = (ids[0, place] + 1) % SHAPE.vocab
        assert bool((block(made, taps, changed) != before).any()) is seen


def test_losses_reach_every_tensor() -> None:
    target, made, ids = random_target(), drafter(), random_ids(2, 256)
    with torch.no_grad():
        final, taps = forward(target, ids, rounding=True, taps=3)
        made.top["markov_head.markov_w2"] += 0.01
    anchors = torch.tensor([[10, 100], [130, 240]])
    bans = torch.full((2, 2, DRAFT.block, 4), -1)
    wanted = teacher(final, target.top["output"], anchors, bans)
    u, _ = rows(made, target.top, taps, ids, anchors, rounding=True, dtype=torch.float32)
    loss, accept, same = losses(
        u, made.top, target.top["output"], wanted.detach(), bans, ids, anchors, 0.1
    )
    loss.backward(retain_graph=True)
    for name, tensor in made.trainable().items():
        assert tensor.grad is not None, name
        assert torch.isfinite(tensor.grad).all(), name
    assert accept.shape == same.shape == (DRAFT.block,)
    assert bool(((accept >= 0) & (accept <= 1)).all())


def test_propose_chains_the_markov_bias_and_respects_bans() -> None:
    made = drafter()
    with torch.no_grad():
        made.top["markov_head.markov_w1"].copy_(torch.eye(SHAPE.vocab, DRAFT.markov_rank))
        made.top["markov_head.markov_w2"].zero_()
        for token in range(20, 26):  # after token t comes t + 1
            made.top["markov_head.markov_w2"][token + 1, token] = 1e3
        u = torch.randn(DRAFT.block, SHAPE.dim, generator=torch.Generator().manual_seed(5))
        output = 0.1 * random_target().top["output"]
        banned = torch.full((DRAFT.block, 4), -1)
        drafts, confidence = propose(u, made.top, output, torch.tensor(20), banned)
        assert drafts.tolist() == [21, 22, 23, 24, 25]
        assert confidence.shape == (DRAFT.block,)
        banned[1, 2] = 22
        drafts, _ = propose(u, made.top, output, torch.tensor(20), banned)
    assert drafts[0] == 21
    assert drafts[1] != 22


def test_walk_counts_cycles_and_stops_at_the_gate() -> None:
    tokens = list(range(40))
    drafts = np.array([[p + 1, p + 2, p + 3, 0, p + 5] for p in range(40)])
    confidence = np.full((40, 5), 0.8)
    cycles = walk(tokens, 5, 40, drafts, confidence)
    assert set(cycles.depths) == {4}
    assert cycles.starts[:3] == [5, 9, 13]
    assert cycles.reached.tolist()[4] == 0
    assert (cycles.kept[:3] == cycles.reached[:3]).all()
    assert cycles.kept[3] == 0
    confidence[:, 2] = 0.1
    assert set(walk(tokens, 5, 40, drafts, confidence, 0.5).depths) == {3}


def test_repeats_and_auc() -> None:
    assert repeated([1, 2, 3, 9, 1, 2, 3, 4], 3).tolist() == [False] * 4 + [True] * 3 + [False]
    assert auc([(0.9, True), (0.8, True), (0.2, False)]) == 1.0
    assert auc([(0.1, True), (0.8, False)]) == 0.0


def one_block(favourites: list[int], wanted: list[int], bans: Tensor) -> tuple[float, list[float]]:
    """The confidence's mean loss at logit -8 and the equal argmaxes of a block whose row k likes
    token `favourites[k]` best, then token 0, while the target wants `wanted[k]`."""
    vocab, n = 32, len(favourites)
    output = torch.eye(vocab)
    u = output[favourites] + 0.5 * output[0]
    top = {
        "norm": torch.ones(vocab),
        "markov_head.markov_w1": torch.ones(vocab, 1),
        "markov_head.markov_w2": torch.zeros(vocab, 1),
        "confidence_head.proj": torch.cat([torch.zeros(1, vocab), torch.full((1, 1), -8.0)], 1),
    }
    arguments = (output[wanted][None, None], bans[None, None], torch.ones(1, n + 2).long())
    with_head, _, same = losses(u[None, None], top, output, *arguments, torch.tensor([[0]]), 0.1)
    top["confidence_head.proj"] = torch.zeros(1, vocab + 1)
    without, _, _ = losses(u[None, None], top, output, *arguments, torch.tensor([[0]]), 0.1)
    return float(with_head - without) / CONFIDENCE_WEIGHT + math.log(2), same.tolist()


def test_the_confidence_learns_from_judged_drafts_only() -> None:
    none = torch.full((4, 2), -1)
    loss, same = one_block([5, 6, 7, 8], [5, 6, 9, 9], none)
    assert same == [1, 1, 0, 0]
    assert loss == pytest.approx((8 + 8 + 0) / 3, abs=1e-2)  # the last draft is never judged


def test_the_losses_choose_under_the_no_repeat_rule() -> None:
    bans = torch.full((4, 2), -1)
    bans[1, 1] = 6  # the draft that the row likes best must not come: token 0 does
    loss, same = one_block([5, 6, 7, 8], [5, 0, 7, 8], bans)
    assert same == [1, 1, 1, 1]
    assert loss == pytest.approx(8, abs=1e-2)
    final = torch.eye(32)[None, [5, 6, 7, 8, 9]]
    found = teacher(8 * final, torch.eye(32), torch.tensor([[0]]), bans[None, None])[0, 0]
    assert found.argmax(-1).tolist() == [5, 0, 7, 8]
    assert float(found[1, 6]) == 0
    assert torch.allclose(found.sum(-1), torch.ones(4))


def test_blocks_stand_between_the_prompt_and_the_first_end_token() -> None:
    tokens = torch.full((3, 40), 9)
    tokens[0, [2, 20, 30]] = EOS  # an end token of the prompt does not count
    tokens[1, 7] = EOS
    written = Generated(
        tokens, torch.tensor([4, 7, 3]), torch.full((3, 40, 4), -1), torch.zeros(3, 40)
    )
    text = own_rows(written, DRAFT.block)
    assert text.first.tolist() == [4, 7, 3]
    assert text.end.tolist() == [20, 7, 35]  # the second row has no place at all
    bans = torch.arange(40)[None, :, None].expand(1, 40, 2)
    assert block_bans(bans, torch.tensor([[3, 34]]), 5)[0, :, :, 0].tolist() == [
        [4, 5, 6, 7, 8],
        [35, 36, 37, 38, 39],
    ]


def test_narrowed_experts_keep_the_units_with_the_largest_weights() -> None:
    named = drafter().named()
    for name, tensor in named.items():
        if name.endswith(("ffn_gate_exps", "ffn_gate_shexp")):
            tensor.data[..., ::2, :] = 0  # half of the units do nothing
    small = narrowed(named, DRAFT.expert_dim // 2)
    sizes = DraftShape.of(small)
    assert (sizes.stages, sizes.experts, sizes.expert_dim) == (2, 4, 16)
    for name in ("mtp.0.ffn_gate_exps", "mtp.1.ffn_gate_shexp"):
        assert torch.equal(small[name], named[name][..., 1::2, :])
        down = name.replace("gate", "down")
        assert torch.equal(small[down], named[down][..., 1::2])
    assert continued(SHAPE, named, 16).draft == sizes


def test_a_drafters_file_gives_its_tensors_back(tmp_path: Path) -> None:
    made = drafter()
    named = rounded_like_file(made.named())
    write(tmp_path / DRAFTER_FILE, "deepseek4-dspark", {}, named, DRAFT.stages)
    found = load_weights(tmp_path, "drafter2_", "cpu")
    assert found.keys() == named.keys()
    for name, tensor in named.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-6)
