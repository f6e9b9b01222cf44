"""Every row speaks of the arm that is shown beside plain: drafting, recorded or a control."""

from __future__ import annotations

from ds4tui.marks import UNICODE
from ds4tui.paint.bars import settings_spans
from ds4tui.pooled_runs import work_of
from ds4tui.run_record import RunRecord
from ds4tui.run_state import RunState
from ds4tui.runs_list import lines_of
from ds4tui.spans import text_of
from ds4tui.status import shown_settings
from ds4tui.verdict_line import verdict_line, verdict_row
from ds4tui.widgets.bars import KeyFooter, PromptBar, VerdictBar
from ds4tui.widgets.charts import SidedBox
from engine.events import ArmFinished, Event, RunFinished
from engine.settings import Knobs, Recorded, Settings
from tests.ds4tui.harness import record_of, settle
from tests.ds4tui.session import LARGE, Session, finished
from tests.ds4tui.test_controller import started
from tests.ds4tui.test_replay import begun
from tests.engine.test_ab import IDS, tilted

SAME = Recorded("same.json", tuple(IDS[:60]))
OTHER = Recorded("other.json", (*IDS[:30], IDS[30] + 1, *IDS[31:60]))
DIRECT, RECORDED_SAME, RECORDED_OTHER, PLAIN_AGAIN, DIRECT_AGAIN = range(1, 6)


def all_kinds() -> list[Event]:
    """A run of every kind of arm; `direct` parts at 40, one of the recordings at 30."""
    found = tilted("direct", controls=True, request={"against": (SAME, OTHER)})
    assert found.names() == [
        "plain", "direct", "recorded same.json", "recorded other.json", "plain again",
        "direct again",
    ]  # fmt: skip
    return found.events


def test_the_list_of_runs_has_recordings_too() -> None:
    lines = {line.policy: line for line in lines_of(record_of(all_kinds()), "12:00")}
    assert set(lines) == {"direct", "recorded"}
    short = Recorded("short.json", SAME.ids[:1])
    for recorded, verdict in (
        (SAME, "= IDENTICAL"), (OTHER, "≠ #30 large-margin"), (short, "= 1 of 60 ids"),
    ):  # fmt: skip
        record = record_of(tilted(request={"against": (recorded,)}).events)
        (line,) = lines_of(record, "12:00")
        assert line.verdict == verdict
        assert (line.arm, line.tokens_per_s) == (1, None)
        assert "x" not in line.versus
        if recorded is short:
            line = "= IDENTICAL         1 id of 60 compared, no gap under 5.00: cannot show a div"
            assert row_3(record, 1).startswith(line)


def row_3(record: RunRecord, arm: int, state: RunState = RunState.DONE) -> str:
    record.choose(arm)
    return text_of(verdict_row(verdict_line(record, state), 120, UNICODE))


def row_2(events: list[Event], arm: int) -> str:
    controller, clock = begun(events)
    clock.now += 1000
    controller.drain()
    assert controller.record is not None
    controller.record.choose(arm)
    return text_of(settings_spans(shown_settings(controller, ""), 80, True, UNICODE))


def test_the_verdict_is_on_the_arm_that_is_shown() -> None:
    record = record_of(all_kinds())
    assert row_3(record, DIRECT).startswith("≠ DIVERGED at 40    plain ")
    assert row_3(record, RECORDED_SAME).startswith("= IDENTICAL         60 ids   smallest gap 0.01")
    other = row_3(record, RECORDED_OTHER)
    assert other.startswith("≠ DIVERGED at 30    plain ")
    assert '  recorded other.json "' in other
    assert row_3(record, PLAIN_AGAIN) == "= IDENTICAL         plain again: 60 ids as the first time"
    assert row_3(record, DIRECT_AGAIN) == (
        "≠ DIVERGED at 40    direct again: 60 ids as the first time, not as plain's"
    )


