"""The cycle inspector: outcomes, policies and costs as pure functions, and screen 2 by keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4tui import cycle_data as data
from ds4tui.knobs_now import gate_at, policy_at
from ds4tui.marks import ASCII, UNICODE, Marks
from ds4tui.paint import cycle as paint
from ds4tui.paint import cycle_beside as beside
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.run_state import RunState
from ds4tui.screens.cycle import CycleScreen
from ds4tui.screens.token_popup import TokenPopup
from ds4tui.spans import text_of, width_of
from ds4tui.widgets.box import Box
from engine.events import CycleFinished, SettingsChanged, TokenText
from tests.ds4tui import streams
from tests.ds4tui.harness import make_app, make_controller, record_of, settle


@pytest.fixture
def record() -> RunRecord:
    return record_of(streams.diverged_run())


def parting_cycle(record: RunRecord) -> tuple[ArmRecord, CycleFinished]:
    arm = record.arms[1]
    cycle = arm.cycle_of(163)
    assert cycle is not None
    return arm, cycle


def test_rows_of_the_batch_say_what_became_of_each_draft(record: RunRecord) -> None:
    arm, cycle = parting_cycle(record)
    rows = data.batch_rows(record, arm, cycle)
    outcomes = ["accepted", "accepted", "accepted", 'rejected; bonus ","', "cut by gate .41 < .90"]
    assert [row.outcome for row in rows] == outcomes
    assert [row.token for row in rows] == ["server", "does", "not", "respond", "and"]
    assert [row.plain for row in rows][1:4] == ["not", "reply", "differs"]
    assert [row.parts for row in rows] == [False, False, True, False, False]


def test_a_decode_a_dropped_draft_and_an_end_have_words(record: RunRecord) -> None:
    arm, cycle = parting_cycle(record)
    decode = next(c for c in arm.cycles if not c.proposed)
    (row,) = data.batch_rows(record, arm, decode)
    assert row.outcome.startswith("bonus ")
    assert row.outcome.endswith("cut by gate .41 < .90")
    dropped = replace(cycle, accepted=2, recheck_cut=1)
    outcomes = [row.outcome for row in data.batch_rows(record, arm, dropped)]
    assert outcomes[2].startswith("accepted, dropped by the re-decode; bonus")
    assert outcomes[3] == "after a rejected draft"
    ended = replace(cycle, proposed=3, accepted=3, bonus=-1, clip="eos", confidences=(0.9,) * 3)
    assert "the text ends here" in data.batch_rows(record, arm, ended)[3].outcome


@pytest.mark.parametrize(
    ("policy", "change", "words"),
    [
        ("direct", {}, "restored to #160, 4 rows re-decoded; the re-decode says the same"),
        (
            "direct",
            {"accepted": 4, "replay_ids": ()},
            "all accepted, so the verify's state is kept",
        ),
        ("prefix", {"replay_ids": ()}, "prefix slot 4 installed, nothing re-decoded"),
        ("reproject", {"replay_ids": ()}, "compressors of 4 rows run again"),
        ("direct", {"proposed": 0, "replay_ids": ()}, "nothing was proposed"),
        ("prefix", {"proposed": 0, "clip": "pause"}, "drafting pauses after cycles that lost"),
        ("strict", {"proposed": 0}, "strict: the drafter's state is carried"),
    ],
)
def test_what_the_policy_did(
    record: RunRecord, policy: str, change: dict[str, object], words: str
) -> None:
    arm, cycle = parting_cycle(record)
    arm.info = replace(arm.info, commit=policy)
    assert words in data.committed_words(record, arm, replace(cycle, **change))  # type: ignore[arg-type]


def test_a_re_decode_that_disagrees_is_told(record: RunRecord) -> None:
    arm, cycle = parting_cycle(record)
    plain = record.arms[0].ids[163]
    said = replace(cycle, replay_ids=(*cycle.replay_ids[:2], plain, cycle.bonus))
    words = data.committed_words(record, arm, said)
    assert 'row 2 now says " reply": replay would cut here, direct does not look' in words
    dropped = replace(said, accepted=2, recheck_cut=1, replay_ids=said.replay_ids[:3], bonus=plain)
    arm.info = replace(arm.info, commit="replay")
    assert "1 accepted draft dropped" in data.committed_words(record, arm, dropped)


def test_the_block_is_told_of_cycles_that_made_one(record: RunRecord) -> None:
    arm, cycle = parting_cycle(record)

    def tells_of_a_block(**change: object) -> bool:
        shown = replace(cycle, proposed=0, accepted=0, **change)  # type: ignore[arg-type]
        rows = paint.cycle_rows(record, arm, shown, 163, 120, 30, UNICODE)
        return "block input" in "\n".join(map(text_of, rows))

    assert tells_of_a_block()
    assert tells_of_a_block(drafts=(), clip="confidence")
    assert not tells_of_a_block(drafts=(), confidences=(), clip="pause")


def test_policy_and_gate_are_those_of_the_cycle(record: RunRecord) -> None:
    arm, cycle = parting_cycle(record)
    turned = (("commit", "replay"), ("confidence", "0.5"))
    arm.changes.append(SettingsChanged("run-1", 1, 0, cycle.cycle, turned))
    assert policy_at(arm, cycle.cycle - 1) == "direct"
    assert policy_at(arm, cycle.cycle) == "replay"
    assert (gate_at(arm, cycle.cycle - 1), gate_at(arm, cycle.cycle)) == (0.9, 0.5)
    arm.changes[:] = [SettingsChanged("run-1", 1, 0, cycle.cycle, (("confidence", "none"),))]
    assert gate_at(arm, cycle.cycle) == 0.9  # the drafter's own


def test_the_block_is_that_of_the_arm_s_own_drafter(record: RunRecord) -> None:
    arm, cycle = parting_cycle(record)

    def last_row() -> str:
        return text_of(paint.cycle_rows(record, arm, cycle, 163, 120, 30, UNICODE)[-1])

    assert "server + 4 x noise (id 8)   drafter context: positions 50..177" in last_row()
    arm.info = replace(arm.info, block_size=9, noise_id=3, window=100)
    assert "server + 8 x noise (id 3)   drafter context: positions 78..177" in last_row()


def test_context_time_and_state(record: RunRecord) -> None:
    arm, cycle = parting_cycle(record)
    assert data.context_of(cycle, 128) == (50, 177)
    assert data.context_of(replace(cycle, position=4), 128) == (0, 2)
    time = data.time_of(record, cycle)
    assert [name for name, _ in time.kinds] == [
        *("draft", "verify, 5 rows", "replay, 4 rows", "commit"),
    ]
    assert time.plain is not None
    assert time.saved == pytest.approx(time.plain - time.total)
    assert sum(value for _, value in time.kinds) == pytest.approx(time.total)
    assert data.state_after(arm, cycle) is not None
    assert data.state_after(arm, arm.cycles[-1]) is None


@pytest.mark.parametrize("marks", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(20, 4), (78, 9), (84, 20)])
def test_painted_rows_fit(record: RunRecord, size: tuple[int, int], marks: Marks) -> None:
    arm, cycle = parting_cycle(record)
    record.feed(TokenText("run-1", -1, 0, ((cycle.drafts[0], "漢字 \x1b[2J[bold".encode()),)))
    width, height = size
    painted = [
        *paint.cycle_rows(record, arm, cycle, 163, width, height, marks),
        *beside.top_rows(record, arm, 163, max(22, width), marks),
        *beside.text_rows(record, arm, cycle, 163, width, marks),
    ]
    assert all(width_of(row) <= max(22, width) for row in painted)
    assert not any("\x1b" in text_of(row) for row in painted)
    assert len(paint.list_rows(record, arm, cycle.cycle, 20, marks)) == 20


async def test_cycles_and_rows_follow_the_cursor_and_move_it() -> None:
    app = make_app(make_controller(streams.diverged_run()))
    async with app.run_test(size=(120, 36)) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        await pilot.press("d", "h", "2")
        await settle(pilot)
        screen = app.instrument
        assert isinstance(screen, CycleScreen)
        assert screen.shown is not None
        first = screen.shown[2]
        assert (first.cycle, screen.shown[3]) == (61, 162)
        await pilot.press("j", "j", "j")
        assert screen.shown[3] == 164
        await pilot.press("full_stop")
        assert screen.shown[2].cycle == 62
        await pilot.press("slash")
        assert screen.shown[3] in screen.shown[1].rejected
        await pilot.press("g")
        assert screen.shown[2].cycle == 0
        await pilot.press("G", "enter")
        await settle(pilot)
        assert isinstance(app.screen, TokenPopup)
        await pilot.press("escape", "D", "escape")
        await settle(pilot)
        assert app.instrument.KEY == "1"
        assert app.playground.panes.cursor == 3


async def test_strict_drafts_nothing_and_says_so() -> None:
    script = streams.Script(policy="strict", no_drafts=True, diverges=False, drifts=False)
    app = make_app(make_controller(streams.run(script)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        await pilot.press("2")
        await settle(pilot)
        screen = app.instrument
        assert isinstance(screen, CycleScreen)
        assert not screen.check_action("rejected_draft", ())
        text = "\n".join(map(text_of, screen._rows(78, 12)))
        assert "strict: the drafter's state is carried" in text


async def test_without_a_run_it_says_what_to_press() -> None:
    app = make_app(make_controller(prompt=None))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: app.controller.ready is not None)
        await pilot.press("2")
        await settle(pilot)
        screen = app.instrument
        assert isinstance(screen, CycleScreen)
        assert "No run yet. r runs the prompt" in text_of(screen._rows(78, 12)[0])
        assert not screen.check_action("cycle", (1,))


async def test_nothing_of_a_cycle_is_lost_in_a_small_terminal() -> None:
    app = make_app(make_controller(streams.diverged_run()))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: app.controller.state is RunState.DONE)
        await pilot.press("d", "2")
        await settle(pilot)
        screen = app.instrument
        assert isinstance(screen, CycleScreen)
        box = screen.query_one("#cycle-box", Box)
        assert "3 more below, m shows all" in box.text()
        assert "cycle 61 of 147" in box.titles(False)[0]
        seen = box.text()
        await pilot.press("pagedown")
        await settle(pilot)
        assert "drafter context: positions" in box.text()
        assert "3 more above" in box.text()
        await pilot.press("m")
        await settle(pilot)
        whole = box.text()
        assert "more" not in whole
        for words in ("0  server", "4  and", "accepted/proposed 3/4", "drafter context"):
            assert words in whole
        assert all(line in whole for line in seen.splitlines()[1:7])
        await pilot.press("escape")
        await settle(pilot)
        assert app.instrument is screen
        assert not screen.has_class("-max")


def test_the_outcome_of_the_chosen_row_is_said_in_full(record: RunRecord) -> None:
    arm, cycle = parting_cycle(record)
    rows = [text_of(row) for row in paint.cycle_rows(record, arm, cycle, 164, 60, 30, UNICODE)]
    assert any(row.endswith("…") for row in rows)
    assert 'row 3: rejected; bonus ","' in rows


def test_long_blocks_are_counted_in_the_list(record: RunRecord) -> None:
    _, cycle = parting_cycle(record)
    assert paint.drafts_glyphs(cycle, UNICODE) == "▪▪▪\u00d7"
    long = replace(cycle, proposed=15, accepted=11, recheck_cut=1)
    assert paint.drafts_glyphs(long, UNICODE) == "11▪1o3\u00d7"
