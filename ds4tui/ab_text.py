"""The result of a comparison as a table for a terminal, from its JSON document.

Owns words and columns. Text of models, prompts and files is untrusted: it is shown with its control
characters as glyphs and never read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ds4tui.markdown_text import markdown_table
from ds4tui.report import Document, summary
from engine.text import one_line, visible
from engine.verdict import length_pattern

IDENTITY = ("arm", "ids", "end", "ids sha256", "vs plain", "state")
WORK = (
    "arm",
    "sha256",
    "tok/s",
    "speed-up",
    "note",
    "depth",
    "acc/proposed",
    "acc/drafted",
)
"""Columns of the two tables: is it the same, and what does it cost."""
_NUMERIC = ("ids", "tok/s", "depth")
PREFIX = 120
"""Characters of the text before a divergence."""


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many decimals, `n/a` without one."""
    return "n/a" if value is None else f"{value:.{digits}f}"


def small(value: float | None) -> str:
    """A small number with two significant digits; exactly 0 stays 0."""
    if value is None:
        return "n/a"
    return "0" if value == 0 else f"{value:.2g}"


def identity_rows(document: Document) -> list[list[str]]:
    """Rows of the table of `IDENTITY`."""
    return [
        [
            visible(arm["name"]),
            str(len(arm["ids"])),
            arm["finish_reason"],
            arm["ids_sha256"][:16],
            _against_plain(arm),
            _state(arm),
        ]
        for arm in document["arms"]
    ]


def work_rows(document: Document) -> list[list[str]]:
    """Rows of the table of `WORK`: every speed beside its ids' hash; controls left out."""
    return [_work(arm) for arm in document["arms"] if arm["role"] == "arm"]


def _work(arm: Document) -> list[str]:
    rate = arm["tokens_per_s"]
    row = [visible(arm["name"]), arm["ids_sha256"][:8], number(rate, 0) if rate else "-"]
    if arm["kind"] != "dspark":
        return [*row, "-", "", "-", "-", "-"]
    accepted = arm["accepted_draft"]
    return [
        *row,
        *speed(arm["speedup"]),
        number(arm["mean_depth"]),
        f"{accepted}/{arm['proposed']} {number(arm['accept_rate'], 3)}",
        number(arm["accept_of_drafted"], 3),
    ]


def _state(arm: Document) -> str:
    found = arm["first_divergence"]
    if arm["state_equal"] is False or (found and found["first_drift"]):
        return "differs"
    return "equal" if arm["state_equal"] else "-"


def _against_plain(arm: Document) -> str:
    found = arm["first_divergence"]
    if found:
        kind = "LOGIC ERROR" if found["logic_error"] else found["verdict"]
        return f"≠ at {found['index']}, {kind}"
    if arm["kind"] == "plain" or arm["role"] == "control":
        return "-"
    return "= ids"


def speed(found: Document | None) -> list[str]:
    """A speed-up with half its 95 % interval, and what must be known of it."""
    if found is None:
        return ["n/a", ""]
    half = (found["high"] - found["low"]) / 2
    remark = "" if found["resolved"] else "not resolved"
    return [f"{found['value']:.2f}x ±{half:.2f}", "different work" if found["different_work"]
            else remark]  # fmt: skip


def token(found: Document) -> str:
    """A token in quotes; its id when it has no text."""
    return f'"{one_line(found["text"])}"' if found["text"] else f"id {found['id']}"


def margin(found: Document) -> str:
    """The plain arm's gap between the two tokens."""
    if found["verdict"] == "exact-tie":
        return "exact tie, margin 0"
    ulps = f"{small(found['margin_ulps'])} ulp {found['ulp_type']}"
    return f"{found['verdict']}, margin {small(found['margin_logits'])} = {ulps}"


