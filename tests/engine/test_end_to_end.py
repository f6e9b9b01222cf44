"""A small random pair from its files to its events: identity, digests, rollbacks, follow-ups.

A random drafter is hardly ever right, so most of these give the real target the drafts of a plain
decode, right up to a row that the test chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import Ds4Error
from engine.events import (
    ArmFinished,
    CycleFinished,
    Diverged,
    Event,
    LoadProgress,
    RunStarted,
    StateDrift,
)
from engine.parts import Parts
from engine.paths import OP_CLASSES, Perturb, Plan
from engine.self_test import rows_differ
from engine.session import Engine, load_engine
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings
from engine.stats import ArmTally, tally
from tests.engine.random_pair import SMALL, DrafterShape, write_drafter, write_pair
from tests.engine.scripted import seeded

POLICIES = ("direct", "prefix", "reproject", "replay", "strict")
TOKENS = 150
"""Past the first row of the ratio-128 layer and several wraps of the raw ring (window 32)."""


class Told:
    """A block of given drafts."""

    def __init__(self, drafts: Sequence[int], vocab: int) -> None:
        self._drafts = drafts
        self._vocab = vocab

    def best(self, row: int, previous: int | None) -> int | None:
        return None

    def confidence(self, row: int, previous: int) -> float:
        return 1.0

    def logits(self, row: int) -> np.ndarray:
        logits = np.zeros(self._vocab, np.float32)
        logits[self._drafts[row]] = 1
        return logits

    def scores(self, row: int, previous: int) -> np.ndarray:
        return self.logits(row)


class TellingDrafter:
    """Drafts that a plain decode made before, right for `right(position)` rows of a block."""

    block_size, noise_id, window = 5, 8, 128

    def __init__(self, vocab: int) -> None:
        self.vocab = vocab
        self.ids: list[int] = []
        self.start = 0
        self.right: Callable[[int], int] = lambda position: 5

    def new_context(self) -> TellingDrafter:
        return self

    def clone(self) -> TellingDrafter:
        return self

    def extend(self, context: Any, taps: np.ndarray, position: int) -> None:
        assert np.isfinite(taps).all()

    def block(
        self, context: Any, anchor: int, position: int, rows: int | None = None, gate: float = 0.0
    ) -> Told:
        index = position - self.start + 1
        ids = [*self.ids[index : index + 5], *([9] * 5)][:5]
        right = self.right(position)
        drafts = [t if i < right else (t + 1) % self.vocab for i, t in enumerate(ids)]
        return Told(drafts, self.vocab)


class Bench:
    """One loaded random target with a drafter that is told what to say."""

    def __init__(self, folder: Path, progress: Callable[[Event], None]) -> None:
        target, drafter = write_pair(folder, SMALL, types="ds4")
        self.files = EngineFiles(str(target), (str(drafter),))
        self.real = load_engine(self.files, progress)
        self.drafter = TellingDrafter(SMALL.vocab)
        parts: Parts = replace(
            self.real._parts, drafters={"told": self.drafter}, gates={"told": 0.0}
        )
        self.told = Engine(parts, self.files)

    def run(
        self,
        *policies: str,
        right: Callable[[int], int] = lambda position: 5,
        prompt: str = "A small prompt of some bytes",
        **settings: Any,
    ) -> tuple[list[Event], list[ArmTally]]:
        """Run plain alone, then all arms with drafts from it."""
        settings = {"max_tokens": TOKENS, "ignore_eos": True} | settings
        request = RunRequest(Prompt(prompt, chat=False), Settings(dspark=(), **settings))
        events = list(self.told.run(request))
        self.drafter.ids = tally(events)[0].ids
        started = next(e for e in events if isinstance(e, RunStarted))
        self.drafter.start = len(started.prompt_ids)
        self.drafter.right = right
        dspark = tuple(Knobs(commit=policy) for policy in policies)  # type: ignore[arg-type]
        request = replace(request, settings=replace(request.settings, dspark=dspark))
        events = list(self.told.run(request))
        return events, tally(events)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("pair"), lambda event: None)


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def assert_exact(events: list[Event], arms: list[ArmTally]) -> None:
    """Same ids and bit-equal states at every common boundary."""
    for arm in arms[1:]:
        assert arm.ids == arms[0].ids
    for drift in of(events, StateDrift):
        wrong = [(layer, name) for layer, name, value in drift.tensors if value is not None]
        assert not wrong, f"arm {drift.arm} at {drift.index}: {wrong}"


def test_loading_tells_its_stages(tmp_path: Path) -> None:
    progress: list[Event] = []
    Bench(tmp_path, progress.append)
    stages = list(dict.fromkeys(event.stage for event in of(progress, LoadProgress)))
    assert stages == ["reading", "compiling kernels", "repacking"]


def test_the_files_own_drafter_runs(bench: Bench) -> None:
    knobs = tuple(Knobs(commit=policy, confidence=0.0) for policy in POLICIES)  # type: ignore[arg-type]
    request = RunRequest(
        Prompt("Hello", system="Short."), Settings(dspark=knobs, max_tokens=40, ignore_eos=True)
    )
    events = list(bench.real.run(request))
    arms = tally(events)
    assert arms[4].ids == arms[5].ids == arms[0].ids
    assert all(arm.counts.proposed > 0 for arm in arms[1:5])
    cycle = of(events, CycleFinished)[0]
    assert len(cycle.confidences) == 5
    assert all(0 <= value <= 1 for value in cycle.confidences)
    ready = bench.real.ready()
    assert (ready.block_size, [file.role for file in ready.files]) == (5, ["target", "drafter"])


def test_a_perfect_drafter_of_an_exact_engine(bench: Bench) -> None:
    events, arms = bench.run("prefix", numerics="invariant", max_tokens=121)
    assert_exact(events, arms)
    assert arms[1].counts.accept_rate == 1.0
    assert arms[1].counts.mean_depth == 6


def mixed(seed: int) -> Callable[[int], int]:
    """0 to 5 right drafts, by position."""
    return lambda position: int(seeded(seed, position).integers(0, 6))


@pytest.mark.parametrize("seed", range(6))
def test_invariant_is_identical_with_equal_states_after_every_cycle(
    bench: Bench, seed: int
) -> None:
    """Rejections after 0..5 drafts, over every offset of a ratio-4 window and the ring's wraps."""
    events, arms = bench.run(*POLICIES, right=mixed(seed), numerics="invariant")
    assert_exact(events, arms)
    assert [e.state_equal for e in of(events, ArmFinished) if e.arm] == [True] * 5
    cycles = [cycle for cycle in of(events, CycleFinished) if cycle.arm == 2]
    assert {cycle.accepted for cycle in cycles} == {0, 1, 2, 3, 4, 5}
    assert {cycle.position % 4 for cycle in cycles} == {0, 1, 2, 3}


