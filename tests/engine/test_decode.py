"""Cycles one by one: budgets, ends of text, the gate, what is counted as what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.decode import Control
from engine.errors import Ds4Error
from engine.events import (
    ArmFinished,
    CycleFinished,
    Notice,
    SettingsChanged,
    TokensCommitted,
)
from engine.settings import Knobs
from tests.engine.races import Outcome, engine, run
from tests.engine.scripted import (
    BLOCK,
    EOS,
    VOCAB,
    ScriptedDrafter,
    ScriptedModel,
    continuation,
    path_script,
    random_script,
    spoiled,
)

IDS = [2 + i * 7 % 29 for i in range(200)]
PROMPT = 13
"""Ids of the prompt that `run` gives: 10 letters, BOS, user, assistant."""
POLICIES = ("direct", "prefix", "replay")
SCRIPT = path_script(IDS, PROMPT)


def perfect() -> ScriptedDrafter:
    return ScriptedDrafter(continuation(SCRIPT))


def outcome(drafter: ScriptedDrafter, *commits: str | Knobs, **settings: object) -> Outcome:
    made = engine(ScriptedModel(SCRIPT), drafter, context=settings.pop("context", 4096))  # type: ignore[arg-type]
    return run(made, *(commits or ("direct",)), **settings)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_perfect_drafter_has_rate_1_and_depth_6(policy: str) -> None:
    arm = outcome(perfect(), policy, max_tokens=1 + 6 * 10).arms[1]
    assert arm.counts.accept_rate == 1.0
    assert arm.counts.mean_depth == 6
    assert arm.counts.depth_hist() == {1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 10}


def test_a_drafter_that_is_always_wrong_has_depth_1() -> None:
    drafter = ScriptedDrafter(spoiled(continuation(SCRIPT), lambda tokens: 0))
    arm = outcome(drafter, max_tokens=20).arms[1]
    assert arm.counts.accept_rate == 0.0
    assert arm.counts.mean_depth == 1
    assert arm.counts.shallow() == (1, 18), "the last token has no room for a draft"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("tokens", [1, 2, BLOCK, BLOCK + 1, BLOCK + 2, 17])
def test_budgets_are_never_exceeded(policy: str, tokens: int) -> None:
    found = outcome(perfect(), policy, max_tokens=tokens)
    for arm in found.arms:
        assert arm.ids == IDS[:tokens]
    for cycle in found.of(CycleFinished):
        assert cycle.proposed <= tokens - cycle.index - 1
    assert {end.reason for end in found.of(ArmFinished)} == {"length"}
    assert [end.tokens for end in found.of(ArmFinished)] == [tokens, tokens]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("free", range(BLOCK + 3))
def test_the_context_clips_blocks_and_is_counted(policy: str, free: int) -> None:
    found = outcome(perfect(), policy, context=PROMPT + free)
    for arm in found.arms:
        assert arm.ids == IDS[: free + 1], "the last id need not be evaluated"
    assert {end.reason for end in found.of(ArmFinished)} == {"context"}
    clipped = [cycle for cycle in found.of(CycleFinished) if cycle.clip == "context"]
    assert bool(clipped) == (0 < free != BLOCK + 1)
    for cycle in clipped:
        assert cycle.proposed < BLOCK


def test_budget_clips_are_told_from_others() -> None:
    clips = [c.clip for c in outcome(perfect(), max_tokens=10).of(CycleFinished)]
    assert clips == ["", "budget"]
    knobs = Knobs(draft_max=2)
    assert [c.clip for c in outcome(perfect(), knobs, max_tokens=7).of(CycleFinished)] == [
        "draft_max",
        "draft_max",
    ]


@pytest.mark.parametrize("policy", [*POLICIES, "strict"])
@pytest.mark.parametrize("end", range(16))
def test_each_token_as_eos_in_turn_ends_both_arms(policy: str, end: int) -> None:
    made = engine(ScriptedModel(SCRIPT), perfect(), eos_id=IDS[end])
    found = run(made, policy)
    for arm in found.arms:
        assert arm.ids == IDS[: end + 1]
    assert [e.reason for e in found.of(ArmFinished)] == ["eos", "eos"]
    assert sum(c.depth for c in found.of(CycleFinished)) == end
    assert found.arms[1].counts.accept_rate in (None, 1.0), "nothing is proposed after an EOS"
    inside = [c for c in found.of(CycleFinished) if c.bonus == -1]
    for cycle in inside:
        assert cycle.depth == cycle.accepted
    for timeline in made._conversation.timelines.values():
        assert timeline.state.position == PROMPT + end, "all but the EOS itself is evaluated"


def test_an_eos_draft_that_the_target_does_not_want_is_rejected() -> None:
    drafter = ScriptedDrafter(lambda tokens: [IDS[len(tokens) - PROMPT], EOS, 5, 6, 7])
    arm = outcome(drafter, max_tokens=30).arms[1]
    assert arm.ids == IDS[:30]
    assert {c.proposed for c in arm.cycles[:-1]} == {2}
    assert {c.accepted for c in arm.cycles[:-1]} == {1}


def test_ignored_eos_is_never_chosen_or_drafted() -> None:
    script = path_script([EOS] * 50, PROMPT)
    drafter = ScriptedDrafter(lambda tokens: [EOS] * 5)
    found = run(engine(ScriptedModel(script), drafter), "direct", max_tokens=9, ignore_eos=True)
    assert found.arms[0].ids == [0] * 9
    assert all(EOS not in cycle.drafts for cycle in found.of(CycleFinished))


def test_strict_carries_and_drafts_nothing() -> None:
    drafter = perfect()
    found = outcome(drafter, "strict", max_tokens=20)
    assert found.arms[1].ids == IDS[:20]
    assert not drafter.blocks
    cycles = found.of(CycleFinished)
    assert {(c.clip, c.proposed, c.depth, c.drafts) for c in cycles} == {("strict", 0, 1, ())}
    assert len(cycles) == 19
    context = run(engine(ScriptedModel(SCRIPT), drafter), "strict").of(CycleFinished)
    assert context, "the scripted context asserts that no token was left out"


def test_a_single_row_is_a_decode() -> None:
    model = ScriptedModel(SCRIPT)
    found = run(engine(model, perfect(), gate=0.0), "prefix", max_tokens=8)
    last = found.of(CycleFinished)[-1]
    assert (last.proposed, last.depth, last.clip) == (0, 1, "budget")
    assert last.time.decode > 0
    assert last.time.verify == last.time.replay == 0
    assert found.of(TokensCommitted, 1)[-1].sources == ("bonus",)
    assert ("batch", 1) not in model.forwards


def test_sources_say_where_tokens_came_from() -> None:
    found = outcome(perfect(), max_tokens=7)
    assert [e.sources for e in found.of(TokensCommitted, 0)][:2] == [("prefill",), ("plain",)]
    assert [e.sources for e in found.of(TokensCommitted, 1)] == [
        ("prefill",),
        ("draft",) * 5 + ("bonus",),
    ]


class Gate:
    """Confidences by row."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def __call__(self, tokens: tuple[int, ...]) -> list[float]:
        return list(self.values)


