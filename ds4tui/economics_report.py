"""The economics of a run as JSON and as text to paste. Knows no screens."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from ds4tui.economics_figures import Economics
from ds4tui.marks import UNICODE
from ds4tui.paint import calibration as calibration_rows
from ds4tui.paint import economics as painted
from ds4tui.report import finite
from ds4tui.run_record import RunRecord
from ds4tui.spans import Row, text_of
from engine.text import visible

SCHEMA = "ds4tui.economics/1"
REPORT_WIDTH = 78
REPORT_HEIGHT = 60


def json_text(found: Economics, record: RunRecord) -> str:
    """All figures, milliseconds and rates; a figure that is infinite or unknown is null."""
    started = record.started
    shape, ledger, speed = found.shape, found.ledger, found.speedup
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "run_id": started.run_id if started is not None else "",
        "numerics": found.numerics,
        "commit": found.policy,
        "ids_sha256_prefix": list(found.ids),
        "prompts": found.prompts,
        "prompts_parted": found.parted,
        "first_divergence": found.parts_at,
        "speedup": None
        if speed is None or found.parted
        else {**asdict(speed), "resolved": speed.resolved},
        "costs": _costs(found),
        "curve": [{**asdict(row), "pays": row.pays} for row in found.curve],
        "cycles": None
        if shape is None
        else {
            "count": shape.cycles,
            "tokens": shape.tokens,
            "mean_depth": shape.depth,
            "proposed_accepted": [[*pair, count] for pair, count in sorted(shape.counts.items())],
        },
        "value": None
        if ledger is None
        else {**asdict(ledger), "net": ledger.net, "first_negative": ledger.first_negative},
        "predictions": [asdict(each) for each in found.predictions],
        "calibration": asdict(found.calibration) if found.calibration is not None else None,
    }
    return json.dumps(finite(document), indent=1, allow_nan=False) + "\n"


def _costs(found: Economics) -> dict[str, Any] | None:
    if found.table is None:
        return None
    fit = found.table.fit()
    return {**asdict(found.table), "fit": asdict(fit) if fit is not None else None}


def report_text(found: Economics, record: RunRecord) -> str:
    """All four boxes as text, with what they were measured on; safe to print."""
    started = record.started
    lines = ["# ds4tui economics", ""]
    if started is not None:
        lines.append("- " + ", ".join(f"{name} {value}" for name, value in started.environment))
        for file in started.files:
            lines.append(f"- {file.role} {file.path} sha256 {file.sha256 or 'n/a'}")
        lines.append(
            f"- numerics {found.numerics}, commit {found.policy or 'none'}, "
            f"{started.max_tokens} tokens at most, {len(started.prompt_ids)} prompt ids, "
            f"prompt {started.prompt!r}"
        )
    if found.prompts > 1:
        lines.append(f"- figures of this prompt and {found.prompts - 1} more, with these settings")
    boxes: list[tuple[tuple[str, str], list[Row]]] = [
        (painted.pays_title(found), painted.pays_rows(found, REPORT_WIDTH, ())),
        (
            painted.costs_title(found, ""),
            painted.cost_rows(found, 0, REPORT_WIDTH, REPORT_HEIGHT, UNICODE, ()),
        ),
        (
            painted.value_title(found),
            painted.value_rows(found.ledger, REPORT_WIDTH, UNICODE),
        ),
        (
            calibration_rows.title(found.calibration),
            calibration_rows.rows(found.calibration, "6", REPORT_WIDTH, REPORT_HEIGHT, UNICODE),
        ),
    ]
    for (left, right), rows in boxes:
        lines += ["", f"## {left}" + (f" ({right})" if right else ""), "", "```"]
        lines += [*(text_of(row).rstrip() for row in rows), "```"]
    return visible("\n".join(lines)) + "\n"
