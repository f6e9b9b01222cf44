"""The economics of a run as rows of text: costs, values of positions, whether it pays.

Knows no widgets; the figures are `ds4tui.economics`'.
"""

from __future__ import annotations

from collections.abc import Sequence

from ds4tui.economics import TOO_FEW, CurveRow, Prediction, ValueLedger
from ds4tui.economics_costs import LEAST_VALUES, Cost, CostTable
from ds4tui.economics_figures import Economics
from ds4tui.marks import Marks
from ds4tui.paint.numbers import apportioned, bar, fraction, mean, ms, signed
from ds4tui.paint.window import around
from ds4tui.spans import Row, Span, crop, spread, width_of
from engine.stats import Speedup

ROLES = {"pays": "saved", "loses": "lost", "never": "lost", "open": "dim", "few": "dim"}
LEGEND = {
    "never": "never: more than its rows",
    "open": "open: too few or unresolved",
    "few": f"few: under {LEAST_VALUES} steps",
}
"""Words of the last column that are not plain."""


def spread_text(half: float | None) -> str:
    """`±.03`; nothing of a single sample."""
    return f"±{fraction(half, 2)}" if half is not None else ""


# What a cycle costs


def costs_title(found: Economics, progress: str) -> tuple[str, str]:
    """Left and right part of the title: where the costs come from."""
    table, source = found.table, ""
    if table is not None:
        source = f"median of {table.decode.n}, ± = IQR/2"
        if table.source == "run":
            source = f"medians of {found.of_what}"
    return "what a cycle costs here", progress or source


def cost_rows(
    found: Economics, cursor: int, width: int, height: int, marks: Marks, hints: Sequence[str]
) -> list[Row]:
    """A row for each length of the verify, the fixed costs below.

    Args:
        cursor: rows of the verify under the cursor.
        hints: what is said while there are no costs.
    """
    table = found.table
    if table is None:
        return [[(f" {hint}", "dim")] for hint in hints]
    below = _fixed(found, cursor, width)
    room = max(1, height - 1 - len(below))
    lines = [_cost_row(row, found, width, marks) for row in found.curve]
    at = next((n for n, row in enumerate(found.curve) if row.rows == cursor), None)
    if at is not None:
        lines[at] = [(text, "reverse") for text, _ in lines[at]]
    cells = _bar_cells(width)
    rows: list[Row] = [
        [
            (
                f" rows{'':{cells - 1}}{'verify ms':>10}{'cycle':>7}{'break-even':>11}{'depth':>9}",
                "dim",
            )
        ],
    ]
    rows += around(lines, at or 0, room, marks)
    said = {row.pays for row in found.curve}
    if any(row.verify is not None and row.steps < LEAST_VALUES for row in found.curve):
        said.add("few")
    words = [LEGEND[word] for word in LEGEND if word in said]
    if words and len(rows) + len(below) < height:
        below.append(crop([(f" {'; '.join(words)}", "dim")], width, marks.ellipsis))
    return [*rows, *below]


def _bar_cells(width: int) -> int:
    return max(3, min(24, width - 50))


def _cost_row(row: CurveRow, found: Economics, width: int, marks: Marks) -> Row:
    full = max((each.verify[0] for each in found.curve if each.verify), default=1.0)
    cells = _bar_cells(width)
    drawn = bar(row.verify[0], full, cells, marks.bar, marks.bar_half) if row.verify else ""
    cost, is_few = "-     ", row.steps < LEAST_VALUES
    if row.verify is not None:
        cost = f"{ms(row.verify[0])} {'few' if is_few else spread_text(row.verify[1]):<5}"
    depth = "-     "
    if row.depth is not None:
        depth = f"{mean(row.depth)} {spread_text(row.half if row.rows > 1 else None):<4}"
    cycle = ms(row.cycle) if row.cycle is not None else "-"
    pays = row.pays
    word: Span = (f" {pays}", ROLES[pays]) if pays is not None else ("", "")
    return [
        (f" {row.rows:>2} ", ""),
        (drawn.ljust(cells), "dim" if is_few else "dspark" if row.rows > 1 else "plain"),
        (f"{cost:>11} {cycle:>6} {mean(row.break_even):>10} {depth:>10}", ""),
        word,
    ]


def _fixed(found: Economics, cursor: int, width: int) -> list[Row]:
    table = found.table
    assert table is not None
    lines = []
    fit = table.fit()
    if fit is not None:
        lines.append(
            f"fit: verify = {fit.fixed:.2f} {'+' if fit.per_row >= 0 else '-'} "
            f"{abs(fit.per_row):.2f} a row, 2 rows and up, error {fraction(fit.error, 2)}"
        )
    fixed = [_whole_draft(table), f"commit {_cost(table.commit)}"]
    if table.carry is not None:
        fixed.append(f"carry {_cost(table.carry)}")
    lines.append(", ".join(fixed))
    replay = f"replay {ms(table.replay_ms)} a row"
    if found.ledger is not None:
        replay += f", {found.ledger.replay_rows} rows in {found.of_what}"
    lines.append(replay)
    if found.ledger is not None:
        lines += _lost(found.ledger)
    chosen = next((row for row in found.curve if row.rows == cursor), None)
    if chosen is not None:
        lines.append(_detail(chosen, table))
    return [crop([(f" {line}", "dim")], width, "…") for line in lines]


