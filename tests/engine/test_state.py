"""Going back in a state equals never having advanced, at every alignment to windows and rings."""

from __future__ import annotations

import numpy as np
import pytest

from engine.paths import DECODE, Plan
from engine.state import State
from tests.engine.loaded import assert_same_state, model, random_ids

INVARIANT, BATCH = Plan("invariant"), Plan("batch")
IDS = random_ids(400)


def plain(position: int, after: int = 0) -> State:
    """A state decoded one by one up to a position; cached by the caller's clones."""
    state = model().new_state()
    for start in range(0, position, 25):
        model().forward(state, IDS[start : min(start + 25, position)], INVARIANT)
    for i in range(position, position + after):
        model().forward(state, [IDS[i]], DECODE["invariant"])
    return state


# Window 32 + 32 rows of head-room: 60..70 wraps the raw ring, 124..133 completes a ratio-128 row.
STARTS = [0, 1, 2, 3, 4, 5, 6, 7, 30, 31, 33, 61, 62, 63, 64, 65, 66, 123, 126, 127, 128, 159, 255]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("plan", [INVARIANT, BATCH], ids=["invariant", "batch"])
def test_restore_undoes_a_verify(start: int, plan: Plan) -> None:
    before = plain(start)
    for rows in (1, 2, 5, 6, 32):
        state = before.clone()
        snapshot = state.snapshot()
        wrong = random_ids(rows, seed=rows)
        model().forward(state, wrong, plan)
        assert state.position == start + rows
        state.restore(snapshot)
        assert_same_state(state, before)
        # What comes next is what it would have been.
        logits = model().forward(state, [IDS[start]], DECODE["invariant"]).logits.copy()
        fresh = before.clone()
        expected = model().forward(fresh, [IDS[start]], DECODE["invariant"]).logits
        assert logits.tobytes() == expected.tobytes()
        assert_same_state(state, fresh)


@pytest.mark.parametrize("start", STARTS)
def test_kept_rows_of_an_invariant_verify_equal_decode(start: int) -> None:
    before = plain(start)
    decoded = [before]
    for i in range(6):
        state = decoded[-1].clone()
        model().forward(state, [IDS[start + i]], DECODE["invariant"])
        decoded.append(state)
    for kept in range(7):
        state = before.clone()
        snapshot = state.snapshot()
        # Right tokens as far as they are kept, wrong ones after.
        rows = IDS[start : start + kept] + random_ids(6 - kept, seed=1)
        model().forward(state, rows, INVARIANT)
        state.install_prefix(snapshot, kept)
        assert_same_state(state, decoded[kept])
        logits = model().forward(state, [7], DECODE["invariant"]).logits.copy()
        expected = model().forward(decoded[kept].clone(), [7], DECODE["invariant"]).logits
        assert logits.tobytes() == expected.tobytes()


@pytest.mark.parametrize("start", [3, 62, 126, 255])
def test_many_cycles_of_partial_acceptance_leave_what_decode_leaves(start: int) -> None:
    state, expected = plain(start), plain(start)
    rng = np.random.default_rng(start)
    for _ in range(12):
        position = state.position
        kept = int(rng.integers(1, 7))
        snapshot = state.snapshot()
        rows = IDS[position : position + kept] + random_ids(6 - kept, seed=position)
        model().forward(state, rows, INVARIANT)
        state.install_prefix(snapshot, kept)
        for i in range(kept):
            model().forward(expected, [IDS[position + i]], DECODE["invariant"])
        assert_same_state(state, expected)


def test_batch_rows_differ_from_decode_but_not_much() -> None:
    start = 130
    decoded, state = plain(start, 6), plain(start)
    model().forward(state, IDS[start : start + 6], BATCH)
    left, right = decoded.digest(), state.digest()
    assert any(left[key] != right[key] for key in left)
    for layer, tensor in left:
        a, b = decoded.live(layer, tensor), state.live(layer, tensor)
        assert a.shape == b.shape
        assert np.abs(a - b).mean() < 0.05, (layer, tensor)


