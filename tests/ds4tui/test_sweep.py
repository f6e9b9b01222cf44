"""A sweep's table from its events: pace, identical work, intervals, the best range."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ds4tui import ab_command, cli
from ds4tui.marks import UNICODE
from ds4tui.paint import sweep_chart
from ds4tui.paint.numbers import rate
from ds4tui.paint.sweep import best_sentences, verdict
from ds4tui.run_record import RunRecord
from ds4tui.spans import text_of
from ds4tui.suite_record import SuiteRecord
from ds4tui.sweep_compare import compare
from ds4tui.sweep_report import report_text
from ds4tui.sweep_rows import (
    SweepFigures,
    SweepRow,
    SweepTable,
    axis_of,
    best_range,
    value_of,
    works,
)
from engine.events import Event, FileInfo, RunStarted, SuiteFinished, SuiteStarted
from engine.paths import OP_CLASSES
from engine.settings import EngineFiles, Knobs, Prompt, Settings, as_text, parse_perturb
from engine.stats import Speedup
from tests.ds4tui.sweeps import BLOCKS, CYCLES, GROUPS, SweepScript, stopped, sweep


def record_of(events: Sequence[Event]) -> SuiteRecord:
    suite = None
    runs: dict[str, RunRecord] = {}
    for event in events:
        match event:
            case SuiteStarted():
                suite = SuiteRecord(event)
            case SuiteFinished():
                assert suite is not None
                suite.is_over = True
            case _:
                runs.setdefault(event.run_id, RunRecord()).feed(event)
    assert suite is not None
    suite.runs.extend(runs.values())
    return suite


def table_of(events: Sequence[Event], default: float | None = 0.9) -> SweepTable:
    return SweepFigures().table(record_of(events), default)


def test_the_chart_has_whole_numbers_or_none_at_every_width() -> None:
    fast = SweepScript(
        plain_ms=0.264, cycles={c: (a / 10, *n, b / 10) for c, (a, *n, b) in CYCLES.items()}
    )
    table = table_of(sweep(fast))
    rates = {rate(row.tokens_per_s) for row in table.rows}
    assert all(len(number) == 4 for number in rates)
    seen: set[str] = set()
    for width in range(60, 130):
        text = "\n".join(map(text_of, sweep_chart.rows(table, width, 16, UNICODE)))
        shown = set(re.findall(r"▪ (\d+)", text))
        assert shown <= rates, width
        seen |= shown
    assert len(seen) == len(table.values)


def test_names_of_cells() -> None:
    assert axis_of(("strict", "block 3")) == "block"
    assert axis_of(("strict",)) == "confidence"
    assert (value_of("confidence 0.5"), value_of("strict")) == (0.5, None)


def test_every_row_by_hand() -> None:
    script = SweepScript(
        groups=(("confidence 0.5", "strict"),), tokens=61, plain_ms=2.0, noise=0.0,
        cycles={"confidence 0.5": (3.0, 3, 2, 4.0), "strict": (1.0, 0, 0, 2.5)},
    )  # fmt: skip
    table = table_of(sweep(script), 0.5)
    plain, strict, half = table.rows
    assert (table.runs_done, table.runs, table.is_over) == (1, 1, True)
    assert (table.prompts, table.tokens) == (1, 61)
    assert plain.tokens_per_s == pytest.approx(500)
    assert (plain.cycle_ms, plain.speedup) == (pytest.approx(2.0), None)
    # Twenty cycles of three tokens in 4 ms each; three drafts proposed and two accepted.
    assert (half.counts.cycles, half.counts.proposed, half.counts.accepted) == (20, 60, 40)
    assert (half.depth, half.drafts_per_cycle) == (3.0, 3.0)
    assert half.counts.accept_rate == pytest.approx(2 / 3)
    assert half.tokens_per_s == pytest.approx(750)
    assert half.speedup is not None
    assert half.speedup.value == pytest.approx(1.5)
    assert (half.no_draft, strict.no_draft) == (0.0, 1.0)
    assert strict.tokens_per_s == pytest.approx(400)
    assert plain.ids == strict.ids == half.ids
    assert table.best is not None
    assert (table.best.low, table.best.high, table.best.fastest) == (0.5, 0.5, half)


def test_what_the_machine_did_between_runs_is_in_no_row() -> None:
    still = table_of(sweep(SweepScript(noise=0.0)))
    slowed = table_of(sweep(SweepScript(noise=0.0, pace=(1.0, 2.0))))
    for before, after in zip(still.values, slowed.values, strict=True):
        assert before.speedup is not None
        assert after.speedup is not None
        assert after.speedup.value == pytest.approx(before.speedup.value, rel=1e-6)
    ranked = sorted(slowed.values, key=lambda row: row.tokens_per_s or 0)
    assert [row.name for row in ranked] == [
        row.name for row in sorted(still.values, key=lambda row: row.tokens_per_s or 0)
    ]


def test_rows_of_different_runs_are_compared_at_one_pace() -> None:
    found = works(record_of(sweep(SweepScript(noise=0.0, pace=(1.0, 2.0)))))
    ratio = compare(found["confidence 0.7"], found["confidence 0.5"])
    assert ratio is not None
    (_, _, _, slow), (_, _, _, fast) = CYCLES["confidence 0.5"], CYCLES["confidence 0.7"]
    expected = (2.94 / fast) / (3.05 / slow)
    assert ratio.value == pytest.approx(expected, rel=0.02)


def test_ranked_by_rate_never_by_acceptance() -> None:
    table = table_of(sweep())
    assert table.best is not None
    rates = {row.name: row.counts.accept_rate or 0 for row in table.values}
    assert table.best.fastest.name != max(rates, key=lambda name: rates[name])
    assert table.best.fastest.tokens_per_s == max(row.tokens_per_s or 0 for row in table.values)


def test_the_best_is_a_range_when_its_neighbours_are_not_resolved() -> None:
    table = table_of(sweep(SweepScript(noise=0.05)))
    assert table.best is not None
    assert table.best.low < table.best.high
    assert table.best.has(table.best.fastest.value)
    assert not table.best.has(0.99)
    assert not table.best.has(0.0)


def row(value: float, rate: float, **more: object) -> SweepRow:
    speed = Speedup(rate / 400, rate / 405, rate / 395)
    made = SweepRow(f"confidence {value:g}", value, "done", 1, tokens_per_s=rate, speedup=speed)
    return replace(made, **more)  # type: ignore[arg-type]


def test_the_range_ends_at_the_first_neighbour_that_is_slower() -> None:
    rows = [row(0, 500), row(0.3, 598), row(0.5, 550), row(0.7, 600), row(0.9, 597)]

    def faster(one: SweepRow, other: SweepRow) -> Speedup:
        value = (one.tokens_per_s or 0) / (other.tokens_per_s or 1)
        return Speedup(value, value - 0.01, value + 0.01)

    found = best_range(rows, faster, 0.3)
    assert found is not None
    # 0.3 is as fast as the fastest, but the slower 0.5 lies between.
    assert (found.low, found.high, found.fastest.value) == (0.7, 0.9, 0.7)
    assert found.default is not None
    assert found.default.value == pytest.approx(598 / 600)
    assert best_range([], faster, None) is None


def test_other_ids_give_no_speedup_and_no_rank() -> None:
    script = SweepScript(differs={"confidence 0.8": 40, "confidence 0": 12}, prompts=2)
    table = table_of(sweep(script))
    assert [each.name for each in table.different] == ["confidence 0", "confidence 0.8"]
    odd = table.row("confidence 0.8")
    assert odd is not None
    assert odd.differs == ((0, 40), (1, 40))
    assert odd.speedup is None
    assert odd.half is None
    assert odd.tokens_per_s is not None
    same = table.row("confidence 0.9")
    assert same is not None
    assert odd.ids != same.ids
    assert table.best is not None
    assert table.best.fastest.name not in ("confidence 0.8", "confidence 0")


def test_what_is_best_says_among_how_many_when_ids_differ() -> None:
    differs = {"confidence 0.8": 40, "confidence 0": 12}
    said = best_sentences(table_of(sweep(SweepScript(differs=differs))))
    assert said[0].startswith("best confidence threshold 0.")
    assert said[0].endswith(" of the 6 with plain's ids")
    assert "the others are not compared" in said
    every = {cell: 20 for cell in CYCLES if cell.startswith("confidence")}
    said = best_sentences(table_of(sweep(SweepScript(differs=every))))
    assert said == (
        "no confidence threshold is known to pay: all that have run have other ids than plain",
    )
    assert verdict(table_of(sweep(SweepScript(differs=every)))).bodies[0].startswith("in 8 of 8")
    assert best_sentences(table_of(sweep(until_run=0))) == ()


def test_nothing_is_best_where_nothing_is_surely_faster_than_plain() -> None:
    slow = {cell: (1.4, 1, 1, 3.95) for cell in CYCLES} | {"strict": CYCLES["strict"]}
    differs = {"confidence 0.8": 40, "confidence 0": 12}
    table = table_of(sweep(SweepScript(cycles=slow, noise=0.3, differs=differs)))
    fastest = table.fastest
    assert fastest is not None
    assert not fastest.is_faster
    assert table.best is None
    said = best_sentences(table, "n takes invariant")
    assert said[:3] == (
        "no confidence threshold is faster than plain with plain's ids",
        "the others are not compared",
        "n takes invariant",
    )
    assert said[3].startswith(f"the nearest, {fastest.value:.2f}, is ")
    alike = table_of(sweep(SweepScript(cycles=slow, noise=0.3)))
    assert best_sentences(alike, "n")[0] == "no confidence threshold is faster than plain"
    assert len(best_sentences(alike, "n")) == 2, "nothing is to be cured"


def test_what_the_default_gives_is_the_quotient_of_two_figures_of_the_table() -> None:
    table = table_of(sweep(SweepScript(pace=(1.0, 1.3))), 0.99)
    own, best = table.row("confidence 0.99"), table.best
    assert own is not None
    assert best is not None
    assert own.tokens_per_s is not None
    assert best.fastest.tokens_per_s is not None
    share = own.tokens_per_s / best.fastest.tokens_per_s
    rates = f"({own.tokens_per_s:.0f} of {best.fastest.tokens_per_s:.0f} tok/s)"
    assert best_sentences(table)[-1] == f"default 0.99 gives {share:.0%} of it {rates}"


def test_a_row_grows_while_its_run_goes_on() -> None:
    table = table_of(sweep(until_run=1))
    assert (table.runs_done, table.is_over) == (1, False)
    states = {each.name: each.state for each in table.rows}
    assert states["confidence 0.5"] == "done"
    assert states["confidence 0.7"] == "running"
    half = table.row("confidence 0.7")
    assert half is not None
    assert half.tokens_per_s is not None
    assert (half.runs, half.speedup) == (0, None)


def test_a_stopped_sweep_keeps_what_it_has() -> None:
    table = table_of(stopped())
    assert table.is_over
    assert {each.name for each in table.rows if each.state == "queued"} == {
        f"confidence {value:g}" for value in (0.3, 0.7, 0.8, 0.95, 0.99)
    }
    assert table.best is not None


def test_repeats_and_prompts_are_pooled() -> None:
    table = table_of(sweep(SweepScript(prompts=2, repeats=3, tokens=80)))
    assert {each.runs for each in table.rows if each.name != "plain"} == {6}
    (plain, *_) = table.rows
    assert plain.runs == 12
    assert table.prompts == 2


def test_plain_that_disagrees_with_itself_is_named() -> None:
    suite = record_of(sweep())
    assert SweepFigures().table(suite, None).disagrees is None
    suite.runs[1].arms[0].tally.ids[5] += 1
    assert SweepFigures().table(suite, None).disagrees == 0


def test_block_lengths() -> None:
    table = table_of(sweep(SweepScript(groups=BLOCKS)), 5)
    assert table.axis == "block"
    assert [each.value for each in table.values] == [1, 2, 3, 4, 5]
    assert table.best is not None


def test_intervals_are_made_once() -> None:
    figures = SweepFigures()
    suite = record_of(sweep())
    first = figures.table(suite, 0.9)
    known = dict(figures.intervals._known)
    assert figures.table(suite, 0.9) == first
    assert figures.intervals._known == known


SETTINGS = Settings(
    numerics="split", max_tokens=61, ignore_eos=True, no_repeat=3, markov=False, digest_every=0,
    batch_ops=tuple(name for name in OP_CLASSES if name != "hc"), pin=("router",),
    perturb=parse_perturb("head:4", 7), seed=7, near_tie_ulps=4,
)  # fmt: skip
FILES = EngineFiles("x.gguf", ("own.gguf",), "cpu", 1, 900, "none")


def announced(**prompt: Any) -> list[tuple[str, str]]:
    """All settings as an engine announces them."""
    wanted = {"context": 900, "system": None, "chat": True, "think": False, "control_tokens": False}
    return list(as_text(SETTINGS, FILES, **(wanted | prompt)))


def again(script: SweepScript, prompt: str = "-x $(y)\n") -> argparse.Namespace:
    """The options of the command in a sweep's report, as a shell and the command line read them."""
    arms = {"drafter": "own.gguf"}
    files = (FileInfo("target", "x.gguf", "", 1, "deepseek4", "tiny", 1, ()),
             FileInfo("drafter", "own.gguf", "", 1, "deepseek4-dspark", "tiny", 1, ()))  # fmt: skip
    events = [
        replace(
            event, prompt=f"{prompt}{event.prompt_index or ''}", files=files,
            arms=tuple(replace(a, **(arms if a.commit else {})) for a in event.arms),
        )
        if isinstance(event, RunStarted)
        else event
        for event in sweep(script)
    ]  # fmt: skip
    text = report_text(record_of(events), table_of(events))
    (line,) = (line.strip() for line in text.splitlines() if line.startswith("    ds4tui ab "))
    bash = ["bash", "-c", f"printf '%s\\0' {line}"]
    words = subprocess.run(bash, capture_output=True, check=True, text=True).stdout.split("\0")
    return cli._ab_parser().parse_args(words[2:-1])


@pytest.mark.parametrize(
    "prompt", [{}, {"system": "be brief", "think": True}, {"chat": False, "control_tokens": True}]
)
def test_the_command_runs_every_arm_with_every_setting_of_the_sweep(prompt: dict[str, Any]) -> None:
    script = SweepScript(numerics="split", tokens=61, prompts=2, settings=announced(**prompt))
    args = again(script)
    found = ab_command.ab_options(args)
    (asked,) = found.prompts
    assert asked.prompt == Prompt("-x $(y)\n", **{"system": ""} | prompt)
    assert found.files == FILES
    gates = sorted(value_of(cell) or 0.0 for group in GROUPS for cell in group if cell != "strict")
    wanted = [Knobs("prefix", gate, mtp=None) for gate in gates]
    assert found.settings == replace(SETTINGS, dspark=(*wanted, Knobs("strict")))


def test_the_command_of_block_lengths_has_their_threshold() -> None:
    lengths = SweepScript(groups=BLOCKS, numerics="split", tokens=61, settings=announced())
    wanted = [f"commit=prefix,confidence=0.4,draft-max={n}" for n in (1, 2, 3, 4, 5)]
    assert again(lengths).arm == [*wanted, "commit=strict"]
