"""What a drafter block sees, its losses, and the walk through speculative cycles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.tools.test_tiny_target import SHAPE, random_ids, random_target
from tools.tiny_model.drafter import (
    Drafter,
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
    wanted = teacher(final, target.top["output"], anchors, DRAFT.block)
    u, _ = rows(made, target.top, taps, ids, anchors, rounding=True, dtype=torch.float32)
    loss, accept, same = losses(
        u, made.top, target.top["output"], wanted.detach(), ids, anchors, 0.1
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
        drafts, confidence = propose(u, made.top, output, torch.tensor(20), None)
        assert drafts.tolist() == [21, 22, 23, 24, 25]
        assert confidence.shape == (DRAFT.block,)
        banned = torch.full((DRAFT.block, 4), -1)
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


def test_the_confidence_sends_a_share_of_its_gradient_into_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, made, ids = random_target(), drafter(), random_ids(2, 256)
    made.top["confidence_head.proj"].data += 0.1
    anchors = torch.tensor([[10, 100], [130, 240]])
    with torch.no_grad():
        final, taps = forward(target, ids, rounding=True, taps=3)
        wanted = teacher(final, target.top["output"], anchors, DRAFT.block)
        fixed, _ = rows(made, target.top, taps, ids, anchors, rounding=True, dtype=torch.float32)
    gradients = []
    for share in (0.0, 0.25, 0.5):
        monkeypatch.setattr("tools.tiny_model.drafter.CONFIDENCE_SHARE", share)
        u = fixed.clone().requires_grad_()
        losses(u, made.top, target.top["output"], wanted, ids, anchors, 0.1)[0].backward()
        assert u.grad is not None
        gradients.append(u.grad)
    first, second = gradients[1] - gradients[0], gradients[2] - gradients[0]
    assert float(first.abs().max()) > 0
    torch.testing.assert_close(second, 2 * first, rtol=1e-3, atol=1e-7)


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
