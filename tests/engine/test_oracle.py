"""Logits against transformers' `DeepseekV4ForCausalLM`: F32 weights, no rounding of stored rows.

Positions with a top-k gap under 1e-5 are left out: there the two may choose differently. Ties of
the oracle's top-k go to the lower index, as ours do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from engine.choices import Choices
from engine.config import ModelConfig
from engine.paths import Plan
from tests.engine import oracle
from tests.engine.loaded import model, random_ids, target_file
from tests.engine.random_pair import EMBEDDED, SMALL, TargetShape

TOKENS = 720
LARGEST_DIFFERENCE = 2e-4
CLOSE_CALL = 1e-5

SPEC = replace(
    EMBEDDED,
    ratios=(0, 0, 4, 128, 4, 128),
    head_dim=512,
    index_heads=32,
    yarn=(16.0, 256),
)
NARROW = replace(SMALL, ratios=(4, 128, 0, 4), hash_layers=0, window=17, index_top_k=16,
                 index_heads=16, heads=6, experts_used=3, clamp=0.7)  # fmt: skip
SHAPES = {"embedded": EMBEDDED, "spec": SPEC, "narrow": NARROW}


@pytest.fixture
def stable_top_k(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lower index wins ties of `Tensor.topk` and `torch.topk`."""

    def topk(x: torch.Tensor, k: int, dim: int = -1, **_: Any) -> Any:
        found = torch.sort(x, dim=dim, descending=True, stable=True)
        return torch.return_types.topk(
            (found.values.narrow(dim, 0, k), found.indices.narrow(dim, 0, k))
        )

    monkeypatch.setattr(torch.Tensor, "topk", topk)
    monkeypatch.setattr(torch, "topk", topk)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.usefixtures("stable_top_k")
def test_logits_equal_the_oracle(name: str) -> None:
    shape: TargetShape = SHAPES[name]
    file = target_file(shape, "F32", 3)
    built = oracle.build(file, ModelConfig.from_gguf(file))
    ids = random_ids(TOKENS, shape, seed=5)
    expected = oracle.logits(built, ids)
    m = model(shape, "F32", 3, kv_rounding="none")
    ways = {
        "one piece": ([TOKENS], Plan("batch", round_rows=False)),
        "odd chunks": ([1, 3, 7, 2, 31, 5, 17, 33, 64], Plan("invariant")),
        "token by token": ([1], Plan("vector")),
    }
    for way, (sizes, plan) in ways.items():
        state, choices, found, turn = m.new_state(), Choices(), [], 0
        while state.position < TOKENS:
            part = ids[state.position : state.position + sizes[turn % len(sizes)]]
            found.append(m.forward(state, part, plan, record=choices).logits.copy())
            turn += 1
        logits = np.concatenate(found)
        # Exact ties are decided alike on both sides.
        close = np.array(
            [
                any(0 < gap < CLOSE_CALL for gap in choices.gaps(position).values())
                for position in range(TOKENS)
            ]
        )
        assert close.mean() <= 0.01, (way, np.flatnonzero(close).tolist())
        difference = np.abs(logits - expected).max(-1)
        wrong = (difference > LARGEST_DIFFERENCE) | (logits.argmax(-1) != expected.argmax(-1))
        assert not (wrong & ~close).any(), (way, np.flatnonzero(wrong).tolist())
        print(f"{name}, {way}: {difference[~close].max():.2e}, {close.sum()} close calls")
