"""`docs/json.md` against the documents themselves: every field, its type, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ds4tui import (
    bench_command,
    cli,
    economics_report,
    inspect,
    matrix_report,
    report,
    sweep_report,
    synthetic_command,
)
from ds4tui.economics_figures import economics_of
from ds4tui.exports import document_of
from ds4tui.pooled_runs import alike
from engine import trace
from engine.events import CostMeasured, Event
from engine.gguf_write import Typed, write_gguf
from tests.ds4tui import costs, streams
from tests.ds4tui.harness import record_of
from tests.ds4tui.json_page import PAGE, Page
from tests.engine.random_pair import SMALL, DrafterShape, write_pair
from tests.gpu import missing

OF_SCHEMAS = {
    report.SCHEMA: "ab",
    report.SET_SCHEMA: "ab-set",
    matrix_report.SCHEMA: "matrix",
    bench_command.SCHEMA: "bench",
    synthetic_command.SCHEMA: "bench-synthetic",
    inspect.SCHEMA: "inspect",
    economics_report.SCHEMA: "economics",
    trace.SCHEMA: "trace",
}
PARTING = (
    "-n", "60", "--ignore-eos", "--perturb", "hc:1000000", "--dspark-confidence", "0",
    "--commit", "prefix",
)  # fmt: skip


@pytest.fixture
def page() -> Page:
    return Page.read()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    target, drafter = write_pair(tmp_path_factory.mktemp("pair"), SMALL, DrafterShape(block_size=2))
    return "-m", str(target), "--mtp", str(drafter)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.jsonl"
    rows = [{"text": text, "category": text[:1]} for text in ("abc", "hello")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def written(tmp_path: Path, *words: str) -> Any:
    """The JSON that a command writes."""
    out = tmp_path / "out.json"
    cli.main([*words, "--json", str(out)])
    return json.loads(out.read_text())


def check(page: Page, schema: str, *documents: Any, absent: Iterable[str] = ()) -> None:
    """Documents of one schema have what the page says, and together all but what may be absent."""
    for document in documents:
        assert document["schema"] == schema
        assert list(page.problems(OF_SCHEMAS[schema], document)) == []
    assert sorted(page.unseen(OF_SCHEMAS[schema])) == sorted(absent)


def test_every_schema_is_listed_with_its_table(page: Page) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for schema, table in OF_SCHEMAS.items():
        assert f"| [`{schema}`](#{table}) |" in text
        assert table in page.tables


def test_a_missing_another_and_a_wrong_field_are_found(page: Page) -> None:
    token = {"id": 1.5, "words": "x"}
    assert sorted(page.problems("token", token, "left")) == [
        "left.id is 1.5, not int",
        "left.text of the table token is missing",
        "left.words is not in the table token",
    ]
    assert page.unseen("token") == ["token.text"]


def test_ab(page: Page, pair: tuple[str, ...], tmp_path: Path) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text("[1, 2, 3]")
    more = ("--commit", "strict", "--controls", "--against", str(ids))
    found = written(tmp_path, "ab", *pair, "-p", "abc", *PARTING, *more)
    turned = document_of(record_of(streams.mixed_run((9, (("commit", "prefix"),)))))
    assert turned is not None
    found["changes"] = turned["changes"]
    check(page, report.SCHEMA, found, absent=["divergence.prompt_index"])


def test_a_set(page: Page, pair: tuple[str, ...], prompts: str, tmp_path: Path) -> None:
    found = written(tmp_path, "ab", *pair, "--prompts", prompts, *PARTING)
    turned = [f"change.{name}" for name in page.tables["change"]]
    check(page, report.SET_SCHEMA, found, absent=["divergence.prompt_index", *turned])


def test_matrix(page: Page, pair: tuple[str, ...], prompts: str, tmp_path: Path) -> None:
    found = written(tmp_path, "matrix", *pair, "--prompts", prompts, *PARTING)
    of_cells = ("settings.numerics", "settings.commit", "settings.confidence")
    check(page, matrix_report.SCHEMA, found, absent=of_cells)


def test_bench(page: Page, pair: tuple[str, ...], tmp_path: Path) -> None:
    words = ("--depths", "12", "--repeat", "1")
    whole, plain = (written(tmp_path, "bench", *files, *words) for files in (pair, pair[:2]))
    check(page, bench_command.SCHEMA, whole, plain)


@pytest.mark.gpu
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_synthetic_bench(page: Page, tmp_path: Path) -> None:
    words = ("--synthetic", "v4-flash-q2", "--layers", "4", "--repeat", "2")
    check(page, synthetic_command.SCHEMA, written(tmp_path, "bench", *words))


def test_inspect(page: Page, pair: tuple[str, ...], tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    write_gguf(other, {"general.architecture": "llama", "a": Typed("f32", float("inf"))}, {})
    fits = written(tmp_path, "inspect", pair[1], pair[3])
    check(
        page,
        inspect.SCHEMA,
        fits,
        written(tmp_path, "inspect", pair[1], str(other)),
        written(tmp_path, "inspect", pair[1], str(tmp_path / "none.gguf")),
    )


def test_economics(page: Page) -> None:
    measured = [
        event for event in costs.measurement("split", "direct") if isinstance(event, CostMeasured)
    ]
    found = []
    for events in (streams.identical_run(), streams.diverged_run(), streams.plain_run()):
        record = record_of(events)
        for known in (measured, []):
            figures = economics_of(alike(record, ()), known)
            found.append(json.loads(economics_report.json_text(figures, record)))
    check(page, economics_report.SCHEMA, *found, absent=["speedup.different_work"])


def test_every_event_of_a_trace(page: Page) -> None:
    head = ("event", "run_id", "arm", "t_ns")
    assert tuple(page.tables["event"]) == head
    for name, kind in trace.EVENTS.items():
        own = tuple(field.name for field in fields(kind))
        assert (*head[1:], *page.tables[name.lower()]) == own, name


def test_a_trace(page: Page, pair: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    cli.main(["ab", *pair, "-p", "abc", *PARTING, "--trace", str(path)])
    first, *lines = map(json.loads, path.read_text().splitlines())
    assert first == {"schema": trace.SCHEMA}
    more: list[Event] = [
        *streams.mixed_run((9, (("commit", "prefix"),))),
        *costs.measurement("split", "direct"),
    ]
    lines += [trace.encode(event) for event in more]
    kinds = set()
    for line in lines:
        own = {name: line.pop(name) for name in page.tables["event"]}
        kinds.add(own["event"].lower())
        assert list(page.problems("event", own)) == []
        assert list(page.problems(own["event"].lower(), line)) == []
    assert {"runstarted", "cyclefinished", "statedrift", "diverged", "costmeasured"} <= kinds
    assert page.unseen("event", *kinds) == []


def test_the_csv_of_a_sweep() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## CSV of a sweep")[2]
    rows = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert tuple(rows) == sweep_report.COLUMNS
