"""Row 3 of the matrix screen: the verdict on a matrix or a set in one line, in several lengths.

Owns its words. What must be identical decides; what may diverge is only told. Knows no widgets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ds4tui.matrix_names import row_of, short_row
from ds4tui.matrix_report import MatrixReport
from ds4tui.paint.numbers import ulps
from ds4tui.report import Document
from ds4tui.state_words import states_of
from ds4tui.suite_record import SuiteRecord
from ds4tui.verdict_line import VerdictLine
from ds4tui.visible import drawable_line


def suite_verdict(record: SuiteRecord, run_key: str) -> VerdictLine:
    """The verdict on a suite so far.

    Args:
        run_key: the key that runs it again.
    """
    report = record.report
    cells = [found for name in report.order if (found := report.latest(name))]
    if record.failed is not None and record.is_over:
        return _failed(record, cells, run_key)
    if not cells:
        if report.numerics and not report.order:
            return VerdictLine("idle", "· PLAIN ONLY", ("no drafter, so nothing is compared",))
        ended = "stopped before the first run had ended" if record.is_over else "the first run"
        return VerdictLine("idle", "· no run has ended yet", (ended,))
    missed = [cell for cell in cells if cell["as_required"] is False]
    if missed:
        return _missed(report, missed)
    far = "" if report.is_complete and not report.is_stale else " so far"
    withheld = report.withheld()
    if withheld:
        return VerdictLine("withheld", "? WITHHELD", (drawable_line(withheld),))
    required = [cell for cell in cells if cell["must_be_identical"]]
    free = [cell for cell in cells if not cell["must_be_identical"]]
    if not required:
        return _free_only(free, far)
    count = sum(cell["prompts"] for cell in required)
    first = f"{count} of {count} runs identical that must be"
    said = states_of(required)
    states = f", {said}" if said else ""
    parted = _parted(free)
    may = f"   may diverge: {parted}" if free else ""
    runs = sum(cell["prompts"] for cell in free)
    did = runs - sum(cell["identical"] for cell in free)
    short = f"{count} of {count} that must be" + (
        f", {did} of {runs} that may diverge did" if free else ""
    )
    bodies: tuple[str, ...]
    bodies = (f"{first}{states}{may}", f"{first}{may}", f"{count} of {count}{may}", short)
    if not all(cell["state_equal"] for cell in required):  # not forgotten where there is no room
        bodies = (bodies[0], f"{first}{states}", f"{count} of {count}{states}")
    return VerdictLine("same", f"= AS REQUIRED{far}", bodies)


def _failed(record: SuiteRecord, cells: Sequence[Document], run_key: str) -> VerdictLine:
    assert record.failed is not None
    message = drawable_line(record.failed.message).removesuffix(".")
    kept = "what has ended is kept   " if cells else ""
    return VerdictLine(
        "failed", "\u00d7 FAILED", (f"{message}   {kept}{run_key} runs all", message)
    )


def _missed(report: MatrixReport, missed: Sequence[Document]) -> VerdictLine:
    cell = missed[0]
    where = f"{cell['numerics']} {short_row(row_of(cell['name']))}"
    found = cell["first_divergence"]
    if found:
        label = drawable_line(report.labels[found["prompt_index"]])
        what = f"{where} parts at #{found['index']} on {label}"
        what += ": LOGIC ERROR" if found["logic_error"] else f", {found['verdict']}"
    else:
        what = f"{where}: ids identical, but a state differs"
    more = f", and {len(missed) - 1} more cells" if len(missed) > 1 else ""
    must = [c for name in report.order if (c := report.latest(name)) and c["must_be_identical"]]
    same = sum(c["identical"] for c in must)
    runs = sum(c["prompts"] for c in must)
    bodies = (
        f"{what}{more}: a bug   {same} of {runs} runs identical that must be",
        f"{what}{more}: a bug",
        what,
    )
    return VerdictLine("bug", "! NOT AS REQUIRED", bodies)


def _parted(cells: Sequence[Document]) -> str:
    """`11 of 30 did, all near-tie (<= 3.1 ulp)`."""
    runs = sum(cell["prompts"] for cell in cells)
    verdicts: Counter[str] = Counter()
    for cell in cells:
        verdicts.update(cell["verdicts"])
    count = sum(verdicts.values())
    if not count:
        return f"none of {runs} did"
    logic = sum(cell["logic_errors"] for cell in cells)
    kinds = ", ".join(f"{n} {what}" for what, n in sorted(verdicts.items()))
    if len(verdicts) == 1:
        kinds = f"all {next(iter(verdicts))}" if count > 1 else next(iter(verdicts))
    largest = max(cell["largest_margin_ulps"] or 0.0 for cell in cells)
    within = f" (<= {ulps(largest)} ulp)" if largest else ""
    error = f", {logic} LOGIC ERROR" if logic else ""
    return f"{count} of {runs} did, {kinds}{within}{error}"


def _free_only(cells: Sequence[Document], far: str) -> VerdictLine:
    """Nothing was promised, as in `split` + `direct`."""
    runs = sum(cell["prompts"] for cell in cells)
    same = sum(cell["identical"] for cell in cells)
    if same == runs:
        found = states_of(cells)
        found += ": another prompt may part" if any(c["states_differ"] for c in cells) else ""
        bodies = (f"all {runs} runs   {found}".rstrip(), f"all {runs} runs")
        return VerdictLine("same", f"= IDENTICAL{far}", bodies)
    logic = sum(cell["logic_errors"] for cell in cells)
    level, head = ("bug", "! LOGIC ERROR") if logic else ("differ", f"≠ DIVERGED{far}")
    body = _parted(cells).replace(" did,", " runs,")
    first = min(
        (c["first_divergence"] for c in cells if c["first_divergence"]),
        key=lambda found: found["index"],
    )
    return VerdictLine(
        level,  # type: ignore[arg-type]  # one of the levels
        head,
        (f"{body}   first at #{first['index']}", body),
    )