@pytest.mark.parametrize("seed", range(3))
def test_replay_and_strict_are_identical_in_split(bench: Bench, seed: int) -> None:
    events, arms = bench.run(
        *POLICIES,
        right=mixed(seed),
        prompt=f"Prompt number {seed}",
    )
    assert arms[4].ids == arms[5].ids == arms[0].ids
    ends = {e.arm: e.state_equal for e in of(events, ArmFinished)}
    assert ends[4] is True
    assert ends[5] is True
    drifting = {d.arm for d in of(events, StateDrift) if any(t[2] is not None for t in d.tensors)}
    assert {1, 2, 3} <= drifting, "direct, prefix and reproject keep rounded rows"
    assert not any(parted.logic_error for parted in of(events, Diverged))


@pytest.mark.parametrize("op_class", OP_CLASSES)
def test_replay_survives_faults_in_every_class(bench: Bench, op_class: str) -> None:
    events, arms = bench.run(
        "prefix",
        "replay",
        right=lambda position: 5,
        perturb=Perturb(op_class, 2**16, 3),
        max_tokens=40,
    )
    assert arms[2].ids == arms[0].ids
    assert next(e for e in of(events, ArmFinished) if e.arm == 2).state_equal is True


def test_batch_ops_restrict_the_drift(bench: Bench) -> None:
    """With the compressor alone in the batch path, the first tensors that drift are its own."""
    events, _ = bench.run("prefix", batch_ops=("compressor",), max_tokens=60)
    drift = next(
        d for d in of(events, StateDrift) if any(value is not None for _, _, value in d.tensors)
    )
    first = next(name for _, name, value in drift.tensors if value is not None)
    assert first in ("comp", "index", "frontier_kv", "frontier_score")