@pytest.mark.parametrize("kept", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("start", [0, 3, 126])
def test_reproject_rebuilds_the_compressors_as_decode_would(start: int, kept: int) -> None:
    before = plain(start)
    state = before.clone()
    snapshot = state.snapshot()
    rows = IDS[start : start + 6]
    # Only the compressors by the batch kernels: their inputs are then decode's.
    model().forward(state, rows, Plan("batch", batch_ops=frozenset(["compressor"])))
    # In layers after the first compressor the inputs differ too; compare the first one.
    layer = model().config.ratios.index(4)
    state.reproject(snapshot, kept)
    expected = before.clone()
    for token in rows[:kept]:
        model().forward(expected, [token], DECODE["split"])
    assert state.position == expected.position
    for tensor in ("frontier_kv", "frontier_score", "comp", "index_frontier_kv", "index"):
        assert state.live(layer, tensor).tobytes() == expected.live(layer, tensor).tobytes()
    again = before.clone()
    model().forward(again, rows, INVARIANT)
    again.reproject(snapshot, kept)
    expected = before.clone()
    for token in rows[:kept]:
        model().forward(expected, [token], DECODE["invariant"])
    assert_same_state(again, expected)


def test_live_rows_follow_the_definitions() -> None:
    state = plain(134)
    ratios = model().config.ratios
    shapes = {
        (layer, tensor): state.live(layer, tensor).shape[0]
        for layer in range(len(ratios))
        for tensor in state.tensors(layer)
    }
    four, wide = ratios.index(4), ratios.index(128)
    assert shapes[0, "raw"] == 32
    assert shapes[four, "comp"] == shapes[four, "index"] == 33
    assert shapes[wide, "comp"] == 1
    # 134 = 33 * 4 + 2: two rows of the current window and four of the one before.
    assert shapes[four, "frontier_kv"] == shapes[four, "index_frontier_score"] == 6
    assert shapes[wide, "frontier_score"] == 6
    assert list(state.tensors(0)) == ["raw"]
    assert list(state.tensors(four)) == [
        "raw", "comp", "index", "frontier_kv", "frontier_score", "index_frontier_kv",
        "index_frontier_score",
    ]  # fmt: skip
    assert plain(2).live(four, "frontier_kv").shape[0] == 2
    assert plain(4).live(four, "frontier_kv").shape[0] == 4
    with pytest.raises(ValueError, match="not 'comp'"):
        state.live(0, "comp")


def test_digest_sees_live_bytes_only() -> None:
    state = plain(70)
    before = state.digest()
    snapshot = state.snapshot()
    model().forward(state, random_ids(20), INVARIANT)
    state.restore(snapshot)
    assert state.digest() == before
    assert all(len(digest) == 16 for digest in before.values())
    slot = 69 % state.layers[0].raw.shape[0]
    state.layers[0].raw[slot, 3] += 1e-6
    changed = state.digest()
    assert [key for key in before if before[key] != changed[key]] == [(0, "raw")]


def test_clone_is_independent() -> None:
    state = plain(20)
    copy = state.clone()
    before = state.digest()
    model().forward(copy, random_ids(9), INVARIANT)
    assert state.digest() == before
    assert copy.position == 29
    assert state.position == 20


def test_impossible_returns_are_refused() -> None:
    state = plain(10)
    snapshot = state.snapshot()
    model().forward(state, random_ids(3), INVARIANT)
    with pytest.raises(ValueError, match="4 rows of a batch of 3"):
        state.install_prefix(snapshot, 4)
    with pytest.raises(ValueError, match="-1 rows"):
        state.install_prefix(snapshot, -1)
    model().forward(state, random_ids(30), INVARIANT)
    with pytest.raises(ValueError, match="33 rows after a snapshot"):
        state.restore(snapshot)
