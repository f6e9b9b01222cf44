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
SHAPES = {"embedded": EMBEDDED, "spec": SPEC}


@cache
def expected(name: str) -> tuple[list[int], Any]:
    oracle = pytest.importorskip("tests.engine.oracle")
    shape: TargetShape = SHAPES[name]
    file = target_file(shape, "F32", 3)
    built = oracle.build(file, ModelConfig.from_gguf(file))
    ids = random_ids(TOKENS, shape, seed=5)
    return ids, oracle.logits(built, ids)


def evaluated(name: str, plan: Plan, sizes: list[int]) -> tuple[Any, np.ndarray]:
    """Logits of all tokens, and where no choice was a close call."""
    ids, _ = expected(name)
    model = target(SHAPES[name], "F32", 3, "none")
    state, choices, found, turn = model.new_state(), Choices(), [], 0
    while state.position < TOKENS:
        part = ids[state.position : state.position + sizes[turn % len(sizes)]]
        found.append(model.forward(state, part, plan, record=choices).logits.copy())
        turn += 1
    gaps = [choices.gaps(position).values() for position in range(TOKENS)]
    safe = np.array([not any(0 < gap < CLOSE_CALL for gap in row) for row in gaps])
    assert safe.mean() >= 0.98
    return np.concatenate(found), safe


@pytest.mark.parametrize("name", SHAPES)
def test_decode_of_split_meets_the_bound_of_the_cpu(name: str) -> None:
    found, safe = evaluated(name, Plan("vector"), [1])
    difference = np.abs(found - expected(name)[1]).max(-1)[safe]
    print(f"{name}: largest difference {difference.max():.2e}")
    assert difference.max() <= LARGEST_DIFFERENCE


@pytest.mark.parametrize("path", ["invariant", "batch"])
@pytest.mark.parametrize("name", SHAPES)
def test_tiles_keep_the_wider_bound(name: str, path: Any) -> None:
    found, _ = evaluated(name, Plan(path), [1, 6, 3, 5, 2, 4])
    wanted = expected(name)[1]
    rms = np.sqrt(np.square(found - wanted).mean(-1) / np.square(wanted).mean(-1))
    top = np.sort(wanted, -1)
    ulp = np.exp2(np.floor(np.log2(np.abs(top[:, -1]))) - 10)
    clear = top[:, -1] - top[:, -2] > SAFE_ULPS * ulp
    flips = (found.argmax(-1) != wanted.argmax(-1)) & clear
    print(f"{name} {path}: rms median {np.median(rms):.2e}, 90 % {np.quantile(rms, 0.9):.2e}, "
          f"largest {rms.max():.2e}; {flips.sum()} flips of {clear.sum()} clear rows")  # fmt: skip
    assert np.median(rms) <= LARGEST_RMS
