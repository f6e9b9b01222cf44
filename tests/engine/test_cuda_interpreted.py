"""The engine on device tensors, interpreted where there is no GPU: the same forward, tiny."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.kernels.interpreted import CUDA, DEVICE  # isort: skip

from engine.choices import Choices
from engine.config import DrafterConfig, ModelConfig
from engine.cuda.arrays import DeviceArrays
from engine.cuda.weights import DeviceTensors
from engine.drafter import Drafter
from engine.errors import Ds4Error
from engine.gguf import open_gguf
from engine.greedy import Rules
from engine.model import Model
from engine.paths import Plan
from engine.propose import Chain, Limit
from engine.weights import load_drafter, load_target, read_drafter, read_target
from tests.engine.random_pair import DrafterShape, TargetShape, write_drafter, write_target

pytestmark = pytest.mark.gpu if CUDA else []

SHAPE = TargetShape(
    dim=64,
    ratios=(4,),
    hash_layers=0,
    heads=2,
    q_rank=32,
    out_rank=32,
    index_heads=2,
    index_top_k=1,
    experts=4,
    expert_dim=32,
    sinkhorn=2,
)
OWN = DrafterShape(stages=1, block_size=3, rank=32, experts=2, expert_dim=32)
SOME = replace(OWN, own_head=True, drafted=97)
IDS = [11, 200, 45, 9, 77, 310, 18, 90, 33, 260]


@cache
def models(
    folder: Path, types: str = "ds4", rounding: str = "none", own: DrafterShape = OWN
) -> tuple[Any, ...]:
    """Target and drafter on the CPU, then on the device."""
    target = open_gguf(write_target(folder / f"target-{types}.gguf", SHAPE, types, 1))
    name = f"drafter-{types}-{own.drafted}.gguf"
    file = open_gguf(write_drafter(folder / name, SHAPE, own, "dspark", types))
    config = ModelConfig.from_gguf(target)
    drafter = DrafterConfig.from_gguf(file, config)
    taps = drafter.target_layers
    host = Model(load_target(target), config, kv_rounding=rounding, tap_layers=taps)
    device = Model(
        read_target(DeviceTensors(target, str, None, DEVICE), config), config,
        kv_rounding=rounding, tap_layers=taps, arrays=DeviceArrays(DEVICE),
    )  # fmt: skip
    tensors = DeviceTensors(file, drafter.tensor_name, None, DEVICE)
    return (
        host,
        Drafter(load_drafter(file, config), host),
        device,
        Drafter(read_drafter(tensors, drafter, config), device),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pair")


def test_decode_and_state_equal_the_cpu_s(folder: Path) -> None:
    pytest.importorskip("numba")
    host, _, device, _ = models(folder)
    left, right = host.new_state(), device.new_state()
    wanted = host.forward(left, IDS[:2], Plan("vector")).logits.copy()
    found = device.forward(right, IDS[:2], Plan("vector")).logits
    assert np.abs(found - wanted).max() < 2e-5
    wanted = host.forward(left, IDS[2:], Plan("vector")).logits.copy()
    found = device.forward(right, IDS[2:], Plan("invariant")).logits
    assert np.sqrt(np.square(found - wanted).mean() / np.square(wanted).mean()) < 1e-2
    for name in left.tensors(0):
        assert left.live(0, name) == pytest.approx(right.live(0, name), abs=5e-2)


def test_tiles_are_exact_and_rows_can_be_taken_back(folder: Path) -> None:
    *_, device, _ = models(folder, rounding="fp8")
    plan = Plan("invariant")
    state = device.new_state()
    device.forward(state, IDS[:6], plan, all_logits=False)
    alone, batch, again = state.clone(), state.clone(), state.clone()
    logits = [device.forward(alone, [token], plan).logits[0].copy() for token in IDS[6:8]]
    before = batch.snapshot()
    rows = device.forward(batch, IDS[6:9], plan)
    assert np.array_equal(rows.logits[:2], np.array(logits))
    batch.install_prefix(before, 2)
    device.forward(again, IDS[6:9], plan)
    again.reproject(before, 2)
    assert batch.digest() == alone.digest() == again.digest()


def test_rows_know_their_best_tokens(folder: Path) -> None:
    *_, device, _ = models(folder)
    rows = device.forward(device.new_state(), IDS[:2], Plan("invariant"))
    logits = rows.logits
    best = int(logits[0].argmax())
    (raw, first), (_, second) = rows.processed([[best, 7], []])
    assert np.array_equal(np.asarray(raw), logits[0])
    assert first[best] == float("-inf")
    assert np.asarray(first)[7] == float("-inf")
    order = np.argsort(-logits, kind="stable", axis=1)
    few, many = [best, 7], order[0, [0, 1, 2, 4, 6]].tolist()  # more than were found beside
    for out in (few, many):
        (_, chosen), _ = rows.processed([out, []])
        wanted = [token for token in order[0].tolist() if token not in out][:5]
        assert chosen.best == tuple((token, float(logits[0, token])) for token in wanted)
    assert second.best[0] == (int(logits[1].argmax()), pytest.approx(float(logits[1].max())))
    assert second[3] == logits[1][3]


@pytest.mark.parametrize("own", [OWN, SOME], ids=["all tokens", "some tokens"])
def test_a_block_s_chain_equals_its_rows(folder: Path, own: DrafterShape) -> None:
    *_, drafter = models(folder, own=own)
    taps = np.random.default_rng(0).standard_normal((4, SHAPE.dim)).astype(np.float32)
    context = drafter.new_context()
    drafter.extend(context, torch.from_numpy(taps).to(DEVICE), 0)
    block = drafter.block(context, 20, 4)
    previous = 20
    for row in range(OWN.block_size):
        scores = block.scores(row, previous)
        best = int(scores.argmax())
        assert block.best(row, previous) == best
        assert block.best(row, None) == int(block.logits(row).argmax())
        can = np.isfinite(scores)
        assert can.sum() == (own.drafted or SHAPE.vocab)
        assert (can == np.isfinite(block.logits(row))).all()
        assert block.best(row, previous + 1) is None
        known = block.confidence(row, previous)
        assert 0 < known < 1
        previous = best
    assert block.confidence(1, previous) != block.confidence(1, block.found.tokens[1])
    drafts, confidences = drafter.draft(context, 20, 4)
    assert drafts == tuple(block.found.tokens[1:])
    assert confidences == tuple(block.found.confidences)


def test_a_nan_in_a_drafter_s_logits_is_no_draft(folder: Path) -> None:
    *_, drafter = models(folder, own=OWN)
    norm = drafter.weights.norm  # behind all clamps
    kept = norm.clone()
    norm[3] = float("nan")
    try:
        block = drafter.block(drafter.new_context(), 20, 4)
        chain = Chain(block, Rules(), 20, markov=True, gate=0.0, eos_id=None)
        with pytest.raises(
            Ds4Error, match="In row 0 of the drafter's block, the logits hold a NaN"
        ):
            chain.run(Limit(3, ""))
    finally:
        norm.copy_(kept)


def test_choices_are_recorded_and_pinned(folder: Path) -> None:
    *_, device, _ = models(folder)
    seen, pinned = Choices(), Choices()
    state = device.new_state()
    device.forward(state, IDS[:8], Plan("invariant"), all_logits=False, record=seen)
    assert set(seen.at(7)) == {(0, "router"), (0, "indexer")}
    pinned.begin(8, [5])
    pinned.note(0, "router", np.array([[1, 3]]), np.ones(1))
    pinned.note(0, "indexer", np.array([[1]]), np.ones(1), np.array([1]))
    device.forward(state, [5], Plan("invariant"), pin=pinned, record=seen)
    assert seen.at(8)[0, "router"] == (1, 3)
    assert seen.at(8)[0, "indexer"] == (1,)


def test_logits_that_are_not_finite_fail_when_they_are_read(folder: Path) -> None:
    *_, device, _ = models(folder)
    norm = device.weights.norm  # behind all clamps, where interpreters may drop a NaN
    kept = norm.clone()
    norm[3] = float("nan")
    try:
        state = device.new_state()
        rows = device.forward(state, IDS[:2], Plan("invariant"))
        with pytest.raises(Ds4Error, match=r"Tokens 0 to 1 .* first appeared in the output"):
            rows.processed([[], []])
        assert state.position == 0
    finally:
        norm.copy_(kept)


def test_memory_of_a_dropped_timeline_is_used_again() -> None:
    arrays = DeviceArrays(DEVICE)

    class Owner:
        pass

    first = Owner()
    block = arrays.memory(first, 16)
    block.fill_(3)
    other = Owner()
    copied = arrays.memory(other, block)
    assert copied.tolist() == [3.0] * 16
    del first
    third = Owner()
    assert arrays.memory(third, 16) is block
    assert block.tolist() == [0.0] * 16