def _lost(ledger: ValueLedger) -> list[str]:
    """What steps without a draft cost more than plain's, or less."""
    kinds = (
        ("no-draft cycles", ledger.no_draft, ledger.no_draft_ms),
        ("pauses", ledger.paused, ledger.paused_ms),
    )
    return [
        f"{count} {name} {'lost' if lost >= 0 else 'won'} {ms(abs(lost) / count)} ms each "
        f"(mean), {abs(lost):.0f} ms in all"
        for name, count, lost in kinds
        if count
    ]


def _detail(row: CurveRow, table: CostTable) -> str:
    draft, verify = table.draft_ms(row.rows - 1), table.verify_ms(row.rows)
    if draft is None or verify is None or row.cycle is None:
        return f"{row.rows} rows, {row.cycles} cycles: {TOO_FEW}"
    step = "verify" if row.rows > 1 else "decode"
    parts = f"draft {ms(draft)} + {step} {ms(verify)} + commit {ms(table.commit_ms)}"
    if row.replay:
        parts += f" + replay {ms(row.replay)}"
    return f"{row.rows} rows, {row.cycles} cycles: {parts}"


def _whole_draft(table: CostTable) -> str:
    """The longest drafting that was seen, often enough if any was."""
    often = [n for n, cost in table.draft.items() if cost.n >= LEAST_VALUES] or list(table.draft)
    if not often:
        return "draft n/a"
    return f"draft of {max(often)} {_cost(table.draft[max(often)])}"


def _cost(cost: Cost | None) -> str:
    return "n/a" if cost is None else f"{ms(cost.median)} {spread_text(cost.half)}".rstrip()


# The value of each position


def value_title(found: Economics) -> tuple[str, str]:
    """Left and right part of the title."""
    return "value of each draft position", f"ms over {found.of_what}"


def value_rows(ledger: ValueLedger | None, width: int, marks: Marks) -> list[Row]:
    """A row for each position, and the terms whose sum is what was saved."""
    if ledger is None:
        return [[(" no cycles yet", "dim")]]
    fixed = [ledger.draft, ledger.replay, ledger.commit, ledger.rest]
    nets = [value.net for value in ledger.positions]
    whole = apportioned([*nets, *fixed], ledger.saved)
    shown, (draft, replay, commit, rest) = whole[: len(nets)], whole[len(nets) :]
    rows: list[Row] = [[(" pos  proposed   acc.    gain  row cost     net", "dim")]]
    full = max((abs(net) for net in nets), default=1.0)
    cells = max(0, width - 49)
    for value, net in zip(ledger.positions, shown, strict=True):
        gain = round(value.gain)
        drawn = bar(abs(value.net), full, cells, marks.bar, marks.bar_half)
        rows.append(
            [
                (
                    f" {f'd{value.position}':<4}{value.proposed:>9}{value.accepted:>7}"
                    f"{signed(gain):>8}{signed(net - gain):>10}{signed(net):>8}  ",
                    "",
                ),
                (drawn, "dspark" if value.net >= 0 else "lost"),
            ]
        )
    proposed = sum(value.proposed for value in ledger.positions)
    accepted = sum(value.accepted for value in ledger.positions)
    rows.append([(f" {'all':<4}{proposed:>9}{accepted:>7}{signed(sum(shown)):>26}", "strong")])
    cycles = max(1, ledger.cycles - ledger.paused)
    again = "replay no row"
    if ledger.replay_rows:
        again = f"replay {ledger.replay_rows} rows x mean {ms(-ledger.replay / ledger.replay_rows)}"
    terms = [
        (f"draft  {cycles} cycles x mean {ms(-ledger.draft / cycles)}", draft),
        (again, replay),
        (f"commit {ledger.cycles} x mean {ms(-ledger.commit / ledger.cycles)}", commit),
    ]
    if rest:
        terms.append(("rest   decodes, rare lengths", rest))
    rows += [[(f" {name:<38}{signed(term):>8}", "")] for name, term in terms]
    saved = sum(whole)
    word = "saved" if saved >= 0 else "lost"
    text = f" {word:<38}{signed(saved):>8} of {ledger.plain_ms:.0f} ms"
    rows.append([(text, "saved" if saved >= 0 else "lost")])
    negative = ledger.first_negative
    last = f"d{negative}" if negative else f"none up to {len(ledger.positions)}"
    rows.append([(f" first position with negative net: {last}", "dim")])
    return rows


