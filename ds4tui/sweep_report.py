"""A sweep as text to paste and as CSV. Knows no screens; the figures are `ds4tui.sweep_rows`'."""

from __future__ import annotations

import csv
import io

from ds4tui.marks import UNICODE
from ds4tui.paint.sweep import best_sentences, label, table_rows, verdict
from ds4tui.report import announced, announced_arm
from ds4tui.report_markdown import command
from ds4tui.run_record import RunRecord
from ds4tui.spans import text_of
from ds4tui.suite_record import SuiteRecord
from ds4tui.sweep_rows import STRICT, SweepTable
from engine.text import visible

REPORT_WIDTH = 132

COLUMNS = (
    *("row", "value", "runs", "tokens", "cycles", "proposed", "accepted", "mean_depth"),
    *("accept_rate", "no_draft_share", "ms_per_cycle", "tokens_per_s"),
    *("speedup", "speedup_low", "speedup_high", "resolved", "first_divergence", "ids_sha256"),
)


def csv_text(table: SweepTable) -> str:
    """One line for each row; cells without a figure are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in table.rows:
        found = row.speedup
        speeds = (found.value, found.low, found.high, found.resolved) if found else ("",) * 4
        first = min((index for _, index in row.differs), default="")
        own = row.counts
        figures = (row.depth, own.accept_rate, row.no_draft, row.cycle_ms, row.tokens_per_s)
        counts = (row.runs, row.tokens, own.cycles, own.proposed, own.accepted)
        value = "" if row.value is None else row.value
        shown = ["" if figure is None else figure for figure in figures]
        writer.writerow([row.name, value, *counts, *shown, *speeds, first, row.ids])
    return out.getvalue()


def report_text(suite: SuiteRecord, table: SweepTable) -> str:
    """What a colleague needs to see and to repeat the sweep; safe to print."""
    run = next((run for run in suite.runs if run.started is not None), None)
    lines = [f"# ds4tui sweep over {table.axis}", ""]
    if run is not None:
        lines += [*_setting(run, table), ""]
    line = verdict(table)
    lines += [f"{line.head} {line.bodies[0]}", *best_sentences(table), "", "```"]
    height = len(table.rows) + 3
    rows = table_rows(table, "", None, REPORT_WIDTH, height, UNICODE)
    lines += [text_of(row).rstrip() for row in rows]
    lines += ["```", ""]
    lines += [
        "tok/s is at plain's pace over all runs; every row is compared with the plain arm of its",
        "own runs, step by step; the interval is a block bootstrap. ids sha256 of each row:",
        "",
    ]
    lines += [f"- {label(table, row)}: {row.ids}" for row in table.rows if row.ids]
    again = _command(suite)
    if again:
        lines += ["", "The same arms on the first prompt, headless:", "", f"    {again}"]
    return visible("\n".join(lines)) + "\n"


def _setting(run: RunRecord, table: SweepTable) -> list[str]:
    started, settings = run.started, run.settings
    assert started is not None
    environment = ", ".join(f"{name} {value}" for name, value in started.environment)
    files = [f"- {file.role} {file.path} sha256 {file.sha256 or 'n/a'}" for file in started.files]
    drafting = next((a.info for a in run.arms if a.info.commit not in (None, "strict")), None)
    policy = drafting.commit if drafting is not None else "none"
    numerics = run.plain.info.numerics if run.plain is not None else ""
    return [
        f"- {environment}",
        *files,
        f"- numerics {numerics}, commit {policy}, {table.prompts} prompts x {table.tokens} ids, "
        f"{table.runs_done} of {table.runs} runs",
        f"- first prompt {started.prompt!r}, {len(started.prompt_ids)} ids; "
        f"no-repeat {settings.get('no_repeat', 'n/a')}, "
        f"kv-rounding {settings.get('kv_rounding', 'n/a')}",
    ]


def _command(suite: SuiteRecord) -> str:
    """`ds4tui ab` with every arm that the sweep has begun on its first prompt; "" before one."""
    started = [run.started for run in suite.runs if run.started is not None]
    first = [one for one in started if one.prompt_index == started[0].prompt_index]
    arms = [info for one in first for info in one.arms if info.commit is not None]
    if not arms:
        return ""
    told = {(i.commit == STRICT, i.confidence or 0.0, i.draft_max or 0): i for i in arms}
    rising = [announced_arm(told[key]) for key in sorted(told)]
    return command({**announced(first[0]), "arms": rising})
