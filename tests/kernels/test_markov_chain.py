"""The chain over a block's rows against its rows one by one, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kernels.cpu.matrix import Packed, pack
from kernels.head import head
from kernels.markov import HeadChain, confidence, markov_scores
from kernels.mode import DRAFT

ROWS, WIDTH, RANK, VOCAB = 5, 64, 32, 100
BIAS = 0.25


@dataclass
class Drawn:
    """Random weights and rows of a block."""

    hidden: np.ndarray
    norm: np.ndarray
    output: Packed
    table: np.ndarray
    markov: Packed
    weights: np.ndarray | None
    vocabulary: np.ndarray | None

    def run(
        self, anchor: int, rows: int = ROWS, gate: float = 0.0
    ) -> tuple[list[int], list[float], np.ndarray]:
        """Drafts, all confidences that were written, the head's rows (NaN where not written)."""
        chain = HeadChain(
            self.hidden, self.norm, self.output, 1e-6, self.table, self.markov, self.vocabulary,
            self.weights, BIAS,
        )  # fmt: skip
        chain.logits[:], chain.confidences[:], chain.tokens[:] = np.nan, np.nan, -7
        chain.tokens[0] = anchor
        known = chain.run(rows, gate)
        assert (chain.tokens[known + 1 :] == -7).all(), "tokens beyond the last draft"
        drafts, confidences = chain.tokens[1 : known + 1], chain.confidences
        return drafts.tolist(), confidences[~np.isnan(confidences)].tolist(), chain.logits

    def one_by_one(self, anchor: int) -> tuple[list[int], list[float], np.ndarray]:
        """All rows by the single kernels."""
        size = self.output.outputs
        logits, scores = np.empty((ROWS, size), np.float32), np.empty(size, np.float32)
        head(self.hidden, self.norm, self.output, 1e-6, logits, np.arange(ROWS), DRAFT)
        drafts: list[int] = []
        confidences: list[float] = []
        for row in range(ROWS):
            assert self.weights is not None
            confidences.append(confidence(self.hidden[row], self.table, anchor, self.weights, BIAS))
            best = markov_scores(self.table, anchor, self.markov, logits[row], scores)
            anchor = best if self.vocabulary is None else int(self.vocabulary[best])
            drafts.append(anchor)
        return drafts, confidences, logits


def drawn(seed: int = 0, drafted: int | None = None) -> Drawn:
    rng = np.random.default_rng(seed)
    size = VOCAB if drafted is None else drafted

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    some = None if drafted is None else np.sort(rng.permutation(VOCAB)[:drafted])
    return Drawn(
        floats(ROWS, WIDTH), floats(WIDTH), pack([floats(size, WIDTH)]), floats(VOCAB, RANK),
        pack([floats(size, RANK)]), floats(WIDTH + RANK) / 8, some,
    )  # fmt: skip


@pytest.mark.parametrize("drafted", [None, 40, 1])
@pytest.mark.parametrize("seed", range(3))
def test_a_chain_is_its_rows_one_by_one(seed: int, drafted: int | None) -> None:
    made = drawn(seed, drafted)
    drafts, confidences, logits = made.one_by_one(3)
    for rows in range(1, ROWS + 1):
        found = made.run(3, rows)
        assert found[0] == drafts[:rows]
        assert found[1] == confidences[:rows]
        assert found[2][:rows].tobytes() == logits[:rows].tobytes()
        assert np.isnan(found[2][rows:]).all(), "the head is over the rows that are asked for"


def test_a_gate_ends_it_at_the_first_confidence_below() -> None:
    made = drawn(1)
    drafts, confidences, _ = made.one_by_one(3)
    for gate in sorted(confidences):
        passed = next((i for i, at in enumerate(confidences) if at < gate), ROWS)
        found = made.run(3, gate=gate)
        assert found[0] == drafts[:passed]
        assert found[1] == confidences[: passed + 1]
    found = made.run(3, gate=2.0)
    assert found[:2] == ([], confidences[:1])
    assert np.isnan(found[2]).all(), "no head before a first confidence that passes"


def test_no_rows_cost_nothing() -> None:
    found = drawn().run(3, rows=0)
    assert found[:2] == ([], [])
    assert np.isnan(found[2]).all()


def test_without_a_confidence_head_every_draft_is_sure() -> None:
    made = drawn()
    drafts, _, _ = made.one_by_one(3)
    made.weights = None
    assert made.run(3, gate=1.0)[:2] == (drafts, [1.0] * ROWS)
    assert made.run(3, gate=1.5)[:2] == ([], [1.0])


def broken(part: str, row: int, value: float) -> Drawn:
    made = drawn()
    drafts = made.one_by_one(3)[0]
    if part == "hidden":
        made.hidden[row] = value
    else:
        made.table[([3, *drafts])[row]] = value
    return made


@pytest.mark.parametrize("row", [0, 2, 4])
@pytest.mark.parametrize("part", ["hidden", "table"])
def test_a_nan_is_no_draft_and_passes_no_gate(part: str, row: int) -> None:
    made = broken(part, row, float("nan"))
    drafts, confidences, _ = drawn().one_by_one(3)
    for gate in (0.0, 1e-9):
        found: Any = made.run(3, gate=gate)
        assert found[0] == drafts[:row]
        assert found[1] == confidences[:row], "the NaN itself is left out here"
