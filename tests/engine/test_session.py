"""The public boundary: settings, sentences for what cannot be run, prompts, events that cross."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from engine.decode import Control
from engine.errors import Ds4Error
from engine.events import (
    ArmFinished,
    CycleFinished,
    Event,
    LoadProgress,
    Notice,
    PromptRendered,
    RunFinished,
    RunStarted,
    TokensCommitted,
    TokenText,
)
from engine.paths import OP_CLASSES, Perturb
from engine.settings import (
    EngineFiles,
    Knobs,
    Prompt,
    RunRequest,
    Settings,
    as_json,
    as_text,
    check_temperature,
    parse_arm,
    parse_names,
    parse_perturb,
)
from engine.verdict import must_be_identical
from tests.engine.races import engine, run
from tests.engine.scripted import (
    ScriptedChoices,
    ScriptedDrafter,
    ScriptedModel,
    continuation,
    path_script,
)

PROMPT = 13
IDS = [2 + i * 7 % 29 for i in range(200)]
SCRIPT = path_script(IDS, PROMPT)


def parts() -> tuple[ScriptedModel, ScriptedDrafter]:
    return ScriptedModel(SCRIPT), ScriptedDrafter(continuation(SCRIPT))


@pytest.mark.parametrize("text", ["-1", "0.7", "nan", "inf", "abc", ""])
def test_a_temperature_other_than_0_is_refused(text: str) -> None:
    with pytest.raises(Ds4Error, match="--temp"):
        check_temperature(text)


@pytest.mark.parametrize("text", ["0", "0.0", "-0"])
def test_temperature_0_is_accepted(text: str) -> None:
    check_temperature(text)


def test_unknown_names_list_the_valid_ones() -> None:
    with pytest.raises(Ds4Error, match='"router2"; expected some of hc, qkv, compressor'):
        parse_names("--batch-ops", "compressor,router2", OP_CLASSES)
    with pytest.raises(Ds4Error, match='--commit is "fast"; expected one of direct, prefix, repr'):
        Settings(dspark=(Knobs(commit="fast"),))  # type: ignore[arg-type]
    with pytest.raises(Ds4Error, match='"speed=3"; expected KEY=VALUE with KEY one of commit'):
        parse_arm("commit=replay,speed=3", Knobs())
    with pytest.raises(Ds4Error, match="split or invariant"):
        Settings(numerics="exact")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["compressor", "nonsense:4", "head:0", "head:1048577", "head:x", "head:-3", ":4"]
)
def test_perturbations_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(Ds4Error, match="--perturb"):
        parse_perturb(text, 0)


def test_a_perturbation_in_range() -> None:
    assert parse_perturb("compressor:1048576", 7) == Perturb("compressor", 2**20, 7)


def test_an_arm_inherits_what_it_does_not_say() -> None:
    base = Knobs("direct", 0.5, 3)
    assert parse_arm("commit=replay", base) == Knobs("replay", 0.5, 3)
    assert parse_arm("confidence=0,draft-max=1,mtp=d.gguf", base) == Knobs(
        "direct", 0.0, 1, "d.gguf"
    )


@pytest.mark.parametrize(
    "knobs",
    [{"confidence": 1.5}, {"confidence": float("nan")}, {"confidence": -0.1}, {"draft_max": 0}],
)
def test_knobs_out_of_range_are_refused(knobs: dict[str, float]) -> None:
    with pytest.raises(Ds4Error, match="expected"):
        Settings(dspark=(Knobs(**knobs),))  # type: ignore[arg-type]


def test_batch_ops_in_invariant_contradict_each_other() -> None:
    with pytest.raises(Ds4Error, match="--batch-ops was given with --numerics invariant"):
        Settings(numerics="invariant", batch_ops=("compressor",))


def test_a_draft_max_beyond_the_block_is_refused_with_the_block() -> None:
    with pytest.raises(Ds4Error, match="--draft-max is 6; expected 1 to 5"):
        run(engine(*parts()), Knobs(draft_max=6))


def test_a_prompt_longer_than_the_context_is_one_sentence() -> None:
    with pytest.raises(Ds4Error, match="prompt has 13 tokens, the context holds 12"):
        run(engine(*parts(), context=12), "direct")


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_an_empty_prompt_is_one_sentence(text: str) -> None:
    with pytest.raises(Ds4Error, match="prompt is empty"):
        run(engine(*parts()), "direct", prompt=text)


def test_a_raw_prompt_has_one_bos_and_no_turns() -> None:
    made = engine(*parts())
    request = RunRequest(Prompt("abc", chat=False), Settings(max_tokens=1))
    started = next(e for e in made.run(request) if isinstance(e, RunStarted))
    assert started.prompt_ids == (0, 27, 28, 29)
    assert dict(started.settings)["chat"] == "false"


def test_a_prompt_can_be_rendered_without_a_run() -> None:
    text, rendered = engine(*parts()).render(Prompt("ab"))
    assert isinstance(rendered, PromptRendered)
    assert rendered.prompt_ids == (0, 3, 27, 28, 4)
    assert isinstance(text, TokenText)
    assert dict(text.entries)[27] == b"<27>"


def named(event: Event) -> set[int]:
    match event:
        case TokensCommitted():
            return {*event.ids, *(i for row in event.top for i, _ in row)}
        case CycleFinished():
            return {event.anchor, *event.drafts, *event.verify_ids, *event.replay_ids}
        case RunStarted():
            return {*event.prompt_ids, event.noise_id, event.eos_id}
        case _:
            return set()


def test_bytes_come_before_the_first_event_that_names_an_id() -> None:
    known: set[int] = set()
    found = run(engine(*parts()), "direct", "replay")
    for event in found.events:
        if isinstance(event, TokenText):
            fresh = {token for token, _ in event.entries}
            assert not fresh & known, "each id once"
            known |= fresh
        assert named(event) <= known


def test_events_are_picklable_and_carry_one_run() -> None:
    found = run(engine(*parts()), "direct", max_tokens=20)
    assert pickle.loads(pickle.dumps(found.events)) == found.events
    assert len({event.run_id for event in found.events}) == 1
    again = run(engine(*parts()), "direct", max_tokens=20)
    assert again.events[0].run_id != found.events[0].run_id


def test_the_run_says_everything_that_was_set() -> None:
    made = engine(*parts(), gate=0.7, no_repeat=8, files=EngineFiles("x.gguf", threads=1))
    started = run(made, "direct", seed=9, perturb=Perturb("head", 4, 9)).of(RunStarted)[0]
    values = as_json(started.settings)
    assert values["confidence"] == 0.7
    assert values["no_repeat"] == 8
    assert values["seed"] == 9
    assert values["perturb"] == "head:4"
    assert values["kv_rounding"] == "fp8"
    assert values["batch_ops"] == list(OP_CLASSES)
    assert values["draft_max"] is None
    assert values["pin"] == []
    assert values["ignore_eos"] is False
    assert values["chat"] is True
    assert {"numerics", "max_tokens", "context", "threads", "device"} <= values.keys()
    assert (started.block_size, started.noise_id, started.window) == (5, 8, 128)


def test_settings_come_back_from_text_with_their_types() -> None:
    settings = Settings(no_repeat=0, pin=("router",), dspark=(Knobs(confidence=0.25),))
    values = as_json(as_text(settings, EngineFiles("m", kv_rounding="none")))
    assert values["no_repeat"] == 0
    assert values["confidence"] == 0.25
    assert values["pin"] == ["router"]
    assert values["kv_rounding"] == "none"
    assert values["near_tie_ulps"] == 32


def test_a_perturbation_is_said_to_void_promises() -> None:
    found = run(engine(*parts()), "direct", numerics="invariant", perturb=Perturb("head", 4, 0))
    assert "only replay and strict still promise" in found.of(Notice)[0].text


def test_a_pin_in_invariant_needs_a_fault_that_it_can_act_on() -> None:
    with pytest.raises(Ds4Error, match="--pin was given with --numerics invariant"):
        Settings("invariant", pin=("router",))
    assert not Settings("invariant", pin=("router",), perturb=Perturb("hc", 4, 0)).why_split


def test_replay_and_strict_keep_their_promise_beside_a_pin() -> None:
    made = engine(*parts(), new_choices=lambda asked: ScriptedChoices())
    found = run(made, "replay", "strict", pin=("router",))
    (said,) = (notice.text for notice in found.of(Notice) if "--pin" in notice.text)
    assert said.endswith("a diagnostic; only replay and strict still promise identical ids.")
    assert all(must_be_identical("split", c, perturbed=False) for c in ("replay", "strict"))
    assert [end.state_equal for end in found.of(ArmFinished)] == [None, True, True]


def test_pinned_verifies_take_a_record_of_plain_made_outside_the_clocks() -> None:
    model, drafter = parts()
    kinds: list[object] = []

    def new_choices(asked: object) -> ScriptedChoices:
        kinds.append(asked)
        return ScriptedChoices()

    progress: list[LoadProgress] = []
    made = engine(model, drafter, new_choices=new_choices)
    request = RunRequest(
        Prompt("abcdefghij"), Settings(pin=("router",), max_tokens=20, dspark=(Knobs("prefix"),))
    )
    events = list(made.run(request, report=progress.append))  # type: ignore[arg-type]
    assert kinds == [("router",)]
    pinned = [pin for pin in model.pins if pin is not None]
    assert pinned
    assert all(pin.token(PROMPT + 3) == IDS[3] for pin in pinned)
    rows = [n for (_, n), pin in zip(model.forwards, model.pins, strict=True) if pin is not None]
    assert min(rows) > 1, "a single row is never pinned"
    assert "recording choices" in {event.stage for event in progress}
    assert events[-1].identical  # type: ignore[attr-defined]


@pytest.mark.parametrize("longest", [20, 4096])
def test_more_context_is_advised_only_where_it_helps(longest: int) -> None:
    def hint(needed: int) -> str:
        if longest < needed:
            return ": the target was made for at most 20 tokens."
        return f", or give --ctx {needed} or more, up to 4096."

    made = engine(*parts(), context=20, longest_context=longest)
    with pytest.raises(Ds4Error) as error:
        run(made, "direct", prompt="a" * 30)
    assert str(error.value).endswith(
        f"The prompt has 33 tokens, the context holds 20. Shorten it{hint(33)}"
    )
    run(made, "direct", prompt="abc", max_tokens=8)
    with pytest.raises(Ds4Error) as error:
        run(made, "direct", prompt="a" * 15, request={"follow_up": True})
    assert str(error.value).endswith(
        "The conversation with this turn has 32 tokens, the context holds 20. "
        f"Run it as a first turn{hint(32)}"
    )


def test_invariant_is_refused_where_rows_differ() -> None:
    made = engine(*parts(), rows_differ=lambda: "row 2 of 6 has other logits")
    with pytest.raises(Ds4Error, match="does not hold on this machine: row 2 of 6"):
        run(made, "prefix", numerics="invariant")
    assert run(made, "replay").events[-1].identical


def test_a_run_stopped_in_its_prefill_ends_without_a_token() -> None:
    class Long(ScriptedModel):
        def forward(self, state, ids, plan, *, on_rows=None, **more):  # type: ignore[no-untyped-def]
            rows = super().forward(state, ids, plan, **more)
            if on_rows:
                on_rows(1, len(ids))
            return rows

    control = Control(0)

    def checkpoint() -> None:
        control.stopped = True

    control.checkpoint = checkpoint
    made = engine(Long(SCRIPT), parts()[1])
    found = run(made, "direct", control=control)
    assert isinstance(found.events[-1], RunFinished)
    assert "before its first token" in found.events[-1].withheld
    assert not found.of(TokensCommitted)


def test_loading_warnings_are_repeated_with_every_run() -> None:
    made = engine(*parts(), warnings=("the pre-tokenizer is not known",))
    notice = run(made, "direct").of(Notice)[0]
    assert (notice.level, notice.text) == ("warning", "the pre-tokenizer is not known")


def test_ready_says_where_the_knobs_stand() -> None:
    ready = engine(*parts(), gate=0.8, no_repeat=8, context=99).ready()
    assert (ready.block_size, ready.confidence, ready.no_repeat, ready.context) == (5, 0.8, 8, 99)
    assert replace(engine(ScriptedModel(SCRIPT)).ready(), t_ns=0).block_size == 0
