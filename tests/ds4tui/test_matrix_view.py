"""The matrix screen's data and rows: from a suite's events, without Textual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from ds4tui import matrix_text
from ds4tui.marks import UNICODE
from ds4tui.matrix_names import column_of, short_row
from ds4tui.matrix_report import MatrixReport
from ds4tui.matrix_verdict import suite_verdict
from ds4tui.matrix_view import MatrixView, planned, view_of
from ds4tui.matrix_words import settings_words
from ds4tui.paint.matrix import category_rows, grid_rows, prompt_rows
from ds4tui.run_record import RunRecord
from ds4tui.spans import Row, text_of
from ds4tui.suite_record import SuiteRecord, begin
from ds4tui.verdict_line import verdict_row
from engine.events import (
    ArmFinished,
    Diverged,
    Event,
    RunFailed,
    RunFinished,
    RunStarted,
    StateDrift,
    SuiteStarted,
    TokensCommitted,
)
from tests.ds4tui import suite_streams
from tests.ds4tui.harness import replayed


@cache
def whole() -> tuple[Event, ...]:
    return tuple(suite_streams.suite())


def gathered(events: Sequence[Event], before: SuiteRecord | None = None) -> SuiteRecord:
    """The record of a suite, as the controller makes it, with all figures up to date."""
    record = before
    runs: dict[str, RunRecord] = {}
    for event in events:
        if isinstance(event, SuiteStarted):
            record = begin(event, record)
            continue
        assert record is not None
        record.feed(event)
        if event.run_id:
            run = runs.setdefault(event.run_id, RunRecord())
            run.feed(event)
            if isinstance(event, RunStarted):
                record.add(run)
    assert record is not None
    while record.report.is_stale:
        record.report.refresh()
    return record


def until_run(events: Sequence[Event], number: int, tokens: int) -> list[Event]:
    """The beginning, up to the token of a run's plain arm."""
    seen = 0
    for at, event in enumerate(events):
        seen += isinstance(event, RunStarted)
        here = isinstance(event, TokensCommitted) and event.arm == 0 and event.index >= tokens
        if seen == number and here:
            return list(events[:at])
    raise AssertionError("there is no such token")


def texts(rows: Sequence[Row]) -> list[str]:
    return [text_of(row) for row in rows]


def grid(view: MatrixView, width: int = 118) -> list[str]:
    return texts(grid_rows(view, None, width, 20, UNICODE))


def test_every_cell_shows_what_its_runs_say() -> None:
    view = view_of(gathered(whole()))
    assert view.numerics == ("split", "invariant")
    assert view.rows == suite_streams.POLICIES
    rows = {row.split()[0]: row for row in grid(view)}
    assert "1/3   #163    1.26x diff. work       194" in rows["direct"]
    assert "!     3/3   -       1.26x ±.12             194" in rows["direct"]
    assert rows["prefix"].rstrip().endswith("<")
    assert rows["replay"].count("!") == 2
    assert "401 tok/s" in rows["plain"]
    assert rows["plain"].count(" f3290bdf") == 2  # no speed without the hash of the ids


def test_the_short_form_fits_80_columns() -> None:
    view = view_of(gathered(whole()))
    rows = {row.split()[0]: row for row in grid(view, 78)}
    assert " 1/3 #163  1.26x≠" in rows["direct"]
    assert "!   3/3 -     1.26x" in rows["direct"]
    assert all(len(row) <= 78 for row in rows.values())


def several_gates(*gates: str) -> MatrixView:
    rows = [f"{policy} confidence {gate}" for policy in suite_streams.POLICIES for gate in gates]
    cells = [f"{numerics} {row}" for numerics in ("split", "invariant") for row in rows]
    return planned("matrix", cells, [("mutex", "facts")], "demo", 400)


