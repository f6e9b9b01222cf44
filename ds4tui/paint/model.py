"""Model files, settings and machine as rows of text. Knows no widgets."""

from __future__ import annotations

from collections.abc import Sequence

from ds4tui.paint.panes import wrapped
from ds4tui.spans import Row, text_of
from ds4tui.visible import drawable_line
from engine.events import FileInfo

NAME_CELLS = 14


def file_rows(files: Sequence[FileInfo], width: int) -> list[Row]:
    """Every file: what it is, its hash, and how its tensors are stored."""
    if not files:
        return [[("no file is loaded yet", "dim")]]
    rows: list[Row] = []
    for file in files:
        name = drawable_line(file.name)
        rows.append([(f"{file.role:<{NAME_CELLS}}", "strong"), (name, "")])
        facts = [
            ("file", file.path),
            ("architecture", file.architecture),
            ("size", f"{file.size:,} bytes, {file.parameters:,} parameters"),
            ("sha256", file.sha256 or "not computed: the file is large"),
        ]
        if file.drafted:
            facts.append(("drafts from", f"{file.drafted:,} tokens"))
        for what, text in facts:
            rows += _fact(what, text, width)
        whole = sum(part for _, _, part in file.quantisation) or 1
        for kind, tensors, part in file.quantisation:
            share = f"{100 * part / whole:5.1f}%"
            text = f"{drawable_line(kind):<8}{tensors:>5} tensors {part:>15,} bytes {share}"
            rows.append([(" " * (NAME_CELLS - 2), ""), (text[: width - NAME_CELLS + 2], "")])
        rows.append([])
    return rows


def pair_rows(title: str, pairs: Sequence[tuple[str, str]], width: int) -> list[Row]:
    """A heading and (name, value) below it."""
    rows: list[Row] = [[(title, "strong")]]
    for name, value in pairs:
        rows += _fact(name, value, width)
    return [*rows, []]


def _fact(name: str, value: str, width: int) -> list[Row]:
    indent = max(NAME_CELLS + 2, 0)
    parts = _cut(drawable_line(value) or "none", max(8, width - indent))
    rows: list[Row] = [[(f"  {drawable_line(name):<{NAME_CELLS - 1}} ", "dim"), (parts[0], "")]]
    return [*rows, *([(" " * indent, ""), (part, "")] for part in parts[1:])]


def _cut(text: str, room: int) -> list[str]:
    """A value on as many rows as it needs; hashes and paths break anywhere."""
    if " " in text and max(map(len, text.split(" "))) <= room:
        return [text_of(row) for row in wrapped(text, room, "")]
    return [text[at : at + room] for at in range(0, len(text), room)] or [""]
