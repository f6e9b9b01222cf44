"""The forward's promises: exact rows, plans, choices, fault injection, errors."""

from __future__ import annotations

import numpy as np
import pytest

from engine.choices import Choices
from engine.config import ModelConfig
from engine.errors import Ds4Error
from engine.model import Model
from engine.paths import DECODE, OP_CLASSES, Perturb, Plan
from engine.weights import load_target
from tests.engine.loaded import assert_same_state, model, random_ids, target_file
from tests.engine.random_pair import EMBEDDED, K_QUANT, SMALL

INVARIANT, BATCH = Plan("invariant"), Plan("batch")
IDS = random_ids(300)


def prefilled(count: int, plan: Plan = INVARIANT, **which: object) -> tuple[Model, object]:
    m = model(**which)  # type: ignore[arg-type]
    state = m.new_state()
    if count:
        m.forward(state, IDS[:count], plan)
    return m, state


@pytest.mark.parametrize("kv_rounding", ["fp8", "none"])
@pytest.mark.parametrize("types", ["ds4", "F32"])
def test_rows_of_an_invariant_batch_equal_single_rows(types: str, kv_rounding: str) -> None:
    m = model(types=types, kv_rounding=kv_rounding)
    state = m.new_state()
    m.forward(state, IDS[:117], INVARIANT)
    single, logits, taps = state.clone(), [], []
    for token in IDS[117:134]:
        rows = m.forward(single, [token], DECODE["invariant"])
        logits.append(rows.logits[0].tobytes())
        taps.append(rows.taps[0].tobytes())
    for n in range(1, 18):
        batch = state.clone()
        rows = m.forward(batch, IDS[117 : 117 + n], INVARIANT)
        assert [row.tobytes() for row in rows.logits] == logits[:n], n
        assert [row.tobytes() for row in rows.taps] == taps[:n], n
    assert_same_state(batch, single)


def test_rows_of_the_embedded_shape_are_exact_across_the_sparse_switch() -> None:
    m = model(EMBEDDED)
    ids = random_ids(290, EMBEDDED)
    single, batch = m.new_state(), m.new_state()
    m.forward(single, ids[:250], INVARIANT)
    m.forward(batch, ids[:250], INVARIANT)
    expected = [m.forward(single, [token], INVARIANT).logits[0].tobytes() for token in ids[250:267]]
    rows = m.forward(batch, ids[250:267], INVARIANT)
    assert [row.tobytes() for row in rows.logits] == expected
    assert_same_state(batch, single)


@pytest.mark.parametrize("plan", [INVARIANT, Plan("vector"), BATCH], ids=lambda p: p.path)
def test_chunking_does_not_change_a_bit(plan: Plan) -> None:
    m = model()
    whole, parts = m.new_state(), m.new_state()
    expected = m.forward(whole, IDS[:140], plan).logits
    found, start = [], 0
    for size in (1, 2, 3, 5, 7, 11, 31, 32, 40, 8):
        found.append(m.forward(parts, IDS[start : start + size], plan).logits.copy())
        start += size
    assert start == 140
    assert np.concatenate(found).tobytes() == expected.tobytes()
    assert_same_state(whole, parts)


def test_smaller_passes_give_the_same_rows() -> None:
    one, many = model(), model(max_rows=3)
    a, b = one.new_state(), many.new_state()
    left = one.forward(a, IDS[:50], INVARIANT, all_logits=False)
    done: list[tuple[int, int]] = []
    right = many.forward(
        b, IDS[:50], INVARIANT, all_logits=False, on_rows=lambda *step: done.append(step)
    )
    assert left.logits.shape == right.logits.shape == (1, SMALL.vocab)
    assert left.logits.tobytes() == right.logits.tobytes()
    assert left.taps.tobytes() == right.taps.tobytes()
    assert right.taps.shape == (50, 3 * SMALL.dim)
    assert done[0] == (3, 50)
    assert done[-1] == (50, 50)
    assert_same_state(a, b)


