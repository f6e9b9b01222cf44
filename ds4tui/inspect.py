"""What is in model files, and whether a target and a drafter fit; for `ds4tui inspect`.

Describes what the headers say. Of the data it reads the whole of a small file, for its hash, and a
drafter's draft vocabulary; it loads no weights and imports no torch. `inspect_files` gives plain
data (schema `ds4tui.inspect/1`), `format_report` and `to_json` make it text that is safe to print.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from engine.config import ARCHITECTURE, DrafterConfig, ModelConfig
from engine.drafter_config import DRAFTER_ARCHITECTURES
from engine.errors import Ds4Error
from engine.gguf import HASHED_BYTES, GGUFFile, open_gguf
from engine.gguf_header import MetaValue
from engine.text import one_line, visible

SCHEMA = "ds4tui.inspect/1"
_SHOWN_ENTRIES = 8
_HIDDEN_FIELDS = ("path", "vocabulary")

Report = dict[str, Any]


def inspect_files(paths: Iterable[Path]) -> Report:
    """Describe GGUF files, and every target among them with every drafter.

    Two files of which none is a drafter, or none a target, are still held against each other, so
    that the answer says what is wrong with them. `ok` is false when a file cannot be read or run
    or a pair does not fit.
    """
    opened = [_open(path) for path in paths]
    files = [file for file in opened if isinstance(file, GGUFFile)]
    targets = [f for f in files if f.architecture == ARCHITECTURE]
    drafters = [f for f in files if f.architecture in DRAFTER_ARCHITECTURES]
    pairs = [(t, d) for t in targets for d in drafters]
    if not pairs and len(files) == 2:
        pairs = [(files[0], files[1])]
    entries = [_file(file) if isinstance(file, GGUFFile) else file for file in opened]
    fits = [_pair(target, drafter) for target, drafter in pairs]
    ok = all(e["problem"] is None for e in entries) and all(p["fits"] for p in fits)
    return {"schema": SCHEMA, "ok": ok, "files": entries, "pairs": fits}


def _open(path: Path) -> GGUFFile | Report:
    """A file, or the entry of one that cannot be read."""
    try:
        return open_gguf(path)
    except Ds4Error as error:
        unknown: Report = dict.fromkeys(("size", "sha256", "gguf_version"))
        unknown |= {"architecture": "", "name": "", "role": "unreadable", "parameters": 0}
        unknown |= {"quantisation": [], "config": None, "metadata": [], "tensors": []}
        return {"path": str(path), **unknown, "problem": str(error)}


def _file(file: GGUFFile) -> Report:
    role, config, problem = _role(file)
    return {
        "path": str(file.path),
        "size": file.size,
        "sha256": file.sha256() if file.size <= HASHED_BYTES else None,
        "gguf_version": file.version,
        "architecture": file.architecture,
        "name": file.title,
        "role": role,
        "parameters": file.parameters,
        "quantisation": _quantisation(file),
        "config": config,
        "problem": problem,
        "metadata": [
            {"key": key, "kind": file.kinds[key], **_value(value)}
            for key, value in file.metadata.items()
        ],
        "tensors": [
            {"name": t.name, "type": t.type, "shape": list(t.shape), "bytes": t.nbytes}
            for t in file.tensors.values()
        ],
    }


def _role(file: GGUFFile) -> tuple[str, Report | None, str | None]:
    """(role, config, problem); a drafter's config needs its target and is in the pair."""
    if file.architecture in DRAFTER_ARCHITECTURES:
        return "drafter", None, None
    role = "target" if file.architecture == ARCHITECTURE else "other"
    try:
        return role, _fields(ModelConfig.from_gguf(file)), None
    except Ds4Error as error:
        return role, None, str(error)


def _pair(target: GGUFFile, drafter: GGUFFile) -> Report:
    pair: Report = {"target": str(target.path), "drafter": str(drafter.path)}
    try:
        whole = ModelConfig.from_gguf(target)
        config = DrafterConfig.from_gguf(drafter, whole)
    except Ds4Error as error:
        return pair | {"fits": False, "reason": str(error), "config": None, "vocab_size": None}
    fits = {"fits": True, "reason": "", "config": _fields(config)}
    return pair | fits | {"vocab_size": whole.vocab_size}


def _fields(config: ModelConfig | DrafterConfig) -> Report:
    kept = [f.name for f in fields(config) if f.name not in _HIDDEN_FIELDS]
    values = asdict(config)
    return {name: values[name] for name in kept}


def _quantisation(file: GGUFFile) -> list[Report]:
    """The mix of storage types, the largest share first."""
    mix: dict[str, Report] = {}
    for t in file.tensors.values():
        part = mix.setdefault(t.type, {"type": t.type, "tensors": 0, "parameters": 0, "bytes": 0})
        part["tensors"] += 1
        part["parameters"] += t.elements
        part["bytes"] += t.nbytes
    return sorted(mix.values(), key=lambda part: -int(part["bytes"]))