def gated(*values: float, gate: float = 0.9) -> tuple[ScriptedDrafter, Outcome]:
    drafter = ScriptedDrafter(continuation(SCRIPT), Gate(*values))
    return drafter, outcome(drafter, Knobs(confidence=gate), max_tokens=12)


def test_a_failing_first_confidence_needs_no_head() -> None:
    drafter, found = gated(0.1, 1, 1, 1, 1)
    assert all(block.heads == 0 and block.asked == [0] for block in drafter.blocks)
    cycle = found.of(CycleFinished)[0]
    assert (cycle.drafts, cycle.confidences, cycle.clip) == ((), (0.1,), "confidence")


def clips_of(drafter: ScriptedDrafter, tokens: int, gate: float) -> list[tuple[str, int]]:
    """(clip, accepted) of every cycle; ids are plain's whatever happens."""
    found = outcome(drafter, Knobs("prefix", confidence=gate), max_tokens=tokens)
    assert found.arms[0].ids == found.arms[1].ids == IDS[:tokens]
    return [(c.clip, c.accepted) for c in found.of(CycleFinished)]


@pytest.mark.parametrize("right", [0, 1])
def test_cycles_that_lose_are_followed_by_longer_and_longer_pauses(right: int) -> None:
    def drafts(tokens: tuple[int, ...]) -> list[int]:
        return [*continuation(SCRIPT)(tokens)[:right], 3, 3, 3, 3, 3][:BLOCK]

    wrong = ScriptedDrafter(drafts, lambda tokens: [1] * BLOCK)
    expected = []
    for pause in (2, 4, 8, 16, 16):
        expected += [("", right), *[("pause", 0)] * pause]
    assert clips_of(wrong, 80, gate=0.5)[: len(expected)] == expected
    assert {clip for clip, _ in clips_of(wrong, 80, gate=0.0)} <= {"", "budget"}


