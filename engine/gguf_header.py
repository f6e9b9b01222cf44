"""The header of a GGUF file, parsed and checked from bytes that nobody vouches for.

Every count and length is checked against what is left of the file before anything is allocated.
Knows no model and no tensor data; `engine.gguf` opens files, this module reads their first part.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from engine.errors import Ds4Error
from engine.quant_types import supported_names, type_of
from engine.text import one_line

MAGIC = b"GGUF"
MAX_HEADER_BYTES = 256 << 20  # the released files have 5.3 MB
MAX_TENSORS = MAX_KEYS = 1 << 17
MAX_OBJECTS = 1 << 22  # array entries that become Python objects, all arrays together
MAX_DIMS = 4
MAX_DEPTH = 3
_DEFAULT_ALIGNMENT = 32

_SCALARS = {
    0: ("u8", "<B"),
    1: ("i8", "<b"),
    2: ("u16", "<H"),
    3: ("i16", "<h"),
    4: ("u32", "<I"),
    5: ("i32", "<i"),
    6: ("f32", "<f"),
    7: ("bool", "<?"),
    10: ("u64", "<Q"),
    11: ("i64", "<q"),
    12: ("f64", "<d"),
}
_STRING, ARRAY = 8, 9
KIND_IDS = {kind: type_id for type_id, (kind, _) in _SCALARS.items()} | {"string": _STRING}
"""GGUF's value type ids by our names of the kinds, arrays excluded."""
FORMATS = {kind: code for kind, code in _SCALARS.values()}
"""`struct` codes of the scalar kinds."""

MetaValue = int | float | bool | str | np.ndarray | list[str] | list["MetaValue"]
"""Numeric arrays are 1-D read-only numpy arrays, string arrays are lists."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of the table: `shape` in torch order (last axis contiguous in the file).

    `offset` is absolute, in bytes. `type` is a name such as `Q8_0`; not every type that can be
    listed can be loaded (`engine.quant_types.SUPPORTED`).
    """

    name: str
    shape: tuple[int, ...]
    type: str
    nbytes: int
    offset: int

    @property
    def elements(self) -> int:
        """Number of values."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the data; `kinds` says how each value was stored, such as "u32"."""

    version: int
    metadata: dict[str, MetaValue]
    kinds: dict[str, str]
    tensors: dict[str, TensorInfo]


class _Ended(Exception):
    """The bytes ended; carries what was being read and the size that it would need."""

    def __init__(self, what: str, needed: int) -> None:
        super().__init__(what)
        self.what, self.needed = what, needed


class _Bytes:
    """A cursor over the file's bytes that never reads past their end."""

    def __init__(self, data: memoryview, path: str) -> None:
        self.data, self.path = data, path
        self.at = 0
        self.objects_left = MAX_OBJECTS

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def damaged(self, what: str) -> Ds4Error:
        return Ds4Error(
            "Damaged GGUF file",
            f"{self.path}: {what}.",
            "The file is damaged or was not written as GGUF; download or convert it again.",
        )

    def take(self, size: int, what: str) -> memoryview:
        if size > self.left:
            raise _Ended(what, self.at + size)
        if self.at + size > MAX_HEADER_BYTES:
            raise self.damaged(f"the header is longer than {MAX_HEADER_BYTES} bytes, at {what}")
        start, self.at = self.at, self.at + size
        return self.data[start : self.at]

    def number(self, code: str, what: str) -> int:
        value: int = struct.unpack(code, self.take(struct.calcsize(code), what))[0]
        return value

    def count(self, entry_bytes: int, what: str) -> int:
        """A u64 count of entries that take at least `entry_bytes` each."""
        found = self.number("<Q", what)
        if found * entry_bytes > self.left:
            raise self.damaged(
                f"{what} is {found}, more than the {self.left} bytes that follow can hold"
            )
        return found

    def string(self, what: str, errors: str = "surrogateescape") -> str:
        size = self.number("<Q", f"the length of {what}")
        if size > self.left:
            raise _Ended(what, self.at + size)
        return bytes(self.take(size, what)).decode("utf-8", errors=errors)

    def name(self, what: str) -> str:
        try:
            text = self.string(what, errors="strict")
        except UnicodeDecodeError as error:
            raise self.damaged(f"{what} is not UTF-8 text") from error
        if not text or len(text) > 1024:
            raise self.damaged(f"{what} has {len(text)} characters, expected 1 to 1024")
        return text

    def spend(self, objects: int, what: str) -> None:
        self.objects_left -= objects
        if self.objects_left < 0:
            raise self.damaged(f"metadata holds more than {MAX_OBJECTS} array entries, at {what}")


