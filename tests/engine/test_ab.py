"""Interleaving, drift, divergence and its verdict, controls, recorded arms, follow-up turns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from engine.arms import arm_names
from engine.compare import LOGITS_LAYER
from engine.decode import Control
from engine.errors import Ds4Error
from engine.events import (
    ArmFinished,
    CycleFinished,
    Diverged,
    Notice,
    RunFinished,
    RunStarted,
    StateDrift,
    TokensCommitted,
    TokenText,
)
from engine.settings import Knobs, Recorded
from tests.engine.races import Outcome, engine, run
from tests.engine.scripted import (
    BLOCK,
    EOS,
    ScriptedChoices,
    ScriptedDrafter,
    ScriptedModel,
    ScriptedState,
    continuation,
    path_script,
    random_script,
    spoiled,
)

PROMPT = 13
IDS = [2 + i * 7 % 29 for i in range(5000)]
SCRIPT = path_script(IDS, PROMPT)


def drafter(accepts: tuple[int, ...] = (5, 2, 0, 4), script: Any = SCRIPT) -> ScriptedDrafter:
    return ScriptedDrafter(
        spoiled(continuation(script), lambda tokens: accepts[len(tokens) % len(accepts)])
    )


class Tilted(ScriptedModel):
    """Batch rows at one index prefer another token by a tiny margin.

    Args:
        index: of the token that a batch row gets wrong.
        gap: plain's own gap between the two tokens there.
    """

    index = 40
    gap = 0.01
    level = 20.0

    def _row(self, state: Any, path: str) -> np.ndarray:
        row = super()._row(state, path) + np.float32(self.level)
        if state.position == PROMPT + self.index:
            right, wrong = IDS[self.index], IDS[self.index] + 1
            row[wrong] = row[right] - np.float32(self.gap)
            if path == "batch":
                row[wrong] = row[right] + np.float32(0.5)
        return row


def tilted(*commits: Any, index: int = 40, gap: float = 0.01, **settings: Any) -> Outcome:
    model = Tilted(SCRIPT)
    model.index, model.gap = index, gap
    wrong = [IDS[index] + 1, *IDS[index + 1 :]]

    def propose(tokens: tuple[int, ...]) -> list[int]:
        """A perfect drafter that falls for the same token."""
        at = len(tokens) - PROMPT
        return [wrong[i - index] if i >= index else IDS[i] for i in range(at, at + BLOCK)]

    parts = {"new_choices": lambda kinds: ScriptedChoices()} | settings.pop("parts", {})
    return run(engine(model, ScriptedDrafter(propose), **parts), *commits, **settings)


def test_the_arm_with_fewest_tokens_goes_next_and_plain_first_on_ties() -> None:
    found = run(engine(ScriptedModel(SCRIPT), drafter()), "direct", "replay", "strict")
    have = [0, 0, 0, 0]
    for event in found.of(TokensCommitted):
        assert have[event.arm] == min(have)
        assert event.arm == 0 or have[0] > min(have)
        have[event.arm] += len(event.ids)


def test_states_are_compared_at_every_boundary_of_every_arm() -> None:
    found = run(engine(ScriptedModel(SCRIPT), drafter()), "direct", "strict")
    for arm in (1, 2):
        boundaries = [drift.index for drift in found.of(StateDrift, arm)]
        ends = [cycle.index + cycle.depth - 1 for cycle in found.of(CycleFinished, arm)]
        assert boundaries == [0, *ends]
    for drift in found.of(StateDrift):
        assert drift.position == PROMPT + drift.index
        assert [name for _, name, _ in drift.tensors] == ["raw", "raw", "frontier_kv", "logits"]


def test_states_are_compared_without_hashing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ScriptedState, "digest")
    found = run(engine(ScriptedModel(SCRIPT), drafter()), "replay")
    names = (*ScriptedState().names(), (LOGITS_LAYER, "logits"))
    drifts = found.of(StateDrift)
    assert drifts
    assert all(tuple((layer, t) for layer, t, _ in drift.tensors) == names for drift in drifts)


def test_drift_starts_where_the_verify_state_is_kept() -> None:
    found = run(engine(ScriptedModel(SCRIPT), drafter((5,))), "direct", "replay")
    first = next(d for d in found.of(StateDrift, 1) if d.tensors[0][2] is not None)
    assert first.index == 6
    assert all(value is None for d in found.of(StateDrift, 2) for *_, value in d.tensors)
    assert [e.state_equal for e in found.of(ArmFinished)] == [None, False, True]


@pytest.mark.parametrize("every", [0, 1, 5])
def test_digests_do_not_disturb(every: int) -> None:
    script = random_script(11)
    model = ScriptedModel(script, noise=0.3)
    made = engine(model, drafter(script=script))
    found = run(made, "direct", "prefix", ignore_eos=True, digest_every=every)
    again = run(made, "direct", "prefix", ignore_eos=True, digest_every=1)
    assert [arm.ids for arm in found.arms] == [arm.ids for arm in again.arms]
    assert [arm.cycles[0].proposed for arm in found.arms[1:]] == [5, 5]
    compared = len(found.of(StateDrift, 1))
    assert compared == 0 if every == 0 else compared > 0
    if every == 5:
        assert compared < len(again.of(StateDrift, 1))


def test_sampled_comparison_still_compares_the_end() -> None:
    found = run(engine(ScriptedModel(SCRIPT), drafter()), "replay", digest_every=7)
    assert found.of(StateDrift)[-1].index == 59
    assert found.of(ArmFinished, 1)[0].state_equal is True


@pytest.mark.parametrize("index", [3, 12, 41, 59])
def test_a_flipped_verify_row_is_found_at_its_index(index: int) -> None:
    (parted,) = tilted("prefix", index=index).of(Diverged)
    assert (parted.index, parted.left, parted.right) == (index, IDS[index], IDS[index] + 1)
    assert parted.verdict == "near-tie"
    assert parted.ulp_type == "F16"
    assert parted.margin_logits == pytest.approx(0.01, rel=1e-3)
    assert parted.margin_ulps == pytest.approx(0.01 / 2**-6, rel=1e-3), "F16 at 25"
    assert not parted.logic_error


def test_causes_are_told_apart() -> None:
    (early,) = tilted("prefix", index=3).of(Diverged)
    assert (early.cause, early.first_drift) == ("verify_row", None)
    (late,) = tilted("prefix", index=40).of(Diverged)
    assert late.cause == "state"
    assert late.first_drift is not None
    assert (late.first_drift.position, late.first_drift.tensor) == (6, "raw")
    (replayed,) = (tilted("replay", index=40).of(RunFinished),)
    assert replayed[0].identical is True


def test_comparison_ends_at_the_divergence() -> None:
    found = tilted("prefix", index=20, max_tokens=80)
    assert max(drift.index for drift in found.of(StateDrift)) <= 20
    assert found.of(ArmFinished, 1)[0].state_equal is None
    assert len(found.arms[1].ids) == 80, "the arm itself goes on"


def test_4000_tokens_that_part_at_3900() -> None:
    found = tilted("prefix", index=3900, max_tokens=4000, digest_every=200)
    assert [event.index for event in found.of(Diverged)] == [3900]


def test_an_exact_tie_goes_to_the_lower_id_in_every_arm() -> None:
    found = tilted("direct", "prefix", "replay", "strict", index=20, gap=0.0)
    assert found.arms[0].ids[20] == IDS[20]
    for parted in found.of(Diverged):
        assert (parted.verdict, parted.margin_logits, parted.margin_ulps) == ("exact-tie", 0, 0)
    assert {parted.arm for parted in found.of(Diverged)} == {1, 2}


def test_a_large_margin_names_the_choices_that_differed() -> None:
    (parted,) = tilted("prefix", index=20, gap=4.0).of(Diverged)
    assert parted.verdict == "large-margin"
    assert not parted.logic_error
    assert parted.differing_choices[0] == "experts L3 #20: 6 / 7"
    assert len(parted.differing_choices) == 8
    (near,) = tilted("prefix", index=20, gap=0.01).of(Diverged)
    assert near.differing_choices == ()


def test_the_near_tie_limit_can_be_set() -> None:
    (parted,) = tilted("prefix", index=20, near_tie_ulps=0.1).of(Diverged)
    assert parted.verdict == "large-margin"


def test_invariant_margins_are_in_f32_ulps_on_the_cpu() -> None:
    script = random_script(2)
    made = engine(ScriptedModel(script, flaky=0.5), drafter(script=script))
    parted = run(made, "strict", numerics="invariant", ignore_eos=True).of(Diverged)
    assert parted[0].ulp_type == "F32"


def test_controls_agree_with_themselves() -> None:
    script = random_script(7)
    made = engine(ScriptedModel(script, noise=0.2), drafter(script=script))
    found = run(made, "direct", "replay", controls=True, ignore_eos=True)
    assert found.names() == [
        "plain", "direct", "replay", "plain again", "direct again", "replay again",
    ]  # fmt: skip
    roles = [info.role for info in found.of(RunStarted)[0].arms]
    assert roles == ["arm"] * 3 + ["control"] * 3
    for arm in range(3):
        assert found.arms[arm].ids == found.arms[arm + 3].ids
    assert found.events[-1].withheld == ""
    assert not found.of(StateDrift, 4)


def test_an_arm_that_disagrees_with_itself_withholds_the_verdict() -> None:
    script = random_script(7)
    made = engine(ScriptedModel(script, flaky=2.0), drafter(script=script))
    end = run(made, "direct", controls=True, ignore_eos=True).events[-1]
    assert isinstance(end, RunFinished)
    assert end.identical is None
    assert "plain: this arm disagrees with itself at " in end.withheld


def test_plain_only_has_no_verdict() -> None:
    found = run(engine(ScriptedModel(SCRIPT)), "direct")
    assert found.names() == ["plain"]
    assert "nothing is drafted" in found.of(Notice)[0].text
    assert found.events[-1].identical is None


def test_strict_says_that_nothing_is_drafted_and_why() -> None:
    found = run(engine(ScriptedModel(SCRIPT), drafter()), "strict")
    assert "strict drafts nothing" in found.of(Notice)[0].text


def test_recorded_ids_are_compared_with_plain() -> None:
    same = Recorded("same.json", tuple(IDS[:60]))
    other = Recorded("other.json", (*IDS[:30], IDS[30] + 1, *IDS[31:60]))
    shorter = Recorded("shorter.json", tuple(IDS[:10]))
    found = run(engine(ScriptedModel(SCRIPT)), request={"against": (same, other, shorter)})
    assert found.names()[1:] == [
        "recorded same.json", "recorded other.json", "recorded shorter.json",
    ]  # fmt: skip
    (parted,) = found.of(Diverged)
    assert (parted.arm, parted.index, parted.cause, parted.logic_error) == (2, 30, None, False)
    assert parted.margin_logits == 5.0
    assert found.arms[2].ids[30] == IDS[30] + 1, "the recorded ids are forced"
    assert not found.of(StateDrift)
    assert "the first 10 are compared" in found.of(Notice)[-1].text
    assert found.events[-1].identical is False


def test_recordings_of_one_name_are_told_apart() -> None:
    twice = (Recorded("ids.json", tuple(IDS[:9])), Recorded("ids.json", tuple(IDS[:5])))
    found = run(engine(ScriptedModel(SCRIPT)), request={"against": twice})
    assert found.names()[1:] == ["recorded ids.json", "recorded ids.json #2"]


def test_recorded_ids_after_the_end_of_the_run_are_told() -> None:
    longer = Recorded("longer.json", tuple(IDS[:70]))
    found = run(engine(ScriptedModel(SCRIPT)), request={"against": (longer,)})
    assert len(found.arms[1].ids) == 60
    text = "recorded longer.json has 70 ids; those after the first 60 are not compared."
    assert [notice.text for notice in found.of(Notice, 1)] == [text]
    # An end token that the other engine went over.
    past = Recorded("past.json", tuple(IDS[:20]))
    ended = run(engine(ScriptedModel(SCRIPT), eos_id=IDS[9]), request={"against": (past,)})
    assert len(ended.arms[1].ids) == 10
    assert "after the first 10 are not" in ended.of(Notice, 1)[0].text
    exact = Recorded("exact.json", tuple(IDS[:60]))
    whole = run(engine(ScriptedModel(SCRIPT)), request={"against": (exact,)})
    assert not whole.of(Notice, 1)


def test_recorded_ids_of_another_prompt_are_refused() -> None:
    wrong = Recorded("ids.json", (1, 2), prompt_ids=(0, 3, 99))
    with pytest.raises(Ds4Error, match=r"ids\.json was recorded for other prompt ids.* is at 2"):
        run(engine(ScriptedModel(SCRIPT)), request={"against": (wrong,)})
    foreign = Recorded("ids.json", (1, 2, 5000))
    with pytest.raises(Ds4Error, match="5000; expected 0 to 31"):
        run(engine(ScriptedModel(SCRIPT)), request={"against": (foreign,)})


def stopped(after: int, how: str, *commits: str, tokens: int = 400) -> tuple[Outcome, Any]:
    control = Control(0)
    steps: list[int] = []

    def checkpoint() -> None:
        steps.append(1)
        if len(steps) == after:
            setattr(control, how, True)

    control.checkpoint = checkpoint
    made = engine(ScriptedModel(SCRIPT), drafter())
    return run(made, *commits, control=control, max_tokens=tokens), made


@pytest.mark.parametrize("after", [1, 2, 3, 7, 10, 23])
def test_a_stop_levels_the_arms(after: int) -> None:
    found, made = stopped(after, "stopped", "direct", "prefix", "replay", "strict")
    lengths = {len(arm.ids) for arm in found.arms}
    assert len(lengths) == 1
    assert {end.reason for end in found.of(ArmFinished)} == {"stop"}
    assert found.events[-1].identical is True
    for timeline in made._conversation.timelines.values():
        shown = len(timeline.ids)
        assert timeline.state.position == PROMPT + max(0, shown - 1)


@pytest.mark.parametrize("after", [2, 5, 9, 17, 30])
def test_a_conversation_goes_on_after_a_stop_inside_a_block(after: int) -> None:
    found, made = stopped(after, "stopped", "direct", "prefix", "replay")
    shown = len(found.arms[0].ids)
    model = made._parts.model
    model.forwards.clear()
    longer = path_script(IDS, PROMPT + shown + 5 + 1)
    model.script = longer
    next(iter(made._parts.drafters.values())).propose = continuation(longer)
    again = run(
        made, "direct", "prefix", "replay", prompt="xyz", request={"follow_up": True}, max_tokens=30
    )
    started = again.of(RunStarted)[0]
    assert started.cached == PROMPT + shown
    assert started.prompt_ids[PROMPT : PROMPT + shown] == tuple(IDS[:shown])
    # One prefill per arm: the anchor if one was shown, EOS, user, three letters, assistant.
    prefills = [rows for path, rows in model.forwards if path == "batch"][:4]
    assert prefills == [6 + (shown > 0)] * 4
    for arm in again.arms:
        assert arm.ids == IDS[:30]
    drift = [d for d in again.of(StateDrift, 3)]
    assert all(value is None for d in drift for *_, value in d.tensors), "replay never drifts"


def test_an_arm_that_parted_goes_on_with_plains_text() -> None:
    model = Tilted(SCRIPT)
    model.index = 12
    wrong = [IDS[i] + (i == 12) for i in range(200)]
    made = engine(model, ScriptedDrafter(lambda tokens: wrong[len(tokens) - PROMPT :][:BLOCK]))
    first = run(made, "prefix", max_tokens=20)
    assert first.of(Diverged)
    model.script = path_script(IDS, 200)
    again = run(made, "prefix", prompt="xyz", request={"follow_up": True}, max_tokens=3)
    prompt = again.of(RunStarted)[0].prompt_ids
    assert prompt[PROMPT : PROMPT + 20] == tuple(first.arms[0].ids)


def test_a_long_later_turn_leaves_a_gap_in_the_drafters_context() -> None:
    made = engine(ScriptedModel(SCRIPT), drafter())
    run(made, "prefix", max_tokens=20)
    seen: list[tuple[int, ...]] = []
    (told,) = made._parts.drafters.values()
    told.propose = lambda tokens: seen.append(tokens) or [0] * BLOCK  # type: ignore[attr-defined]
    again = run(made, "prefix", prompt="k" * 300, request={"follow_up": True}, max_tokens=9)
    tokens = [*again.of(RunStarted)[0].prompt_ids, *again.arms[1].ids]
    assert seen
    for known in seen:
        assert len(known) >= 128, "the last rows of the window are there"
        end = len(tokens) - len(again.arms[1].ids) + 1
        assert list(known) == tokens[: end + seen.index(known)][-len(known) :]


def test_a_follow_up_needs_a_conversation() -> None:
    made = engine(ScriptedModel(SCRIPT), drafter())
    with pytest.raises(Ds4Error, match="follow-up"):
        run(made, "direct", request={"follow_up": True})


def test_an_answer_that_ended_is_not_ended_twice() -> None:
    script = path_script([5, 6, EOS, 7], PROMPT)
    made = engine(ScriptedModel(script), drafter(script=script))
    run(made, "replay")
    again = run(made, "replay", prompt="x", request={"follow_up": True}, max_tokens=1)
    assert again.of(RunStarted)[0].prompt_ids[PROMPT:] == (5, 6, EOS, 3, 10 + ord("x") % 20, 4)


def test_cancel_drops_the_run_at_once() -> None:
    found, _ = stopped(6, "cancelled", "direct")
    assert {end.reason for end in found.of(ArmFinished)} == {"cancelled"}
    assert found.events[-1].identical is None
    assert found.events[-1].withheld == "the run was cancelled"


def test_block_lengths_in_one_run() -> None:
    arms = [Knobs("prefix", draft_max=n) for n in (1, 2, 3, 4, 5)]
    found = tilted(*arms, index=20)
    assert found.names()[1:] == [f"prefix draft-max {n}" for n in (1, 2, 3, 4, 5)]
    assert {parted.index for parted in found.of(Diverged)} == {20}


def test_arms_with_their_own_drafters() -> None:
    wrong, right = drafter((0,)), drafter((5,))
    made = engine(ScriptedModel(SCRIPT), wrong, right)
    found = run(made, Knobs("replay"), Knobs("replay", mtp="drafter1.gguf"), max_tokens=61)
    assert [arm.counts.mean_depth for arm in found.arms[1:]] == [1, 6]
    assert found.names()[1:] == ["replay mtp drafter.gguf", "replay mtp drafter1.gguf"]
    with pytest.raises(Ds4Error, match='without drafter "other'):
        run(made, Knobs("replay", mtp="other.gguf"))


def test_every_arm_is_counted_by_the_block_of_its_own_drafter() -> None:
    blocks = (5, 2, 9)
    exact = [ScriptedDrafter(continuation(SCRIPT, n), lambda _: [1.0] * 9, n) for n in blocks]
    made = engine(ScriptedModel(SCRIPT), *exact)
    names = ("drafter.gguf", "drafter1.gguf", "drafter2.gguf")
    found = run(made, *(Knobs("prefix", mtp=name) for name in names), max_tokens=91)
    for block, arm in zip(blocks, found.arms[1:], strict=True):
        counts = arm.counts
        assert list(counts.depth_hist()) == list(range(1, block + 2))
        assert len(counts.accept_by_position()) == block
        assert sum(map(sum, counts.proposed_by_accepted())) == counts.cycles == 90 // (block + 1)
        assert counts.accept_rate == 1.0


def test_an_arm_names_the_noise_and_the_window_of_its_own_drafter() -> None:
    perfect = continuation(SCRIPT)
    first = ScriptedDrafter(perfect, noise_id=8, window=128)
    second = ScriptedDrafter(perfect, noise_id=9, window=300)
    made = engine(ScriptedModel(SCRIPT), first, second)
    arms = (Knobs("prefix"), Knobs("prefix", mtp="drafter1.gguf"))
    found = run(made, *arms, max_tokens=30, controls=True)
    started = found.of(RunStarted)[0]
    drafting = [arm for arm in started.arms if arm.kind == "dspark"]
    told = [(started.noise_of(arm), started.window_of(arm)) for arm in drafting]
    assert told == [(8, 128), (9, 300)] * 2, "arms, then their controls"
    ids = {token for event in found.of(TokenText) for token, _ in event.entries}
    assert {8, 9} <= ids, "both can be shown as text"


def test_every_drafter_gets_the_prompt_s_rows_that_it_can_see() -> None:
    """More of them than the target's window, where a drafter's own is longer."""
    starts: list[int] = []

    class Looking(ScriptedDrafter):
        def block(self, context: Any, *more: Any) -> Any:
            starts.append(context.start)
            return super().block(context, *more)

    made = engine(ScriptedModel(SCRIPT), Looking(continuation(SCRIPT), window=150))
    run(made, "direct", prompt="a" * 197, max_tokens=3)
    assert starts == [200 - 150]


def test_drafters_are_named_by_their_files_unless_two_have_one_name() -> None:
    apart = [Knobs(mtp="/some/where/a.gguf"), Knobs(mtp="b.gguf")]
    assert arm_names(apart) == ["direct mtp a.gguf", "direct mtp b.gguf"]
    alike = [Knobs(mtp="old/a.gguf"), Knobs(mtp="new/a.gguf")]
    assert arm_names(alike) == ["direct mtp old/a.gguf", "direct mtp new/a.gguf"]


def test_time_stamps_never_go_back() -> None:
    found = run(engine(ScriptedModel(SCRIPT), drafter()), "direct")
    assert all(a.t_ns <= b.t_ns for a, b in pairwise(found.events))
