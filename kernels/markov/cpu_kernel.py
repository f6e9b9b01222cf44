"""CPU kernels of `kernels.markov`."""

from __future__ import annotations

import numpy as np

from kernels.cpu.compiling import inline, kernel
from kernels.cpu.lanes import address, float_at
from kernels.cpu.matrix import product
from kernels.cpu.row_lanes import add_and_find, dot
from kernels.cpu.rows import sigmoid
from kernels.head.cpu_kernel import head_rows
from kernels.mode import FIXED_8


@inline
def _add_bias(row_at, rank, words, logits_at, out):  # type: ignore[no-untyped-def]
    product(address(words), 1, row_at, rank, address(out), out.size, FIXED_8)
    return add_and_find(logits_at, out.size, address(out))


@inline
def _estimate(hidden_at, width, row_at, rank, weights, bias):  # type: ignore[no-untyped-def]
    logit = dot(hidden_at, address(weights), width)
    logit += dot(row_at, address(weights) + 4 * width, rank)
    return sigmoid(np.float32(logit + bias))


@kernel("int64(float32[:,::1], int64, int64[:,::1], float32[::1], float32[::1])")
def markov_scores(table, previous, words, logits, out):  # type: ignore[no-untyped-def]
    rank = table.shape[1]
    return _add_bias(address(table) + 4 * rank * previous, rank, words, address(logits), out)


@kernel("float64(float32[::1], float32[:,::1], int64, float32[::1], float64)")
def confidence(hidden, table, previous, weights, bias):  # type: ignore[no-untyped-def]
    rank = table.shape[1]
    row_at = address(table) + 4 * rank * previous
    return _estimate(address(hidden), hidden.size, row_at, rank, weights, bias)


@kernel(
    "int64(float32[:,::1], float32[::1], int64[:,::1], float32, float32[:,::1], float32[:,::1],"
    " int64[:,::1], int64[::1], float32[::1], float64, float32[::1], int64[::1], float64[::1],"
    " int64, float64, float32[::1])"
)
def chain(
    hidden, norm, head_words, epsilon, logits, table, markov_words, vocabulary, weights, bias,
    scores, tokens, confidences, rows, gate, space,
):  # type: ignore[no-untyped-def]  # fmt: skip
    width, rank = hidden.shape[1], table.shape[1]
    for r in range(rows):
        row_at = address(table) + 4 * rank * tokens[r]
        confidences[r] = 1.0
        if weights.size:
            hidden_at = address(hidden) + 4 * width * r
            confidences[r] = _estimate(hidden_at, width, row_at, rank, weights, bias)
        if gate > 0.0 and not confidences[r] >= gate:  # a NaN passes no gate
            return r
        if r == 0:
            head_rows(hidden, norm, head_words, epsilon, logits, space, FIXED_8)
        logits_at = address(logits) + 4 * scores.size * r
        best = _add_bias(row_at, rank, markov_words, logits_at, scores)
        if best < 0 or float_at(address(scores), best) == -np.inf:
            return r
        tokens[r + 1] = vocabulary[best] if vocabulary.size else best
    return rows