def _value(value: MetaValue) -> Report:
    """A scalar as `value`; an array as `length` and its `first` entries."""
    if isinstance(value, list | np.ndarray):
        first = [_plain(v) for v in value[:_SHOWN_ENTRIES]]
        return {"length": len(value), "first": first}
    return {"value": _plain(value)}


def _plain(value: object) -> object:
    """Something that JSON has: numpy scalars unpacked, NaN and infinities as text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | np.ndarray):
        return f"array of {len(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def to_json(report: Report) -> str:
    """The report as JSON in ASCII, so that nothing in it can act on a terminal."""
    return json.dumps(report, indent=2).replace("\x7f", "\\u007f")


def format_report(report: Report) -> str:
    """The report as text for a terminal; untrusted text is shown with glyphs for controls."""
    blocks = [_format_file(entry) for entry in report["files"]]
    blocks += [_format_pair(pair) for pair in report["pairs"]]
    return "\n\n".join(blocks)


def _format_file(entry: Report) -> str:
    if entry["role"] == "unreadable":
        return f"{one_line(entry['path'])}\n  problem     {visible(entry['problem'], keep='')}"
    lines = [
        one_line(entry["path"]),
        f"  {one_line(entry['architecture']) or 'no architecture'} ({entry['role']}), "
        f"GGUF v{entry['gguf_version']}, {_size(entry['size'])}",
        f"  name        {one_line(entry['name']) or '-'}",
        f"  parameters  {entry['parameters']:,} in {len(entry['tensors'])} tensors",
        f"  sha256      {entry['sha256'] or 'not computed for a file of this size'}",
    ]
    if entry["role"] == "drafter":
        lines += ["  config      checked together with its target: give both files"]
    if entry["problem"]:
        lines += ["  problem     " + visible(entry["problem"], keep="")]
    mix = [
        (q["type"], f"{q['tensors']:,}", f"{q['parameters']:,}", f"{q['bytes']:,}", _bits(q))
        for q in entry["quantisation"]
    ]
    head = ("type", "tensors", "parameters", "bytes", "bits/weight")
    lines += ["", "  quantisation", *_table(head, mix, right=(1, 2, 3, 4))]
    if entry["config"]:
        lines += ["", "  config", *_settings(entry["config"])]
    metadata = [(one_line(m["key"]), m["kind"], _shown(m)) for m in entry["metadata"]]
    lines += ["", "  metadata", *_table(("key", "kind", "value"), metadata)]
    tensors = [
        (one_line(t["name"]), t["type"], _shape(t["shape"]), f"{t['bytes']:,}")
        for t in entry["tensors"]
    ]
    lines += ["", "  tensors", *_table(("name", "type", "shape", "bytes"), tensors, right=(3,))]
    return "\n".join(lines)


def _format_pair(pair: Report) -> str:
    files = f"{one_line(pair['drafter'])} with {one_line(pair['target'])}"
    if not pair["fits"]:
        return f"Does not fit: {files}\n  {visible(pair['reason'], keep='')}"
    drafted, every = pair["config"]["draft_vocabulary"], pair["vocab_size"]
    some = [] if drafted is None else [f"  drafts from {drafted:,} of {every:,} tokens"]
    return "\n".join([f"Fits: {files}", *some, *_settings(pair["config"])])


def _settings(values: Mapping[str, object]) -> list[str]:
    return _table((), [(name, one_line(_compact(value))) for name, value in values.items()])


def _compact(value: object) -> str:
    """A value of a config; equal entries of a tuple are written once."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        if len(value) > 2 and len(set(value)) == 1:
            return f"{_compact(value[0])} x {len(value)}"
        return ", ".join(map(_compact, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_compact(v)}" for key, v in value.items())
    return "-" if value in (None, "") else str(value)


def _shown(entry: Report) -> str:
    if "value" in entry:
        return one_line(_compact(entry["value"]), 160)
    first = ", ".join(one_line(_compact(v), 40) for v in entry["first"])
    return f"[{first}{', ...' if entry['length'] > len(entry['first']) else ''}]"


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()
) -> list[str]:
    """Columns as wide as their widest cell; those in `right` are set flush right."""
    body = [head, *rows] if head else list(rows)
    if not body:
        return []
    widths = [max(len(row[i]) for row in body) for i in range(len(body[0]))]
    return [
        "    "
        + "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in body
    ]


def _bits(part: Report) -> str:
    return f"{part['bytes'] * 8 / part['parameters']:.2f}"


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _size(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name} ({size:,} bytes)"
    return f"{size} bytes"