def divergence(arm: Document) -> list[str]:
    """Everything that is known of one arm's divergence, in sentences."""
    found = arm["first_divergence"]
    left, right = token(found["left"]), token(found["right"])
    name = visible(arm["name"])
    lines = [f"{name} parts from plain at {found['index']}: plain {left}, {name} {right}"]
    if found["logic_error"]:
        lines.append(
            "  LOGIC ERROR: a committed token is not the argmax of the row that its policy says it "
            "came from. This is a bug, whatever the acceptance rate."
        )
    lines.append(f"  {margin(found)}")
    tops = [small(top["logits"]) for top in found["top2_margins"]]
    lines.append(f"  top-2 margins: plain {tops[0]}, {name} {tops[1]}")
    if found["cause"] == "verify_row":
        lines.append("  cause verify_row: the states were equal, the verify's own row flipped")
    elif found["cause"] == "state" and found["first_drift"]:
        drift = found["first_drift"]
        where = f"layer {drift['layer']} {drift['tensor']} differs by {small(drift['max_abs'])}"
        lines.append(f"  cause state: since #{drift['position']}, where {where}")
    if found["differing_choices"]:
        lines.append(f"  choices that differ: {'; '.join(found['differing_choices'])}")
    if found["inside_repeat"]:
        lines.append("  plain's token lies inside an 8-gram that it had written before: a loop")
    shared = found["shared_prefix"]
    cut = "…" if len(shared) > PREFIX else ""
    lines.append(f'  shared prefix: "{cut}{one_line(shared[-PREFIX:])}"')
    return lines


NOTHING_DECODED = "the prefill that all arms share chose the only one, no arm decoded anything"


def identical(arm: Document) -> str:
    """What the equal ids of an arm prove."""
    smallest = arm["compared_margin"]
    gap = (
        f"smallest top-2 gap {small(smallest['logits'])} at {smallest['index']}" if smallest else ""
    )
    if arm["kind"] == "dspark" and not arm["cycles"]:
        return f"{visible(arm['name'])}: identical ids; {NOTHING_DECODED}"
    cycles = f"after all {arm['cycles']} cycles" if arm["kind"] == "dspark" else "throughout"
    kinds = {
        "state-equal": f"the state was equal {cycles}; {gap}",
        "state-differs": f"the state differs, so another prompt may part; {gap}",
        "cannot-show": f"no top-2 gap under 1 logit was met, so this prompt cannot show a "
        f"divergence; {gap}",
        "not-compared": f"the states were not compared; {gap}",
    }
    return f"{visible(arm['name'])}: identical ids; {kinds[arm['identical_kind']]}".rstrip("; ")


def findings(document: Document) -> list[str]:
    """Everything below the table; controls are in the table of identity alone."""
    lines: list[str] = []
    for arm in (arm for arm in document["arms"] if arm["role"] == "arm"):
        if arm["first_divergence"]:
            lines += divergence(arm)
        elif arm["identical_kind"]:
            lines.append(identical(arm))
        lines += _remarks(arm)
    pattern = _pattern(document["arms"])
    if pattern:
        lines.append(f"block lengths: {pattern}")
    lines += [visible(notice) for notice in document["notices"]]
    return lines


def _remarks(arm: Document) -> list[str]:
    """What a reader of one arm's figures must know."""
    name = visible(arm["name"])
    lines = []
    if arm["kind"] == "dspark" and arm["commit"] != "strict" and arm["cycles"]:
        if not arm["proposed"]:
            # A pause only follows from what stopped the cycles before it.
            clips = {reason: n for reason, n in arm["clipped"].items() if reason != "pause"}
            last = max(clips, key=lambda reason: clips[reason], default="none")
            lines.append(f"{name}: 0 proposals in {arm['cycles']} cycles; stopped by {last}")
        if arm["lengths_vary"]:
            lines.append(
                f"{name}: verifies had different lengths, so the depth alone is incomplete; "
                "proposed x accepted:"
            )
            lines += table_of_lengths(arm)
    loops = arm["without_loops"]
    if loops and loops["share"]:
        lines.append(
            f"{name}: {loops['share']:.0%} of the ids repeat an 8-gram; without them depth "
            f"{number(loops['mean_depth'])}, accepted/proposed {number(loops['accept_rate'], 3)}"
        )
    return lines


def table_of_lengths(arm: Document) -> list[str]:
    """Cycles by drafts proposed, a line each: how many accepted 0, 1, ... of them."""
    table = arm["proposed_by_accepted"]
    width = max(len(str(n)) for row in table for n in row)
    return [
        f"  {proposed} proposed: " + " ".join(str(n).rjust(width) for n in row[: proposed + 1])
        for proposed, row in enumerate(table)
        if any(row)
    ]


