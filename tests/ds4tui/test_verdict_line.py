"""Row 3 in all its forms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ds4tui.marks import UNICODE
from ds4tui.run_record import RunRecord
from ds4tui.run_state import RunState
from ds4tui.spans import text_of, width_of
from ds4tui.verdict_line import VerdictLine, verdict_line, verdict_row
from engine.events import (
    ArmFinished,
    CycleFinished,
    Event,
    RunFailed,
    RunFinished,
    RunStarted,
    SettingsChanged,
)
from tests.ds4tui import streams
from tests.ds4tui.streams import Script


def line_of(events: list[Event], state: RunState = RunState.DONE) -> VerdictLine:
    record = RunRecord()
    for event in events:
        record.feed(event)
    return verdict_line(record, state)


def at(line: VerdictLine, width: int) -> str:
    row = verdict_row(line, width, UNICODE)
    assert width_of(row) <= width
    return text_of(row)


def turned(events: list[Event], *turns: tuple[int, str]) -> list[Event]:
    """The same run with its policy turned before some cycles."""
    changes = [SettingsChanged("run-1", 1, 0, cycle, (("commit", to),)) for cycle, to in turns]
    return [*events[:-2], *changes, *events[-2:]]


def test_one_id_is_the_prefills_and_no_evidence() -> None:
    events = [e for e in streams.run(Script(tokens=1)) if not isinstance(e, CycleFinished)]
    line = line_of(events)
    assert line.head == "= IDENTICAL"
    assert line.bodies[0] == "1 id, of the prefill that all arms share: nothing was decoded"


def test_diverged() -> None:
    line = line_of(streams.diverged_run())
    assert line.level == "differ"
    assert at(line, 120) == (
        '≠ DIVERGED at 163   plain " reply"  DSpark " respond"  near-tie 0.012 = 1.5 ulp F16'
        "  cause state: L2 frontier_kv from #3"
    )
    assert at(line, 80) == (
        '≠ DIVERGED at 163  " reply" / " respond"  near-tie 0.012 = 1.5 ulp F16 state #3'
    )
    assert at(line, 40) == '≠ DIVERGED at 163  " reply" / " respond"'


def test_diverged_by_the_verify_row() -> None:
    line = line_of(streams.run(Script(drifts=False)))
    assert "cause verify_row" in line.bodies[0]


def test_identical_so_far() -> None:
    line = line_of(streams.until(streams.diverged_run(), 99), RunState.DECODING)
    assert line.head == "= identical so far"
    assert "of 400 compared" in line.bodies[0]
    assert "smallest gap" in line.bodies[0]


def test_identical_with_equal_state() -> None:
    line = line_of(streams.run(Script(diverges=False, drifts=False)))
    assert at(line, 120).startswith("= IDENTICAL         400 ids, state equal after all 147 cycles")
    assert "smallest gap 0.012 = 1.5 ulp F16 at 163" in at(line, 120)


def test_identical_but_the_state_differs() -> None:
    line = line_of(streams.run(Script(diverges=False, drifts=True)))
    assert "but the state differs from #3 on: another prompt may part" in at(line, 120)


def test_identical_with_a_state_that_nobody_compared() -> None:
    line = line_of(streams.sampled(streams.run(Script(diverges=False, drifts=False)), 0))
    assert at(line, 80) == "= IDENTICAL  400 ids, state not compared"
    assert "not compared   smallest gap 0.012 = 1.5 ulp F16 at 163" in at(line, 120)


@pytest.mark.parametrize("width", [80, 120])
def test_only_what_was_compared_is_said_to_be_equal(width: int) -> None:
    """As `--digests 50`, or the default of a large target."""
    events = streams.sampled(streams.run(Script(diverges=False, drifts=False)), 50)
    assert "400 ids, state equal at 3 of 148 boundaries" in at(line_of(events), width)
    strict = streams.sampled(streams.strict_run(), 50)
    whole = "400 ids, state equal at 8 of 400 boundaries   strict drafts nothing"
    assert whole in at(line_of(strict), 120)


def test_a_drift_found_between_two_comparisons_began_at_the_latest_there() -> None:
    line = line_of(streams.sampled(streams.run(Script(diverges=False)), 50))
    found = line.bodies[0].partition("differs from ")[2]
    assert found.endswith(" at the latest: another prompt may part")
    parted = line_of(streams.sampled(streams.diverged_run(), 50, drift=77))
    assert "cause state: L2 frontier_kv from #77 at the latest" in parted.bodies[0]
    assert at(parted, 90).endswith(" state by #77")


def test_a_cause_that_nobody_compared_is_not_known() -> None:
    for every, states in ((0, "not compared"), (99, "compared at 1 of 62 boundaries")):
        line = line_of(streams.sampled(streams.diverged_run(), every, cause=None))
        assert line.bodies[0].endswith(f"cause not known: states {states}")
        assert "cause not known" in at(line, 90)


def test_identical_where_nothing_could_part_so_far() -> None:
    """Of these ids, never of the prompt; and what is known of the state stays beside it."""
    line = line_of(streams.run(Script(diverges=False, large_gaps=True)))
    said = "400 ids, no gap under 1.80: cannot show a divergence so far"
    assert at(line, 120) == f"= IDENTICAL  {said}, state differs from #3 on   ] next prompt"
    assert at(line, 80) == (
        "= IDENTICAL  400 ids, no gap under 1.80 so far, state differs from #3 on"
    )
    assert not any("prompt cannot" in body for body in line.bodies)
    unknown = streams.sampled(streams.run(Script(diverges=False, large_gaps=True)), 0)
    assert "state not compared" in at(line_of(unknown), 80)


def test_identical_but_mixed() -> None:
    line = line_of(turned(streams.run(Script(diverges=False, drifts=False)), (40, "replay")))
    assert "MIXED: direct to #" in line.bodies[0]
    assert ", then replay; " in line.bodies[0]
    assert "nothing is promised" in line.bodies[0]


def test_a_mix_names_every_policy_and_its_index() -> None:
    line = line_of(
        turned(
            streams.run(Script(diverges=False, drifts=False)),
            (10, "prefix"),
            (10, "replay"),
            (20, "direct"),
        )
    )
    assert line.bodies[0] == (
        "400 ids, MIXED: direct to #18, replay to #49, then direct; nothing is promised"
    )
    assert at(line, 80) == (
        "= IDENTICAL  400 ids, MIXED, nothing is promised: direct, replay #18, direct #49"
    )
    assert at(line, 60) == "= IDENTICAL  400 ids, MIXED, nothing is promised: direct, r…"


def test_a_policy_that_was_turned_back_at_once_was_never_in_force() -> None:
    line = line_of(
        turned(streams.run(Script(diverges=False, drifts=False)), (10, "prefix"), (10, "direct"))
    )
    assert line.bodies == ("400 ids, MIXED: direct, turned and turned back; nothing is promised",)


@pytest.mark.parametrize(
    ("numerics", "settings", "promise"),
    [
        ("invariant", (), "as each of them must be"),
        ("invariant", (("perturb", "0.001:1"),), "nothing is promised"),
        ("split", (), "nothing is promised"),
    ],
)
def test_what_a_mix_promises_is_what_its_policies_promise(
    numerics: str, settings: tuple[tuple[str, str], ...], promise: str
) -> None:
    events = streams.run(Script(diverges=False, drifts=False, numerics=numerics))
    events = [
        replace(event, settings=(*event.settings, *settings))
        if isinstance(event, RunStarted)
        else event
        for event in events
    ]
    assert promise in line_of(turned(events, (40, "prefix"))).bodies[0]


def test_logic_error_is_called_a_bug() -> None:
    events = streams.run(Script(logic_error=True))
    line = line_of(events)
    assert line.level == "bug"
    assert line.head == "! LOGIC ERROR at 163"
    assert line.bodies[0].startswith('" respond" was committed')
    assert "a bug" in line.bodies[0]


def test_withheld() -> None:
    events = streams.run(Script(diverges=False))
    why = "DSpark disagrees with itself at 88 (controls), so it is not compared"
    line = line_of([*events[:-1], RunFinished("run-1", -1, 0, None, why)])
    assert at(line, 120) == f"? WITHHELD          {why}"


def test_no_proposals() -> None:
    line = line_of(streams.run(Script(diverges=False, no_drafts=True)))
    assert line.head == "! 0 PROPOSALS"
    assert line.bodies[0] == (
        "in 399 cycles; last stage that ran: confidence, highest .41 < .90   C lowers the gate"
    )


def test_strict_is_not_told_that_it_drafts_nothing() -> None:
    script = Script(diverges=False, no_drafts=True, policy="strict", drifts=False)
    line = line_of(streams.run(script))
    assert line.head == "= IDENTICAL"
    shown = "400 ids   strict drafts nothing, it only carries the drafter"
    assert at(line, 80) == f"= IDENTICAL  {shown}"
    assert "state equal after all" in at(line, 120)
    running = line_of(streams.until(streams.run(script), 99), RunState.DECODING)
    assert "strict drafts nothing, it only carries the drafter" in at(running, 80)


def test_failed_keeps_the_text() -> None:
    line = line_of(streams.failed_run())
    assert "signal 9" in at(line, 120)
    assert at(line, 80) == "\u00d7 FAILED  engine process ended   text kept   r retries"


def test_before_anything() -> None:
    assert verdict_line(None, RunState.IDLE).head == "· no run yet"
    assert "loaded" in verdict_line(None, RunState.LOADING).bodies[0]
    assert verdict_line(None, RunState.IDLE, has_prompt=False).bodies == ("i takes a prompt",)
    failure = RunFailed("", -1, 0, "File not found", "x.gguf does not exist.", "Give another.")
    assert "does not exist" in verdict_line(None, RunState.FAILED, failure).bodies[0]


def test_stopped_says_so() -> None:
    events = streams.until(streams.run(Script(diverges=False, drifts=False)), 120)
    done = [ArmFinished("run-1", arm, 0, "stop", 121, True) for arm in (0, 1)]
    line = line_of([*events, *done, RunFinished("run-1", -1, 0, True)])
    assert "compared, stopped, state equal after all" in line.bodies[0]


def test_hostile_tokens_stay_in_their_row() -> None:
    events = streams.run(Script())
    events = [
        replace(e, entries=tuple((n, b"\x1b[2J\n[/bold]") for n, _ in e.entries))
        if type(e).__name__ == "TokenText"
        else e
        for e in events
    ]
    shown = at(line_of(events), 200)
    assert "\x1b" not in shown
    assert "[/bold]" in shown


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 200])
def test_always_one_row(width: int) -> None:
    for events in (streams.diverged_run(), streams.failed_run(), streams.identical_run()):
        at(line_of(events), width)