def test_several_gates_fit_80_columns() -> None:
    view = several_gates("0", "0.5", "0.95")
    rows = grid(view, 78)
    assert rows[0].split() == ["policy", "split", "invariant"]
    assert {" direct @0 ", " reproject @0.95 "} <= {
        row[: row.index("  ") + 1] for row in rows[2:-1]
    }
    assert not any("…" in row for row in rows)
    head, gates, mutex = texts(prompt_rows(view, "split direct confidence 0", 0, 78, 19, UNICODE))[
        :3
    ]
    assert head.split()[3:] == ["s.dir", "s.dir", "s.dir", "s.pre", "s.pre", "…", "verdict"]
    assert gates.split() == ["@0", "@0.5", "@0.95", "@0", "@0.5"]
    assert mutex.split() == ["mutex", "-", *"....."]
    assert len({row.index(word) + len(word) for row, word in (
        (head, " s.dir"), (gates, " @0"), (mutex, " .")
    )}) == 1, "a gate stands below its policy and above its figures"  # fmt: skip


def test_numerics_that_do_not_fit_follow_the_cursor() -> None:
    view = several_gates("0.95 draft-max 3", "0.95 draft-max 4")
    for column, head in ((0, "split … invariant"), (1, "invariant … split")):
        rows = texts(grid_rows(view, (2, column), 78, 20, UNICODE))
        assert " ".join(rows[0].split()[1:]) == head
        assert all(len(row) <= 78 for row in rows)
        assert not any("…" in row for row in rows[1:]), "no figure is cut"


def test_the_screens_figures_are_the_reports() -> None:
    report = MatrixReport()
    for event in whole():
        report.feed(event)
    document = report.document(wall_s=1.0)
    record = gathered(whole())
    assert record.report.document(wall_s=1.0) == document
    assert document is not None
    for cell in document["cells"]:
        shown = view_of(record).cells[cell["name"]]
        assert shown.figures == cell
        assert (shown.done, shown.total, shown.state) == (3, 3, "done")
    assert document["as_required"] is True
    assert document["required"]["runs"] == document["required"]["identical"] == 21
    assert document["may_diverge"]["identical"] == 6


def test_prompts_show_where_they_part_and_why() -> None:
    view = view_of(gathered(whole()))
    tcp, mutex, quicksort = view.prompts
    assert tcp.places == ("#163", "#163", "~", *"=" * 7)
    assert mutex.places == ("#163", "~", "~", *"=" * 7)
    assert (tcp.verdict, mutex.verdict, quicksort.verdict) == (
        "near-tie", "near-tie", "no near-tie ~",
    )  # fmt: skip
    assert tcp.gap == pytest.approx(0.012)
    rows = texts(prompt_rows(view, "split direct", 0, 118, 19, UNICODE))
    assert rows[0].split()[:4] == ["prompt", "gap", "min", "s.dir"]
    assert rows[1].split() == ["tcp-handshake", "0.012", "#163", "#163", *"~=======", "near-tie"]


def test_columns_that_do_not_fit_follow_the_cursor() -> None:
    view = view_of(gathered(whole()))
    first = texts(prompt_rows(view, "split direct", None, 78, 19, UNICODE))[0]
    last = texts(prompt_rows(view, "invariant strict", None, 78, 19, UNICODE))[0]
    assert "s.dir" in first
    assert "i.str" not in first
    assert "i.str" in last
    assert "s.dir" not in last
    assert "…" in first
    assert len(last) <= 78


def test_a_run_in_progress() -> None:
    record = gathered(until_run(whole(), 3, 100))
    view = view_of(record)
    assert view.progress.done == 10
    assert view.progress.total == 30
    assert (view.progress.prompt, view.progress.numerics) == ("mutex", "split")
    assert view.cells["split direct"].state == "running"
    assert view.cells["invariant direct"].state == "queued"
    assert view.prompts[1].places[:6] == ("..",) * 5 + (".",)
    assert view.prompts[2].places == (".",) * 10
    per_run = [spent for spents in record.spent_ns.values() for spent in spents]
    assert view.progress.left_s == pytest.approx(
        4 * sum(per_run) / len(per_run) / 1e9 - _since_start(record), rel=0.05
    )
    line = suite_verdict(record, "R")
    assert line.head == "= AS REQUIRED so far"
    assert line.bodies[1].startswith("7 of 7 runs identical that must be   may diverge: 2 of 3 did")


