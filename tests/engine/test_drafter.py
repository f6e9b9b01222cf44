"""The drafter against an independent reference, and its context under every way of filling it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.drafter import Drafter, DrafterContext
from engine.gguf import open_gguf
from engine.greedy import Rules
from engine.model import Model
from engine.propose import Chain, Limit
from tests.engine import drafter_reference as ref
from tests.engine.loaded import drafter, model, random_ids, target_file
from tests.engine.random_pair import (
    DRAFTS_SOME,
    EMBEDDED,
    EMBEDDED_DRAFTER,
    SMALL,
    DrafterShape,
    TargetShape,
)
from tests.kernels.closeness import assert_close


def taps_of(count: int, d: Drafter, seed: int = 0) -> np.ndarray:
    width = len(d.config.target_layers) * d.model.config.dim
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def hidden_of(d: Drafter, context: DrafterContext, position: int) -> bytes:
    """A block's rows, taken before the next block overwrites them."""
    return bytes(d.block(context, 9, position).hidden.tobytes())


def reference_of(d: Drafter) -> tuple[ref.Tensors, torch.Tensor, torch.Tensor, ref.Geometry]:
    file = open_gguf(d.config.path)
    tensors = {n: torch.from_numpy(np.array(file.dequantise(n))) for n in file.tensors}
    c = d.model.config
    target = target_file(EMBEDDED if c.dim == EMBEDDED.dim else SMALL, "F32")
    embedding, output = (
        torch.from_numpy(np.array(target.dequantise(n)))
        for n in ("token_embd.weight", "output.weight")
    )
    geometry = ref.Geometry(
        heads=c.heads, head_dim=c.head_dim, rope_dim=c.rope_dim, rope_base=c.rope_base,
        groups=c.out_groups, window=d.config.window, experts_used=d.config.experts_used,
        expert_scale=c.expert_scale, clamp=d.config.swiglu_clamp[0],
        sinkhorn=c.sinkhorn_iterations, stages=d.config.stages, block_size=d.block_size,
        noise_id=d.noise_id,
    )  # fmt: skip
    return tensors, embedding, output, geometry


@pytest.mark.parametrize(
    ("shape", "own", "length"),
    [
        (SMALL, DrafterShape(), 0),
        (SMALL, DrafterShape(), 1),
        (SMALL, DrafterShape(stages=1, block_size=3), 31),
        (SMALL, DrafterShape(stages=3, taps=(0, 3)), 32),
        (SMALL, DrafterShape(), 33),
        (SMALL, DrafterShape(), 100),
        (SMALL, DrafterShape(own_head=True), 40),
        (SMALL, DRAFTS_SOME, 40),
        (SMALL, DrafterShape(own_head=True, drafted=15), 5),
        (SMALL, DrafterShape(own_head=True, drafted=SMALL.vocab), 12),
        (EMBEDDED, EMBEDDED_DRAFTER, 300),
    ],
)
def test_block_equals_reference(shape: TargetShape, own: DrafterShape, length: int) -> None:
    # Another target model per tapped layers: its own weights do not matter here.
    base = model(shape, "F32", kv_rounding="none")
    target = Model(base.weights, base.config, kv_rounding="none", tap_layers=own.tapped(shape))
    weights = drafter_weights(shape, own)
    d = Drafter(weights, target)
    taps = taps_of(length, d)
    context = d.new_context()
    if length:
        d.extend(context, taps, 0)
    anchor = 77
    block = d.block(context, anchor, length)
    tensors, embedding, output, geometry = reference_of(d)
    hidden = ref.block(torch.from_numpy(taps), anchor, length, tensors, embedding, geometry)
    drafts, confidences, logits = ref.chain(hidden, anchor, tensors, output, geometry)
    assert_close("hidden", hidden, block.hidden, 3e-6)
    previous, found = anchor, []
    for row in range(d.block_size):
        assert abs(block.confidence(row, previous) - confidences[row]) < 1e-5
        can = torch.isfinite(logits[row])
        assert_close("logits", logits[row][can], block.logits(row)[can], 5e-6)
        assert (block.logits(row)[~can] == -np.inf).all()
        scores = block.scores(row, previous)
        best = int(scores.argmax())
        assert block.best(row, previous) == best
        assert (np.isfinite(scores) == can.numpy()).all()
        previous = best
        found.append(previous)
    assert found == drafts


def drafter_weights(shape: TargetShape, own: DrafterShape):  # type: ignore[no-untyped-def]
    import tempfile
    from pathlib import Path

    from engine.weights import load_drafter
    from tests.engine.random_pair import write_drafter

    directory = tempfile.mkdtemp(prefix="ds4tui-drafter-")
    path = write_drafter(Path(directory) / "drafter.gguf", shape, own, "dspark", "F32")
    return load_drafter(open_gguf(path), model(shape, "F32", kv_rounding="none").config)


@pytest.mark.parametrize("length", [1, 31, 32, 33, 63, 64, 65, 97, 160, 300])
def test_a_context_filled_in_steps_equals_one_built_at_once(length: int) -> None:
    d = drafter()
    taps = taps_of(length, d)
    whole, steps = d.new_context(), d.new_context()
    d.extend(whole, taps, 0)
    start = 0
    sizes = np.random.default_rng(length)
    while start < length:
        size = min(int(sizes.integers(1, 7)), length - start)
        d.extend(steps, taps[start : start + size], start)
        start += size
    assert hidden_of(d, whole, length) == hidden_of(d, steps, length)


