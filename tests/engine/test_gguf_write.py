"""The writer: exact kinds, whole files only; what it writes is read back in `test_gguf`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.gguf import open_gguf
from engine.gguf_write import TensorData, Typed, write_gguf


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "bool"),
        (7, "u32"),
        (-7, "i32"),
        (1 << 32, "u64"),
        (-(1 << 40), "i64"),
        (0.5, "f32"),
        ("text", "string"),
        ("<｜User｜>\x1b", "string"),
        ([1, 2], "array of 2 i32"),
        ([], "array of 0 i32"),
        ([0.5], "array of 1 f32"),
        ([True, False], "array of 2 bool"),
        (["a", "b"], "array of 2 string"),
        (Typed("u32", [1]), "array of 1 u32"),
        (Typed("string", []), "array of 0 string"),
        (Typed("f64", 1e-300), "f64"),
        (Typed("u8", 255), "u8"),
    ],
)
def test_values_keep_their_kind(tmp_path: Path, value: object, kind: str) -> None:
    file = open_gguf(write_gguf(tmp_path / "x.gguf", {"k": value}, []))
    assert file.kinds["k"] == kind
    got = file.metadata["k"]
    plain = value.value if isinstance(value, Typed) else value
    assert (got.tolist() if isinstance(got, np.ndarray) else got) == plain


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", {"k": 1}, [])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="t: 4 bytes for 8"):
        write_gguf(path, {}, [TensorData("t", (2,), "F32", np.zeros(4, np.uint8))])
    with pytest.raises(KeyError):
        write_gguf(path, {"k": Typed("u128", 1)}, [])
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.gguf"]


def test_types_without_a_quantiser_are_only_written_from_bytes() -> None:
    with pytest.raises(NotImplementedError):
        TensorData.encode("t", np.zeros((1, 256), np.float32), "Q4_K")
