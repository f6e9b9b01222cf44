"""Embedding, attention output, head, fault injection."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.attn_out import AttnOut, attn_out
from kernels.attn_out.reference import project
from kernels.embedding import embed
from kernels.embedding.reference import embed as embed_reference
from kernels.head import head
from kernels.head.reference import logits as logits_reference
from kernels.linear import pack
from kernels.markov import confidence, markov_scores
from kernels.markov import reference as markov
from kernels.mode import EXACT, Mode
from tests.kernels.closeness import assert_close, assert_rows_exact


def rows(count: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def test_embedding_copies_into_every_stream() -> None:
    table, ids = rows(20, 24), np.array([3, 19, 0, 3])
    streams = np.zeros((4, 96), np.float32)
    embed(ids, table, streams)
    expected = embed_reference(torch.from_numpy(ids), torch.from_numpy(table), 4)
    assert streams.tobytes() == expected.numpy().tobytes()


@pytest.mark.parametrize(("groups", "rank", "inner"), [(4, 64, 128), (2, 24, 96), (1, 40, 64)])
def test_attn_out(groups: int, rank: int, inner: int) -> None:
    a, b = rows(groups * rank, inner) / 8, rows(56, groups * rank, 1) / 8
    a = a.reshape(groups, rank, inner)
    weights = AttnOut(pack(list(a)), pack([b]))
    o = rows(7, groups * inner, 2)

    def run(part: slice) -> list[np.ndarray]:
        y = np.zeros((part.stop - part.start, 56), np.float32)
        attn_out(o[part], weights, y, np.arange(7)[part], EXACT)
        return [y]

    expected = project(*(torch.from_numpy(t) for t in (o, a, b)))
    assert_close("y", expected, run(slice(0, 7))[0], 2e-6)
    assert_rows_exact(run, 7)


def test_head_finds_rows_that_are_not_finite() -> None:
    x, norm, output = rows(3, 40), rows(1, 40, 1)[0], rows(70, 40, 2)
    packed, y = pack([output]), np.zeros((3, 70), np.float32)
    positions = np.arange(3)
    assert head(x, norm, packed, 1e-6, y, positions, EXACT) == -1
    expected = logits_reference(*(torch.from_numpy(t) for t in (x, norm, output)), 1e-6)
    assert_close("logits", expected, y, 2e-6)
    for bad in (np.nan, np.inf):
        broken = x.copy()
        broken[1, 3] = bad
        assert head(broken, norm, packed, 1e-6, y, positions, EXACT) == 1


def test_markov_scores_and_confidence() -> None:
    table, output, logits = rows(30, 48), rows(101, 48, 1), rows(1, 101, 2)[0]
    weights, hidden = rows(1, 40 + 48, 3)[0] / 5, rows(1, 40, 4)[0]
    packed, out = pack([output]), np.zeros(101, np.float32)
    best = markov_scores(table, 7, packed, logits, out)
    tensors = [torch.from_numpy(t) for t in (table, output, logits, weights, hidden)]
    expected = markov.markov_scores(tensors[0], 7, tensors[1], tensors[2])
    assert_close("scores", expected, out, 2e-6)
    assert best == int(out.argmax())
    found = confidence(hidden, table, 7, weights, 0.25)
    assert abs(found - markov.confidence(tensors[4], tensors[0], 7, tensors[3], 0.25)) < 1e-6
    assert confidence(hidden, table, 7, weights, 1e4) == 1.0
    assert 0 <= confidence(hidden, table, 7, weights, -1e4) < 1e-30


@pytest.mark.parametrize("count", [1, 15, 16, 101])
def test_the_best_score_is_the_lower_id_of_a_tie(count: int) -> None:
    packed, out = pack([np.zeros((count, 32), np.float32)]), np.zeros(count, np.float32)
    for first in range(count):
        logits = np.full(count, -3, np.float32)
        logits[first:] = 5
        assert markov_scores(rows(2, 32), 1, packed, logits, out) == first
        logits[first] = np.nan
        assert markov_scores(rows(2, 32), 1, packed, logits, out) == -1
    logits = np.full(count, -np.inf, np.float32)
    assert markov_scores(rows(2, 32), 1, packed, logits, out) == 0


def perturbed(values: np.ndarray, positions: np.ndarray, ulps: int, salt: int) -> np.ndarray:
    """Perturb the logits of a head whose product gives `values`."""
    out = np.zeros_like(values)
    packed = pack([np.ascontiguousarray(values.T)])
    one_hot = np.eye(len(values), dtype=np.float32)
    # The norm of a one-hot row is undone by its weight.
    norm = np.full(len(values), 1 / np.sqrt(len(values)), np.float32)
    head(one_hot, norm, packed, 0.0, out, positions, Mode(ulps=ulps, salt=salt))
    return out


@pytest.mark.parametrize("ulps", [1, 64, 1 << 20])
def test_perturbation_is_bounded_by_ulps_and_depends_on_position_and_salt(ulps: int) -> None:
    values = rows(4, 300) * np.float32(8)
    positions = np.array([5, 6, 7, 8])
    plain = perturbed(values, positions, 0, 0)
    found = perturbed(values, positions, ulps, 99)
    steps = np.abs(found.astype(np.float64) - plain) / np.spacing(np.abs(plain))
    assert steps.max() <= ulps + 0.5
    assert steps.max() > ulps * 0.9
    assert abs(np.mean((found - plain) / np.spacing(np.abs(plain))) / ulps) < 0.1
    assert found.tobytes() == perturbed(values, positions, ulps, 99).tobytes()
    assert (found != perturbed(values, positions, ulps, 98)).mean() > 0.4
    # The same row at the same position gets the same noise in any batch.
    moved = perturbed(values, np.array([6, 5, 7, 8]), ulps, 99)
    assert moved[2:].tobytes() == found[2:].tobytes()
    assert (moved[:2] != found[:2]).any()
