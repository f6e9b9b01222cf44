"""Choice of a token: ties, the no-repeat rule, EOS out of play, NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.greedy import Rules, choose, gap, top


def row(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_ties_go_to_the_lower_id() -> None:
    assert choose(row(1, 7, 3, 7, 7)) == 1
    assert top(row(1, 7, 3, 7, 7), 3) == ((1, 7.0), (3, 7.0), (4, 7.0))


def test_zero_and_minus_zero_are_a_tie() -> None:
    assert choose(row(-1, -0.0, 0.0)) == 1
    assert top(row(-1, -0.0, 0.0), 2)[0][0] == 1


def test_a_nan_is_never_chosen_silently() -> None:
    with pytest.raises(ValueError, match="NaN"):
        choose(row(1, math.nan, 3))


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(ValueError, match="excluded"):
        choose(row(-math.inf, -math.inf))


def test_excluded_tokens_are_not_among_the_best() -> None:
    assert top(row(-math.inf, 2.0, -math.inf)) == ((1, 2.0),)


def test_gap_of_a_vocabulary_of_one_is_infinite() -> None:
    assert gap(top(row(3.0))) == math.inf
    assert gap(top(row(3.0, 1.5))) == 1.5


def test_an_ignored_token_is_out_and_the_row_is_not_changed() -> None:
    logits = row(1, 9, 3)
    assert choose(Rules(0, ignored=1).process(logits)) == 2
    assert logits[1] == 9
    assert Rules().process(logits) is logits


def test_a_token_that_would_repeat_an_ngram_is_out() -> None:
    rules = Rules(3, generated=[5, 6, 7, 5, 6])
    assert rules.excluded() == [7]
    assert Rules(3, generated=[5, 6, 7, 6]).excluded() == []


def test_each_row_has_its_own_history() -> None:
    rules = Rules(2, generated=[4, 5])
    assert rules.excluded([4]) == [5]
    assert rules.excluded([4, 6, 4]) == [5, 6]
    assert rules.excluded() == [], "what was ahead is not remembered"


def test_one_gram_rule_excludes_every_generated_token() -> None:
    assert sorted(Rules(1, generated=[4, 5]).excluded([6])) == [4, 5, 6]


def brute_force(no_repeat: int, history: list[int]) -> set[int]:
    grams = {tuple(history[i : i + no_repeat]) for i in range(len(history) - no_repeat + 1)}
    tail = history[len(history) - no_repeat + 1 :] if no_repeat > 1 else []
    if len(tail) < no_repeat - 1:
        return set()
    return {token for token in range(4) if (*tail, token) in grams}


@given(
    st.integers(1, 4),
    st.lists(st.integers(0, 3), max_size=20),
    st.lists(st.integers(0, 3), max_size=5),
)
def test_the_rule_equals_its_definition(n: int, history: list[int], ahead: list[int]) -> None:
    rules = Rules(n, generated=history)
    assert set(rules.excluded(ahead)) == brute_force(n, history + ahead)
    assert set(rules.excluded()) == brute_force(n, history)
    assert set(rules.clone().excluded(ahead)) == brute_force(n, history + ahead)


@given(st.lists(st.floats(-8, 8, width=16), min_size=1, max_size=40))
def test_the_top_starts_with_the_choice_and_is_sorted(values: list[float]) -> None:
    best = top(row(*values))
    assert best[0][0] == choose(row(*values))
    assert list(best) == sorted(best, key=lambda pair: (-pair[1], pair[0]))
    assert len(best) == min(5, len(values))