@pytest.mark.parametrize("op_class", OP_CLASSES)
def test_a_batch_class_changes_rows_a_little_and_only_when_chosen(op_class: str) -> None:
    m, state = prefilled(117)
    decoded, batched = state.clone(), state.clone()
    exact = m.forward(decoded, IDS[117:123], Plan("vector")).logits.copy()
    none = m.forward(state.clone(), IDS[117:123], Plan("batch", frozenset())).logits
    assert none.tobytes() == exact.tobytes()
    one = m.forward(batched, IDS[117:123], Plan("batch", frozenset([op_class]))).logits
    assert np.abs(one - exact).max() < 2.0
    changed = one.tobytes() != exact.tobytes() or batched.digest() != decoded.digest()
    assert changed or op_class == "indexer"  # its rounding may choose the same rows


def test_batch_without_rounding_of_rows_is_only_another_order() -> None:
    m = model(types="F32", kv_rounding="none")
    a, b = m.new_state(), m.new_state()
    exact = m.forward(a, IDS[:60], INVARIANT).logits
    batch = m.forward(b, IDS[:60], Plan("batch", round_rows=False)).logits
    assert 0 < np.abs(exact - batch).max() < 1e-4


def test_kv_rounding_changes_stored_rows() -> None:
    rounded, exact = prefilled(40), prefilled(40, kv_rounding="none")
    raw = rounded[1].live(0, "raw")
    assert (raw == raw.astype(np.float16)).all()
    assert not (exact[1].live(0, "raw") == exact[1].live(0, "raw").astype(np.float16)).all()
    index = rounded[1].live(2, "index").reshape(-1, 32)
    scaled = np.abs(index) / np.abs(index).max(-1, keepdims=True)
    assert len(np.unique(scaled.round(6))) <= 16


def test_types_load_and_agree() -> None:
    logits = {}
    for types in ("F32", "F16", "BF16", "Q8_0", "MXFP4"):
        m = model(types=types, kv_rounding="none")
        logits[types] = m.forward(m.new_state(), IDS[:40], INVARIANT).logits.copy()
    spread = logits["F32"].std()
    for types, bound in (("F16", 0.01), ("BF16", 0.1), ("Q8_0", 0.3)):
        error = np.median(np.abs(logits[types] - logits["F32"]))
        assert error < bound * spread, types
    assert np.isfinite(logits["MXFP4"]).all()
    for types in ("ds4-q2", "ds4-q4"):
        m = model(K_QUANT, types)
        assert np.isfinite(m.forward(m.new_state(), IDS[:20], INVARIANT).logits).all()


def test_choices_are_recorded_and_pinned() -> None:
    m, state = prefilled(100)
    plain = Choices()
    decoded = state.clone()
    expected = [
        m.forward(decoded, [token], DECODE["invariant"], record=plain).logits[0].copy()
        for token in IDS[100:106]
    ]
    assert plain.token(100) == IDS[100]
    assert plain.token(99) is None
    found = plain.at(103)
    assert {layer for layer, kind in found if kind == "router"} == {0, 1, 2, 3}
    assert [layer for layer, kind in found if kind == "indexer"] == [2]
    assert all(list(v) == sorted(set(v)) for v in found.values())
    assert plain.gaps(103)[2, "indexer"] > 0
    assert plain.gaps(103)[0, "router"] == np.inf  # by the table

    # Other choices, pinned, are the ones that count; for other tokens they are not.
    other = Choices()
    other.begin(100, IDS[100:106])
    forced = np.array([[6, 7]] * 6)
    other.note(1, "router", forced, np.ones(6))
    seen = Choices()
    m.forward(state.clone(), IDS[100:106], INVARIANT, pin=other, record=seen)
    assert all(seen.at(p)[1, "router"] == (6, 7) for p in range(100, 106))
    rows = m.forward(state.clone(), IDS[100:106], INVARIANT, pin=plain)
    assert np.array(expected).tobytes() == rows.logits.tobytes()
    wrong = Choices()
    wrong.begin(100, [token + 1 for token in IDS[100:106]])
    wrong.note(1, "router", forced, np.ones(6))
    rows = m.forward(state.clone(), IDS[100:106], INVARIANT, pin=wrong)
    assert np.array(expected).tobytes() == rows.logits.tobytes()

    rows_of_index = Choices(kinds=("indexer",))
    rows_of_index.begin(100, IDS[100:106])
    rows_of_index.note(2, "indexer", np.array([[0, 1, 2, 3]] * 6), np.ones(6), np.full(6, 4))
    rows_of_index.note(1, "router", forced, np.ones(6))  # not one of its kinds
    m.forward(state.clone(), IDS[100:106], INVARIANT, pin=rows_of_index, record=seen)
    assert seen.at(105)[2, "indexer"] == (0, 1, 2, 3)
    assert seen.at(105)[1, "router"] == plain.at(105)[1, "router"]
    with pytest.raises(ValueError, match="unknown kinds"):
        Choices(kinds=("attention",))


