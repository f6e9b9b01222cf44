"""Every position x block length x accepted length: what is kept equals what decode leaves.

Exhaustive over the first 170 tokens of a small random target: every alignment to the ratio-4
windows, the first rows of the ratio-128 layer, the wraps of the raw ring (64 rows here), of the
ratio-4 frontier (40) and of the ratio-128 frontier (160), and the switch of the indexer from all
rows to its top 4 (16 tokens).
"""

from __future__ import annotations

import numpy as np
import pytest

from engine.paths import DECODE, Numerics, Plan
from engine.state import Snapshot, State
from tests.engine.loaded import model
from tests.engine.proof import IDS, VOCAB

POSITIONS = range(170)
BLOCK = 5
WRONG = [(token + 1) % VOCAB for token in IDS]
Digest = dict[tuple[int, str], bytes]


def decoded(numerics: Numerics, last: int) -> tuple[list[Digest], list[bytes]]:
    """Digest after every number of tokens, and the logits of every row, by plain decode."""
    state = model().new_state()
    digests, logits = [state.digest()], []
    for token in IDS[:last]:
        rows = model().forward(state, [token], DECODE[numerics])
        logits.append(np.array(rows.logits).tobytes())
        digests.append(state.digest())
    return digests, logits


@pytest.mark.parametrize("policy", ["prefix", "reproject"])
def test_rows_kept_of_an_invariant_verify(policy: str) -> None:
    """As after decoding those rows, at every position, for every block and accepted length."""
    digests, logits = decoded("invariant", POSITIONS[-1] + BLOCK + 2)
    state = model().new_state()
    for position in POSITIONS:
        before = Snapshot(position)
        for length in range(1, BLOCK + 1) if policy == "prefix" else (BLOCK,):
            for right in range(length + 1):
                accepted = position + 1 + right
                tokens = IDS[position:accepted] + WRONG[accepted : position + 1 + length]
                rows = np.array(model().forward(state, tokens, Plan("invariant")).logits)
                settle(state, policy, before, right + 1)
                where = f"{length} drafts, {right} right, at {position}"
                assert state.digest() == digests[accepted], where
                for i in range(right + 1):
                    assert rows[i].tobytes() == logits[position + i], where
                state.restore(before)
                assert state.digest() == digests[position], where
        model().forward(state, [IDS[position]], DECODE["invariant"])


def settle(state: State, policy: str, before: Snapshot, rows: int) -> None:
    if policy == "prefix":
        state.install_prefix(before, rows)
    else:
        state.reproject(before, rows)


@pytest.mark.parametrize("plan", [Plan("batch"), Plan("invariant")], ids=lambda p: p.path)
def test_a_restored_state_is_as_if_nothing_had_been_verified(plan: Plan) -> None:
    """What `replay` and `direct` decode again from, at every position, for every block length."""
    digests, logits = decoded("split", POSITIONS[-1] + 2)
    state = model().new_state()
    for position in POSITIONS:
        before = state.snapshot()
        for length in (1, 2, 3, 4, 5, 31):
            tokens = [IDS[position], *WRONG[position + 1 : position + 1 + length]]
            model().forward(state, tokens, plan)
            state.restore(before)
            assert state.digest() == digests[position], f"{length} drafts at {position}"
        rows = model().forward(state, [IDS[position]], DECODE["split"])
        assert np.array(rows.logits).tobytes() == logits[position]
