"""What a reader needs to know of the machine and the installation; no host names, no paths."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from functools import cache
from pathlib import Path

_PACKAGES = ("ds4tui", "numpy", "numba", "torch", "triton")


@cache
def environment() -> tuple[tuple[str, str], ...]:
    """(name, value) pairs; packages that are not installed are left out."""
    pairs = [
        ("python", platform.python_version()),
        ("system", f"{platform.system()} {platform.machine()}"),
        *(("cpu", name) for name in (_cpu_model(),) if name),
        ("cpus", str(os.cpu_count() or 0)),
    ]
    for package in _PACKAGES:
        try:
            pairs.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(pairs)


def _cpu_model(path: str = "/proc/cpuinfo") -> str:
    """The processor as Linux names it; "" where it does not."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "")