def parse_header(data: memoryview, path: str) -> Header:
    """Parse and check everything before the tensors' data.

    Args:
        data: all bytes of the file (mapped, not read); begins with the magic.
        path: how errors name the file.

    Raises:
        Ds4Error: for every malformed, truncated or unsupported header, and for tensors that do not
            lie inside the file.
    """
    source = _Bytes(data, path)
    try:
        return _parse(source)
    except _Ended as ended:
        raise Ds4Error(
            "Truncated GGUF file",
            f"{path} is cut short inside its header, at {ended.what}: found {len(data)} bytes, "
            f"needed at least {ended.needed}.",
            "The download or copy is probably unfinished; fetch the file again.",
        ) from None


def _parse(source: _Bytes) -> Header:
    source.take(4, "the magic")
    version = _version(source)
    n_tensors = source.number("<Q", "the number of tensors")
    n_keys = source.number("<Q", "the number of metadata keys")
    for what, found, most, smallest in (
        ("the number of tensors", n_tensors, MAX_TENSORS, 33),
        ("the number of metadata keys", n_keys, MAX_KEYS, 14),
    ):
        if found * smallest > source.left:
            raise source.damaged(
                f"{what} is {found}, more than the {source.left} bytes that follow can hold"
            )
        if found > most:
            raise source.damaged(f"{what} is {found}, expected at most {most}")
    metadata: dict[str, MetaValue] = {}
    kinds: dict[str, str] = {}
    for index in range(n_keys):
        key = source.name(f"metadata key {index + 1} of {n_keys}")
        if key in metadata:
            raise source.damaged(f"metadata key {one_line(key)!r} occurs twice")
        metadata[key], kinds[key] = _value(source, f"metadata key {one_line(key)!r}")
    alignment = _alignment(source, metadata)
    tensors = [_tensor(source, i, n_tensors, alignment) for i in range(n_tensors)]
    table = _place(source, tensors, source.at + -source.at % alignment)
    return Header(version, metadata, kinds, table)


def _version(source: _Bytes) -> int:
    version = source.number("<I", "the version")
    if version in (2, 3):
        return version
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, 2, 3):
        reason = "is a big-endian GGUF file, and only little-endian ones are read"
        hint = "Convert it with gguf_convert_endian.py of llama.cpp."
    else:
        reason = f"is a GGUF file of version {version}, and versions 2 and 3 are read"
        hint = "Convert the model again with a current converter."
    raise Ds4Error("Unsupported GGUF file", f"{source.path} {reason}.", hint)


def _value(source: _Bytes, what: str) -> tuple[MetaValue, str]:
    type_id = source.number("<I", f"the type of {what}")
    if type_id == _STRING:
        return source.string(what), "string"
    if type_id == ARRAY:
        return _array(source, what, depth=1)
    if type_id not in _SCALARS:
        raise source.damaged(f"{what} has value type {type_id}, which GGUF does not define")
    kind, code = _SCALARS[type_id]
    return source.number(code, what), kind


