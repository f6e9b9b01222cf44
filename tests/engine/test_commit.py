"""The five commit policies over a scripted state: what they commit, keep and promise."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import commit, decode
from engine.events import ArmFinished, CycleFinished, Diverged, StateDrift, TokensCommitted
from engine.settings import Knobs
from tests.engine.races import engine, run
from tests.engine.scripted import (
    BLOCK,
    VOCAB,
    ScriptedDrafter,
    ScriptedModel,
    continuation,
    path_script,
    random_script,
    spoiled,
)

POLICIES = ("direct", "prefix", "replay", "strict")
PROMPT = 13
IDS = [2 + i * 7 % 29 for i in range(200)]


def half_right(accepts: list[int]) -> ScriptedDrafter:
    """Right drafts up to a row that cycles through `accepts` by position."""
    perfect = continuation(path_script(IDS, PROMPT))
    return ScriptedDrafter(spoiled(perfect, lambda tokens: accepts[len(tokens) % len(accepts)]))


@pytest.mark.parametrize("accepted", range(BLOCK + 1))
def test_what_each_policy_evaluates(accepted: int) -> None:
    """Rows by path after one verify of a full block of which some drafts are right."""
    expected = {
        "direct": [] if accepted == BLOCK else [("vector", 1)] * (accepted + 1),
        "prefix": [],
        "replay": [("vector", 1)] * (accepted + 1),
    }
    for policy, replayed in expected.items():
        model = ScriptedModel(path_script(IDS, PROMPT))
        run(engine(model, half_right([accepted])), policy, max_tokens=8)
        plain = [("vector", 1)]
        first = model.forwards.index(("batch", BLOCK + 1))
        after = model.forwards[first + 1 : first + 1 + len(replayed)]
        assert after == replayed, policy
        if not replayed:
            assert model.forwards[first + 1 : first + 2] in ([], plain)


@pytest.mark.parametrize("policy", POLICIES)
def test_events_of_a_partly_accepted_block(policy: str) -> None:
    found = run(engine(ScriptedModel(path_script(IDS, PROMPT)), half_right([2])), policy)
    cycle = found.of(CycleFinished)[0]
    if policy == "strict":
        assert cycle.verify_ids == (IDS[1],)
        return
    assert (cycle.proposed, cycle.accepted, cycle.bonus, cycle.depth) == (5, 2, IDS[3], 3)
    assert cycle.verify_ids[:3] == tuple(IDS[1:4])
    assert len(cycle.verify_ids) == len(cycle.verify_gaps) == 6
    assert cycle.replay_ids == (() if policy == "prefix" else tuple(IDS[1:4]))
    assert cycle.recheck_cut == 0
    committed = found.of(TokensCommitted, 1)[1]
    assert committed.ids == tuple(IDS[1:4])
    assert committed.sources == ("draft", "draft", "bonus")
    assert [row[0][0] for row in committed.top] == IDS[1:4]


def test_replay_ends_where_a_redecoded_row_disagrees() -> None:
    """The verify's row says yes, the decode path says no: the draft is dropped and counted."""

    class Torn(ScriptedModel):
        def _row(self, state, path):  # type: ignore[no-untyped-def]
            row = super()._row(state, path)
            if path == "batch" and state.position == PROMPT + 3:
                row[IDS[3] + 1] = 9.0
            return row

    model = Torn(path_script(IDS, PROMPT))
    wrong = [IDS[1], IDS[2], IDS[3] + 1, 0, 0]
    drafter = ScriptedDrafter(lambda tokens: wrong if len(tokens) == PROMPT + 1 else [0] * 5)
    found = run(engine(model, drafter), "replay", "direct", max_tokens=20)
    cycle = found.of(CycleFinished, 1)[0]
    assert (cycle.accepted, cycle.recheck_cut, cycle.bonus) == (2, 1, IDS[3])
    assert cycle.replay_ids == tuple(IDS[1:4])
    assert found.arms[1].ids == found.arms[0].ids
    assert found.arms[1].counts.recheck_cut == 1
    (parted,) = found.of(Diverged)
    assert (parted.arm, parted.index, parted.right) == (2, 3, IDS[3] + 1)
    assert parted.cause == "verify_row"
    assert parted.first_drift is None
    assert not parted.logic_error