def compared_once(events: Sequence[Event], at: int = 0) -> list[Event]:
    """The same suite with its states compared at one index of every run only."""
    return [
        replace(e, state_equal=None) if isinstance(e, ArmFinished) else e
        for e in events
        if not isinstance(e, StateDrift) or e.index == at
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_only_what_was_compared_is_said_to_be_equal(width: int) -> None:
    for events, said in (
        (compared_once(whole(), -1), "not compared"),
        (compared_once(whole()), "equal at 21 of "),
    ):
        line = suite_verdict(gathered(events), "R")
        assert line.head == "= AS REQUIRED"
        row = text_of(verdict_row(line, width, UNICODE))
        assert f", states {said}" in row
        assert "states equal after" not in " ".join(line.bodies)
    assert ", states equal after every cycle" in suite_verdict(gathered(whole()), "R").bodies[0]


def test_where_nothing_is_required_only_what_was_compared_is_said() -> None:
    def said(events: Sequence[Event]) -> str:
        line = suite_verdict(gathered(events), "R")
        assert line.head == "= IDENTICAL"
        return line.bodies[0].partition("   ")[2]

    events = suite_streams.suite("set", ("split",), ("direct",), ())
    assert said(events) == "states differ in 3 of 3 runs: another prompt may part"
    assert said(compared_once(events, -1)) == "states not compared"
    assert said(compared_once(events)).startswith("states equal at 3 of ")


def test_a_prompt_without_near_ties_says_whether_its_states_differ() -> None:
    last = [view_of(gathered(events)).prompts[2] for events in (
        suite_streams.suite("set", ("split",), ("direct",), ()),
        suite_streams.suite("set", ("split",), ("replay",), ()),
    )]  # fmt: skip
    assert [row.verdict for row in last] == ["no near-tie ~", "no near-tie"]


def _since_start(record: SuiteRecord) -> float:
    assert record.running is not None
    assert record.running.started is not None
    return (record.now_ns - record.running.started.t_ns) / 1e9


def test_a_divergence_shows_before_its_run_has_ended() -> None:
    at = next(n for n, e in enumerate(whole()) if isinstance(e, Diverged))
    view = view_of(gathered(whole()[: at + 1]))
    assert "#163" in view.prompts[0].places
    assert ".." in view.prompts[0].places


def test_a_miss_is_named_and_nothing_else_counts() -> None:
    parted = {*suite_streams.PARTED, ("invariant prefix", 1)}
    record = gathered(suite_streams.suite(parted=parted))
    line = suite_verdict(record, "R")
    assert (line.level, line.head) == ("bug", "! NOT AS REQUIRED")
    assert "invariant prefix parts at #163 on mutex, near-tie: a bug" in line.bodies[0]
    assert "20 of 21" in line.bodies[0]
    view = view_of(record)
    assert view.prompts[1].missed == {"invariant prefix"}
    # Prefix is faster, but not identical.
    assert [name for name, cell in view.cells.items() if cell.fastest] == ["split reproject"]


def test_equal_ids_over_another_state_are_a_miss_too() -> None:
    events = [
        type(e)(e.run_id, e.arm, e.t_ns, e.reason, e.tokens, False)
        if isinstance(e, ArmFinished) and e.arm == 4
        else e
        for e in whole()
    ]
    record = gathered(events)
    assert "ids identical, but a state differs" in suite_verdict(record, "R").bodies[0]
    tcp, mutex, _ = view_of(record).prompts
    assert tcp.places[3] == "~"
    assert "split replay" in tcp.missed
    assert mutex.places[1] == "~", "where it may be so too, as the legend says"
    assert "split prefix" not in mutex.missed


def test_the_verdict_on_all_of_it() -> None:
    line = suite_verdict(gathered(whole()), "R")
    assert (line.level, line.head) == ("same", "= AS REQUIRED")
    assert "may diverge: 3 of 9 did, all near-tie (<= 1.5 ulp)" in line.bodies[0]


def test_a_set_promises_nothing_in_split() -> None:
    events = suite_streams.suite("set", ("split",), ("direct",))
    record = gathered(events)
    assert record.kind == "set"
    line = suite_verdict(record, "R")
    assert (line.level, line.head) == ("differ", "≠ DIVERGED")
    assert line.bodies[0] == "2 of 3 runs, all near-tie (<= 1.5 ulp)   first at #163"
    rows = {row.split()[0]: row for row in grid(view_of(record))}
    assert "acc/prop." in "".join(grid(view_of(record)))
    assert rows["direct"].split()[:2] == ["direct", "1/3"]


def test_figures_by_category() -> None:
    record = gathered(suite_streams.suite("set", ("split",), ("direct",)))
    facts, code = record.report.categories("split direct")
    assert (facts["category"], facts["prompts"], facts["identical"]) == ("facts", 2, 0)
    assert facts["first_divergence"] == 163
    assert facts["speedup"]["different_work"] is True
    assert (code["category"], code["identical"]) == ("code", 1)
    assert code["speedup"]["different_work"] is False
    whole_cell = record.report.cell("split direct")
    assert whole_cell is not None
    cycles = [facts["mean_depth"], code["mean_depth"]]
    assert min(cycles) <= whole_cell["mean_depth"] <= max(cycles)
    rows = texts(category_rows([facts, code], "split direct", 118, 10, UNICODE))
    assert rows[1].split()[:3] == ["facts", "0/2", "#163"]
    assert "diff. work" in rows[1]
    assert facts["ids_sha256"][:8] in rows[1]
    for width in (40, 78):
        rows = texts(category_rows([facts, code], "split direct", width, 10, UNICODE))
        note = " ".join(" ".join(rows[3:]).split())
        assert note.endswith("of this set only; the cursor in the other table chooses it")


def test_one_cell_run_again_replaces_only_that_cell() -> None:
    record = gathered(whole())
    before = {name: cell.figures for name, cell in view_of(record).cells.items()}
    again = suite_streams.suite(
        numerics=("invariant",), policies=("replay",), suite_id="a9a1", start_ms=60_000
    )
    record = gathered(again, record)
    after = view_of(record)
    assert after.rows == suite_streams.POLICIES
    changed = {name for name, cell in after.cells.items() if cell.figures != before[name]}
    assert changed <= {"invariant replay"}
    place = record.place_of("invariant replay", 2)
    assert place is not None
    assert place[0].started is not None
    assert (place[0].started.suite_id, place[1]) == ("a9a1", 1)
    old = record.place_of("split direct", 2)
    assert old is not None
    assert old[0].started is not None
    assert old[0].started.suite_id == "5u17e"
    assert after.progress.total == 3


@pytest.mark.parametrize("policies", [("direct",), ()])
def test_a_set_run_again_begins_anew(policies: tuple[str, ...]) -> None:
    def again(suite_id: str) -> list[Event]:
        return suite_streams.suite("set", ("split",), policies, (), suite_id)

    before = gathered(again("a"))
    record = gathered(until_run(again("b"), 2, 100), before)
    view = view_of(record)
    assert (view.progress.done, view.progress.total) == (1, 3)
    assert view.plain["split"]["prompts"] == 1
    for cell in view.cells.values():
        assert (cell.done, cell.total) == (1, 3)
    if policies:
        assert suite_verdict(record, "R").bodies[0].startswith("all 1 runs")
        assert [row.places for row in view.prompts] == [("~",), ("..",), (".",)]


def test_a_cell_run_again_begins_anew_and_the_others_stay() -> None:
    again = suite_streams.suite("matrix", ("split",), ("direct",), suite_id="b")
    view = view_of(gathered(until_run(again, 2, 100), gathered(whole())))
    done = {name: cell.done for name, cell in view.cells.items()}
    assert done.pop("split direct") == 1
    assert set(done.values()) == {3}
    assert view.plain["split"]["prompts"] == 3


def test_figures_that_are_not_made_yet_are_no_set_without_a_drafter() -> None:
    record = gathered(whole())
    fresh = SuiteRecord(record.started)
    for event in whole():
        fresh.feed(event)
    assert fresh.report.is_stale
    assert suite_verdict(fresh, "R").head != "· PLAIN ONLY"
    fresh.report.refresh()
    line = suite_verdict(fresh, "R")
    assert line.head.endswith("so far"), "the other cells' figures are still to come"


def test_other_thresholds_start_anew() -> None:
    record = gathered(whole())
    again = [
        replace(e, arms=(e.arms[0], replace(e.arms[1], confidence=0.5)))
        if isinstance(e, RunStarted)
        else e
        for e in suite_streams.suite(numerics=("split",), policies=("direct",), suite_id="b")
    ]
    record = gathered(again, record)
    assert not record.report.has("invariant prefix", 0)
    assert record.place_of("invariant prefix", 0) is None
    assert view_of(record).rows == ("direct",)


def test_only_settings_that_all_cells_share_stand_over_them() -> None:
    controller, _ = replayed(())
    alike = view_of(gathered(whole()))
    assert settings_words(alike, controller).words == "conf ≥ 0.90 · max 200"
    mixed = [
        replace(e, arms=(*e.arms[:2], replace(e.arms[2], confidence=0.5), *e.arms[3:]))
        if isinstance(e, RunStarted)
        else e
        for e in whole()
    ]
    assert settings_words(view_of(gathered(mixed)), controller).words == "max 200"


def test_a_stopped_run_fills_no_cell() -> None:
    events = until_run(whole(), 2, 100)
    run_id = events[-1].run_id
    stopped = [ArmFinished(run_id, arm, events[-1].t_ns, "stop", 101, None) for arm in range(6)]
    record = gathered(
        [*events, *stopped, RunFinished(run_id, -1, events[-1].t_ns, None, "stopped")]
    )
    assert record.report.has("split direct", 0)
    assert not record.report.has("invariant direct", 0)
    record.is_over = True
    view = view_of(record)
    assert view.progress.done == sum(cell.done for cell in view.cells.values()) == 5


def test_a_run_dropped_before_its_first_token_fills_no_cell() -> None:
    at = next(n for n, e in enumerate(whole()) if isinstance(e, RunStarted))
    head = list(whole()[: at + 1])
    run_id = head[-1].run_id
    record = gathered([*head, RunFinished(run_id, -1, 1, None, "stopped")])
    assert view_of(record).cells["split direct"].figures is None


def test_a_failure_keeps_what_has_ended() -> None:
    events = until_run(whole(), 2, 100)
    failed = RunFailed("", -1, events[-1].t_ns, "Engine failed", "It ended.", "")
    record = gathered([*events, failed])
    record.is_over = True
    line = suite_verdict(record, "R")
    assert (line.level, line.head) == ("failed", "\u00d7 FAILED")
    assert line.bodies[0] == "It ended   what has ended is kept   R runs all"
    assert view_of(record).cells["split direct"].done == 1


def test_the_table_before_anything_has_run() -> None:
    view = planned("matrix", ("split direct", "invariant direct"), [("a", "x")], "demo", 400)
    assert view.numerics == ("split", "invariant")
    assert grid(view)[3].split() == ["direct", ".", "."]
    assert view.prompts[0].places == (".", ".")


@pytest.mark.parametrize(
    ("cell", "row", "column"),
    [
        ("split direct", "direct", "s.dir"),
        ("invariant prefix confidence 0.9", "prefix @0.9", "i.pre @0.9"),
        ("split replay mtp /models/other.gguf", "replay other", "s.rpl other"),
        ("split direct confidence 0.9 mtp default", "direct @0.9", "s.dir @0.9"),
    ],
)
def test_names_of_cells(cell: str, row: str, column: str) -> None:
    assert short_row(cell.partition(" ")[2]) == row
    assert column_of(cell) == column


def test_a_trace_whose_suite_names_no_prompts_still_has_rows() -> None:
    first = whole()[0]
    assert isinstance(first, SuiteStarted)
    bare = SuiteStarted("", -1, 0, first.suite_id, "matrix", first.cells)
    view = view_of(gathered([bare, *whole()[1:]]))
    assert [row.label for row in view.prompts] == list(suite_streams.TEXTS)


def test_the_report_has_a_table_by_category() -> None:
    report = MatrixReport()
    for event in whole():
        report.feed(event)
    document = report.document(wall_s=1.0)
    assert document is not None
    table = matrix_text.markdown(document).partition("## By category")[2]
    assert "| facts | split direct | 0/2 | #163 |" in table
    assert "| code | invariant prefix | 1/1 | - |" in table
