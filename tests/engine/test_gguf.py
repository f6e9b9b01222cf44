"""The reader against well-formed, foreign, cut, hostile and damaged files."""

from __future__ import annotations

import hashlib
import math
import os
import struct
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import Ds4Error
from engine.gguf import GGUFFile, open_gguf
from engine.gguf_write import TensorData, Typed, write_gguf
from engine.quant_types import INTEGERS, SUPPORTED
from tests.engine.random_pair import random_blocks, write_target

U64 = struct.Struct("<Q").pack


def string(text: str) -> bytes:
    data = text.encode()
    return U64(len(data)) + data


def header(tensors: int, keys: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def tensor(name: str, ne: tuple[int, ...], type_id: int, offset: int) -> bytes:
    dims = struct.pack(f"<I{len(ne)}Q", len(ne), *ne)
    return string(name) + dims + struct.pack("<IQ", type_id, offset)


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(Ds4Error) as caught:
        open_gguf(path)
    message = caught.value.message
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    return write_gguf(
        tmp_path_factory.mktemp("gguf") / "small.gguf",
        {"general.architecture": "test", "a.count": 3, "a.list": [1, 2], "a.names": ["x", "y"]},
        [
            TensorData.encode("first", rng.standard_normal((4, 32), np.float32), "F32"),
            TensorData.encode("second", rng.standard_normal((2, 3, 64), np.float32), "Q8_0"),
        ],
    )


# -- well-formed files


def test_reads_what_the_reference_reader_reads(tmp_path: Path) -> None:
    path = write_target(tmp_path / "t.gguf", types="ds4")
    ours, theirs = open_gguf(path), GGUFReader(path)
    assert ours.version == 3
    assert set(ours.metadata) == {k for k in theirs.fields if not k.startswith("GGUF.")}
    for key, value in ours.metadata.items():
        expected = theirs.fields[key].contents()
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == expected, key
    assert [t.name for t in theirs.tensors] == list(ours.tensors)
    for t in theirs.tensors:
        info = ours.tensors[t.name]
        assert info.shape == tuple(int(n) for n in reversed(t.shape))
        assert (info.type, info.nbytes, info.offset) == (
            t.tensor_type.name,
            t.n_bytes,
            t.data_offset,
        )
        assert ours.raw(t.name).tobytes() == t.data.tobytes()


def test_version_2_opens_and_names_stay(small: Path, tmp_path: Path) -> None:
    data = bytearray(small.read_bytes())
    data[4] = 2
    file = open_gguf(put(tmp_path / "v2.gguf", bytes(data)))
    assert file.version == 2
    assert file.tensors["second"].shape == (2, 3, 64)
    assert file.tensors["second"].elements == 384


@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
def test_alignment(tmp_path: Path, alignment: int) -> None:
    values = [np.full((3, 5), i, np.float32) for i in range(3)]
    tensors = [TensorData.encode(f"t{i}", v, "F32") for i, v in enumerate(values)]
    path = write_gguf(tmp_path / "a.gguf", {}, tensors, alignment=alignment)
    file = open_gguf(path)
    for i, v in enumerate(values):
        assert file.tensors[f"t{i}"].offset % alignment == 0
        np.testing.assert_array_equal(file.dequantise(f"t{i}"), v)


def test_hash_is_of_the_file_and_follows_its_changes(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "h.gguf", {"k": 1}, [])
    first = open_gguf(path)
    assert first.sha256() == hashlib.sha256(path.read_bytes()).hexdigest()
    write_gguf(path, {"k": 1, "longer": "text"}, [])
    assert open_gguf(path).sha256() == hashlib.sha256(path.read_bytes()).hexdigest()


# -- storage types


def test_table_of_types_is_the_package_s() -> None:
    for name, ours in SUPPORTED.items():
        theirs = GGMLQuantizationType[name]
        assert (ours.id, (ours.block, ours.block_bytes)) == (int(theirs), GGML_QUANT_SIZES[theirs])


@pytest.mark.parametrize("kind", [name for name in SUPPORTED if name not in INTEGERS])
@pytest.mark.parametrize("shape", [(256,), (5, 512), (3, 2, 256)])
def test_dequantise_equals_the_package_s(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    code = GGMLQuantizationType[kind]
    if kind in ("Q2_K", "Q4_K", "IQ2_XXS"):
        made = TensorData("t", shape, kind, random_blocks(kind, shape, 0.05, rng))
        stored = made.data.reshape(*shape[:-1], -1)
    else:
        values = rng.standard_normal(shape, np.float32)
        made = TensorData.encode("t", values, kind)
        stored = quantize(values, code)
    file = open_gguf(write_gguf(tmp_path / "q.gguf", {}, [made]))
    got = file.dequantise("t")
    assert got.dtype == np.float32
    assert got.shape == shape
    np.testing.assert_array_equal(got, dequantize(stored.view(np.uint8), code).reshape(shape))
    assert file.raw("t").tobytes() == stored.tobytes()


def test_values_too_large_are_infinite_without_a_warning(tmp_path: Path) -> None:
    block = np.array([255, *[0x07] * 16], np.uint8)  # 6 * 2^128, and zeros
    path = write_gguf(tmp_path / "l.gguf", {}, [TensorData("t", (1, 32), "MXFP4", block)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = open_gguf(path).dequantise("t")
    assert values.tolist() == [[math.inf] * 16 + [0.0] * 16]


@pytest.mark.parametrize(("kind", "most"), [("I32", 2**31 - 1), ("I64", 2**63 - 1)])
def test_ids_keep_their_values(tmp_path: Path, kind: str, most: int) -> None:
    ids = np.array([[0, most], [-1, 7]])
    path = write_gguf(tmp_path / "i.gguf", {}, [TensorData.encode("ids", ids, kind)])
    file = open_gguf(path)
    np.testing.assert_array_equal(file.integers("ids"), ids)
    np.testing.assert_array_equal(file.dequantise("ids"), ids.astype(np.float32))
    assert file.parameters == 0


def test_weights_are_no_ids(small: Path) -> None:
    with pytest.raises(Ds4Error, match=r"'first' is F32, expected I32 or I64"):
        open_gguf(small).integers("first")


def test_data_is_read_only(small: Path) -> None:
    with pytest.raises(ValueError, match="read-only"):
        open_gguf(small).raw("first")[0, 0] = 1


def test_unknown_type_id_names_tensor_id_and_what_is_supported(tmp_path: Path) -> None:
    data = header(1, 0) + tensor("blk.0.weird", (32,), 99, 0) + bytes(256)
    message = refusal(put(tmp_path / "x.gguf", data))
    for part in ("blk.0.weird", "99", *SUPPORTED):
        assert part in message


@pytest.mark.parametrize("name", ["Q6_K", "IQ4_XS", "Q4_0", "I8", "F64", "TQ1_0"])
def test_known_but_unsupported_type_is_listed_and_not_loaded(tmp_path: Path, name: str) -> None:
    code = GGMLQuantizationType[name]
    block, size = GGML_QUANT_SIZES[code]
    data = header(1, 0) + tensor("t", (block,), int(code), 0)
    path = put(tmp_path / "x.gguf", data + bytes(-len(data) % 32) + bytes(size))
    file = open_gguf(path)
    assert file.tensors["t"].type == name
    with pytest.raises(Ds4Error) as caught:
        file.dequantise("t")
    for part in ("'t'", name, f"id {int(code)}", *SUPPORTED):
        assert part in caught.value.message


# -- files that are something else


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"<!DOCTYPE html><html><head><title>404</title>", "this is a web page, not a GGUF file"),
        (b"\xef\xbb\xbf\n\n  <HTML lang=en>", "this is a web page, not a GGUF file"),
        (b"<html", "this is a web page, not a GGUF file"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code>", "XML"),
        (b'{"error":"Repository not found"}', "JSON"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "Git LFS pointer"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"\x80\x02}q\x00(X\x05\x00\x00\x00model", "pickle"),
        (U64(1200) + b'{"model.embed_tokens.weight":{"dtype"', "safetensors"),
        (b"\x1f\x8b\x08\x00" + bytes(30), "gzip"),
        (b"\x7fELF" + bytes(60), "program"),
        (b"tjgg" + bytes(60), "before GGUF"),
        (bytes(4096), "zeros"),
        ("Kein Modell, nur Text: äöü.\n".encode() * 40, "text file"),
        (b"\x93\x11\xfe\x00\x81abc\xff" * 8, "unknown kind of file"),
        (b"G", "cut short"),
        (b"GGUF", "cut short"),
        (b"GGUF\x03\0\0\0", "cut short"),
        (b"", "is empty"),
    ],
)
def test_foreign_files_are_named(tmp_path: Path, data: bytes, what: str) -> None:
    path = put(tmp_path / "model.gguf", data)
    message = refusal(path)
    assert what in message
    assert str(path) in message


def test_missing_file_and_directory(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "no.gguf")
    assert "is a directory" in refusal(tmp_path)
    assert "cannot be read" in refusal(Path("nul\0byte.gguf"))


@pytest.mark.parametrize("version", [0, 1, 4])
def test_versions_that_are_not_read(tmp_path: Path, version: int) -> None:
    assert f"version {version}" in refusal(
        put(tmp_path / "v.gguf", header(0, 0, version) + bytes(64))
    )


def test_big_endian_is_said(tmp_path: Path) -> None:
    data = b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(64)
    assert "big-endian" in refusal(put(tmp_path / "b.gguf", data))


@pytest.mark.skipif(os.name != "posix", reason="such file names exist only on POSIX systems")
def test_hostile_names_are_shown_as_glyphs(tmp_path: Path) -> None:
    path = put(tmp_path / "a\x1b[2J‮.gguf", b"nothing at all, just text")
    message = refusal(path)
    assert "\x1b" not in message
    assert "␛[2J<U+202E>" in message
    data = header(1, 0) + tensor("t\x1b[31m", (32,), 99, 0) + bytes(99)
    assert "t␛[31m" in refusal(put(tmp_path / "n.gguf", data))


# -- files that end too early or lie about themselves


def test_cut_in_tensor_data_names_size_needed_and_tensor(small: Path, tmp_path: Path) -> None:
    whole = small.read_bytes()
    file = open_gguf(small)
    second = file.tensors["second"]
    end = second.offset + second.nbytes
    for size, name in (
        (second.offset + 10, "second"),
        (end - 1, "second"),
        (file.tensors["first"].offset + 1, "first"),
    ):
        message = refusal(put(tmp_path / "cut.gguf", whole[:size]))
        for part in ("cut short", repr(name), f"found {size} bytes", f"needed {end}"):
            assert part in message


def test_a_tensor_wholly_behind_the_end_is_a_cut_file_too(tmp_path: Path) -> None:
    data = header(1, 0) + tensor("far", (32,), 0, 1 << 40)
    assert "cut short inside tensor 'far'" in refusal(put(tmp_path / "f.gguf", data + bytes(64)))


HUGE = [1 << 63, (1 << 64) - 1, 1 << 48, 1 << 32, 1 << 20]


def key(type_id: int, rest: bytes) -> bytes:
    return header(0, 1) + string("k") + struct.pack("<I", type_id) + rest


@pytest.mark.parametrize("count", HUGE)
@pytest.mark.parametrize(
    "make",
    [
        lambda n: header(n, 0),
        lambda n: header(0, n),
        lambda n: header(n, n) + bytes(4096),
        lambda n: header(0, 1) + U64(n) + b"key",
        lambda n: key(8, U64(n) + b"text"),
        lambda n: key(9, struct.pack("<IQ", 4, n) + bytes(64)),
        lambda n: key(9, struct.pack("<IQ", 0, n) + bytes(64)),
        lambda n: key(9, struct.pack("<IQ", 8, n) + bytes(64)),
        lambda n: key(9, struct.pack("<IQ", 9, n) + bytes(64)),
        lambda n: header(1, 0) + U64(n) + b"name" + bytes(64),
        lambda n: header(1, 0) + tensor("t", (n, n, n, n), 0, 0) + bytes(64),
        lambda n: header(1, 0) + tensor("t", (32, n), 8, 0) + bytes(64),
        lambda n: header(1, 0) + tensor("t", (32,), 0, n & ~31) + bytes(64),
        lambda n: header(1, 0) + string("t") + struct.pack("<I", n & 0xFFFFFFFF) + bytes(64),
    ],
)
def test_counts_and_lengths_that_cannot_be_true(
    tmp_path: Path, make: Callable[[int], bytes], count: int
) -> None:
    path = put(tmp_path / "huge.gguf", make(count))
    tracemalloc.start()
    try:
        refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_24_byte_file(tmp_path: Path) -> None:
    message = refusal(put(tmp_path / "x.gguf", header(1 << 63, 0)))
    assert f"the number of tensors is {1 << 63}" in message


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (header(1 << 20, 0), "expected at most"),
        (header(0, 1 << 20), "expected at most"),
        (key(9, struct.pack("<IQ", 8, (1 << 22) + 1)), "array entries"),
        (key(9, struct.pack("<IQ", 0, 1 << 25)), "header is longer"),
    ],
)
def test_counts_that_the_size_allows_are_bounded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: bytes, what: str
) -> None:
    monkeypatch.setattr("engine.gguf_header.MAX_HEADER_BYTES", 1 << 24)
    path = tmp_path / "sparse.gguf"
    with path.open("wb") as out:
        out.write(start)
        out.truncate(1 << 26)
    assert what in refusal(path)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (header(2, 0) + tensor("t", (8,), 0, 0) * 2 + bytes(99), "occurs twice"),
        (
            header(2, 0) + tensor("a", (32,), 0, 0) + tensor("b", (32,), 0, 64) + bytes(999),
            "'a' and 'b' overlap",
        ),
        (header(1, 0) + tensor("t", (8,), 0, 8) + bytes(99), "not a multiple of 32"),
        (header(1, 0) + tensor("t", (33,), 8, 0) + bytes(99), "rows of 33 values"),
        (header(1, 0) + tensor("t", (128,), 12, 0) + bytes(999), "of a Q4_K block"),
        (header(1, 0) + tensor("t", (8, 0), 0, 0) + bytes(99), "dimension of 0"),
        (header(1, 0) + tensor("t", (), 0, 0) + bytes(99), "has 0 dimensions"),
        (header(1, 0) + tensor("t", (1, 1, 1, 1, 1), 0, 0) + bytes(99), "has 5 dimensions"),
        (header(1, 0) + tensor("", (8,), 0, 0) + bytes(99), "0 characters"),
        (header(0, 1) + U64(2) + b"\xff\xfe" + bytes(99), "not UTF-8"),
        (header(0, 2) + (string("k") + struct.pack("<IB", 0, 1)) * 2 + bytes(99), "occurs twice"),
        (key(77, bytes(99)), "value type 77"),
        (key(9, struct.pack("<IQ", 77, 1) + bytes(99)), "value type 77"),
        (key(9, struct.pack("<IQ", 9, 1) * 5 + bytes(99)), "cannot be read"),
        (
            header(0, 1) + string("general.alignment") + struct.pack("<II", 4, 24) + bytes(99),
            "power of two",
        ),
        (
            header(0, 1) + string("general.alignment") + struct.pack("<II", 4, 0) + bytes(99),
            "general.alignment",
        ),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, data: bytes, what: str) -> None:
    assert what in refusal(put(tmp_path / "x.gguf", data))


