"""Results do not depend on how many threads compute them, and a loaded pair has those asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from ds4tui.options import model_files
from engine.load import load_parts
from engine.parts import Parts
from engine.paths import DECODE, Plan
from engine.settings import EngineFiles
from kernels.threads import AWAKE, SHARED, THREADS, set_threads, wake

PROMPT = 300
"""Tokens evaluated before: more compressed rows than the indexer selects."""


@pytest.fixture(scope="module")
def parts() -> Parts:
    """The embedded pair: its products are large enough to be shared."""
    model, drafters, _ = model_files(None, None)
    return load_parts(EngineFiles(model, drafters), lambda _event: None)


@pytest.fixture(autouse=True)
def one_thread_afterwards() -> Iterator[None]:
    yield
    set_threads(1)


def with_threads(number: int) -> None:
    """Compute on so many threads, all of them awake now."""
    set_threads(number)
    end = time.monotonic() + 60
    while SHARED[AWAKE] < number - 1:
        assert time.monotonic() < end, f"{SHARED[AWAKE]} of {number - 1} workers woke up"
        wake()
        time.sleep(0.0005)


def everything(parts: Parts, numerics: str, number: int) -> list[bytes]:
    """Bits of a prefill, two decodes, verifies of 3 and 6 rows, a draft; and of the state."""
    rng = np.random.default_rng(1)
    ids = [int(i) for i in rng.integers(9, parts.vocab_size, PROMPT + 11)]
    verify = Plan("invariant" if numerics == "invariant" else "batch")
    state, found, at = parts.new_state(), [], 0
    for rows, plan in ((PROMPT, verify), (1, DECODE[numerics]), (1, DECODE[numerics]),
                       (3, verify), (6, verify)):  # fmt: skip
        with_threads(number)
        made = parts.model.forward(state, ids[at : at + rows], plan)
        at += rows
        found += [np.asarray(made.logits).tobytes(), np.asarray(made.taps).tobytes()]
    drafter = next(iter(parts.drafters.values()))
    context = drafter.new_context()
    with_threads(number)
    drafter.extend(context, made.taps, at - 6)
    block = drafter.block(context, ids[0], at)
    found += [np.asarray(block.logits(row)).tobytes() for row in range(parts.block_size)]
    return [*found, repr(state.digest()).encode()]


@pytest.mark.parametrize("numerics", ["split", "invariant"])
@pytest.mark.parametrize("number", [2, 3])
def test_bits_are_those_of_one_thread(parts: Parts, numerics: str, number: int) -> None:
    assert everything(parts, numerics, number) == everything(parts, numerics, 1)


def test_a_loaded_pair_has_the_threads_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, _ = model_files(None, None)
    monkeypatch.setattr("engine.settings.most_threads", lambda: 2)
    load_parts(EngineFiles(model, threads=2), lambda _event: None)
    assert SHARED[THREADS] == 2
    load_parts(EngineFiles(model), lambda _event: None)
    assert SHARED[THREADS] == 1
