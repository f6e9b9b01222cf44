"""Cases from the field on the real kernels, for every policy and both numerics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from engine.events import CycleFinished, Diverged, Notice, RunFinished, StateDrift
from engine.load import load_parts
from engine.paths import POLICIES, Numerics, Policy
from engine.session import Engine
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings
from engine.stats import tally
from tests.engine.proof import Draft, race, start
from tests.engine.random_pair import write_pair

NUMERICS: tuple[Numerics, ...] = ("split", "invariant")
SOME_RIGHT = [Draft(5, n % 6, "half") for n in range(7)]


def some(position: int) -> Draft:
    """Blocks of which 0 to 5 drafts are right, by position."""
    return SOME_RIGHT[position % 7]


@pytest.mark.parametrize("numerics", NUMERICS)
def test_digests_or_not_the_ids_are_the_same(numerics: Numerics) -> None:
    found = [race(numerics, POLICIES, 125, some, 60, every=every) for every in (0, 1, 3)]
    assert found[0].ids == found[1].ids == found[2].ids
    compared = [len(result.of(StateDrift)) for result in found]
    assert compared[0] == 0
    assert compared[1] > compared[2] > 0


@pytest.mark.parametrize("policy", ["direct", "prefix", "reproject"])
def test_the_indexers_switch_goes_by_each_rows_own_count(policy: Policy) -> None:
    """Verifies that span the switch from all compressed rows to the best four (17th token on).

    Row by row with the decode path's kernels a `split` verify must leave decode's states: if rows
    switched by their batch's last count, the ones before it would select too early.
    """
    for position in range(8, 25):
        full = race(
            "split", (policy,), position, lambda position: Draft(5, 5), 12, batch_ops=("head",)
        )
        for drift in full.of(StateDrift):
            wrong = [t for t in drift.tensors if t[0] >= 0 and t[2] is not None]
            assert not wrong, f"from {position}, at {drift.position}"
        for numerics in NUMERICS:
            policies = (policy,) if numerics == "invariant" else ("replay",)
            race(numerics, policies, position, some, 12).assert_exact()


@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("kept", range(1, 6))
def test_a_rejection_at_every_offset_of_a_window(numerics: Numerics, kept: int) -> None:
    """1 to 5 rows kept of a verify, at every offset of a ratio-4 window and of a ring's wrap."""
    policies = POLICIES if numerics == "invariant" else ("replay", "strict")
    for offset in range(4):
        for position in (60 + offset, 124 + offset):
            found = race(numerics, policies, position, lambda at: Draft(5, kept - 1), kept + 6)
            found.assert_exact()
            accepted = {c.accepted for c in found.of(CycleFinished, 1) if c.proposed == 5}
            assert accepted == {kept - 1}


def test_full_blocks_of_split_drift_but_replay_does_not() -> None:
    """Verify rows that are kept leave rounded rows; the first drift is before any divergence."""
    policies: Sequence[Policy] = ("direct", "prefix", "reproject", "replay")
    found = race("split", policies, 100, lambda position: Draft(5, 5), 200)
    found.assert_exact("replay")
    for arm in (1, 2, 3):
        drifts = found.of(StateDrift, arm)
        assert any(t[0] >= 0 and t[2] for drift in drifts for t in drift.tensors)
    for parted in found.of(Diverged):
        assert not parted.logic_error
        if parted.cause == "state":
            assert parted.first_drift.position < parted.index


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    target, drafter = write_pair(tmp_path_factory.mktemp("pair"), types="ds4")
    files = EngineFiles(str(target), (str(drafter),))
    return Engine(load_parts(files, lambda event: None), files)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    target, _ = write_pair(tmp_path_factory.mktemp("alone"), types="ds4")
    files = EngineFiles(str(target))
    return Engine(load_parts(files, lambda event: None), files)


@pytest.mark.parametrize("numerics", NUMERICS)
def test_without_a_drafter_one_line_says_that_nothing_is_drafted(
    alone: Engine, numerics: Numerics
) -> None:
    request = RunRequest(Prompt("Hello"), Settings(numerics, max_tokens=8))
    events = list(alone.run(request))
    (notice,) = [e for e in events if isinstance(e, Notice)]
    assert "No drafter was given (--mtp), so nothing is drafted" in notice.text
    assert len(tally(events)) == 1
    assert isinstance(events[-1], RunFinished)
    assert events[-1].identical is None


@pytest.mark.parametrize("numerics", NUMERICS)
def test_strict_says_that_nothing_is_drafted_and_is_identical(
    engine: Engine, numerics: Numerics
) -> None:
    settings = Settings(numerics, (Knobs("strict"),), max_tokens=20, ignore_eos=True)
    events = list(engine.run(RunRequest(Prompt("Hello"), settings)))
    (notice,) = [e for e in events if isinstance(e, Notice)]
    assert "Policy strict drafts nothing" in notice.text
    plain, strict = tally(events)
    assert (strict.ids, strict.counts.drafted, strict.counts.proposed) == (plain.ids, 0, 0)
    assert events[-1].identical is True


@pytest.mark.parametrize("numerics", NUMERICS)
def test_a_block_of_one_row_is_plain_decode(numerics: Numerics) -> None:
    """Nothing proposed, in any policy: the decode path, equal states, no snapshot."""
    found = race(numerics, POLICIES, 126, lambda position: Draft(0, 0), 12)
    found.assert_exact()
    assert {cycle.proposed for cycle in found.of(CycleFinished)} == {0}
    assert all(cycle.time.replay == cycle.time.verify == 0 for cycle in found.of(CycleFinished))


def test_numerics_share_no_state() -> None:
    """Prefills of the two numerics differ in their bits, so their plain arms are their own."""
    left, right = (start(numerics, 100).state.digest() for numerics in NUMERICS)
    assert left.keys() == right.keys()
    assert any(left[key] != right[key] for key in left)
    logits = [np.asarray(start(numerics, 100).logits) for numerics in NUMERICS]
    assert np.abs(logits[0] - logits[1]).max() < 1
