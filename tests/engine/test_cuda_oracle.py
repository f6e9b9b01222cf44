"""On a GPU: logits against transformers; `split` within the CPU's bound, tiles in a wider one."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from engine.choices import Choices
from engine.config import ModelConfig
from engine.paths import Plan
from tests.engine.loaded import random_ids, target_file
from tests.engine.random_pair import EMBEDDED, TargetShape
from tests.engine.test_oracle import SPEC
from tests.gpu import needs_gpu, target

pytestmark = needs_gpu

TOKENS = 400
LARGEST_DIFFERENCE, CLOSE_CALL = 2e-4, 1e-5
LARGEST_RMS, SAFE_ULPS = 5e-3, 16
SIZES = [1, 6, 3, 5, 2, 4]
SHAPES = {"embedded": EMBEDDED, "spec": SPEC}


@cache
def expected(name: str) -> tuple[list[int], Any]:
    oracle = pytest.importorskip("tests.engine.oracle")
    shape: TargetShape = SHAPES[name]
    file = target_file(shape, "F32", 3)
    built = oracle.build(file, ModelConfig.from_gguf(file))
    ids = random_ids(TOKENS, shape, seed=5)
    return ids, oracle.logits(built, ids)


def evaluated(
    name: str, plan: Plan, sizes: list[int], pin: Choices | None = None
) -> tuple[Any, Choices]:
    """Logits of all tokens, and what they chose."""
    ids, _ = expected(name)
    model = target(SHAPES[name], "F32", 3, "none")
    state, choices, found, turn = model.new_state(), Choices(), [], 0
    while state.position < TOKENS:
        part = ids[state.position : state.position + sizes[turn % len(sizes)]]
        found.append(model.forward(state, part, plan, record=choices, pin=pin).logits.copy())
        turn += 1
    return np.concatenate(found), choices


@cache
def split_decode(name: str) -> tuple[Any, Choices]:
    """What F32 activations give, one token at a time."""
    return evaluated(name, Plan("vector"), [1])


def distances(name: str, found: Any) -> tuple[Any, int]:
    """Every row's relative RMS; how many best tokens differ that lead clearly."""
    wanted = expected(name)[1]
    rms = np.sqrt(np.square(found - wanted).mean(-1) / np.square(wanted).mean(-1))
    top = np.sort(wanted, -1)
    ulp = np.exp2(np.floor(np.log2(np.abs(top[:, -1]))) - 10)
    clear = top[:, -1] - top[:, -2] > SAFE_ULPS * ulp
    flips = int(((found.argmax(-1) != wanted.argmax(-1)) & clear).sum())
    print(f"{name}: rms median {np.median(rms):.2e}, 90 % {np.quantile(rms, 0.9):.2e}, "
          f"largest {rms.max():.2e}; {flips} flips of {clear.sum()} clear rows")  # fmt: skip
    return rms, flips


@pytest.mark.parametrize("name", SHAPES)
def test_decode_of_split_meets_the_bound_of_the_cpu(name: str) -> None:
    found, choices = split_decode(name)
    gaps = [choices.gaps(position).values() for position in range(TOKENS)]
    safe = np.array([not any(0 < gap < CLOSE_CALL for gap in row) for row in gaps])
    assert safe.mean() >= 0.98
    difference = np.abs(found - expected(name)[1]).max(-1)[safe]
    print(f"{name}: largest difference {difference.max():.2e}")
    assert difference.max() <= LARGEST_DIFFERENCE


@pytest.mark.parametrize("path", ["invariant", "batch"])
@pytest.mark.parametrize("name", SHAPES)
def test_tiles_keep_the_wider_bound(name: str, path: Any) -> None:
    found, _ = evaluated(name, Plan(path), SIZES)
    rms, _ = distances(name, found)
    assert np.median(rms) <= LARGEST_RMS


@pytest.mark.parametrize("path", ["invariant", "batch"])
@pytest.mark.parametrize("name", SHAPES)
def test_tiles_that_choose_as_split_does_keep_it_in_every_row(name: str, path: Any) -> None:
    """Rounding alone: what a close call that falls otherwise does to later rows is left out."""
    found, _ = evaluated(name, Plan(path), SIZES, split_decode(name)[1])
    rms, flips = distances(name, found)
    assert rms.max() <= LARGEST_RMS
    assert flips == 0
