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
from ds4tui.paint.numbers import counted
from ds4tui.report import Document, summary
from ds4tui.state_words import compared_at, equal_at, since
from ds4tui.unusual_settings import knobs, unusual
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
            _against_plain(arm, len(document["arms"][0]["ids"])),
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
    if arm["first_drift"]:
        return "differs"
    compared, boundaries = arm["states_compared"], arm["state_boundaries"]
    if not compared or arm["first_divergence"]:
        return "-"
    return "equal" if compared >= boundaries else f"equal {compared}/{boundaries}"


def _is_short(arm: Document, plain_ids: int) -> bool:
    """Either it or plain has ids beyond those that both have, as beside a short recording."""
    return bool(arm["compared"] < max(plain_ids, len(arm["ids"])))


def _against_plain(arm: Document, plain_ids: int) -> str:
    found = arm["first_divergence"]
    if found:
        kind = "LOGIC ERROR" if found["logic_error"] else found["verdict"]
        return f"≠ at {found['index']}, {kind}"
    if arm["kind"] == "plain" or arm["role"] == "control":
        return "-"
    if _is_short(arm, plain_ids):
        return f"= {arm['compared']} of {max(plain_ids, len(arm['ids']))} ids"
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
    if arm["kind"] == "dspark":
        lines.append(f"  {_cause(arm)}")
    if found["differing_choices"]:
        lines.append(f"  choices that differ: {'; '.join(found['differing_choices'])}")
    if found["inside_repeat"]:
        lines.append("  plain's token lies inside an 8-gram that it had written before: a loop")
    shared = found["shared_prefix"]
    cut = "…" if len(shared) > PREFIX else ""
    lines.append(f'  shared prefix: "{cut}{one_line(shared[-PREFIX:])}"')
    return lines


def _cause(arm: Document) -> str:
    """Why the ids of a DSpark arm part, as far as its states were compared."""
    found = arm["first_divergence"]
    drift, compared = found["first_drift"], (arm["states_compared"], arm["state_boundaries"])
    began = "where the parting cycle began"
    if found["cause"] == "verify_row":
        return f"cause verify_row: the states were equal {began}, the verify's own row flipped"
    if found["cause"] is None:
        but = f", not {began}" if arm["states_compared"] else ""
        return f"cause not known: the states were {compared_at(*compared)}{but}"
    if drift is None:
        return f"cause state: the states differed {began}"
    where = f"layer {drift['layer']} {drift['tensor']} differs by {small(drift['max_abs'])}"
    return f"cause state: since {since(drift['position'], *compared)}, where {where}"


NOTHING_DECODED = "the prefill that all arms share chose the only one, no arm decoded anything"


def identical(arm: Document, plain_ids: int) -> str:
    """What the equal ids of an arm prove.

    Args:
        plain_ids: how many plain has.
    """
    name, compared = visible(arm["name"]), counted(arm["compared"], "id")
    if arm["kind"] == "dspark" and not arm["cycles"]:
        return f"{name}: identical ids; {NOTHING_DECODED}"
    short = f", in the {compared} compared" if _is_short(arm, plain_ids) else ""
    parts = [f"{name}: identical ids{short}"]
    if arm["identical_kind"] == "cannot-show":
        these = f"{'these' if arm['compared'] != 1 else 'this'} {compared}"
        parts.append(f"no top-2 gap under 1 logit in {these}: cannot show a divergence so far")
    if arm["kind"] == "dspark":
        parts.append(_states(arm))
    smallest = arm["compared_margin"]
    if smallest:
        parts.append(f"smallest top-2 gap {small(smallest['logits'])} at {smallest['index']}")
    return "; ".join(parts)


def _states(arm: Document) -> str:
    """The states of an arm whose ids are identical."""
    compared = arm["states_compared"], arm["state_boundaries"]
    if arm["first_drift"]:
        begins = since(arm["first_drift"]["position"], *compared)
        return f"the state differs since {begins}, so another prompt may part"
    return f"the state was {equal_at(*compared, arm['cycles'])}"


def findings(document: Document) -> list[str]:
    """Everything below the table; controls are in the table of identity alone."""
    lines: list[str] = []
    for arm in (arm for arm in document["arms"] if arm["role"] == "arm"):
        if arm["first_divergence"]:
            lines += divergence(arm)
        elif arm["identical_kind"]:
            lines.append(identical(arm, len(document["arms"][0]["ids"])))
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
        return f"IDENTICAL{_in_how_many(document)}"
    word = "LOGIC ERROR" if _has_logic_error(document) else "DIVERGED"
    return f"{word} at {found['index']}"


def _in_how_many(document: Document) -> str:
    """Of the arms that have fewer ids than plain, or more: in how many they are identical."""
    plain, *others = (arm for arm in document["arms"] if arm["role"] == "arm")
    short = [arm for arm in others if _is_short(arm, len(plain["ids"]))]
    said = [f"in the {counted(arm['compared'], 'id')} compared" for arm in short]
    if len(others) == 1:
        return "".join(f" {words}" for words in said)
    names = (visible(arm["name"]) for arm in short)
    return "".join(f"; {name} {words}" for name, words in zip(names, said, strict=True))


def _has_logic_error(document: Document) -> bool:
    found = [arm["first_divergence"] for arm in document["arms"] if arm["first_divergence"]]
    return any(divergence["logic_error"] for divergence in found)


def heading(document: Document) -> str:
    """What was run, in a line."""
    settings = document["settings"]
    prompt = f'"{one_line(document["prompt"]["text"], 60)}"'
    parts = [settings["numerics"], f"at most {counted(settings['max_tokens'], 'token')}"]
    parts += [*knobs(document["arms"]), *unusual(settings)]
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
