"""Two bitwise-equal top logits are printed as an exact tie of margin 0."""

from __future__ import annotations

import io

from rich.console import Console

from ds4tui import ab_text, report
from ds4tui.run_state import RunState
from ds4tui.verdict_line import verdict_line
from tests.ds4tui.harness import record_of
from tests.engine.test_ab import tilted

FOUND = tilted("prefix", index=3, gap=0.0)


def test_the_table_says_exact_tie() -> None:
    document = report.ab_document([report.RunEvents.of(FOUND.events)])
    console = Console(file=io.StringIO(), width=200, markup=False, highlight=False)
    ab_text.print_document(console, document)
    assert "  exact tie, margin 0\n" in console.file.getvalue()  # type: ignore[attr-defined]
    parted = document["first_divergence"]
    assert (parted["verdict"], parted["margin_logits"], parted["margin_ulps"]) == (
        "exact-tie",
        0,
        0,
    )
    left, right = parted["left"]["id"], parted["right"]["id"]
    assert left < right, "plain takes the lower id"


def test_verdict_line_says_exact_tie() -> None:
    line = verdict_line(record_of(FOUND.events), RunState.DONE)
    assert line.head == "≠ DIVERGED at 3"
    assert "exact-tie 0  cause verify_row" in line.bodies[0]
