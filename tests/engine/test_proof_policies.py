"""What must be identical is, for scripted drafts of every kind, from positions of every alignment.

Real kernels on a small random target. After every cycle the states are compared tensor by tensor,
not only the ids (`Result.assert_exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.events import ArmFinished, StateDrift
from engine.paths import OP_CLASSES, POLICIES, Numerics, Perturb, Policy
from engine.settings import MAX_PERTURB_ULPS
from tests.engine.proof import Draft, race

ALL: tuple[Policy, ...] = POLICIES
EXACT: tuple[Policy, ...] = ("replay", "strict")
PROMISED: dict[Numerics, tuple[Policy, ...]] = {"invariant": ALL, "split": EXACT}

# Ends of windows and rings, a few tokens before each: ratio 4 and its switch from all rows to the
# best four (16), frontier of ratio 4 (40), window (32) and ring (64), ratio 128 and its ring (160).
EDGES = (0, 4, 8, 16, 32, 40, 64, 96, 128, 160, 256, 320)
positions = st.builds(
    lambda edge, back: max(1, edge - back), st.sampled_from(EDGES), st.integers(0, 7)
)


def blocks(longest: int = 5) -> st.SearchStrategy[Callable[[int], Draft]]:
    """A script of blocks by position; length 0 is a decode."""
    wrong = st.sampled_from(["wrong", "half", "noise", "same"])
    one = st.integers(0, longest).flatmap(
        lambda n: st.builds(Draft, st.just(n), st.integers(0, n), wrong)
    )
    return st.lists(one, min_size=1, max_size=7).map(lambda many: Script(tuple(many)))


class Script:
    """Blocks in turn, by position."""

    def __init__(self, many: Sequence[Draft]) -> None:
        self.many = many

    def __call__(self, position: int) -> Draft:
        return self.many[position % len(self.many)]

    def __repr__(self) -> str:
        return f"Script({self.many})"


@pytest.mark.parametrize("numerics", ["invariant", "split"])
@settings(max_examples=20, deadline=None)
@given(
    position=positions,
    drafts=blocks(),
    tokens=st.integers(1, 24),
    no_repeat=st.sampled_from([0, 2]),
)
def test_identical_with_equal_states_after_every_cycle(
    numerics: Numerics,
    position: int,
    drafts: Callable[[int], Draft],
    tokens: int,
    no_repeat: int,
) -> None:
    policies = PROMISED[numerics]
    found = race(numerics, policies, position, drafts, tokens, no_repeat=no_repeat)
    if tokens:
        found.assert_exact()
    assert [len(ids) for ids in found.ids] == [tokens] * len(found.ids)


@pytest.mark.parametrize("numerics", ["invariant", "split"])
@settings(max_examples=8, deadline=None)
@given(position=positions, drafts=blocks(31))
def test_blocks_as_long_as_the_rings_allow(
    numerics: Numerics, position: int, drafts: Callable[[int], Draft]
) -> None:
    found = race(numerics, PROMISED[numerics], position, drafts, 70, block_size=31)
    found.assert_exact()


@pytest.mark.parametrize("numerics", ["invariant", "split"])
@settings(max_examples=8, deadline=None)
@given(context=st.sampled_from([33, 66, 130]), room=st.integers(0, 12), drafts=blocks())
def test_up_to_the_end_of_the_context(
    numerics: Numerics, context: int, room: int, drafts: Callable[[int], Draft]
) -> None:
    """All arms end at the same token: the last that finds a free position, and one more."""
    found = race(numerics, PROMISED[numerics], context - room, drafts, 40, context=context)
    found.assert_exact()
    assert {len(ids) for ids in found.ids} == {room + 1}
    assert {end.reason for end in found.of(ArmFinished)} == {"context"}


@pytest.mark.parametrize("numerics", ["invariant", "split"])
@settings(max_examples=8, deadline=None)
@given(position=positions, drafts=blocks(), at=st.integers(0, 19))
def test_each_token_as_the_end(
    numerics: Numerics, position: int, drafts: Callable[[int], Draft], at: int
) -> None:
    """The text ends where plain's does, with the same state: inside a block, at its edge, after."""
    found = race(numerics, PROMISED[numerics], position, drafts, 20, eos=lambda ids: ids[at])
    found.assert_exact()
    assert {end.reason for end in found.of(ArmFinished)} == {"eos"}
    assert len(found.ids[0]) <= at + 1


@pytest.mark.parametrize("numerics", ["invariant", "split"])
@settings(max_examples=16, deadline=None)
@given(
    op_class=st.sampled_from(OP_CLASSES),
    ulps=st.sampled_from([1, 64, 2**12, 2**16, MAX_PERTURB_ULPS]),
    seed=st.integers(0, 3),
    position=positions,
    drafts=blocks(),
)
def test_faults_in_verifies_do_not_reach_replay_and_strict(
    numerics: Numerics,
    op_class: str,
    ulps: int,
    seed: int,
    position: int,
    drafts: Callable[[int], Draft],
) -> None:
    perturb = Perturb(op_class, ulps, seed)
    race(numerics, EXACT, position, drafts, 20, perturb=perturb).assert_exact()


@pytest.mark.parametrize("op_class", OP_CLASSES)
@pytest.mark.parametrize("numerics", ["invariant", "split"])
def test_the_largest_fault_in_every_class_is_felt_but_not_by_replay(
    numerics: Numerics, op_class: str
) -> None:
    """The fault is real: `prefix` keeps it in its state or its logits."""
    fault = Perturb(op_class, MAX_PERTURB_ULPS, 1)
    found = race(
        numerics, ("prefix", *EXACT), 125, lambda position: Draft(5, 5), 40, perturb=fault,
        batch_ops=("head",),
    )  # fmt: skip
    found.assert_exact(*EXACT)
    drifts = found.of(StateDrift, 1)
    assert any(value is not None for drift in drifts for _, _, value in drift.tensors)
