"""Measured parts of the Markdown pages of this folder: where they go, and on which machine."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from engine.environment import environment


def machine() -> str:
    """The machine and the installation in words."""
    found = dict(environment())
    model = found.pop("cpu", platform.machine())
    return ", ".join((model, *(f"{name} {value}" for name, value in found.items())))


def write(path: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what stands between `<!-- name: begin -->` and its end; append where it is new."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    before, found, rest = text.partition(begin)
    if not found:
        before = f"{text.rstrip()}\n\n" if text.strip() else ""
    after = rest.partition(end)[2] if found else "\n"
    whole = f"{before}{begin}\n\n" + "\n".join(lines) + f"\n\n{end}{after}"
    path.write_text(whole, encoding="utf-8")


def row(*cells: object) -> str:
    """One row of a table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(*names: str) -> list[str]:
    """The first two lines of a table."""
    return [row(*names), "|" + "---|" * len(names)]