def test_a_cycle_that_pays_ends_the_row_of_pauses() -> None:
    def drafts(tokens: tuple[int, ...]) -> list[int]:
        right = 2 if len(tokens) == PROMPT + 9 else 0
        return [*continuation(SCRIPT)(tokens)[:right], 3, 3, 3, 3, 3][:BLOCK]

    found = clips_of(ScriptedDrafter(drafts, lambda tokens: [1] * BLOCK), 60, gate=0.5)
    paused = [("pause", 0)]
    assert found[:13] == [
        *[("", 0), *paused * 2],
        *[("", 0), *paused * 4],
        *[("", 2), ("", 0), *paused * 2, ("", 0)],
    ]


def test_one_draft_at_most_pays_when_it_is_accepted() -> None:
    knobs = Knobs("prefix", confidence=0.5, draft_max=1)
    found = outcome(perfect(), knobs, max_tokens=20).of(CycleFinished)
    assert {cycle.clip for cycle in found} <= {"draft_max", "budget"}


def test_a_gate_that_is_never_passed_pauses_too() -> None:
    drafter, found = gated(0.1, 1, 1, 1, 1)
    clips = [c.clip for c in found.of(CycleFinished)]
    assert clips[:4] == ["confidence", "pause", "pause", "confidence"]
    assert len(drafter.blocks) < len(clips)


def test_the_first_row_under_the_gate_cuts_the_block_lazily() -> None:
    drafter, found = gated(0.95, 0.92, 0.5, 1, 1)
    cycle = found.of(CycleFinished)[0]
    assert cycle.proposed == 2
    assert cycle.confidences == (0.95, 0.92, 0.5)
    assert cycle.drafts == tuple(IDS[1:4]), "the draft that was cut is shown"
    assert drafter.blocks[0].asked == [0, 1, 2]


def test_a_confidence_at_the_gate_passes_and_a_nan_does_not() -> None:
    assert gated(0.9, 0.9, 0.9, 0.9, 0.9)[1].of(CycleFinished)[0].proposed == 5
    assert gated(float("nan"), 1, 1, 1, 1)[1].of(CycleFinished)[0].proposed == 0


def test_a_nan_is_told_once_for_every_arm() -> None:
    drafter = ScriptedDrafter(continuation(SCRIPT), lambda tokens: [1, float("nan")] * 3)
    arms = (Knobs("direct", confidence=0.5), Knobs("prefix", confidence=0.5), Knobs("replay"))
    found = run(engine(ScriptedModel(SCRIPT), drafter), *arms)
    assert [(notice.arm, notice.level) for notice in found.of(Notice)] == [
        (1, "warning"),
        (2, "warning"),
    ]
    assert found.of(Notice)[0].text == (
        f"{found.names()[1]}: the drafter's confidence is NaN, which the gate never passes, so "
        "such drafts are not proposed."
    )


def test_gate_0_is_no_gate_and_still_shows_the_confidences() -> None:
    cycle = gated(0.0, 0.0, 0.0, 0.0, 0.0, gate=0.0)[1].of(CycleFinished)[0]
    assert cycle.proposed == 5
    assert cycle.confidences == (0.0,) * 5


def test_without_the_markov_bias_drafts_are_the_unbiased_ones() -> None:
    drafter = ScriptedDrafter(continuation(SCRIPT), biased=True)
    cycle = outcome(drafter, max_tokens=12).of(CycleFinished)[0]
    assert cycle.drafts == tuple(IDS[1:6])
    assert cycle.drafts_unbiased == (0,) * 5
    plainly = outcome(drafter, max_tokens=12, markov=False).of(CycleFinished)[0]
    assert plainly.drafts == plainly.drafts_unbiased == (0,) * 5


