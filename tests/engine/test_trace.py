"""Traces: every event back as it was, readable after a kill at any byte."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import events as ev
from engine.errors import Ds4Error
from engine.events import StateDrift, TokenText
from engine.trace import EVENTS, SCHEMA, TraceWriter, _whole_lines, decode, encode, read_trace
from tests.engine.races import engine, run
from tests.engine.scripted import ScriptedDrafter, ScriptedModel, continuation, random_script


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of an annotated type."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{name: values(hint) for name, hint in hints.items()})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(values, arguments))
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(values(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(values, arguments))
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    simple = {
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False),
        str: st.text(),
        bytes: st.binary(max_size=8),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return simple[kind]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(EVENTS)).flatmap(lambda name: values(EVENTS[name])))
def test_every_event_survives_json(event: ev.Event) -> None:
    line = json.dumps(encode(event), allow_nan=False)
    assert decode(json.loads(line)) == event


def recorded(path: Path) -> list[ev.Event]:
    script = random_script(3)
    made = engine(ScriptedModel(script, noise=0.3), ScriptedDrafter(continuation(script)))
    events = run(made, "direct", "replay", max_tokens=25, ignore_eos=True).events
    writer = TraceWriter(str(path))
    for event in events:
        writer.write([event])
    writer.close()
    return events


def test_a_run_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert recorded(path) == read_trace(str(path))
    assert json.loads(path.read_text().splitlines()[0]) == {"schema": SCHEMA}


def test_a_trace_cut_at_any_byte_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    events = recorded(path)
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    cut = tmp_path / "cut.jsonl"
    for end in (*range(first, first + 3000, 7), *range(len(data) - 400, len(data))):
        cut.write_bytes(data[:end])
        found = read_trace(str(cut))
        assert found == events[: len(found)]
        assert len(found) == data[:end].count(b"\n") - 1


def test_a_line_that_is_ended_while_it_is_read_is_left_out(tmp_path: Path) -> None:
    """What a file gives after its half line is the other half."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"")

    class Growing(io.FileIO):
        def __iter__(self) -> Iterator[bytes]:  # type: ignore[override]
            return iter((b"whole\n", b"ha", b"lf\n"))

    assert list(_whole_lines(Growing(path), None)) == [b"whole"]  # type: ignore[arg-type]


def test_bytes_are_hex_and_infinities_are_strings() -> None:
    text = encode(TokenText("r", -1, 5, ((7, b"\xff\x1b"),)))
    assert text["entries"] == [[7, "ff1b"]]
    drift = encode(StateDrift("r", 1, 5, 0, 0, ((0, "raw", math.inf), (1, "raw", None))))
    assert drift["tensors"] == [[0, "raw", "inf"], [1, "raw", None]]


def test_what_a_newer_version_added_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    known = encode(TokenText("r", -1, 5, ())) | {"later": [1, {"x": 2}]}
    unknown = {"event": "SomethingLater", "run_id": "r"}
    lines = [{"schema": SCHEMA}, known, unknown]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_trace(str(path)) == [TokenText("r", -1, 5, ())]


def test_what_an_older_version_lacked_has_its_default(tmp_path: Path) -> None:
    finished = encode(ev.ArmFinished("r", 1, 5, "length", 3, True))
    del finished["state_equal"]
    assert decode(finished) == ev.ArmFinished("r", 1, 5, "length", 3, None)


def test_an_older_version_told_one_drafter_s_facts_for_all_arms(tmp_path: Path) -> None:
    events = recorded(tmp_path / "run.jsonl")
    started = next(event for event in events if isinstance(event, ev.RunStarted))
    line = encode(started)
    for arm in line["arms"]:
        for name in ("block_size", "noise_id", "window"):
            del arm[name]
    old = decode(line)
    assert isinstance(old, ev.RunStarted)
    for event in (started, old):
        arm = event.arms[1]
        assert (event.block_of(arm), event.noise_of(arm), event.window_of(arm)) == (5, 8, 128)