# Does it pay?


def pays_title(found: Economics) -> tuple[str, str]:
    """Left and right part of the title."""
    several = f", {found.of_what}" if found.prompts > 1 else ""
    depth = f"depth {found.shape.depth:.2f}{several}" if found.shape is not None else ""
    return "does it pay?", depth


def outcome(found: Speedup) -> str:
    """What a measured speed-up says."""
    if not found.resolved:
        return "not resolved"
    return "faster" if found.value > 1 else "slower"


def pays_rows(found: Economics, width: int, hints: Sequence[str]) -> list[Row]:
    """Measured and predicted speed-up, the policies, and what replay costs."""
    if found.shape is None:
        return [[(f" {hint}", "dim")] for hint in hints]
    rows = [_measured(found, width), _predicted(found)]
    if found.parted:
        text = f"different work: ids differ from #{found.parts_at}"
        if found.prompts > 1:
            text = f"different work: ids differ in {found.parted} of {found.of_what}"
        rows.append([(f" {'':10} ", ""), (text, "lost")])
    if found.mixed:
        rows.append([(f" {'':10} MIXED: the policy was changed on the way", "lost")])
    rows.append(_ids_row(found))
    rows.append([])
    rows.append([(" by policy, the same cycles:", "dim")])
    rows += [_policy(each, found, width) for each in found.predictions]
    ledger = found.ledger
    if ledger is not None and found.spent_ms:
        rows += [[], _replay_row(found, ledger)]
        rows += _if_replayed(found)
    return [crop(row, width, "…") for row in rows]


def _measured(found: Economics, width: int) -> Row:
    speed = found.speedup
    if speed is None:
        return [(" measured   ", ""), ("too few tokens for an interval", "dim")]
    interval = f"95 % {speed.low:.2f}..{speed.high:.2f}" + ("" if found.ends else " so far")
    text = f"{speed.value:.2f}x"
    if not speed.resolved:
        text += f" {spread_text(speed.half)}"
    word = outcome(speed) if not found.parted else "different work"
    role = {"faster": "saved", "not resolved": "dim"}.get(word, "lost")
    left: Row = [(" measured   ", ""), (text, "strong"), (f"  {interval}", "")]
    return spread(left, [(f"{word} ", role)], width)


def _predicted(found: Economics) -> Row:
    value = found.predicted.speedup if found.predicted is not None else None
    source = f"the steps of {found.of_what}"
    if found.table is not None and found.table.source == "measured":
        source = f"the costs measured at {found.table.position}"
    if value is None:
        why = found.predicted.why if found.predicted is not None else "no costs yet"
        return [(" predicted  ", ""), (why, "dim")]
    return [(" predicted  ", ""), (f"{value:.2f}x", "strong"), (f"  {source}, these cycles", "dim")]


def _ids_row(found: Economics) -> Row:
    left, right = found.ids
    sign = "=" if left == right else "≠"
    return [(f" ids        {left} {sign} {right}", "dim")]


def _policy(each: Prediction, found: Economics, width: int) -> Row:
    own = each.policy == found.policy
    mark = ">" if own else " "
    value = f"{each.speedup:.2f}x" if each.speedup is not None else "n/a"
    head: Row = [(f" {mark}{each.policy:<10}", "strong" if own else ""), (f"{value:>6}   ", "")]
    if each.speedup is None or each.break_even is None:
        return [*head, (each.why, "dim")]
    if each.never:
        never = "cannot pay at any depth"
        long: Row = [*head, (f"{never}: {each.why}", "lost")]
        return long if width_of(long) <= width else [*head, (never, "lost")]
    assert found.shape is not None
    pays = found.shape.depth > each.break_even
    word = "pays" if pays else "loses"
    return [
        *head,
        (f"break-even depth {each.break_even:.2f}   ", ""),
        (word, ROLES[word]),
    ]


def _replay_row(found: Economics, ledger: ValueLedger) -> Row:
    if not ledger.replay_rows:
        return [(f" replay none: {found.policy} decoded no row again here", "dim")]
    share = -ledger.replay / found.spent_ms
    each = ms(-ledger.replay / ledger.replay_rows)
    text = f" replay {ledger.replay_rows} rows x mean {each} = {-ledger.replay:.0f} ms, {share:.0%}"
    return [(text, "strong"), (" of DSpark's time", "")]


def _if_replayed(found: Economics) -> list[Row]:
    """What the policy that replays everything would cost, beside one that does not."""
    if found.policy in ("replay", "strict") or found.table is None or found.shape is None:
        return []
    tokens = sum((accepted + 1) * n for (sent, accepted), n in found.shape.counts.items() if sent)
    spent = tokens * found.table.replay_ms
    text = f" policy replay would decode {tokens} rows again: {spent:.0f} ms"
    return [[(text, "dim")]] if tokens else []
