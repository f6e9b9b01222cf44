"""The result of a matrix as tables for a terminal and as Markdown, from its JSON document.

Owns words and columns. Prompts are untrusted text: shown with control characters as glyphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ds4tui.ab_text import (
    make_table,
    markdown_categories,
    number,
    print_categories,
    small,
    speed,
)
from ds4tui.markdown_text import escaped, markdown_table
from ds4tui.matrix_cells import SHORT, place_of
from ds4tui.matrix_names import SHORT_POLICY, row_of, short_row
from ds4tui.paint.numbers import counted
from ds4tui.report import Document
from ds4tui.state_words import equal_at, states_of
from ds4tui.unusual_settings import OF_PROMPTS, knobs, unusual
from engine.text import one_line, visible

WORK = ("arm", "sha256", "tok/s", "speed-up", "note", "depth", "replay ms")
LABEL = 12
"""Characters of a prompt's label in a table."""


def _identity_columns(document: Document) -> tuple[str, ...]:
    tokens = document["settings"]["max_tokens"]
    short = (f"={SHORT}",) if tokens > SHORT else ()
    return ("arm", "must", *short, f"={tokens}", "first", "cause", "verdict", "state")


def _arm(cell: Document) -> str:
    """A cell's name, short: its numerics stand in the table's title."""
    return short_row(row_of(cell["name"]))


def _of(document: Document, numerics: str) -> list[Document]:
    return [cell for cell in document["cells"] if cell["numerics"] == numerics]


def _numerics(document: Document) -> list[str]:
    return [plain["numerics"] for plain in document["plain"]]


def _counted(found: Document) -> str:
    """`3 state, 1 verify_row`."""
    return ", ".join(f"{n} {what}" for what, n in sorted(found.items())) or "-"


def _state(cell: Document) -> str:
    if not cell["cycles"]:
        return "nothing decoded"
    if cell["states_differ"]:
        return f"differs in {cell['states_differ']} of {cell['prompts']}"
    compared, boundaries = cell["compared"], cell["state_boundaries"]
    if compared >= boundaries and cell["identical"] < cell["prompts"]:
        return "equal until ids part"
    return equal_at(compared, boundaries, cell["cycles"])


def _identity(cell: Document) -> list[str]:
    total, first = cell["prompts"], cell["first_divergence"]
    missed = cell["as_required"] is False
    verdicts = _counted(cell["verdicts"])
    if first:
        verdicts += f", to {small(cell['largest_margin_ulps'])} ulp {first['ulp_type']}"
    if cell["logic_errors"]:
        verdicts += f", {cell['logic_errors']} LOGIC ERROR"
    short = cell["identical_at_400"]
    return [
        _arm(cell),
        "MISSED" if missed else "!" if cell["must_be_identical"] else "",
        *([] if short is None else [f"{short}/{total}"]),
        f"{cell['identical']}/{total}",
        f"#{first['index']}" if first else "-",
        _counted(cell["causes"]),
        verdicts,
        _state(cell),
    ]


def _work(cell: Document) -> list[str]:
    rate = cell["tokens_per_s"]
    return [
        _arm(cell) if "commit" in cell else "plain",
        cell["ids_sha256"][:8],
        number(rate, 0) if rate else "-",
        *(speed(cell["speedup"]) if "speedup" in cell else ["-", ""]),
        number(cell["mean_depth"]) if "commit" in cell else "-",
        number(cell["time_ms"]["replay"], 0),
    ]


def _by_prompt(document: Document, numerics: str) -> tuple[list[str], list[list[str]]]:
    """First divergent index per prompt and cell."""
    cells = _of(document, numerics)
    columns = ["prompt", "gap", *map(_short, cells)]
    rows = []
    for prompt in document["prompts"]:
        runs = {run["cell"]: run for run in prompt["runs"]}
        if numerics not in prompt["plain"]:
            continue
        gap = prompt["plain"][numerics]["smallest_margin"]
        shown = [place_of(runs[cell["name"]]) if cell["name"] in runs else "." for cell in cells]
        label = one_line(prompt["label"], LABEL)
        rows.append([label, small(gap["logits"]) if gap else "n/a", *shown])
    return columns, rows


def _print_by_prompt(console: Console, columns: list[str], rows: list[list[str]]) -> None:
    """The table by prompt; in several, each with prompt and gap, where it would be too wide."""
    widths = [max(map(cell_len, column)) + 1 for column in zip(columns, *rows, strict=True)]
    begins, used = [2], sum(widths[:2])
    for at, cells in enumerate(widths[2:], 2):
        used += cells
        if used > console.width + 1 and at > begins[-1]:
            begins.append(at)
            used = sum(widths[:2]) + cells
    for first, last in pairwise([*begins, len(columns)]):
        if first > 2:
            console.print()
        head, *body = ([*row[:2], *row[first:last]] for row in (columns, *rows))
        console.print(make_table(head, body))


