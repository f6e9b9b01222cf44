"""Rows of the charts and bars: what they say, and that they never overrun."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4tui.figures import depths, ledger
from ds4tui.marks import ASCII, UNICODE, Marks
from ds4tui.paint import bars, depth, numbers, pair, panes, rates, token_card
from ds4tui.paint import ledger as ledger_rows
from ds4tui.run_record import RunRecord
from ds4tui.spans import Row, crop, fit, spread, text_of, width_of
from engine.events import RunFailed, RunStarted, TimeSplit
from engine.stats import ArmTally, Speedup
from tests.ds4tui import streams
from tests.ds4tui.harness import record_of

DIVERGED = record_of(streams.diverged_run())
IDENTICAL = record_of(streams.identical_run())
DEPTHS = depths(DIVERGED.arms[1].tally.counts)
LEDGER = ledger(DIVERGED.arms[0].tally, DIVERGED.arms[1].tally)
assert DEPTHS is not None
assert LEDGER is not None
DATA = rates.RateData(
    DIVERGED.arms[0].tally.token_ns,
    DIVERGED.arms[1].tally.token_ns,
    DIVERGED.arms[0].tokens_per_s,
    DIVERGED.arms[1].tokens_per_s,
    400,
    163,
)


def texts(rows: list[Row]) -> list[str]:
    return [text_of(row).rstrip() for row in rows]


def test_depth_strip() -> None:
    rows = texts(depth.strip(DEPTHS, 31, UNICODE))
    assert rows[0] == " ████"
    assert rows[2].count("████") == 4
    assert rows[3] == " 46+9  26   20   16   12   18"
    assert rows[4].split() == list("123456")


def test_depth_box() -> None:
    rows = texts(depth.box(DEPTHS, 48, 10, UNICODE))
    assert len(rows) == 10
    assert rows[1].split() == ["1", "━" * 9, "55", "37%", "d1", "92/101", ".911"]
    assert rows[-3] == " 1 = bonus: 46 no draft + 9 first rejected"
    assert rows[-2] == " accepted 252 of 297 proposed .848, 1.71 a cycle"
    assert rows[-1] == " 147 cycles, 399 tokens + 1 from prefill = 400"


@pytest.mark.parametrize("width", range(20, 60))
def test_no_figure_of_a_box_is_cut(width: int) -> None:
    """Columns and words give way, or an ellipsis says that something is missing."""
    rows = texts(depth.box(DEPTHS, width, 10, UNICODE))
    figures = {"55", "37%", "92/101", ".911", "46", "9", "252", "297", "147", "400"}
    assert all(len(row) <= width for row in rows)
    for row in (rows[1], *rows[-3:]):
        assert len(row) <= width
        for word in row.replace(",", " ").replace("252/297", "252 297").split():
            if any(char.isdigit() for char in word) and not row.endswith("…"):
                assert word in figures | {"1", "1:", "399", "d1", ".848", "1.71"}
    slow = replace(LEDGER, terms=dict.fromkeys(LEDGER.terms, -12345.0), saved_ms=-49380.0)
    for row in texts(ledger_rows.box(slow, width, UNICODE))[-2:]:
        assert row.count("-12345") == 2 or row.endswith("…")


def test_depths_share_rows_when_there_are_too_many() -> None:
    rows = texts(depth.box(DEPTHS, 48, 7, UNICODE))
    assert rows[1].split()[0] == "1-2"
    assert sum(int(row.split()[2]) for row in rows[1:4]) == 147


def test_the_title_says_that_depths_alone_are_incomplete() -> None:
    assert "lengths vary" in depth.title(DEPTHS, False)[0]
    assert depth.title(DEPTHS, False)[1] == "mean 2.71"
    assert depth.title(None, False)[1] == "mean n/a"


def test_proposed_by_accepted_table() -> None:
    rows = texts(depth.table(DEPTHS, 48, 10))
    assert rows[1].split() == ["0", "46"]
    assert rows[6].split() == ["5", "1", "1", "2", "1", "2", "18"]


def test_ledger_shows_terms_that_sum_as_printed() -> None:
    rows = texts(ledger_rows.box(LEDGER, 31, UNICODE))
    assert rows[-3] == " saved +204 ms of 993 ms"
    terms = " ".join(rows[-2:]).replace(",", "").split()
    assert sum(int(value) for value in terms[1::2]) == 204


def test_box_and_strip_of_a_ledger_say_the_same_saving() -> None:
    terms = dict(zip(LEDGER.terms, (4.4, -1.4, -1.4, -1.4), strict=True))
    close = replace(LEDGER, terms=terms, saved_ms=0.2)
    rows = texts(ledger_rows.box(close, 31, UNICODE))
    assert rows[-3].startswith(" saved 0 ms")
    printed = " ".join(rows[-2:]).replace(",", "").split()
    assert sum(int(value) for value in printed[1::2]) == 0
    assert texts(ledger_rows.strip(close, 31, UNICODE))[-1].endswith("saved 0")


def test_the_strip_cuts_no_figure() -> None:
    slow = replace(LEDGER, dspark=dict.fromkeys(LEDGER.dspark, 12.34), saved_ms=-23456.0)
    rows = texts(ledger_rows.strip(slow, 23, UNICODE))
    assert rows[2:] == [
        " draft 12.3 verify 12.3",
        "replay 12.3 decode 12.3",
        " commit 12.3 -23.5 s",
    ]
    assert all(len(row) <= 23 for row in rows)


def test_rate_strip_has_one_scale_and_the_parting() -> None:
    rows = texts(rates.strip(DATA, DEPTHS, 24, UNICODE))
    assert rows[0].endswith("506")
    assert rows[1].endswith("402")
    assert "►" in rows[2]
    assert rows[3] == " accepted 252/297 .848"


def test_rate_box_labels_both_means() -> None:
    rows = texts(rates.box(DATA, 35, 10, UNICODE))
    assert any(row.startswith(" 506D┤") for row in rows)
    assert any(row.startswith(" 402P┤") for row in rows)
    assert "#163" in rows[-2]


def test_the_faster_arm_is_ahead_in_the_race() -> None:
    rows = texts(rates.race(DATA, 35, 10, UNICODE))
    assert rows[0].index("▪") < rows[0].index("·")


@pytest.mark.parametrize("marks", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [16, 22, 31, 48, 80, 120])
@pytest.mark.parametrize("height", [5, 10, 20])
def test_charts_survive_every_size(marks: Marks, width: int, height: int) -> None:
    assert depth.strip(DEPTHS, width, marks)
    assert depth.box(DEPTHS, width, height, marks)
    assert rates.strip(DATA, DEPTHS, width, marks)
    assert rates.box(DATA, width, height, marks)
    assert rates.race(DATA, width, height, marks)
    assert ledger_rows.strip(LEDGER, width, marks)
    assert ledger_rows.box(LEDGER, width, marks)


def test_numbers() -> None:
    assert numbers.fraction(0.848) == ".848"
    assert numbers.fraction(1.0) == "1.000"
    assert numbers.fraction(None) == "n/a"
    assert numbers.ms(0.314) == ".31"
    assert numbers.ms(2.4915) == "2.49"
    assert numbers.ms(9.999) == "10.0"
    assert numbers.ms(99.97) == "100"
    assert numbers.signed(0) == "0"
    assert numbers.logits(0.0) == "0"
    assert numbers.ulps(243.2) == "243"
    assert numbers.bar(1, 100, 10) == "╸"
    assert numbers.bar(0, 100, 10) == ""
    assert numbers.bar(100, 100, 10) == "━" * 10


def test_screens_row_keeps_the_state() -> None:
    row = bars.screens_row([("1", "Play"), ("2", "Cycle")], "1", "DONE 1.9 s", 24)
    assert width_of(row) == 24
    assert text_of(row).endswith("DONE 1.9 s ")


def test_screens_row_names_the_active_screen_alone_where_it_is_narrow() -> None:
    screens = [("1", "Play"), ("2", "Cycle"), ("3", "Drift")]
    wide, narrow = (text_of(bars.screens_row(screens, "2", "RUN #1", n)) for n in (40, 39))
    assert wide == "ds4tui  1 Play [2 Cycle] 3 Drift RUN #1 "
    assert narrow == "ds4tui  1 [2 Cycle] 3           RUN #1 "


SHOWN = bars.Shown(("split", None), ("direct", "prefix"), (0.9, 0.8), (5, None), 400, "tiny 21M")


def test_prompt_row() -> None:
    narrow = text_of(bars.prompt_row("Why?", SHOWN, 60, True, UNICODE))
    assert narrow.rstrip() == "» Why?               split direct>prefix ≥.90>.80 blk5 n400"
    wide = text_of(bars.prompt_row("Why?", SHOWN, 120, False, UNICODE)).rstrip()
    assert wide.endswith("split · direct>prefix · conf ≥ 0.90>0.80 · block 5 · max 400 · tiny 21M")
    tight = text_of(bars.prompt_row("Why not?" * 9, SHOWN, 40, True, UNICODE))
    assert len(tight) == 40
    assert tight.rstrip().endswith("split direct>prefix")


def test_footer_shows_whole_entries_and_help_last() -> None:
    entries = [("r", "Run"), ("n", "Try invariant"), ("p", "Try prefix"), ("?", "Help")]
    row = [text_of(spans) for _, spans in bars.footer_row(entries, 30)]
    assert row == ["r Run", "n Try invariant", "? Help"]
    many = [(str(n), "x") for n in range(12)]
    assert len(bars.footer_row(many, 80)) == 6
    assert len(bars.footer_row(many, 120)) == 12


def test_pane_titles() -> None:
    plain, dspark = DIVERGED.arms
    top = text_of(panes.top_title(dspark, 50, UNICODE))
    assert top.startswith("DSpark · direct · split ─")
    assert top.endswith(f" ids {dspark.ids_hash}")
    foot = panes.PaneFoot(0, True, None)
    assert text_of(panes.bottom_title(DIVERGED, dspark, foot, 60, UNICODE)).endswith(
        "1.26x different work"
    )
    assert text_of(panes.bottom_title(DIVERGED, plain, foot, 60, UNICODE)) == (
        "402 tok/s · 400 tokens, length"
    )
    cursor = panes.PaneFoot(0, True, 163)
    shown = text_of(panes.bottom_title(DIVERGED, plain, cursor, 60, UNICODE))
    assert shown == f'#163 " reply" id {plain.ids[163]} plain gap 0.012'


def test_speed_up_has_its_interval_when_the_work_is_the_same() -> None:
    foot = panes.PaneFoot(0, True, None)
    title = text_of(panes.bottom_title(IDENTICAL, IDENTICAL.arms[1], foot, 60, UNICODE))
    assert "1.51x ±0." in title
    assert "different" not in title


def test_an_unresolved_speed_up_is_shown_in_a_pane_of_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RunRecord, "speedup", Speedup(1.02, 0.94, 1.11))
    arm, foot = IDENTICAL.arms[1], panes.PaneFoot(0, True, None)
    narrow = text_of(panes.bottom_title(IDENTICAL, arm, foot, 34, UNICODE))
    assert " tok/s ─" in narrow
    assert narrow.endswith(" 1.02x ±0.09 n.r.")
    assert len(narrow) == 34
    wide = text_of(panes.bottom_title(IDENTICAL, arm, foot, 56, UNICODE))
    assert wide.endswith(" 1.02x ±0.09 not resolved")


def test_scrolled_up_says_what_is_new() -> None:
    running = record_of(streams.until(streams.diverged_run(), 60))
    foot = panes.PaneFoot(34, False, None)
    title = panes.bottom_title(running, running.arms[0], foot, 36, UNICODE)
    assert text_of(title) == "34 new, end follows"


def test_loading_rows() -> None:
    steps = [panes.LoadStep("reading", 1, 1), panes.LoadStep("compiling kernels", 7, 23)]
    rows = texts(panes.loading_rows(steps, 36, UNICODE))
    assert rows[0] == "1 read files" + " " * 19 + "done"
    assert rows[1].startswith("2 compile kernels")
    assert rows[1].endswith("7/23")
    assert rows[3] == "  on the first start only"


def test_failure_rows_wrap_and_quote_the_engine() -> None:
    failed = RunFailed("", -1, 0, "x", "word " * 30, "Do this.", "a\nb\nc\nd [bold]\x1b")
    rows = texts(panes.failure_rows(failed, "r", 40))
    assert all(len(row) <= 40 for row in rows)
    assert rows[-1] == "d [bold]␛"
    assert "Do this. r tries again." in rows


def test_token_card() -> None:
    rows = texts(token_card.rows(DIVERGED, 163, 74))
    assert '> " reply"' in rows[3]
    assert '> " respond"' in rows[3]
    assert any("4 proposed, 3 accepted, depth 4" in row for row in rows)
    assert all(len(row) <= 74 for row in rows)
    assert token_card.title(DIVERGED, 163) == "#163, pos 181"


def test_token_card_of_the_arm_that_is_shown() -> None:
    record = RunRecord()
    for event in streams.diverged_run():
        if isinstance(event, RunStarted):
            third = replace(event.arms[1], name="strict", commit="strict")
            event = replace(event, arms=(*event.arms, third))
        record.feed(event)
    assert '> " respond"' in texts(token_card.rows(record, 163, 74))[3]
    record.choose(2)
    rows = texts(token_card.rows(record, 163, 74))
    assert "DSpark strict" in rows[0]
    assert "no token yet" in rows[1]
    assert not any("respond" in row and ">" in row.partition("respond")[0][-4:] for row in rows)


def test_token_card_of_recorded_ids() -> None:
    record = record_of(streams.diverged_run())
    info = replace(record.arms[1].info, kind="recorded", commit=None, name="recorded ids.json")
    record.arms[1].info = info
    assert "recorded ids.json" in texts(token_card.rows(record, 163, 74))[0]


@pytest.mark.parametrize(
    ("left", "right", "change"), [(1, 2, "+1.00"), (2, 1.5, "-.50"), (1, 11.05, "+10.1")]
)
def test_the_difference_of_two_arms_times(left: float, right: float, change: str) -> None:
    tallies = [ArmTally(ids=[1, 2], time=TimeSplit(decode=round(ms * 1e6))) for ms in (left, right)]
    rows = texts(pair.ledger_rows(tallies[0], tallies[1], ("direct", "replay"), 40, 9))
    assert rows[1].split()[0] == "total"
    assert rows[1].split()[3] == change


def test_spans() -> None:
    row: Row = [("abc", "a"), ("漢字", "b")]
    assert width_of(row) == 7
    assert text_of(crop(row, 5, "…")) == "abc …"
    assert text_of(fit(row, 9)) == "abc漢字  "
    assert text_of(spread([("a", "")], [("b", "")], 5, "-")) == "a---b"
    assert text_of(spread([("abc", "")], [("def", "")], 5)) == "abc  "
