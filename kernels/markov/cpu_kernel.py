"""CPU kernels of `kernels.markov`."""

from __future__ import annotations

import numpy as np

from kernels.cpu.compiling import inline, kernel
from kernels.cpu.lanes import address, float_at, set_float, set_word, word_at, words_at
from kernels.cpu.matrix import product
from kernels.cpu.row_lanes import add_and_find, dot
from kernels.cpu.rows import sigmoid
from kernels.head.cpu_kernel import head_rows
from kernels.mode import FIXED_8


@inline
def _add_bias(row, rank, words, logits, out, vocab):  # type: ignore[no-untyped-def]
    product(words, 1, row, rank, out, vocab, FIXED_8)
    return add_and_find(logits, vocab, out)


@inline
def _estimate(hidden, width, row, rank, weights, bias):  # type: ignore[no-untyped-def]
    logit = dot(hidden, weights, width)
    logit += dot(row, weights + 4 * width, rank)
    return sigmoid(np.float32(logit + bias))


@kernel("int64(float32[:,::1], int64, int64[:,::1], float32[::1], float32[::1])")
def markov_scores(table, previous, words, logits, out):  # type: ignore[no-untyped-def]
    rank = table.shape[1]
    row = address(table) + 4 * rank * previous
    return _add_bias(row, rank, address(words), address(logits), address(out), out.size)


@kernel("float64(float32[::1], float32[:,::1], int64, float32[::1], float64)")
def confidence(hidden, table, previous, weights, bias):  # type: ignore[no-untyped-def]
    rank = table.shape[1]
    row = address(table) + 4 * rank * previous
    return _estimate(address(hidden), hidden.size, row, rank, address(weights), bias)


@kernel("int64(int64[::1], float32, float64, int64, float64)")
def chain(words, epsilon, bias, rows, gate):  # type: ignore[no-untyped-def]
    width, rank, vocab, hidden, norm, output, table, markov_output, vocabulary, weights = words_at(
        address(words), 10
    )
    logits, scores, tokens, confidences, space = words_at(address(words) + 80, 5)
    for r in range(rows):
        row = table + 4 * rank * word_at(tokens, r)
        found = np.float32(1.0)
        if weights:
            found = _estimate(hidden + 4 * width * r, width, row, rank, weights, bias)
        set_float(confidences, r, found)
        if gate > 0.0 and not found >= gate:  # a NaN passes no gate
            return r
        if r == 0:
            head_rows(hidden, rows, width, norm, output, epsilon, logits, vocab, space, FIXED_8)
        best = _add_bias(row, rank, markov_output, logits + 4 * vocab * r, scores, vocab)
        if best < 0 or float_at(scores, best) == -np.inf:
            return r
        set_word(tokens, r + 1, word_at(vocabulary, best) if vocabulary else best)
    return rows