def test_the_no_repeat_rule_holds_in_every_arm_and_in_drafts() -> None:
    script = path_script([4, 5] * 100, PROMPT)
    drafter = ScriptedDrafter(continuation(script))
    found = run(
        engine(ScriptedModel(script), drafter), *POLICIES, "strict", no_repeat=3, max_tokens=40
    )
    plain = found.arms[0].ids
    grams = [tuple(plain[i : i + 3]) for i in range(len(plain) - 2)]
    assert len(set(grams)) == len(grams)
    for arm in found.arms[1:]:
        assert arm.ids == plain
        for cycle in arm.cycles:
            history = [*plain[: cycle.index], *cycle.drafts]
            ends = range(cycle.index, len(history))
            before = {tuple(history[i : i + 3]) for i in range(cycle.index - 2)}
            assert not any(tuple(history[i - 2 : i + 1]) in before for i in ends if i > 1)


def test_the_files_own_rule_is_the_default_and_0_switches_it_off() -> None:
    script = path_script([4] * 50, PROMPT)
    made = engine(ScriptedModel(script), ScriptedDrafter(continuation(script)), no_repeat=2)
    assert run(made, "direct", max_tokens=10).arms[0].ids[:3] != [4, 4, 4]
    assert run(made, "direct", max_tokens=10, no_repeat=0).arms[0].ids == [4] * 10


def test_a_nan_in_the_logits_names_position_and_arm() -> None:
    def script(tokens: tuple[int, ...]) -> np.ndarray:
        row = SCRIPT(tokens)
        return row * np.float32("nan") if len(tokens) == PROMPT + 3 else row

    with pytest.raises(Ds4Error, match=f"position {PROMPT + 2} of arm plain.*NaN"):
        run(engine(ScriptedModel(script), perfect()), "strict")


def test_excluding_every_token_is_an_error_not_a_pick() -> None:
    with pytest.raises(Ds4Error, match="every token is excluded"):
        run(
            engine(ScriptedModel(SCRIPT), perfect()),
            no_repeat=1,
            max_tokens=VOCAB + 1,
            ignore_eos=True,
        )


def turned(knobs: Knobs) -> Outcome:
    """A run with `direct`, whose knobs are turned at the 30th checkpoint."""
    control, found = Control(0), list[int]()

    def checkpoint() -> None:
        found.append(1)
        if len(found) == 30:
            control.knobs[1] = replace(knobs, mtp=control.knobs[1].mtp)

    control.checkpoint = checkpoint
    return run(engine(ScriptedModel(SCRIPT), perfect()), "direct", control=control)


def test_a_turned_policy_leaves_the_drafter_s_own_gate_as_it_was() -> None:
    (changed,) = turned(Knobs("prefix", confidence=None)).of(SettingsChanged)
    assert changed.settings == (("commit", "prefix"),)


def test_knobs_turn_at_a_cycle_boundary() -> None:
    done = turned(Knobs("replay", 0.5, 2))
    (changed,) = done.of(SettingsChanged)
    assert changed.settings == (("commit", "replay"), ("confidence", "0.5"), ("draft_max", "2"))
    before = [c for c in done.of(CycleFinished) if c.cycle < changed.cycle]
    after = [c for c in done.of(CycleFinished) if c.cycle >= changed.cycle]
    assert {c.proposed for c in before} == {5}
    assert max(c.proposed for c in after) == 2
    assert all(c.replay_ids for c in after if c.proposed)
    assert done.arms[1].ids == IDS[:60]


def test_times_are_split_by_kind_and_sum_up() -> None:
    drafter = ScriptedDrafter(spoiled(continuation(SCRIPT), lambda tokens: len(tokens) % 6))
    found = outcome(drafter, *POLICIES, max_tokens=60)
    for number, policy in enumerate(POLICIES, start=1):
        time = found.arms[number].time
        assert time.draft > 0
        assert time.verify > 0
        assert time.commit > 0
        assert (time.replay > 0) == (policy != "prefix")
        assert time.prefill == 0, "the shared prefill is shown once"
        assert sum(c.time.total for c in found.arms[number].cycles) == time.total
    plain = found.arms[0].time
    assert plain.prefill > 0
    assert plain.total == plain.prefill + plain.decode


def test_random_targets_give_the_argmax_at_every_index() -> None:
    script = random_script(5)
    found = run(
        engine(ScriptedModel(script), ScriptedDrafter(continuation(script))),
        *POLICIES,
        ignore_eos=True,
    )
    tokens = [0, 3, *(10 + ord(c) % 20 for c in "abcdefghij"), 4]
    for token in found.arms[0].ids:
        row = script(tuple(tokens))
        row[EOS] = -np.inf
        assert token == int(np.argmax(row))
        tokens.append(token)
    assert all(arm.ids == found.arms[0].ids for arm in found.arms)