def noisy(
    seed: int, accepts: list[int], noise: float = 0.3
) -> tuple[ScriptedModel, ScriptedDrafter]:
    script = random_script(seed)
    perfect = continuation(script)
    drafter = ScriptedDrafter(spoiled(perfect, lambda t: accepts[len(t) % len(accepts)]))
    return ScriptedModel(script, noise=noise), drafter


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    accepts=st.lists(st.integers(0, BLOCK), min_size=1, max_size=9),
    tokens=st.integers(1, 40),
    no_repeat=st.sampled_from([0, 0, 3]),
)
def test_invariant_numerics_are_identical_in_every_policy(
    seed: int, accepts: list[int], tokens: int, no_repeat: int
) -> None:
    model, drafter = noisy(seed, accepts)
    found = run(
        engine(model, drafter),
        *POLICIES,
        numerics="invariant",
        max_tokens=tokens,
        no_repeat=no_repeat,
        ignore_eos=True,
    )
    for arm in found.arms[1:]:
        assert arm.ids == found.arms[0].ids
        assert sum(d * n for d, n in arm.counts.depth_hist().items()) == max(0, len(arm.ids) - 1)
    for drift in found.of(StateDrift):
        assert all(difference is None for _, _, difference in drift.tensors)
    assert found.events[-1].identical is True
    if tokens:
        assert [e.state_equal for e in found.of(ArmFinished) if e.arm] == [True] * 4


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    accepts=st.lists(st.integers(0, BLOCK), min_size=1, max_size=9),
    noise=st.sampled_from([0.0, 0.01, 0.3, 3.0]),
)
def test_replay_and_strict_are_identical_whatever_the_batch_path_does(
    seed: int, accepts: list[int], noise: float
) -> None:
    model, drafter = noisy(seed, accepts, noise)
    found = run(engine(model, drafter), "replay", "strict", max_tokens=40)
    for arm in found.arms[1:]:
        assert arm.ids == found.arms[0].ids
    assert not found.of(Diverged)
    assert [e.state_equal for e in found.of(ArmFinished)] == [None, True, True]


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    accepts=st.lists(st.integers(0, BLOCK), min_size=1, max_size=9),
)
def test_every_token_is_the_argmax_of_the_row_it_came_from(seed: int, accepts: list[int]) -> None:
    model, drafter = noisy(seed, accepts)
    found = run(engine(model, drafter), *POLICIES, max_tokens=40)
    for event in found.of(TokensCommitted):
        assert [row[0][0] for row in event.top] == list(event.ids)
    assert not any(event.logic_error for event in found.of(Diverged))
    for cycle in found.of(CycleFinished):
        assert 1 <= cycle.depth <= cycle.proposed + 1 <= BLOCK + 1
        assert cycle.depth == cycle.accepted + (cycle.bonus >= 0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("offset", range(4))
@pytest.mark.parametrize("accepted", range(BLOCK + 1))
def test_digests_after_a_rollback_equal_those_of_plain(
    policy: str, offset: int, accepted: int
) -> None:
    """A rejection at every offset of a ratio-4 window, 1..6 rows kept, in exact arithmetic."""
    made = engine(ScriptedModel(path_script(IDS, PROMPT + offset)), half_right([accepted]))
    prompt = "abcdefghij" + "k" * offset
    found = run(made, policy, prompt=prompt, numerics="invariant", max_tokens=30)
    drifts = found.of(StateDrift)
    assert len(drifts) == len(found.of(CycleFinished)) + 1
    assert all(value is None for drift in drifts for _, _, value in drift.tensors)


def test_split_direct_diverges_somewhere_and_names_its_cause() -> None:
    causes = set()
    for seed in range(30):
        model, drafter = noisy(seed, [5, 3, 5], noise=0.05)
        for parted in run(engine(model, drafter), "direct", max_tokens=60).of(Diverged):
            causes.add(parted.cause)
            if parted.cause == "state":
                assert parted.first_drift is not None
                assert parted.first_drift.position < parted.index
                assert parted.first_drift.max_abs > 0
            else:
                assert parted.first_drift is None
    assert causes == {"state", "verify_row"}


def accept_everything(drafts, rows, eos_id):  # type: ignore[no-untyped-def]
    """A broken acceptance rule."""
    return len(drafts), False


@pytest.mark.parametrize("policy", ["direct", "prefix"])
@pytest.mark.parametrize("gap", [0.01, 5.0])
def test_a_wrong_token_that_is_committed_is_a_logic_error(
    monkeypatch: pytest.MonkeyPatch, policy: str, gap: float
) -> None:
    """Whatever the margin and however many drafts were right before it."""
    script = path_script(IDS, PROMPT, gap=gap, level=20)
    drafter = ScriptedDrafter(
        spoiled(continuation(script), lambda tokens: 5 if len(tokens) < PROMPT + 20 else 3)
    )
    monkeypatch.setattr(decode, "accepted_prefix", accept_everything)
    found = run(engine(ScriptedModel(script), drafter), policy)
    (parted,) = found.of(Diverged)
    assert parted.logic_error
    assert parted.verdict == ("near-tie" if gap < 1 else "large-margin")
    assert parted.differing_choices == ()


def test_the_policies_have_one_function_each() -> None:
    assert set(commit.COMMITS) == {"direct", "prefix", "reproject", "replay"}


def test_arms_do_not_disturb_each_other() -> None:
    """Every subset of arms gives each arm the ids that it has alone."""
    alone = {}
    for policy in POLICIES:
        model, drafter = noisy(3, [4, 1], noise=0.2)
        alone[policy] = run(engine(model, drafter), policy, max_tokens=50).arms[1].ids
    for pair in itertools.permutations(POLICIES, 2):
        model, drafter = noisy(3, [4, 1], noise=0.2)
        found = run(engine(model, drafter), *pair, max_tokens=50)
        assert [arm.ids for arm in found.arms[1:]] == [alone[policy] for policy in pair]


def test_drafts_beyond_the_vocabulary_of_rows_are_possible_only_up_to_the_block() -> None:
    drafter = ScriptedDrafter(lambda tokens: [VOCAB - 1] * 9)
    found = run(engine(ScriptedModel(path_script(IDS, PROMPT)), drafter), Knobs(draft_max=5))
    assert max(cycle.proposed for cycle in found.of(CycleFinished)) == BLOCK
