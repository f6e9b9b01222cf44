"""Threads that share a kernel's work: every piece is done once, by whoever is awake."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
from numba import types

from kernels.cpu.compiling import kernel, shared
from kernels.cpu.lanes import address, word_at
from kernels.cpu.threads import (
    add_to_word,
    address_of,
    parallel,
    set_words,
    shared_word,
    spare_words,
)
from kernels.threads import AWAKE, SHARED, set_threads, wake


@shared("ds4tui_test_count", types.void, *[types.intp] * 3)
def _count(arguments, piece, _who):  # type: ignore[no-untyped-def]
    add_to_word(word_at(arguments, 0), piece, 1)


@shared("ds4tui_test_meet", types.void, *[types.intp] * 3)
def _meet(arguments, piece, _who):  # type: ignore[no-untyped-def]
    """Piece 0 waits for piece 1, for a moment at most, and counts if it came."""
    counts = word_at(arguments, 0)
    for _ in range(0 if piece == 1 else 50_000_000):
        if shared_word(counts, 1):
            break
    if piece == 1 or shared_word(counts, 1):
        add_to_word(counts, piece, 1)


_count_at, _meet_at = address_of("ds4tui_test_count"), address_of("ds4tui_test_meet")


@kernel("void(int64[::1], int64, int64)")
def count_pieces(counts, pieces, jobs):  # type: ignore[no-untyped-def]
    arguments = spare_words()
    set_words(arguments, (address(counts),))
    for _ in range(jobs):
        parallel(_count_at(), arguments, pieces)


@kernel("void(int64[::1])")
def meet(counts):  # type: ignore[no-untyped-def]
    arguments = spare_words()
    set_words(arguments, (address(counts),))
    parallel(_meet_at(), arguments, 2)


@pytest.fixture(autouse=True)
def one_thread_afterwards() -> Iterator[None]:
    yield
    set_threads(1)


def wait_for_workers(workers: int) -> None:
    """Until so many are awake; `wake` is for those that fell asleep meanwhile."""
    end = time.monotonic() + 60
    while SHARED[AWAKE] != workers:
        assert time.monotonic() < end, f"{SHARED[AWAKE]} workers are awake, expected {workers}"
        if workers:
            wake()
        time.sleep(0.0005)


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("pieces", [0, 1, 2, 7, 300])
def test_every_piece_is_done_once(number: int, pieces: int) -> None:
    set_threads(number)
    counts = np.zeros(max(pieces, 1), np.int64)
    for _ in range(10):
        wait_for_workers(number - 1)
        count_pieces(counts, pieces, 50)
    assert (counts[:pieces] == 500).all()
    assert counts[pieces:].sum() == 0


def test_a_worker_takes_part() -> None:
    set_threads(2)
    for _ in range(100):  # a worker may fall asleep, or wait for a processor, just then
        wait_for_workers(1)
        counts = np.zeros(2, np.int64)
        meet(counts)
        if counts.tolist() == [1, 1]:
            break
    else:
        pytest.fail("no worker took a piece in a hundred jobs")


def test_workers_sleep_when_nothing_comes_and_kernels_do_without() -> None:
    set_threads(3)
    wait_for_workers(2)
    wait_for_workers(0)
    counts = np.zeros(5, np.int64)
    count_pieces(counts, 5, 1)
    assert counts.tolist() == [1] * 5


def test_fewer_threads_leave_workers_asleep() -> None:
    set_threads(3)
    wait_for_workers(2)
    set_threads(1)
    wait_for_workers(0)
    wake()
    time.sleep(0.01)
    assert SHARED[AWAKE] == 0


def test_less_than_one_thread_is_refused() -> None:
    with pytest.raises(ValueError, match="0 threads, expected 1 or more"):
        set_threads(0)