@pytest.mark.parametrize("op_class", OP_CLASSES)
def test_perturbation_acts_in_verifies_only(op_class: str) -> None:
    m, state = prefilled(100)

    def seen(plan: Plan, count: int) -> tuple[bytes, dict[tuple[int, str], bytes]]:
        after = state.clone()
        logits = m.forward(after, IDS[100 : 100 + count], plan).logits
        return logits.tobytes(), after.digest()

    plan = Plan("invariant", perturb=Perturb(op_class, 1 << 16, 1))
    noisy = seen(plan, 4)
    assert noisy == seen(plan, 4)
    assert seen(plan, 1) == seen(INVARIANT, 1)
    other = seen(Plan("invariant", perturb=Perturb(op_class, 1 << 16, 2)), 4)
    if op_class != "indexer":  # its choices may survive the noise
        assert noisy != seen(INVARIANT, 4)
        assert noisy != other


def test_small_perturbations_stay_small() -> None:
    m, state = prefilled(100, types="F32", kv_rounding="none")
    exact = m.forward(state.clone(), IDS[100:106], INVARIANT).logits.copy()
    plan = Plan("invariant", perturb=Perturb("attn_out", 1, 0))
    assert 0 < np.abs(m.forward(state.clone(), IDS[100:106], plan).logits - exact).max() < 1e-4


def test_logits_that_are_not_finite_name_the_layer() -> None:
    file = target_file()
    for layer in (0, 3):
        weights = load_target(file)
        m = Model(weights, ModelConfig.from_gguf(file))
        weights.layers[layer].ffn_norm[3] = np.nan
        state = m.new_state()
        with pytest.raises(Ds4Error, match=f"first appeared in layer {layer}"):
            m.forward(state, IDS[:3], INVARIANT)
        assert state.position == 0
    weights = load_target(file)
    weights.norm[0] = np.inf
    m = Model(weights, ModelConfig.from_gguf(file))
    with pytest.raises(Ds4Error, match="first appeared in the output head"):
        m.forward(m.new_state(), IDS[:3], INVARIANT)


def test_wrong_calls_are_refused() -> None:
    m = model()
    state = m.new_state()
    with pytest.raises(ValueError, match="at least one"):
        m.forward(state, [], INVARIANT)
    with pytest.raises(ValueError, match=r"0\.\.319"):
        m.forward(state, [320], INVARIANT)
    with pytest.raises(ValueError, match=r"0\.\.319"):
        m.forward(state, [-1], INVARIANT)
    m.forward(state, random_ids(1000), INVARIANT, all_logits=False)
    with pytest.raises(ValueError, match="25 tokens at position 1000 exceed the context of 1024"):
        m.forward(state, random_ids(25), INVARIANT)
    m.forward(state, random_ids(24), INVARIANT)
    assert state.position == state.context == 1024
    with pytest.raises(ValueError, match="kv_rounding"):
        Model(m.weights, m.config, kv_rounding="bf16")
    with pytest.raises(ValueError, match="max_rows"):
        Model(m.weights, m.config, max_rows=33)


def test_loading_reports_progress_and_knows_its_device() -> None:
    steps: list[tuple[str, int, int]] = []
    load_target(target_file(), progress=lambda *step: steps.append(step))
    assert {step[0] for step in steps} == {"repacking"}
    assert [step[1] for step in steps] == list(range(len(steps)))
    assert len(steps) == steps[0][2] == len(target_file().tensors)
    with pytest.raises(Ds4Error, match="'tpu'"):
        load_target(target_file(), device="tpu")