def test_pinned_choices_are_plains(bench: Bench) -> None:
    events, arms = bench.run("prefix", pin=("router", "indexer"), max_tokens=60)
    assert len(arms[1].ids) == 60
    assert "diagnostic" in next(e.text for e in events if hasattr(e, "text"))


def test_digests_do_not_disturb(bench: Bench) -> None:
    found = [bench.run("direct", "prefix", digest_every=every)[1] for every in (0, 1)]
    assert [arm.ids for arm in found[0]] == [arm.ids for arm in found[1]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"threads": 4096}, "--threads is 4096; expected 1 to"),
        ({"context": 10**6}, "--ctx is 1000000; the target was made for at most 1024 tokens"),
        ({"threads": 2, "device": "cuda"}, "--threads is for the kernels of the CPU"),
        ({"device": "cuda"}, "cuda"),
        ({"model": "none.gguf"}, "none.gguf"),
        ({"mtp": ("none.gguf",)}, "none.gguf"),
    ],
)
def test_what_cannot_be_loaded_is_one_sentence(
    bench: Bench, change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(Ds4Error, match=sentence):
        load_engine(replace(bench.files, **change))


def test_drafters_of_one_run_read_the_same_layers(bench: Bench, tmp_path: Path) -> None:
    other = write_drafter(tmp_path / "other.gguf", SMALL, DrafterShape(taps=(0, 1, 2)))
    files = replace(bench.files, mtp=(*bench.files.mtp, str(other)))
    with pytest.raises(Ds4Error, match="must read the same layers"):
        load_engine(files)


def test_the_context_can_be_shortened(bench: Bench) -> None:
    made = load_engine(replace(bench.files, context=64, mtp=()))
    assert made.ready().context == 64
    request = RunRequest(Prompt("Hello", chat=False), Settings(max_tokens=500, ignore_eos=True))
    events = list(made.run(request))
    assert [end.reason for end in of(events, ArmFinished)] == ["context"]


def test_the_self_test_passes_here_and_sees_a_row_that_differs(bench: Bench) -> None:
    parts = bench.told._parts
    assert parts.rows_differ is not None
    assert parts.rows_differ() == ""

    class Biased:
        """A target whose batches of three rows are a little off."""

        def forward(self, state: Any, ids: Sequence[int], plan: Plan) -> Any:
            rows = parts.model.forward(state, ids, plan)
            if len(ids) == 3:
                rows.logits[1] += 1e-3
            return rows

    found = rows_differ(Biased(), parts.new_state, 6, SMALL.vocab)  # type: ignore[arg-type]
    assert found == "row 1 of 3 has other logits than the same row alone"


def test_a_conversation_goes_on(bench: Bench) -> None:
    """A second turn on kept states is what evaluating the whole conversation anew gives."""
    before, first = bench.run("replay", numerics="invariant", max_tokens=20)
    follow = RunRequest(
        Prompt(" and then", chat=False),
        Settings("invariant", (Knobs("replay"),), 20, ignore_eos=True),
        follow_up=True,
    )
    bench.drafter.right = lambda position: 0
    events = list(bench.told.run(follow))
    started = of(events, RunStarted)[0]
    assert started.cached == len(of(before, RunStarted)[0].prompt_ids) + 20
    arms = tally(events)
    assert arms[0].ids == arms[1].ids
    assert started.prompt_ids[: started.cached][-20:] == tuple(first[0].ids)
    state = bench.told._conversation.timelines["replay"].state
    assert state.position == len(started.prompt_ids) + 19
    parts = bench.told._parts
    anew = parts.new_state()
    tokens = [*started.prompt_ids, *arms[0].ids[:-1]]
    parts.model.forward(anew, tokens, Plan("invariant"), all_logits=False)
    assert anew.digest() == state.digest()
