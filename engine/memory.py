"""How much memory there is, and refusing what cannot fit; knows no file format."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from engine.errors import Ds4Error

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def total_memory() -> int | None:
    """Bytes of memory that this process could ever have; None when the system does not say."""
    total = _windows_memory() if sys.platform == "win32" else _unix_memory()
    limits = [limit for limit in (total, _cgroup_limit()) if limit]
    return min(limits) if limits else None


def require_memory(needed: int, what: str) -> None:
    """Refuse what needs more memory than the machine has; no check where that is not known.

    Args:
        needed: bytes.
        what: how the message names it, such as a file's path.

    Raises:
        Ds4Error: with needed and found.
    """
    total = total_memory()
    if total is not None and needed > total:
        raise Ds4Error(
            "Not enough memory",
            f"{what} does not fit in memory: needed {needed} bytes ({_gib(needed)}), "
            f"found {total} ({_gib(total)}).",
            "Use a smaller model or quantisation, or a machine with more memory.",
        )


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _unix_memory() -> int | None:
    with contextlib.suppress(AttributeError, ValueError, OSError):
        pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        if pages > 0 and page > 0:
            return pages * page
    return None


def _cgroup_limit() -> int | None:
    """The limit of a container; "max" or a huge number when there is none."""
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            return int(Path(path).read_text(encoding="ascii"))
    return None


def _windows_memory() -> int | None:
    import ctypes  # only there

    class Status(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("total", ctypes.c_uint64),
            ("others", ctypes.c_uint64 * 6),
        )

    status = Status(length=ctypes.sizeof(Status))
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009 (absent elsewhere)
    return status.total if kernel32.GlobalMemoryStatusEx(ctypes.byref(status)) else None