def test_a_control_has_no_verdict_before_the_end_and_none_that_is_withheld() -> None:
    events = all_kinds()
    running = record_of(e for e in events if not isinstance(e, ArmFinished | RunFinished))
    assert row_3(running, PLAIN_AGAIN, RunState.DECODING) == (
        "· CONTROL           plain again is compared with the first time at the end"
    )
    assert row_3(running, DIRECT_AGAIN, RunState.DECODING) == (
        "≠ DIVERGED at 40    direct again is compared with the first time at the end"
    )
    withheld = record_of([*events[:-1], RunFinished("run-1", -1, 0, None, "it disagrees")])
    assert row_3(withheld, DIRECT_AGAIN) == "? WITHHELD          it disagrees"


def test_the_settings_are_of_the_arm_that_is_shown() -> None:
    events = all_kinds()
    assert row_2(events, DIRECT) == row_2(events, DIRECT_AGAIN) == "split direct ≥.00 blk5 n60"
    assert row_2(events, RECORDED_SAME) == "split recorded n60"
    assert row_2(events, PLAIN_AGAIN) == "split plain n60"


def test_beside_an_arm_without_knobs_the_next_run_s_policy_is_told() -> None:
    controller, _ = started(all_kinds(), settings=Settings(dspark=(Knobs("prefix"),)))
    controller.drain()
    assert controller.record is not None
    for arm, policy in ((DIRECT, "direct"), (RECORDED_SAME, "recorded"), (PLAIN_AGAIN, "plain")):
        controller.record.choose(arm)
        assert shown_settings(controller, "").policy == (policy, "prefix")


def test_given_ids_have_no_speed_and_economics_are_of_compared_arms() -> None:
    record = record_of(all_kinds())
    assert record.arms[RECORDED_SAME].tokens_per_s is None
    assert record.arms[PLAIN_AGAIN].tokens_per_s is not None
    of_arms = {}
    for arm in range(1, len(record.arms)):
        record.choose(arm)
        work = work_of(record)
        assert work is not None
        of_arms[arm] = work.arm
    assert of_arms == {DIRECT: record.arms[DIRECT]} | dict.fromkeys(range(2, 6))


async def test_the_screens_follow_from_arm_to_arm() -> None:
    session = Session(all_kinds())
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        seen = []
        for _ in range(5):
            seen.append((session.row(PromptBar), session.row(VerdictBar), session.screen[3]))
            assert "w Other arm" in session.row(KeyFooter)
            await pilot.press("w")
            await settle(pilot)
        assert [verdict.split("  ")[0] for _, verdict, _ in seen] == [
            "≠ DIVERGED at 40", "= IDENTICAL", "≠ DIVERGED at 30", "= IDENTICAL",
            "≠ DIVERGED at 40",
        ]  # fmt: skip
        policies = [settings.split(" · ")[1] for settings, _, _ in seen]
        again = ["recorded>direct"] * 2
        assert policies == ["direct", *again, "plain>direct", "direct"], "r runs direct"
        await pilot.press("w", "w")
        await settle(pilot)
        ledger = session.app.playground.query_one("#ledger", SidedBox)
        assert "saved" not in ledger.text(), "a recording spares nothing"
        await pilot.press("2")
        await settle(pilot)
        assert "recorded other.json drafts nothing" in "\n".join(session.screen)
        assert "w Other arm" in session.screen[-1]
        await pilot.press("w", "w", "3")
        await settle(pilot)
        assert "direct again is a control, whose ids alone are compared" in session.screen[4]
        await pilot.press("w", "w", "w", "5")
        await settle(pilot)
        assert "no economics of recorded other.json" in "\n".join(session.screen)


async def test_a_control_of_an_arm_that_parted_parts_from_plain_in_the_panes_too() -> None:
    session = Session(all_kinds())
    async with session.app.run_test(size=LARGE) as pilot:
        await finished(pilot, session)
        for _ in range(4):
            await pilot.press("w")
        await settle(pilot)
        assert "direct again" in session.screen[3]
        assert any("different work" in row for row in session.screen)
        panes = session.app.playground.panes
        assert [pane.parting for pane in panes.both] == [40, 40]
        assert sum(row.count("►") for row in session.screen[3:20]) == 2
        await pilot.press("d")
        await settle(pilot)
        assert panes.cursor == 40
        await pilot.press("w", "w", "w", "w")
        await settle(pilot)
        assert "plain again" in session.screen[3]
        assert [pane.parting for pane in panes.both] == [None, None]
        assert "d Divergence" not in session.row(KeyFooter)
