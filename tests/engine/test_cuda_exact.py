"""On a GPU: rows of a batch have the bits that they have alone; policies keep their promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.choices import Choices
from engine.events import ArmFinished, CycleFinished, Diverged, StateDrift, TokensCommitted
from engine.paths import DECODE, Numerics, Perturb, Plan, Policy
from engine.session import Engine
from engine.settings import Knobs, Prompt, RunRequest, Settings
from tests.gpu import needs_gpu, pair, target

pytestmark = needs_gpu

INVARIANT = Plan("invariant")
STARTS = {"first windows": 0, "a window of 128": 124, "the sparse switch": 252, "later": 700}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_rows_of_the_embedded_target_equal_single_rows(start: int) -> None:
    parts, _ = pair()
    model, ids = parts.model, np.random.default_rng(1).integers(9, 8192, 800).tolist()
    state = parts.new_state()
    if start:
        model.forward(state, ids[:start], INVARIANT, all_logits=False)
    alone, logits, taps = state.clone(), [], []
    for token in ids[start : start + 32]:
        rows = model.forward(alone, [token], DECODE["invariant"])
        logits.append(rows.logits[0].tobytes())
        taps.append(rows.taps[0].cpu().numpy().tobytes())
    for n in (1, 2, 3, 4, 5, 6, 8, 9, 16, 32):
        for _ in range(3):  # as it comes, captured, replayed
            batch = state.clone()
            rows = model.forward(batch, ids[start : start + n], INVARIANT)
            assert [row.tobytes() for row in rows.logits] == logits[:n], n
            assert [row.cpu().numpy().tobytes() for row in rows.taps] == taps[:n], n
    assert batch.digest() == alone.digest()


def test_a_prefix_of_a_batch_leaves_the_state_of_its_rows_alone() -> None:
    parts, _ = pair()
    model, ids = parts.model, np.random.default_rng(2).integers(9, 8192, 300).tolist()
    state = parts.new_state()
    model.forward(state, ids[:250], INVARIANT, all_logits=False)
    for kept in range(7):
        batch, alone = state.clone(), state.clone()
        before = batch.snapshot()
        model.forward(batch, ids[250:256], INVARIANT)
        batch.install_prefix(before, kept)
        again = state.clone()
        model.forward(again, ids[250:256], INVARIANT)
        again.reproject(before, kept)
        for token in ids[250 : 250 + kept]:
            model.forward(alone, [token], INVARIANT)
        assert batch.digest() == alone.digest() == again.digest(), kept
        after = [m.forward(s, ids[290:291], INVARIANT).logits.tobytes()
                 for m, s in ((model, batch), (model, alone))]  # fmt: skip
        assert after[0] == after[1]


def test_work_beside_other_work_gives_the_same_bits() -> None:
    parts, _ = pair()
    model, ids = parts.model, np.random.default_rng(4).integers(9, 8192, 310).tolist()
    state = parts.new_state()
    model.forward(state, ids[:280], INVARIANT, all_logits=False)  # the indexer chooses from here
    in_line = state.clone()
    wanted = [
        model.forward(in_line, ids[at : at + 3], INVARIANT, record=Choices()).logits.tobytes()
        for at in range(280, 310, 3)
    ]
    for _ in range(3):  # as it comes, captured, replayed
        beside = state.clone()
        found = [
            model.forward(beside, ids[at : at + 3], INVARIANT).logits.tobytes()
            for at in range(280, 310, 3)
        ]
        assert found == wanted
        assert beside.digest() == in_line.digest()


def race(numerics: Numerics, policies: tuple[Policy, ...], **settings: Any) -> list[Any]:
    parts, files = pair()
    knobs = tuple(Knobs(commit=policy, confidence=0.0) for policy in policies)
    wished = Settings(
        numerics=numerics, dspark=knobs, ignore_eos=True, **{"max_tokens": 160, **settings}
    )
    request = RunRequest(Prompt("Explain the TCP three-way handshake."), wished)
    return list(Engine(parts, files).run(request))


def ids_of(events: list[Any], arm: int) -> list[int]:
    found = [e for e in events if isinstance(e, TokensCommitted) and e.arm == arm]
    return [token for event in found for token in event.ids]


PROMISED: dict[Numerics, tuple[Policy, ...]] = {
    "invariant": ("direct", "prefix", "reproject", "replay", "strict"),
    "split": ("replay", "strict"),
}


@pytest.mark.parametrize("numerics", PROMISED)
def test_promised_policies_give_plain_s_ids_and_states(numerics: Numerics) -> None:
    events = race(numerics, PROMISED[numerics])
    for arm in range(1, len(PROMISED[numerics]) + 1):
        assert ids_of(events, arm) == ids_of(events, 0)
    drifts = [e for e in events if isinstance(e, StateDrift)]
    assert drifts
    assert all(t[2] is None for e in drifts for t in e.tensors)
    assert {e.reason for e in events if isinstance(e, ArmFinished)} == {"length"}
    cycles = [e for e in events if isinstance(e, CycleFinished) and e.proposed]
    assert any(e.accepted for e in cycles)


def test_faults_reach_verifies_only() -> None:
    perturb = Perturb("compressor", 1 << 18, 0)
    kept = race("split", ("replay", "strict"), perturb=perturb)
    assert ids_of(kept, 1) == ids_of(kept, 2) == ids_of(kept, 0)
    hurt = race("invariant", ("prefix",), perturb=replace(perturb, ulps=1 << 20), max_tokens=60)
    drifts = [e for e in hurt if isinstance(e, StateDrift)]
    assert any(t[2] is not None for e in drifts for t in e.tensors)
    assert ids_of(hurt, 0) == ids_of(kept, 0)[:60] or any(isinstance(e, Diverged) for e in kept)


def test_probes_change_nothing() -> None:
    with_probes = race("invariant", ("prefix",), max_tokens=60)
    without = race("invariant", ("prefix",), max_tokens=60, digest_every=0)
    assert ids_of(with_probes, 1) == ids_of(without, 1) == ids_of(without, 0)


def test_random_layers_of_other_shapes_are_exact_too() -> None:
    from tests.engine.random_pair import K_QUANT, SMALL

    for shape, types in ((SMALL, "F32"), (K_QUANT, "ds4-q2"), (K_QUANT, "ds4-q4"),
                         (SMALL, "MXFP4")):  # fmt: skip
        model = target(shape, types, 0, "fp8")
        ids = np.random.default_rng(3).integers(9, shape.vocab, 60).tolist()
        alone, batch = model.new_state(), model.new_state()
        logits = [model.forward(alone, [i], INVARIANT).logits[0].tobytes() for i in ids]
        at = 0
        for n in (1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1, 16, 2):
            rows = model.forward(batch, ids[at : at + n], INVARIANT)
            assert [row.tobytes() for row in rows.logits] == logits[at : at + n], (types, at, n)
            at += n
        assert batch.digest() == alone.digest(), types
