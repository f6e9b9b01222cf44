"""Attention of every row over its own keys against the reference, rows bit-exact."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.rope import rope_turns
from kernels.attention import attention, key_spans
from kernels.attention.reference import attend
from kernels.mode import EXACT, Mode
from tests.kernels.closeness import assert_close, assert_rows_exact

ROPE = 32
BATCH = Mode(batch=True, round_rows=True)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("heads", "width"), [(8, 64), (3, 38), (12, 128)])
@pytest.mark.parametrize(("first", "window", "ratio"), [(0, 20, 4), (61, 20, 4), (300, 128, 0)])
def test_attention(
    first: int, window: int, ratio: int, heads: int, width: int, sparse: bool
) -> None:
    rng = np.random.default_rng(first + heads)
    rows = 11
    positions = np.arange(first, first + rows)
    ring = rng.standard_normal((window + 32, width)).astype(np.float32)
    extra = rng.standard_normal((100, width)).astype(np.float32)
    q = rng.standard_normal((rows, heads * width)).astype(np.float32)
    sinks = (rng.standard_normal(heads) * 3).astype(np.float32)
    turns = rope_turns(first + rows, ROPE, 10000.0, None)
    spans = np.zeros((rows, 3), np.int64)
    key_spans(positions, window, ratio, spans)
    counts = np.full(rows, -1, np.int32)
    selected = np.zeros((rows, 4), np.int32)
    for r in range(rows):
        if sparse and spans[r, 2] > 4:
            counts[r] = 4
            selected[r] = np.sort(rng.permutation(spans[r, 2])[:4])

    def run(part: slice, mode: Mode = EXACT) -> list[np.ndarray]:
        out = np.zeros((part.stop - part.start, heads * width), np.float32)
        attention(
            q[part], ring, extra, spans[part], selected[part], counts[part], sinks,
            positions[part], turns, 1e-6, out, mode,
        )  # fmt: skip
        return [out]

    whole = slice(0, rows)
    (out,), (batch,) = run(whole), run(whole, BATCH)
    expected = []
    for r, position in enumerate(positions):
        low = max(0, position - window + 1)
        keys = [ring[p % len(ring)] for p in range(low, position + 1)]
        visible = (position + 1) // ratio if ratio else 0
        chosen = selected[r] if counts[r] >= 0 else range(visible)
        keys += [extra[i] for i in chosen]
        row = attend(
            torch.from_numpy(q[r].reshape(heads, width)), torch.from_numpy(np.stack(keys)),
            torch.from_numpy(sinks), torch.from_numpy(turns[position]),
        )  # fmt: skip
        expected.append(row.flatten())
    assert_close("out", torch.stack(expected), out, 3e-6)
    assert_close("batch", torch.stack(expected), batch, 3e-6)
    assert (batch != out).any()
    assert_rows_exact(run, rows)


def test_a_dominant_sink_takes_all_the_weight() -> None:
    ring = np.ones((40, 32), np.float32)
    spans = np.array([[0, 5, 0]])
    out = np.zeros((1, 64), np.float32)
    attention(
        np.ones((1, 64), np.float32), ring, ring[:0], spans, np.zeros((1, 1), np.int32),
        np.full(1, -1, np.int32), np.array([80.0, -80.0], np.float32), np.array([4]),
        rope_turns(8, ROPE, 10000.0, None) * 0 + 1, 1e-6, out, EXACT,
    )  # fmt: skip
    assert np.abs(out[0, :32]).max() < 1e-20
    assert np.abs(out[0, 32:]).max() > 0.5


def test_spans_count_visible_keys() -> None:
    spans = np.zeros((4, 3), np.int64)
    key_spans(np.array([0, 3, 127, 128]), 128, 4, spans)
    assert spans.tolist() == [[0, 1, 0], [0, 4, 1], [0, 128, 32], [1, 129, 32]]
    key_spans(np.array([0, 3, 127, 128]), 128, 0, spans)
    assert spans[:, 2].tolist() == [0, 0, 0, 0]