def _pattern(arms: Sequence[Document]) -> str:
    """What a sweep over block lengths shows, when the arms are one."""
    swept = [arm for arm in arms if arm["kind"] == "dspark" and arm["role"] == "arm"]
    lengths = {arm["draft_max"]: arm for arm in swept if arm["draft_max"] is not None}
    if len(lengths) < 2 or len({arm["commit"] for arm in swept}) > 1:
        return ""
    first = {
        length: arm["first_divergence"]["index"] if arm["first_divergence"] else None
        for length, arm in lengths.items()
    }
    return length_pattern(first)


def verdict(document: Document) -> str:
    """The verdict on one prompt in a line."""
    if document["identical"] is None:
        return f"WITHHELD: {visible(document['withheld'])}"
    found = document["first_divergence"]
    if document["identical"]:
        return "IDENTICAL"
    word = "LOGIC ERROR" if _has_logic_error(document) else "DIVERGED"
    return f"{word} at {found['index']}"


def _has_logic_error(document: Document) -> bool:
    found = [arm["first_divergence"] for arm in document["arms"] if arm["first_divergence"]]
    return any(divergence["logic_error"] for divergence in found)


def heading(document: Document) -> str:
    """What was run, in a line."""
    settings = document["settings"]
    prompt = f'"{one_line(document["prompt"]["text"], 60)}"'
    parts = [settings["numerics"], f"at most {settings['max_tokens']} tokens"]
    parts += [f"{name} {settings[name]}" for name in ("no_repeat", "perturb") if settings[name]]
    return f"{prompt} ({len(document['prompt']['ids'])} ids): {', '.join(parts)}"


def make_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMERIC else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def print_work(console: Console, document: Document) -> None:
    """The table of `WORK`; in two, speed and acceptance, where it would be too wide."""
    rows = work_rows(document)
    widths = [max(map(cell_len, column)) for column in zip(WORK, *rows, strict=True)]
    if sum(widths) + len(WORK) - 1 <= console.width:
        console.print(make_table(WORK, rows))
        return
    at = WORK.index("depth")
    console.print(make_table(WORK[:at], [row[:at] for row in rows]))
    console.print()
    console.print(make_table((WORK[0], *WORK[at:]), [[row[0], *row[at:]] for row in rows]))


def print_document(console: Console, document: Document) -> None:
    """Heading, tables, findings and verdict of one prompt."""
    console.print(Text(heading(document)))
    console.print(make_table(IDENTITY, identity_rows(document)))
    console.print()
    print_work(console, document)
    console.print()
    for line in findings(document):
        console.print(Text(line))
    style = {True: "bold", False: "bold reverse", None: "bold reverse"}[document["identical"]]
    console.print(Text(verdict(document), style=style))


WIDE = 100
"""Columns from which the table by category has all of its columns."""
BY_CATEGORY = (
    "category", "arm", "identical", "first", "depth", "acc/proposed", "sha256", "tok/s", "speed-up",
    "note",
)  # fmt: skip


def category_rows(found: Sequence[Document]) -> list[list[str]]:
    """Rows of the table of `BY_CATEGORY`."""
    return [
        [
            one_line(figures["category"], 20),
            visible(figures["arm"]),
            f"{figures['identical']}/{figures['prompts']}",
            "-" if figures["first_divergence"] is None else f"#{figures['first_divergence']}",
            number(figures["mean_depth"]),
            number(figures["accept_rate"], 3),
            figures["ids_sha256"][:8],
            number(figures["tokens_per_s"], 0),
            *speed(figures["speedup"]),
        ]
        for figures in found
    ]


def print_categories(console: Console, found: Sequence[Document]) -> None:
    """The table by category, without ids and their rate where it would be too wide."""
    if not found:
        return
    columns, rows = list(BY_CATEGORY), category_rows(found)
    if console.width < WIDE:
        for at in sorted(map(BY_CATEGORY.index, ("sha256", "tok/s")), reverse=True):
            columns.pop(at)
            rows = [[*row[:at], *row[at + 1 :]] for row in rows]
    console.print(Text("\nby category"))
    console.print(make_table(columns, rows))


def counts(documents: Sequence[Document]) -> str:
    """`4 identical, 1 diverged`."""
    found = summary(documents)
    shown = [f"{n} {what}" for what, n in found.items() if n or what != "withheld"]
    return ", ".join(shown)


def markdown_categories(found: Sequence[Document]) -> list[str]:
    """The table by category with all its columns; nothing when no prompt has a category."""
    if not found:
        return []
    return ["## By category", "", *markdown_table(BY_CATEGORY, category_rows(found))]
