"""Long lists keep every item, in little memory, wherever their pages lie."""

from __future__ import annotations

import pickle
import tempfile

import pytest

from benchmarks.long_stream import long_run
from ds4tui.packed import IN_MEMORY, PackedList, Spill
from ds4tui.rejected import RejectedDrafts
from engine.events import Event


@pytest.mark.parametrize("in_memory", [0, IN_MEMORY])
@pytest.mark.parametrize("count", [0, 7, 8, 16, 101])
def test_a_packed_list_reads_as_a_list(count: int, in_memory: int) -> None:
    wanted = [(n, str(n)) for n in range(count)]
    packed: PackedList[tuple[int, str]] = PackedList(8, Spill(in_memory))
    packed.extend(wanted)
    assert len(packed) == count
    assert list(packed) == wanted
    assert [packed[at] for at in range(-count, count)] == wanted + wanted
    assert packed[3:60:7] == wanted[3:60:7]
    packed.pack()
    assert list(packed) == wanted
    packed.append((-1, "after"))
    assert [packed[at] for at in range(count + 1)] == [*wanted, (-1, "after")]
    with pytest.raises(IndexError):
        packed[count + 1]
    packed.clear()
    assert list(packed) == []


def test_only_the_newest_can_be_replaced_and_none_removed() -> None:
    packed: PackedList[int] = PackedList(2)
    packed.extend(range(9))
    packed[-1] = 80
    assert packed[8] == 80
    with pytest.raises(TypeError):
        packed[0] = 1
    with pytest.raises(TypeError):
        del packed[8]


def test_one_may_read_while_another_appends() -> None:
    packed: PackedList[int] = PackedList(4)
    packed.extend(range(30))
    reader = iter(packed)
    first = next(reader)
    packed.extend(range(30, 60))
    packed.pack()
    assert [first, *reader] == list(range(30))


def test_the_events_of_a_long_run_take_little_memory() -> None:
    events = [event for step in long_run("long", 3500) for event in step]
    spill = Spill()
    log: PackedList[Event] = PackedList(1024, spill)
    log.extend(events)
    assert list(log) == events
    assert len(log._loose) < 2048
    held = sum(len(place) for place in log._places if isinstance(place, bytes))
    assert held <= IN_MEMORY
    assert held < len(pickle.dumps(events[: len(events) - len(log._loose)])) / 2


def test_a_full_disk_keeps_the_pages_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    packed: PackedList[int] = PackedList(4, Spill(in_memory=0))
    packed.extend(range(50))
    assert list(packed) == list(range(50))


def test_rejected_drafts_are_found_by_the_token_that_replaced_them() -> None:
    rejected = RejectedDrafts()
    rejected.add(3, (7, 8))
    rejected.add(9, (5,))
    assert dict(rejected) == {3: (7, 8), 9: (5,)}
    assert rejected.get(4, ()) == ()
    assert 9 in rejected
    assert len(rejected) == 2