FUZZ = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def read_everything(path: Path) -> None:
    """Open and touch all of it: a Ds4Error or a file that works."""
    try:
        file = open_gguf(path)
        for name in file.tensors:
            file.raw(name)
            file.dequantise(name)
        for name in file.metadata:
            for read in (file.get_bool, file.get_str, file.get_strings):
                try:
                    read(name)
                except Ds4Error:
                    continue
    except Ds4Error:
        return


@FUZZ
@given(data=st.data())
def test_no_truncation_escapes(small: Path, tmp_path: Path, data: st.DataObject) -> None:
    whole = small.read_bytes()
    size = data.draw(st.integers(0, len(whole) - 1))
    path = put(tmp_path / "x.gguf", whole[:size])
    if size < 900:
        refusal(path)
    read_everything(path)


@FUZZ
@given(data=st.data())
def test_no_damage_escapes(small: Path, tmp_path: Path, data: st.DataObject) -> None:
    damaged = bytearray(small.read_bytes())
    start = open_gguf(small).tensors["first"].offset
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, start - 1))] = data.draw(st.integers(0, 255))
    read_everything(put(tmp_path / "x.gguf", bytes(damaged)))


@FUZZ
@given(body=st.binary(max_size=200), tensors=st.integers(0, 4), keys=st.integers(0, 4))
def test_no_noise_escapes(tmp_path: Path, body: bytes, tensors: int, keys: int) -> None:
    read_everything(put(tmp_path / "x.gguf", header(tensors, keys) + body))