def test_rows_after_a_position_can_be_replaced() -> None:
    d = drafter()
    taps, others = taps_of(120, d), taps_of(10, d, seed=1)
    straight, rolled = d.new_context(), d.new_context()
    d.extend(straight, taps[:100], 0)
    d.extend(rolled, taps[:97], 0)
    d.extend(rolled, others[:5], 97)
    d.extend(rolled, taps[97:100], 97)
    assert rolled.end == straight.end == 100
    left = hidden_of(d, straight, 100)
    assert hidden_of(d, rolled, 100) == left
    # A block earlier than the newest row does not see what lies after it.
    d.extend(rolled, others[:5], 100)
    assert hidden_of(d, rolled, 100) == left


def test_a_gap_in_positions_empties_the_context() -> None:
    d = drafter()
    taps = taps_of(60, d)
    gap, fresh = d.new_context(), d.new_context()
    d.extend(gap, taps[:20], 0)
    d.extend(gap, taps[40:60], 40)
    d.extend(fresh, taps[40:60], 40)
    assert (gap.start, gap.end) == (40, 60)
    assert hidden_of(d, gap, 60) == hidden_of(d, fresh, 60)


def test_clones_do_not_share_rows() -> None:
    d = drafter()
    context = d.new_context()
    d.extend(context, taps_of(20, d), 0)
    before = hidden_of(d, context, 20)
    copy = context.clone()
    d.extend(copy, taps_of(20, d, seed=2), 0)
    assert hidden_of(d, context, 20) == before
    assert hidden_of(d, copy, 20) != before


def test_a_block_is_not_read_after_the_next_one() -> None:
    d = drafter()
    context = d.new_context()
    d.extend(context, taps_of(20, d), 0)
    old, new = d.block(context, 9, 20), d.block(context, 11, 20)
    assert new.logits(1).any()
    for read in (lambda: old.logits(1), lambda: old.scores(1, 5), lambda: old.confidence(1, 5)):
        with pytest.raises(AssertionError):
            read()


def test_both_dialects_draft_the_same() -> None:
    left, right = drafter(), drafter(dialect="dflash")
    taps = taps_of(50, left)
    blocks = []
    for d in (left, right):
        context = d.new_context()
        d.extend(context, taps, 0)
        blocks.append(d.block(context, 11, 50))
    assert blocks[0].hidden.tobytes() == blocks[1].hidden.tobytes()
    assert blocks[0].confidence(0, 11) == blocks[1].confidence(0, 11)
    assert blocks[0].scores(0, 11).tobytes() == blocks[1].scores(0, 11).tobytes()


def test_taps_of_a_forward_feed_the_drafter() -> None:
    d = drafter()
    m = d.model
    state = m.new_state()
    from engine.paths import Plan

    rows = m.forward(state, random_ids(40), Plan("batch"), all_logits=False)
    context = d.new_context()
    d.extend(context, rows.taps, 0)
    block = d.block(context, 5, 40)
    assert 0 < block.confidence(0, 5) < 1
    assert 0 <= block.scores(0, 5).argmax() < m.config.vocab_size


def test_another_models_taps_are_refused() -> None:
    d = drafter()
    other = Model(d.model.weights, d.model.config, tap_layers=(0,))
    with pytest.raises(ValueError, match=r"reads layers \(1, 2, 3\), the model taps \(0,\)"):
        Drafter(d.weights, other)


def test_heads_of_every_type_draft() -> None:
    for types in ("ds4", "ds4-bf16-heads", "F16", "Q8_0"):
        d = drafter(types=types)
        context = d.new_context()
        d.extend(context, taps_of(10, d), 0)
        block = d.block(context, 5, 10)
        assert 0 < block.confidence(0, 5) < 1
        assert np.isfinite(block.logits(4)).all()
        assert np.abs(block.scores(4, 5) - block.logits(4)).max() > 0


@pytest.mark.parametrize("gate", [0.0, 0.4, 0.5, 2.0])
@pytest.mark.parametrize("markov", [True, False])
def test_rules_choose_as_if_every_row_was_asked_for_alone(markov: bool, gate: float) -> None:
    """What a block's chain found is used as far as the rules agree with it."""
    d = drafter()
    context = d.new_context()
    d.extend(context, taps_of(50, d), 0)
    changed = set()
    for anchor in (5, 11, 40):
        first, _ = d.draft(context, anchor, 50)
        for out in (None, *first):
            found = []
            for rows in (d.block_size, 3, 0):  # 0: nothing is known beforehand
                block = d.block(context, anchor, 50, rows, gate)
                assert block.found.known <= rows
                rules = Rules(3, out, generated=(7, *first[:2], 7))
                chain = Chain(block, rules, anchor, markov=markov, gate=gate, eos_id=first[4])
                chain.run(Limit(d.block_size, ""))
                found.append(chain.record())
            assert found[0] == found[1] == found[2]
            changed.add(found[0].drafts)
    assert len(changed) > (3 if gate < 1 else 0)