def _array(source: _Bytes, what: str, depth: int) -> tuple[MetaValue, str]:
    type_id = source.number("<I", f"the entry type of {what}")
    if type_id in _SCALARS:
        kind, code = _SCALARS[type_id]
        size = struct.calcsize(code)
        count = source.count(size, f"the length of {what}")
        raw = bytes(source.take(count * size, what))
        values = np.frombuffer(raw, dtype=np.uint8 if kind == "bool" else np.dtype(code))
        return (values != 0 if kind == "bool" else values), f"array of {count} {kind}"
    if type_id == _STRING:
        count = source.count(8, f"the length of {what}")
        source.spend(count, what)
        texts = [source.string(f"entry {i} of {what}") for i in range(count)]
        return texts, f"array of {count} string"
    if type_id == ARRAY and depth < MAX_DEPTH:
        count = source.count(12, f"the length of {what}")
        source.spend(count, what)
        return [_array(source, what, depth + 1)[0] for _ in range(count)], f"array of {count} array"
    raise source.damaged(f"{what} is an array of value type {type_id}, which cannot be read")


def _alignment(source: _Bytes, metadata: dict[str, MetaValue]) -> int:
    found = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= 1 << 20:
        raise source.damaged("general.alignment is not a number from 1 to 1048576")
    if found & (found - 1):
        raise source.damaged(f"general.alignment is {found}, expected a power of two")
    return found


def _tensor(source: _Bytes, index: int, count: int, alignment: int) -> TensorInfo:
    name = source.name(f"the name of tensor {index + 1} of {count}")
    label = f"tensor {one_line(name)!r}"
    n_dims = source.number("<I", f"the number of dimensions of {label}")
    if not 1 <= n_dims <= MAX_DIMS:
        raise source.damaged(f"{label} has {n_dims} dimensions, expected 1 to {MAX_DIMS}")
    ne = [source.number("<Q", f"the dimensions of {label}") for _ in range(n_dims)]
    type_id = source.number("<I", f"the type of {label}")
    offset = source.number("<Q", f"the offset of {label}")
    kind = type_of(type_id)
    if kind is None:
        raise Ds4Error(
            "Unknown quantisation",
            f"{source.path}: {label} has quantisation type id {type_id}, which is not known; "
            f"supported are {supported_names()}.",
            "Convert or quantise the model again to one of these.",
        )
    if prod(ne) == 0:
        raise source.damaged(f"{label} has a dimension of 0: {ne}")
    if prod(ne) >= 1 << 48:
        raise source.damaged(f"{label} has dimensions {ne}, more than any file can hold")
    if ne[0] % kind.block:
        raise source.damaged(
            f"{label} has rows of {ne[0]} values, not a multiple of the {kind.block} of a "
            f"{kind.name} block"
        )
    if offset % alignment:
        raise source.damaged(f"{label} has offset {offset}, not a multiple of {alignment}")
    nbytes = prod(ne) // kind.block * kind.block_bytes
    return TensorInfo(name, tuple(reversed(ne)), kind.name, nbytes, offset)


def _place(source: _Bytes, tensors: list[TensorInfo], start: int) -> dict[str, TensorInfo]:
    """The table with absolute offsets; refuses overlaps and what lies outside."""
    table: dict[str, TensorInfo] = {}
    for t in tensors:
        if t.name in table:
            raise source.damaged(f"tensor {one_line(t.name)!r} occurs twice")
        table[t.name] = TensorInfo(t.name, t.shape, t.type, t.nbytes, start + t.offset)
    in_order = sorted(table.values(), key=lambda t: t.offset)
    for before, after in pairwise(in_order):
        if before.offset + before.nbytes > after.offset:
            names = f"{one_line(before.name)!r} and {one_line(after.name)!r}"
            raise source.damaged(f"the data of tensors {names} overlap")
    size = len(source.data)
    cut = next((t for t in in_order if t.offset + t.nbytes > size), None)
    if cut is not None:
        needed = max(t.offset + t.nbytes for t in in_order)
        raise Ds4Error(
            "Truncated GGUF file",
            f"{source.path} is cut short inside tensor {one_line(cut.name)!r}: "
            f"found {size} bytes, needed {needed}.",
            "The download or copy is probably unfinished; fetch the file again.",
        )
    return table
