"""Writing GGUF files: metadata with exact value types, tensors in any type that the engine reads.

Used by tools, tests and `engine.export`. Knows no model. Quantising goes through the `gguf`
package, which has no quantiser for Q2_K, Q4_K and IQ2_XXS: those are only written from bytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import numpy as np

from engine.gguf_header import ARRAY, FORMATS, KIND_IDS, MAGIC
from engine.quant_types import INTEGERS, SUPPORTED

_VERSION = 3
_ALIGNMENT = 32

Scalar = bool | int | float | str
Plain = Scalar | Sequence[Scalar]


@dataclass(frozen=True, slots=True)
class Typed:
    """A value with its kind, "u8" ... "i64", "f32", "f64", "bool", "string"; arrays: of entries."""

    kind: str
    value: Plain


@dataclass(frozen=True, slots=True)
class TensorData:
    """One tensor to write; `shape` is in torch order.

    `data` is the stored bytes as an array, or a function that makes it when its turn comes, so that
    a large file is never in memory as a whole.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    data: np.ndarray | Callable[[], np.ndarray]

    @staticmethod
    def encode(name: str, values: np.ndarray, type_name: str) -> TensorData:
        """Store `values` (torch shape) as F32, F16, BF16, Q8_0, MXFP4; integers as I32, I64.

        Raises:
            NotImplementedError: for the other block types.
            ValueError: when rows are no multiple of the type's block.
        """
        if type_name in INTEGERS:
            stored = values.astype("<i4" if type_name == "I32" else "<i8")
            return TensorData(name, values.shape, type_name, _bytes(stored))
        from gguf.constants import GGMLQuantizationType  # slow import
        from gguf.quants import quantize

        stored = quantize(np.ascontiguousarray(values, np.float32), GGMLQuantizationType[type_name])
        return TensorData(name, values.shape, type_name, _bytes(stored))

    @property
    def nbytes(self) -> int:
        """Stored bytes, by shape and type."""
        kind = SUPPORTED[self.type]
        return prod(self.shape) // kind.block * kind.block_bytes


def write_gguf(
    path: str | Path,
    metadata: Mapping[str, Plain | Typed],
    tensors: Iterable[TensorData],
    *,
    alignment: int = _ALIGNMENT,
) -> Path:
    """Write a GGUF v3 file, replacing `path` only when all of it is written.

    Plain values are stored as bool, u32 (u64 or i32/i64 where they do not fit), f32, string, or as
    arrays of these by their first entry; integer arrays as i32, an empty one as array of i32.
    `general.alignment` is added when `alignment` is not 32.

    Raises:
        ValueError: when a tensor's bytes do not match its shape and type.
        OSError: when the file cannot be written.
    """
    path = Path(path)
    table = list(tensors)
    metadata = dict(metadata)
    if alignment != _ALIGNMENT:
        metadata["general.alignment"] = alignment
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as out:
            _write(out, metadata, table, alignment)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _write(
    out: BinaryIO,
    metadata: Mapping[str, Plain | Typed],
    tensors: Sequence[TensorData],
    alignment: int,
) -> None:
    out.write(MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), len(metadata)))
    for key, value in metadata.items():
        out.write(_string(key) + _value(value))
    offset = 0
    for tensor in tensors:
        ne = tensor.shape[::-1]
        head = struct.pack(f"<I{len(ne)}Q", len(ne), *ne)
        out.write(_string(tensor.name) + head)
        out.write(struct.pack("<IQ", SUPPORTED[tensor.type].id, offset))
        offset += tensor.nbytes + -tensor.nbytes % alignment
    out.write(b"\0" * (-out.tell() % alignment))
    for tensor in tensors:
        made = tensor.data() if callable(tensor.data) else tensor.data
        if made.nbytes != tensor.nbytes:
            raise ValueError(f"{tensor.name}: {made.nbytes} bytes for {tensor.nbytes}")
        out.write(np.ascontiguousarray(made).data)
        out.write(b"\0" * (-tensor.nbytes % alignment))


def _string(text: str) -> bytes:
    data = text.encode("utf-8", errors="surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _value(value: Plain | Typed) -> bytes:
    kind, plain = (value.kind, value.value) if isinstance(value, Typed) else (None, value)
    if isinstance(plain, bool | int | float | str):
        kind = kind or _kind_of(plain)
        return struct.pack("<I", KIND_IDS[kind]) + _scalar(kind, plain)
    entries: list[Scalar] = list(plain)
    if kind is None:
        whole = all(isinstance(v, int) and not isinstance(v, bool) for v in entries)
        kind = "i32" if whole else _kind_of(entries[0])
    head = struct.pack("<IIQ", ARRAY, KIND_IDS[kind], len(entries))
    return head + b"".join(_scalar(kind, v) for v in entries)


def _scalar(kind: str, value: Scalar) -> bytes:
    return _string(str(value)) if kind == "string" else struct.pack(FORMATS[kind], value)


def _kind_of(value: Scalar) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, float):
        return "f32"
    if value < 0:
        return "i32" if value >= -(1 << 31) else "i64"
    return "u32" if value < 1 << 32 else "u64"


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
