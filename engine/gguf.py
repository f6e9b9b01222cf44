"""An opened GGUF file: checked header, typed metadata, mapped tensor data.

The file is untrusted: `engine.gguf_header` has checked it before anything here can be called. Knows
no model; `engine.config` says which keys and tensors a model needs. `gguf` (the package) is only
imported to dequantise.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine.errors import Ds4Error
from engine.foreign import HEAD_BYTES, describe
from engine.gguf_header import MAGIC, Header, MetaValue, TensorInfo, parse_header
from engine.quant_types import INTEGERS, SUPPORTED, supported_names
from engine.text import one_line

HASHED_BYTES = 4 << 30
"""Larger files are not hashed where nobody asked for it: it takes minutes."""

_hashes: dict[tuple[str, int, int], str] = {}
_SMALLEST = 24  # magic, version and the two counts


def open_gguf(path: str | Path) -> GGUFFile:
    """Open and check a GGUF file; its data is mapped, not read.

    Raises:
        Ds4Error: when the file is missing, not readable, not GGUF, damaged or cut short.
    """
    path = Path(path)
    shown = one_line(str(path))
    try:
        if path.is_dir():
            raise Ds4Error("Not a file", f"{shown} is a directory, not a GGUF file.")
        if path.exists() and not path.is_file():
            raise Ds4Error("Not a file", f"{shown} is a device or a pipe, not a GGUF file.")
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
        status = path.stat()
    except FileNotFoundError:
        raise Ds4Error(
            "File not found", f"{shown} does not exist.", "Check the path for typing mistakes."
        ) from None
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or str(error))
        raise Ds4Error("Cannot read file", f"{shown} cannot be read: {reason}.") from None
    if not head:
        raise Ds4Error(
            "Empty file", f"{shown} is empty, not a GGUF file.", "Download or copy it again."
        )
    if not head.startswith(MAGIC) and not MAGIC.startswith(head):
        what, hint = describe(head)
        raise Ds4Error("Not a GGUF file", f"{shown}: this is {what}, not a GGUF file.", hint)
    if status.st_size < _SMALLEST:
        raise Ds4Error(
            "Truncated GGUF file",
            f"{shown} is cut short inside its header: found {status.st_size} bytes, "
            f"needed at least {_SMALLEST}.",
            "The download or copy is probably unfinished; fetch the file again.",
        )
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise Ds4Error("Cannot read file", f"{shown} cannot be mapped: {error}.") from None
    header = parse_header(memoryview(data.data), shown)
    return GGUFFile(path, header, data, status.st_mtime_ns)


class GGUFFile:
    """One opened file; immutable. Arrays it gives out are views of the mapped file where possible.

    Attributes:
        path: as given.
        size: bytes of the file.
        version: of the GGUF format.
        metadata: values by key; numeric arrays are numpy arrays, string arrays are lists.
        kinds: how each value was stored, such as "u32" or "array of 8 i32".
        tensors: the table, in the file's order.
    """

    def __init__(self, path: Path, header: Header, data: np.ndarray, mtime_ns: int) -> None:
        self.path = path
        self.size = int(data.size)
        self.version = header.version
        self.metadata = header.metadata
        self.kinds = header.kinds
        self.tensors = header.tensors
        self._data = data
        self._mtime_ns = mtime_ns

    @property
    def name(self) -> str:
        """The path, fit to be shown."""
        return one_line(str(self.path))

    @property
    def architecture(self) -> str:
        """`general.architecture`; "" when absent or not a string."""
        return self._text("general.architecture")

    @property
    def title(self) -> str:
        """`general.name`; "" when absent or not a string."""
        return self._text("general.name")

    def _text(self, key: str) -> str:
        value = self.metadata.get(key)
        return value if isinstance(value, str) else ""

    @property
    def parameters(self) -> int:
        """Values of all tensors but the tables of ids."""
        return sum(info.elements for info in self.tensors.values() if info.type not in INTEGERS)

    def sha256(self) -> str:
        """Hex digest of the whole file; computed once per path, size and time of change."""
        key = (os.path.abspath(self.path), self.size, self._mtime_ns)
        if key not in _hashes:
            with self.path.open("rb") as stream:
                _hashes[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        return _hashes[key]

    # -- tensors

    def raw(self, name: str) -> np.ndarray:
        """The stored bytes, uint8, shape (*shape[:-1], bytes of a row); a read-only view."""
        info = self._tensor(name)
        data = self._data[info.offset : info.offset + info.nbytes]
        rows = info.shape[:-1]
        return np.asarray(data).reshape(*rows, info.nbytes // max(1, int(np.prod(rows))))

    def dequantise(self, name: str) -> np.ndarray:
        """The values as float32 in torch shape; F32 tensors are a read-only view of the file.

        Raises:
            Ds4Error: when there is no such tensor or its type is not supported.
        """
        info = self._tensor(name)
        raw = self.raw(name)
        if info.type == "F32":
            return raw.view("<f4")
        if info.type == "F16":
            return raw.view("<f2").astype(np.float32)
        if info.type == "BF16":
            return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        if info.type in INTEGERS:
            return self.integers(name).astype(np.float32)
        from gguf.constants import GGMLQuantizationType  # only here: it is slow to import
        from gguf.quants import dequantize

        # What is too large becomes infinite without a word: a forward says so.
        with np.errstate(over="ignore", invalid="ignore"):
            values: np.ndarray = dequantize(raw, GGMLQuantizationType[info.type])
        return values.astype(np.float32, copy=False).reshape(info.shape)

    def integers(self, name: str) -> np.ndarray:
        """An I32 or I64 tensor as int32 or int64 in torch shape; a read-only view of the file."""
        info = self._tensor(name)
        if info.type not in INTEGERS:
            raise Ds4Error(
                "Wrong tensor type",
                f"{self.name}: tensor {one_line(name)!r} is {info.type}, expected "
                f"{' or '.join(INTEGERS)}.",
            )
        return self.raw(name).view("<i4" if info.type == "I32" else "<i8")

    def _tensor(self, name: str) -> TensorInfo:
        info = self.tensors.get(name)
        if info is None:
            raise Ds4Error("Missing tensor", f"{self.name} has no tensor {one_line(name)!r}.")
        self.check_type(info)
        return info

    def check_type(self, info: TensorInfo) -> None:
        """Refuse a tensor whose type the engine cannot read."""
        if info.type in SUPPORTED:
            return
        from gguf.constants import GGMLQuantizationType  # only for the message

        raise Ds4Error(
            "Unsupported quantisation",
            f"{self.name}: tensor {one_line(info.name)!r} has quantisation type {info.type} "
            f"(id {int(GGMLQuantizationType[info.type])}); supported are {supported_names()}.",
            "Quantise the model again to one of these.",
        )

    # -- metadata

    def get_int(self, key: str, lo: int, hi: int, default: int | None = None) -> int:
        """An integer of any width, or a float with an integer's value, in lo..hi.

        Args:
            default: returned when the key is absent; None makes the key required.
        """
        expected = f"an integer from {lo} to {hi}"
        value = self._scalar(key, expected, default)
        whole = _whole(value)
        if whole is None or not lo <= whole <= hi:
            raise self._wrong(key, expected)
        return whole

    def get_float(self, key: str, lo: float, hi: float, default: float | None = None) -> float:
        """A float or an integer in lo..hi; NaN never is."""
        expected = f"a number from {lo:g} to {hi:g}"
        value = self._scalar(key, expected, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not lo <= value <= hi:
            raise self._wrong(key, expected)
        return float(value)

    def get_bool(self, key: str, default: bool | None = None) -> bool:
        """A bool; the integers 0 and 1 are taken for one."""
        value = self._scalar(key, "true or false", default)
        if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise self._wrong(key, "true or false")

    def get_str(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._scalar(key, "a string", default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def get_strings(self, key: str) -> list[str]:
        """A required array of strings."""
        value = self._required(key, "an array of strings")
        if isinstance(value, np.ndarray) and not value.size:
            return []  # an empty array has no kind worth insisting on
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self._wrong(key, "an array of strings")
        return [str(v) for v in value]

    def get_ints(
        self, key: str, lo: int, hi: int, *, spread: int = 0, default: Sequence[int] | None = None
    ) -> tuple[int, ...]:
        """An array of integers in lo..hi; with `spread` a scalar stands for that many."""
        expected = f"an array of integers from {lo} to {hi}"
        values = [_whole(v) for v in self._numbers(key, expected, spread, default)]
        found = tuple(v for v in values if v is not None and lo <= v <= hi)
        if len(found) != len(values):
            raise self._wrong(key, expected)
        return found

    def get_floats(self, key: str, lo: float, hi: float, *, spread: int = 0) -> tuple[float, ...]:
        """As `get_ints` for numbers; required."""
        expected = f"an array of numbers from {lo:g} to {hi:g}"
        values = tuple(float(v) for v in self._numbers(key, expected, spread, None))
        if not all(lo <= v <= hi for v in values):
            raise self._wrong(key, expected)
        return values

    def _numbers(
        self, key: str, expected: str, spread: int, default: Sequence[int] | None
    ) -> list[int | float]:
        if default is not None and key not in self.metadata:
            return list(default)
        value = self._required(key, expected)
        if isinstance(value, np.ndarray) and value.dtype != np.bool_:
            return [v.item() for v in value]
        if spread and isinstance(value, int | float) and not isinstance(value, bool):
            return [value] * spread
        raise self._wrong(key, expected)

    def _required(self, key: str, expected: str) -> MetaValue:
        if key not in self.metadata:
            raise Ds4Error(
                "Missing metadata",
                f"{self.name} has no metadata key {one_line(key)!r}, expected {expected}.",
                "The file is incomplete or of another kind; convert it again.",
            )
        return self.metadata[key]

    def _scalar(self, key: str, expected: str, default: MetaValue | None) -> MetaValue:
        if default is not None and key not in self.metadata:
            return default
        return self._required(key, expected)

    def _wrong(self, key: str, expected: str) -> Ds4Error:
        value, kind = self.metadata[key], self.kinds[key]
        if isinstance(value, list | np.ndarray):
            found = kind + _sample(value)
        else:
            found = f"{one_line(str(value), 60)!r} ({kind})"
        return Ds4Error(
            "Wrong metadata",
            f"{self.name}: metadata key {one_line(key)!r} is {found}, expected {expected}.",
            "The file does not describe a model that this program can run.",
        )


def _whole(value: MetaValue) -> int | None:
    """The integer that a number is; None when it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) else None


def _sample(value: list[str] | list[MetaValue] | np.ndarray) -> str:
    """The first entries of an array for a message."""
    first = ", ".join(one_line(str(v), 24) for v in value[:4])
    return f" [{first}{', ...' if len(value) > 4 else ''}]"
