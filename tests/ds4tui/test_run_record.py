"""A run gathered from its events, and the figures made of it."""

from __future__ import annotations

import hashlib
import struct

import pytest

from ds4tui.figures import depths, ledger, rates
from ds4tui.run_record import RunRecord
from engine.events import RunStarted, TimeSplit, TokensCommitted, TokenText
from tests.ds4tui import streams
from tests.ds4tui.harness import record_of


@pytest.fixture(scope="module")
def diverged() -> RunRecord:
    return record_of(streams.diverged_run())


def test_the_scripted_run_adds_up(diverged: RunRecord) -> None:
    plain, dspark = diverged.arms
    assert len(plain.ids) == len(dspark.ids) == 400
    assert plain.ids[:163] == dspark.ids[:163]
    assert plain.ids[163] != dspark.ids[163]
    found = depths(dspark.tally.counts)
    assert found is not None
    assert found.counts == (55, 26, 20, 16, 12, 18)
    assert found.no_draft == 46
    assert (found.accepted, found.proposed, found.cycles) == (252, 297, 147)
    assert found.by_position == ((92, 101), (66, 71), (46, 50), (30, 33), (18, 20))
    assert found.lengths_vary


def test_ledger_terms_sum_to_the_saving(diverged: RunRecord) -> None:
    found = ledger(diverged.arms[0].tally, diverged.arms[1].tally)
    assert found is not None
    assert sum(found.terms.values()) == pytest.approx(found.saved_ms)
    plain_ms = diverged.arms[0].tally.decode_ns / 1e6
    assert found.saved_ms == pytest.approx(plain_ms - diverged.arms[1].tally.decode_ns / 1e6)


def test_hash_is_over_little_endian_ids(diverged: RunRecord) -> None:
    ids = diverged.arms[0].ids
    digest = hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()
    assert diverged.arms[0].ids_hash == digest[:8]


def test_first_drift_names_the_first_tensor(diverged: RunRecord) -> None:
    drift = diverged.arms[1].first_drift
    assert drift is not None
    assert (drift.position, drift.layer, drift.tensor) == (3, 2, "frontier_kv")


def test_cycle_of_a_token(diverged: RunRecord) -> None:
    dspark = diverged.arms[1]
    cycle = dspark.cycle_of(163)
    assert cycle is not None
    assert cycle.index <= 163 < cycle.index + cycle.depth
    assert dspark.cycle_of(0) is None


def test_rejected_drafts_belong_to_the_token_that_replaced_them(diverged: RunRecord) -> None:
    dspark = diverged.arms[1]
    cycle = dspark.cycle_of(163)
    assert cycle is not None
    assert dspark.rejected[164] == cycle.drafts[3:4]


def test_rates_count_tokens_not_events() -> None:
    # Steps of 1, 6 and 3 tokens that take 1 ms a token: ten tokens, one rate.
    token_ns = [0.0] + [1e6] * 10
    assert rates(token_ns, 11, 5) == [pytest.approx(1000)] * 5


def test_rates_leave_out_what_is_still_to_come() -> None:
    found = rates([0.0] + [1e6] * 49, 400, 8)
    assert found[0] == pytest.approx(1000)
    assert found[1:] == [None] * 7


def test_no_cycles_no_histogram() -> None:
    record = record_of(streams.diverged_run()[:4])
    assert depths(record.arms[1].tally.counts) is None
    assert ledger(record.arms[0].tally, record.arms[1].tally) is None


def with_bytes(*pieces: bytes) -> RunRecord:
    events = streams.diverged_run()
    started = next(event for event in events if isinstance(event, RunStarted))
    record = RunRecord()
    record.feed(started)
    ids = tuple(range(5000, 5000 + len(pieces)))
    record.feed(TokenText("run-1", -1, 0, tuple(zip(ids, pieces, strict=True))))
    for at, token in enumerate(ids):
        top = (((token, 1.0), (1, 0.5)),)
        record.feed(
            TokensCommitted(
                "run-1", 0, 0, at, 18 + at, (token,), ("plain",), top, TimeSplit(decode=1)
            )
        )
    return record


def test_characters_split_over_tokens_are_shown_once_and_whole() -> None:
    smile = "😀".encode()
    record = with_bytes(smile[:2], smile[2:], b"\xe6\xbc", b"\xa2!")
    assert record.arms[0].texts == ["", "😀", "", "\u6f22!"]


def test_bytes_that_are_no_text_are_hex() -> None:
    record = with_bytes(b"a\xff", b"b")
    assert "".join(record.arms[0].texts) == "a<0xFF>b"


def test_an_arm_that_was_not_announced_is_left_out() -> None:
    events = streams.diverged_run()
    record = record_of(events[:6])
    from dataclasses import replace

    record.feed(replace(events[8], arm=7))
    assert len(record.arms) == 2