def _categories(document: Document) -> list[Document]:
    return [{**found, "arm": short_row(found["arm"])} for found in document["categories"]]


def _short(cell: Document) -> str:
    """`dir 0.9`: a column's name for a cell."""
    policy, _, rest = _arm(cell).partition(" ")
    return f"{SHORT_POLICY[policy]} {rest.removeprefix('@')}".strip()


def numerics_lines(document: Document) -> Iterator[str]:
    """Plain `split` against plain `invariant`, per prompt: never a failure."""
    for prompt in document["prompts"]:
        if len(prompt["plain"]) < 2:
            continue
        at, label = prompt["numerics_part_at"], one_line(prompt["label"], 40)
        tokens = min(len(plain["ids"]) for plain in prompt["plain"].values())
        if at is None:
            yield f"{label}: plain split and plain invariant have the same {tokens} ids"
        else:
            yield f"{label}: numerics differ: plain split against plain invariant part at {at}"


def verdict(document: Document) -> str:
    """The verdict on the whole matrix in a line."""
    must, may = document["required"], document["may_diverge"]
    words = {
        True: "AS REQUIRED" if must["runs"] else "NOTHING REQUIRED",
        False: "NOT AS REQUIRED",
        None: "WITHHELD",
    }
    parts = []
    if must["runs"]:
        required = [cell for cell in document["cells"] if cell["must_be_identical"]]
        parts = [f"{must['identical']} of {must['runs']} runs identical that must be"]
        parts += [states] if (states := states_of(required)) else []
    if may["runs"]:
        parts.append(f"{may['runs'] - may['identical']} of {may['runs']} that may diverge did")
    errors = sum(cell["logic_errors"] for cell in document["cells"])
    if errors:
        parts.append(f"{errors} LOGIC ERROR")
    if document["as_required"] is None:
        parts.append(visible(document["withheld"] or "the matrix is not complete"))
    return f"{words[document['as_required']]}: {'; '.join(parts)}"


def heading(document: Document) -> str:
    """What was run, in a line."""
    settings = {k: v for k, v in document["settings"].items() if k not in OF_PROMPTS}
    parts = [f"at most {counted(settings['max_tokens'], 'token')}"]
    parts += [*knobs(document["cells"]), *unusual({**settings, **document["rendering"]})]
    parts += [counted(len(document["prompts"]), "prompt")]
    cpu = document["cpu_s"]
    on_cpu = "" if cpu is None else f", {cpu:.0f} s of them on a CPU"
    parts += [f"{document['wall_s']:.0f} s{on_cpu}"]
    return f"matrix: {', '.join(parts)}"


LEGEND = (
    "! = must be identical; a miss there is a bug. @ = confidence threshold. ids and tok/s are "
    "over all prompts; a speed-up is over plain of the same numerics. gap = the smallest top-2 "
    "gap that plain met. By prompt: #N = the ids part at N, = identical ids, ~ identical ids, but "
    "the state differs."
)


def print_document(console: Console, document: Document) -> None:
    """Heading, tables, numerics lines and verdict."""
    console.print(Text(heading(document)))
    for numerics, plain in zip(_numerics(document), document["plain"], strict=True):
        cells = _of(document, numerics)
        console.print(Text(f"\n{numerics}", style="bold"))
        console.print(make_table(_identity_columns(document), [_identity(cell) for cell in cells]))
        console.print()
        console.print(make_table(WORK, [_work(cell) for cell in (plain, *cells)]))
        console.print()
        _print_by_prompt(console, *_by_prompt(document, numerics))
    print_categories(console, _categories(document))
    console.print(Text(f"\n{LEGEND}"))
    for line in (*numerics_lines(document), *document["notices"]):
        console.print(Text(visible(line)))
    bad = document["as_required"] is not True
    console.print(Text(verdict(document), style="bold reverse" if bad else "bold"))


def markdown(document: Document) -> str:
    """The same for a file."""
    lines = [escaped(heading(document)), "", f"**{escaped(verdict(document))}**", ""]
    for numerics, plain in zip(_numerics(document), document["plain"], strict=True):
        cells = _of(document, numerics)
        lines += [f"### {numerics}", ""]
        columns, rows = _by_prompt(document, numerics)
        for head, body in (
            (_identity_columns(document), [_identity(cell) for cell in cells]),
            (WORK, [_work(cell) for cell in (plain, *cells)]),
            ([name.replace("\n", " ") for name in columns], rows),
        ):
            lines += markdown_table(head, body)
    lines += markdown_categories(_categories(document))
    told = (*numerics_lines(document), *document["notices"])
    lines += [LEGEND, "", *(f"- {escaped(line)}" for line in told), ""]
    shown = ", ".join(f"{k} {v}" for k, v in document["environment"].items())
    return "\n".join([*lines, escaped(f"Environment: {shown}"), ""])