# -- metadata


def with_key(tmp_path: Path, value: object) -> GGUFFile:
    return open_gguf(write_gguf(tmp_path / "m.gguf", {"k": value}, []))


@pytest.mark.parametrize("kind", ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"])
def test_every_integer_width_is_the_same_value(tmp_path: Path, kind: str) -> None:
    file = with_key(tmp_path, Typed(kind, 4))
    assert file.get_int("k", 1, 8) == 4
    assert file.get_float("k", 1, 8) == 4.0
    for lo, hi in ((5, 8), (0, 3)):
        with pytest.raises(Ds4Error, match=rf"'k' is '4' \({kind}\).*from {lo} to {hi}"):
            file.get_int("k", lo, hi)
    listed = with_key(tmp_path, Typed(kind, [0, 4, 127]))
    assert listed.get_ints("k", 0, 127) == (0, 4, 127)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_floats(tmp_path: Path, kind: str) -> None:
    assert with_key(tmp_path, Typed(kind, 4.0)).get_int("k", 1, 8) == 4
    assert with_key(tmp_path, Typed(kind, 4.5)).get_float("k", 1, 8) == 4.5
    assert with_key(tmp_path, Typed(kind, [0.5, 2.0])).get_floats("k", 0, 2) == (0.5, 2.0)
    for value in (4.5, float("nan"), float("inf"), -1e30):
        with pytest.raises(Ds4Error, match="an integer from"):
            with_key(tmp_path, Typed(kind, value)).get_int("k", 1, 8)
    for value in (float("nan"), float("inf"), 9.0):
        with pytest.raises(Ds4Error, match="a number from 1 to 8"):
            with_key(tmp_path, Typed(kind, value)).get_float("k", 1, 8)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([1, 2, 3, 4, 5], "array of 5 i32 [1, 2, 3, 4, ...]"),
        (["a"], "array of 1 string [a]"),
        ("eight", "'eight' (string)"),
        (True, "'True' (bool)"),
        (-3, "'-3' (i32)"),
        ("\x1b[2J", "'␛[2J' (string)"),
    ],
)
def test_wrong_kinds_name_key_found_and_expected(tmp_path: Path, value: object, found: str) -> None:
    file = with_key(tmp_path, value)
    for read in (file.get_int, file.get_float):
        with pytest.raises(Ds4Error) as caught:
            read("k", 1, 8)
        assert f"metadata key 'k' is {found}, expected a" in caught.value.message


