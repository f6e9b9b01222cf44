"""What a reader needs to know of the machine and the installation; no host names, no paths."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from functools import cache

_PACKAGES = ("ds4tui", "numpy", "numba", "torch", "triton")


@cache
def environment() -> tuple[tuple[str, str], ...]:
    """(name, value) pairs; packages that are not installed are left out."""
    pairs = [
        ("python", platform.python_version()),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("cpus", str(os.cpu_count() or 0)),
    ]
    for package in _PACKAGES:
        try:
            pairs.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(pairs)
