"""Timing steps: what is measured leaves no trace, takes turns, and counts the right bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from engine import costs
from engine.arrays import HostArrays
from engine.config import ModelConfig
from engine.costs import CostRequest, Steps, in_turns, quartiles
from engine.decode import Control
from engine.errors import Ds4Error
from engine.events import CostMeasured, Event, LoadProgress, MeasuringFinished
from engine.floor import decode_floor
from engine.gguf import open_gguf
from engine.load import load_parts
from engine.paths import POLICIES
from engine.process import Measure, Quit, Stop
from engine.serve import Host
from engine.session import load_engine
from engine.settings import EngineFiles
from tests.engine.random_pair import SMALL, DrafterShape, write_drafter, write_pair

COPIED = 1 << 16


@pytest.fixture(autouse=True)
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "COPIED_BYTES", COPIED)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> EngineFiles:
    target, drafter = write_pair(tmp_path_factory.mktemp("pair"), SMALL, DrafterShape())
    return EngineFiles(str(target), (str(drafter),))


@pytest.mark.parametrize("numerics", ["split", "invariant"])
def test_every_kind_is_measured_at_every_position(files: EngineFiles, numerics: str) -> None:
    progress: list[LoadProgress] = []
    request = CostRequest(numerics, "prefix", (20, 40), repeat=2)  # type: ignore[arg-type]
    found = list(load_engine(files).costs(request, progress.append))  # type: ignore[arg-type]
    kinds = [(cost.kind, cost.rows) for cost in found if cost.position == 40]
    block = DrafterShape().block_size
    verifies = [("verify", rows) for rows in range(2, block + 2)]
    drafts = [("draft", 0), ("draft", block)]
    rare = [("prefill", 40), ("copy", COPIED)]
    commits = [("carry", 1), ("commit", block), ("reproject", block)]
    assert kinds == [("decode", 1), *verifies, *drafts, *commits, *rare]
    assert len(found) == 2 * len(kinds)
    for cost in found:
        assert 0 < cost.best_ns <= cost.low_ns <= cost.median_ns <= cost.high_ns
        assert cost.n == 2
        assert (cost.numerics, cost.commit) == (numerics, "prefix")
    assert [(event.done, event.total) for event in progress] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_stop_leaves_the_costs_of_the_turns_done(files: EngineFiles) -> None:
    control = Control(0)
    seen: list[Event] = []

    def report(event: Event) -> None:
        seen.append(event)
        control.stopped = len(seen) == 3

    request = CostRequest(positions=(20, 40), repeat=5)
    found = list(load_engine(files).costs(request, report, control))
    assert {cost.position for cost in found} == {20}
    assert {cost.n for cost in found if cost.kind == "verify"} == {3}
    assert len(seen) == 3


def test_the_engines_process_stops_measuring_and_says_that_it_is_over(files: EngineFiles) -> None:
    commands, asked = Pipe(duplex=False)
    found, events = Pipe(duplex=False)
    for command in (Measure(CostRequest(positions=(20,), repeat=500)), Stop(), Quit()):
        asked.send(command)
    Host(commands, events).serve(load_engine(files))
    events.close()
    seen: list[Event] = []
    with contextlib.suppress(EOFError):
        while True:
            seen += found.recv()
    costs = [event for event in seen if isinstance(event, CostMeasured)]
    assert {cost.n for cost in costs} == {1}
    assert isinstance(seen[-1], MeasuringFinished)


def test_the_copy_is_made_where_the_models_are(
    files: EngineFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Elsewhere(HostArrays):
        device = "elsewhere"
        made: ClassVar[list[np.ndarray]] = []

        def zeros(self, shape: Sequence[int], kind: str = "float32") -> np.ndarray:
            self.made.append(np.zeros(shape, kind))
            return self.made[-1]

    monkeypatch.setattr(costs, "COPIED_ON_DEVICE", 4 * COPIED)
    parts = load_parts(files, lambda _event: None)
    assert costs.copy_step(parts)[0] == COPIED
    size, copy = costs.copy_step(replace(parts, arrays=Elsewhere()))
    source, target = Elsewhere.made
    assert size == source.nbytes == target.nbytes == 4 * COPIED
    assert not target.any()
    assert copy() > 0
    assert target.all()


def test_the_drafter_asked_for_is_measured(files: EngineFiles, tmp_path: Path) -> None:
    longer = str(write_drafter(tmp_path / "longer.gguf", SMALL, DrafterShape(block_size=7)))
    engine = load_engine(EngineFiles(files.model, (*files.mtp, longer)))
    for asked, path, block in ((None, files.mtp[0], 5), (longer, longer, 7)):
        request = CostRequest(positions=(9,), repeat=1, mtp=asked)
        found: list[CostMeasured] = list(engine.costs(request))
        assert {cost.drafter for cost in found} == {path}
        assert max(cost.rows for cost in found if cost.kind == "verify") == block + 1
        assert {cost.rows for cost in found if cost.kind == "draft"} == {0, block}


def test_without_a_drafter_the_target_is_measured(files: EngineFiles) -> None:
    engine = load_engine(EngineFiles(files.model))
    found: list[CostMeasured] = list(engine.costs(CostRequest(positions=(9,), repeat=1)))
    assert {cost.kind for cost in found} == {"decode", "verify", "prefill", "copy"}
    assert max(cost.rows for cost in found if cost.kind == "verify") == 6


@pytest.mark.parametrize("commit", POLICIES)
def test_steps_leave_the_state_as_it_was(files: EngineFiles, commit: str) -> None:
    steps = Steps(load_parts(files, lambda event: None), "split", commit, 70)  # type: ignore[arg-type]
    timeline = steps._timeline
    before, ids = timeline.state.digest(), list(timeline.ids)
    steps.prefill()
    for rows in range(1, steps.rows + 1):
        steps.verify(rows)
    steps.draft()
    steps.draft(2.0)
    steps.decode()
    steps.carry()
    assert steps.commit("reproject") > 0
    if commit != "strict":
        assert steps.commit() > 0
    assert timeline.state.digest() == before
    assert (timeline.ids, timeline.taps) == (ids, [])


def test_steps_take_turns_in_changing_order() -> None:
    calls: list[str] = []

    def step(name: str, took: int):  # type: ignore[no-untyped-def]
        def run() -> int:
            calls.append(name)
            return took

        return run

    turns: list[int] = []
    found = in_turns(
        {name: step(name, i) for i, name in enumerate("abcd")},
        40,
        rare={"slow": step("slow", 9)},
        turned=turns.append,
    )
    assert {name: len(samples) for name, samples in found.items()} == {
        "a": 40, "b": 40, "c": 40, "d": 40, "slow": 10,
    }  # fmt: skip
    assert found["d"] == [3] * 40
    assert turns == list(range(1, 41))
    orders = {
        "".join(calls[i : i + 4]) for i in range(len(calls)) if set(calls[i : i + 4]) == set("abcd")
    }
    assert len(orders) > 5
    assert quartiles([4, 1, 3, 2, 5]) == (2, 3, 4)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [({"repeat": 0}, "--repeat is 0"), ({"positions": (0,)}, "--depths has 0")],
)
def test_what_cannot_be_measured_is_refused(request_: dict[str, object], sentence: str) -> None:
    with pytest.raises(Ds4Error, match=sentence):
        CostRequest(**request_)  # type: ignore[arg-type]


def test_a_position_beyond_the_context_is_refused(files: EngineFiles) -> None:
    with pytest.raises(Ds4Error, match="context holds 1024"):
        list(load_engine(files).costs(CostRequest(positions=(1020,), repeat=1)))


def test_the_floor_counts_what_a_token_uses(files: EngineFiles) -> None:
    file = open_gguf(Path(files.model))
    config = ModelConfig.from_gguf(file)
    tensors = file.tensors
    everything = sum(tensor.nbytes for tensor in tensors.values())
    idle = sum(
        tensor.nbytes * (1 - SMALL.experts_used / SMALL.experts)
        for name, tensor in tensors.items()
        if "_exps." in name
    )
    looked_up = [tensors["token_embd.weight"], tensors["blk.0.ffn_gate_tid2eid.weight"]]
    idle += sum(tensor.nbytes * (1 - 1 / SMALL.vocab) for tensor in looked_up)
    indexer = sum(t.nbytes for name, t in tensors.items() if ".indexer." in name)
    # 4 compressed rows are all attended to; the indexer chooses from the fifth on.
    assert decode_floor(file, config, 18).weights == round(everything - idle - indexer)
    assert decode_floor(file, config, 19).weights == round(everything - idle)


def test_the_floor_counts_live_rows(files: EngineFiles) -> None:
    config = ModelConfig.from_gguf(open_gguf(Path(files.model)))
    file, hd, ID = open_gguf(Path(files.model)), SMALL.head_dim, SMALL.index_dim
    pooled = 4 * (hd + ID) + 2 * hd  # of the ratio-4 layer with its indexer, of the ratio-128 layer
    first = 4 * hd + pooled
    assert decode_floor(file, config, 0).rows == 4 * first
    late = 4 * SMALL.window * hd + SMALL.index_top_k * hd + (1000 // 4) * ID + 7 * hd + pooled
    assert decode_floor(file, config, 999).rows == 4 * late
    floor = decode_floor(file, config, 999)
    assert floor.total == floor.weights + floor.rows
