"""Lanes: streams on which kernels run beside what the current stream launches.

A forward opens lanes around all that it launches, in a captured graph or not; elsewhere, and where
there is no GPU, everything stays in one line. An op says when what it reads or wrote is `ready`;
what needs no more than that is launched `aside` of it; who needs what a lane has made ready does
`wait`; `join` comes before the line reads what lanes wrote otherwise, or overwrites what they
read. Kernels give the same bits in either order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

ROWS, SHARED, CHOICE, QUERIES = 1, 2, 3, 4
"""Compressed rows; the shared expert; weights of the choice of rows; queries beside that choice.
Drafts do other side work."""


class _Lanes:
    """Streams beside one stream.

    `ready` has an event per tensor that work aside may begin at; `busy` the lanes to be joined;
    `made` the last tensor that each of them has made ready.
    """

    def __init__(self) -> None:
        self.ready: dict[int, Any] = {}
        self.busy: dict[int, Any] = {}
        self.made: dict[int, int] = {}
        self.current = 0


_open: _Lanes | None = None


@cache
def _stream(device: Any, lane: int) -> Any:
    import torch

    return torch.cuda.Stream(device)


@contextmanager
def open_lanes(device: str) -> Iterator[None]:
    """Lanes of a CUDA device for what is launched inside; all of them are joined at its end."""
    global _open
    if not device.startswith("cuda") or _open is not None:
        yield
        return
    _open = _Lanes()
    try:
        yield
        join()
    finally:
        _open = None


def current() -> int:
    """The lane that work is launched on; 0 = the line that all others fork from."""
    return _open.current if _open is not None else 0


def ready(x: Any) -> None:
    """All that writes tensor x has been launched here, in the line or as the last on a lane."""
    if _open is not None:
        import torch

        event = torch.cuda.Event()
        event.record()
        _open.ready[x.data_ptr()] = event
        _open.made[_open.current] = x.data_ptr()


@contextmanager
def aside(x: Any, lane: int) -> Iterator[None]:
    """Launch what is inside on a lane; it waits for x, as it was when it was last `ready`.

    Without open lanes, or where x was not called ready since the last `join`, nothing changes.
    """
    event = _open.ready.get(x.data_ptr()) if _open is not None else None
    if _open is None or _open.current or event is None:
        yield
        return
    import torch

    stream = _stream(x.device, lane)
    stream.wait_event(event)
    _open.current, _open.busy[lane] = lane, stream
    _open.made.pop(lane, None)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        _open.current = 0


def wait(x: Any) -> None:
    """What is launched here after this waits for x, as it was when it was last `ready`.

    Where the line waits for the last tensor that a lane has made, it has joined that lane: a second
    edge of the graph from there would keep a kernel from an early launch.
    """
    event = _open.ready.get(x.data_ptr()) if _open is not None else None
    if _open is None or event is None:
        return
    import torch

    torch.cuda.current_stream().wait_event(event)
    if not _open.current:
        for lane in [lane for lane, made in _open.made.items() if made == x.data_ptr()]:
            _open.busy.pop(lane, None)


def join() -> None:
    """What is launched after this waits for all lanes; from lanes, for nothing."""
    if _open is None or _open.current:
        return
    import torch

    here = torch.cuda.current_stream()
    for stream in _open.busy.values():
        here.wait_stream(stream)
    _open.busy.clear()
    _open.ready.clear()
    _open.made.clear()
