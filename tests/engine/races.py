"""Runs of scripted engines, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.decode import Control
from engine.events import Event, RunStarted
from engine.parts import Parts
from engine.session import Engine
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings
from engine.stats import ArmTally, tally
from engine.tokenizer import Turn
from tests.engine.scripted import EOS, VOCAB, ScriptedDrafter, ScriptedModel, ScriptedState

FILES = EngineFiles(model="scripted.gguf", mtp=("drafter.gguf",))


class Letters:
    """A tokenizer of one id per character."""

    def encode(self, text: str, *, control_tokens: bool = False) -> list[int]:
        return [10 + ord(char) % 20 for char in text]

    def token_bytes(self, token: int) -> bytes:
        return b"<%d>" % token

    def render_raw(self, text: str, *, control_tokens: bool = False) -> list[int]:
        return [0, *self.encode(text)]

    def render_chat(
        self,
        turns: Sequence[Turn],
        *,
        system: str = "",
        think: bool = False,
        control_tokens: bool = False,
    ) -> list[int]:
        return [0, 3, *self.encode(system + turns[-1].text), 4]

    def render_follow_up(
        self, text: str, *, ended: bool, think: bool = False, control_tokens: bool = False
    ) -> list[int]:
        return [*([] if ended else [EOS]), 3, *self.encode(text), 4]


def engine(
    model: ScriptedModel,
    *drafters: ScriptedDrafter,
    context: int = 4096,
    longest_context: int = 4096,
    eos_id: int = EOS,
    no_repeat: int = 0,
    gate: float = 0.0,
    files: EngineFiles = FILES,
    **parts: Any,
) -> Engine:
    """An engine around scripted parts; drafters are named drafter.gguf, drafter1.gguf, ..."""
    names = [f"drafter{i or ''}.gguf" for i in range(len(drafters))]
    made = Parts(
        model=model,
        tokenizer=Letters(),
        files=(),
        vocab_size=VOCAB,
        context=context,
        longest_context=longest_context,
        window=128,
        layer_kinds=(0, 4),
        eos_id=eos_id,
        no_repeat=no_repeat,
        drafters=dict(zip(names, drafters, strict=True)),
        gates=dict.fromkeys(names, gate),
        new_state=lambda: ScriptedState(context),
        **parts,
    )
    return Engine(made, files)


@dataclass(frozen=True)
class Outcome:
    """A finished run."""

    events: list[Event]
    arms: list[ArmTally]

    def of(self, kind: type[Any], arm: int | None = None) -> list[Any]:
        """Events of a kind."""
        return [e for e in self.events if isinstance(e, kind) and arm in (None, e.arm)]

    def names(self) -> list[str]:
        """Arms as announced."""
        return [info.name for info in self.of(RunStarted)[0].arms]


def run(
    made: Engine,
    *commits: str | Knobs,
    prompt: str = "abcdefghij",
    control: Control | None = None,
    request: dict[str, Any] | None = None,
    **settings: Any,
) -> Outcome:
    """One run with a DSpark arm per policy or knobs."""
    dspark = tuple(k if isinstance(k, Knobs) else Knobs(commit=k) for k in commits)  # type: ignore[arg-type]
    settings.setdefault("max_tokens", 60)
    asked = RunRequest(Prompt(prompt), Settings(dspark=dspark, **settings), **(request or {}))
    events = list(made.run(asked, control))
    return Outcome(events, tally(events))
