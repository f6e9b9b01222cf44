"""Greedy choice: the no-repeat rule, EOS out of play, argmax, top five.

One rule for every arm, row and draft. Knows arrays and ids, nothing of states or arms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]
Top = tuple[tuple[int, float], ...]

TOP = 5


class Rules:
    """What must not be chosen next, given the tokens that one timeline has generated.

    Args:
        no_repeat: N; a token that would complete an N-gram already present among the generated
            tokens is out. 0 = off.
        ignored: a token that is always out: EOS under `--ignore-eos`.
        generated: tokens generated so far; the prompt is no history.
    """

    def __init__(
        self, no_repeat: int = 0, ignored: int | None = None, generated: Iterable[int] = ()
    ) -> None:
        self.no_repeat = no_repeat
        self._ignored = [] if ignored is None else [ignored]
        self._tail: list[int] = []
        self._next: dict[tuple[int, ...], list[int]] = {}
        for token in generated:
            self.push(token)

    def push(self, token: int) -> None:
        """Take a generated token into the history."""
        if not self.no_repeat:
            return
        self._tail.append(token)
        if len(self._tail) >= self.no_repeat:
            *before, last = self._tail[-self.no_repeat :]
            self._next.setdefault(tuple(before), []).append(last)

    def excluded(self, ahead: Sequence[int] = ()) -> list[int]:
        """Tokens that must not follow the history and then `ahead`."""
        if not self.no_repeat:
            return self._ignored
        size = self.no_repeat - 1
        text = [*self._tail[max(0, len(self._tail) - size) :], *ahead]
        if len(text) < size:
            return self._ignored
        key = text[len(text) - size :]
        found = list(self._next.get(tuple(key), ()))
        begin = len(text) - len(ahead) - size
        for i, token in enumerate(ahead, start=begin):  # what they complete themselves
            if i >= 0 and text[i : i + size] == key:
                found.append(token)
        return self._ignored + found

    def process(self, logits: Any, ahead: Sequence[int] = ()) -> Logits:
        """The row that is chosen from: excluded tokens at -inf.

        Args:
            logits: (V,) float32, not changed.
            ahead: tokens between the history and this row, as the drafts before a verify row.
        Returns:
            (V,) float32; `logits` itself when nothing is excluded.
        """
        row: Logits = np.asarray(logits)
        excluded = self.excluded(ahead)
        if excluded:
            row = row.copy()
            row[excluded] = -np.inf
        return row

    def clone(self) -> Rules:
        """An independent copy."""
        ignored = self._ignored[0] if self._ignored else None
        return Rules(self.no_repeat, ignored, self._tail)


def choose(row: Logits) -> int:
    """Argmax of a processed row; ties go to the lower id.

    Args:
        row: (V,) float32, or a row on a device that knows its best ids (`engine.cuda.rows`).
    Raises:
        ValueError: when the row holds a NaN, or nothing is left to choose.
    """
    if not isinstance(row, np.ndarray):  # a forward with a NaN has failed before
        if not row.best:
            raise ValueError("every token is excluded")
        first: int = row.best[0][0]
        return first
    best = int(row.argmax())
    value = float(row[best])
    if value != value:  # argmax gives the first NaN if there is one
        raise ValueError("the logits hold a NaN")
    if value == -np.inf:
        raise ValueError("every token is excluded")
    return best


def top(row: Logits, count: int = TOP) -> Top:
    """The best ids with their logits, best first, ties by id; the first one is `choose`'s.

    Excluded tokens are no candidates, so there may be fewer than `count`.
    """
    if not isinstance(row, np.ndarray):
        known: Top = row.best[:count]
        return known
    left = row.copy()
    best = []
    for _ in range(min(count, row.shape[0])):
        index = int(np.argmax(left))  # a few passes cost less than a partition
        if left[index] == -np.inf:
            break
        best.append((index, float(row[index])))
        left[index] = -np.inf
    return tuple(best)


def gap(best: Top) -> float:
    """Lead of the best logit over the runner-up; infinite without one."""
    return best[0][1] - best[1][1] if len(best) > 1 else float("inf")