COMMITTED = (
    '{"event":"TokensCommitted","run_id":"r","arm":0,"t_ns":0,"index":0,"position":0,"ids":%s,'
    '"sources":%s,"top":[[]],"time":{}}\n'
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no trace"),
        ("<html>\n", "is no trace"),
        ("[1]\n", "is no trace"),
        ('{"schema": "ds4tui.ab/1"}\n', 'has schema "ds4tui.ab/1", expected ds4tui.trace/1'),
        (
            '{"schema": "ds4tui.trace/1"}\n{"event": "TokenText"}\n',
            "line 2 is no event: TokenText lacks field `run_id`. Record the run again",
        ),
        ('{"schema": "ds4tui.trace/1"}\nnull\n', "line 2 is no event: it has no field `event`"),
        ('{"schema": "ds4tui.trace/1"}\n{"event": []}\n', "it has no field `event`"),
        ('{"schema": "ds4tui.trace/1"}\n{"event": \n', "it is no JSON from column"),
        ('{"schema": "ds4tui.trace/1"}\n"\udcff"\n', "line 2 is no event: it is not UTF-8 text"),
        (
            '{"schema": "ds4tui.trace/1"}\n'
            '{"event":"TokenText","run_id":1,"arm":0,"t_ns":0,"entries":[]}\n',
            "field `run_id` of TokenText holds another kind of value",
        ),
        ('{"schema": "ds4tui.trace/1"}\n' + COMMITTED % ("[1, 2]", '["plain"]'), "of one length"),
        ('{"schema": "ds4tui.trace/1"}\n' + COMMITTED % ("[-1]", '["plain"]'), "0 to 4294967295"),
        (
            '{"schema": "ds4tui.trace/1"}\n{"event":"TokenText","t_ns":1' + "0" * 20 + "}\n",
            "64 bits",
        ),
        ("[" * 100_000 + "\n", "is no trace"),
        ("\0" * 10_000_000, "is no trace"),
        (
            '{"schema": "ds4tui.trace/1"}\n' + "[" * 100_000 + "\n",
            "line 2 is no event: it is nested too deeply",
        ),
    ],
)
def test_what_is_no_trace_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(Ds4Error, match=sentence):
        read_trace(str(path))


def test_lines_lost_doubled_or_moved_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    events = recorded(path)
    lines = path.read_bytes().splitlines(keepends=True)
    ordered = ev.TokensCommitted | ev.CycleFinished
    steps = [n for n, event in enumerate(events, start=1) if isinstance(event, ordered)]
    last = {
        event.arm: n for n, event in enumerate(events, 1) if isinstance(event, ev.CycleFinished)
    }
    for at in steps:
        if at in last.values():  # no later cycle and no count tells of it
            continue
        damaged = [
            (lines[:at] + lines[at + 1 :], "lines before it are missing"),
            (lines[: at + 1] + lines[at:], rf"line {at + 2} .* of arm \d, expected \d+: lines"),
            ([*lines[:at], *lines[at + 1 : -1], lines[at], lines[-1]], "doubled or moved"),
        ]
        for copy, sentence in damaged:
            path.write_bytes(b"".join(copy))
            with pytest.raises(Ds4Error, match=sentence):
                read_trace(str(path))


def test_missing_and_existing_files(tmp_path: Path) -> None:
    with pytest.raises(Ds4Error, match="cannot be read"):
        read_trace(str(tmp_path / "none.jsonl"))
    (tmp_path / "there.jsonl").write_text("mine")
    with pytest.raises(Ds4Error, match="overwrites nothing"):
        TraceWriter(str(tmp_path / "there.jsonl"))
    assert (tmp_path / "there.jsonl").read_text() == "mine"
    with pytest.raises(Ds4Error, match="cannot be written"):
        TraceWriter(str(tmp_path / "no" / "x.jsonl"))


def test_a_file_that_tells_of_loading_only_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    loading = ev.LoadProgress("", -1, 5, "reading", 0, 2)
    failed = ev.RunFailed("", -1, 6, "File not found", "x.gguf does not exist.", "")
    for events in ([], [loading], [loading, failed]):
        writer = TraceWriter(str(path))
        writer.write(events)
        assert read_trace(str(path)) == events
        writer.close()
        assert not path.exists()
    for event in (replace(failed, run_id="r"), ev.CostMeasured("", -1, 5, "decode", 1, 1, 1, 1, 1)):
        writer = TraceWriter(str(path))
        writer.write([loading])
        writer.write([event])
        writer.close()
        assert read_trace(str(path)) == [loading, event]
        path.unlink()


@contextmanager
def small_files() -> Iterator[None]:
    """No file may grow beyond 4 KiB, as on a disk that is full; inside a test, for its writes only:
    what runs the tests writes a file too."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_one_sentence_and_what_was_written_stays(tmp_path: Path) -> None:
    path, event = tmp_path / "run.jsonl", TokenText("r", -1, 5, ((1, b"x" * 450),))
    writer = TraceWriter(str(path))
    with small_files():
        for _ in range(4):
            writer.write([event])
        with pytest.raises(Ds4Error, match=r"run\.jsonl cannot be written: File too large"):
            writer.write([event])
        writer.close()
    assert read_trace(str(path)) == [event] * 4