def test_scalars_where_arrays_belong(tmp_path: Path) -> None:
    file = with_key(tmp_path, 7)
    with pytest.raises(Ds4Error, match=r"'7' \(u32\), expected an array of integers"):
        file.get_ints("k", 0, 9)
    assert file.get_ints("k", 0, 9, spread=3) == (7, 7, 7)
    assert file.get_floats("k", 0, 9, spread=2) == (7.0, 7.0)
    with pytest.raises(Ds4Error, match="an array of strings"):
        file.get_strings("k")
    with pytest.raises(Ds4Error, match="expected an array of integers from 0 to 9"):
        with_key(tmp_path, [1, 10]).get_ints("k", 0, 9)
    with pytest.raises(Ds4Error, match="expected a string"):
        file.get_str("k")


def test_bools(tmp_path: Path) -> None:
    assert with_key(tmp_path, True).get_bool("k") is True
    assert with_key(tmp_path, Typed("u8", 0)).get_bool("k") is False
    with pytest.raises(Ds4Error, match="true or false"):
        with_key(tmp_path, 2).get_bool("k")


def test_absent_keys(tmp_path: Path) -> None:
    file = with_key(tmp_path, 1)
    assert file.get_int("none", 0, 9, default=5) == 5
    assert file.get_str("none", default="") == ""
    assert file.get_bool("none", default=False) is False
    assert file.get_ints("none", 0, 9, default=()) == ()
    with pytest.raises(Ds4Error, match="no metadata key 'none', expected an integer from 0 to 9"):
        file.get_int("none", 0, 9)


def test_undecodable_text_survives_and_is_shown_as_hex(tmp_path: Path) -> None:
    file = with_key(tmp_path, "a\udce2b")
    assert file.metadata["k"] == "a\udce2b"
    with pytest.raises(Ds4Error, match="a<0xE2>b"):
        file.get_int("k", 0, 9)
