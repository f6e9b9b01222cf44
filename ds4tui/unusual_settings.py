"""The settings of a run that change its result and are not their defaults, for a heading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ds4tui.report import Document
from engine.settings import OF_ARMS, EngineFiles, Prompt, Settings, as_json, as_text
from engine.text import one_line, visible

_PROMPT = Prompt("")
_DEFAULTS: dict[str, object] = {
    **as_json(as_text(Settings(), EngineFiles(""))),
    "no_repeat": 0,  # of files that have no such rule; the embedded pair has one
    "digest_every": 1,
    "system": None,
    "chat": _PROMPT.chat,
    "think": _PROMPT.think,
    "control_tokens": _PROMPT.control_tokens,
}
OF_PROMPTS = ("system", "chat", "think", "control_tokens")
"""Settings that every prompt of a set may have for itself."""
_TOLD_APART = ("numerics", "max_tokens", *OF_ARMS)
"""Settings that a heading names anyhow."""
_UNKNOWN = ("context",)
"""What is recorded is the capacity that came of it, not whether it was asked for."""


def is_usual(name: str, value: object) -> bool:
    """A setting has its default, or neither it nor its default says anything."""
    default = _DEFAULTS.get(name)
    return value == default or not (value or default)


def unusual(settings: Mapping[str, object]) -> Iterator[str]:
    """Every setting that is not its default: `no_repeat 8`, `ignore_eos`, `no markov`.

    Args:
        settings: of a run, as in its JSON document; the names are the same.
    """
    for name, value in settings.items():
        if name not in _TOLD_APART and name not in _UNKNOWN and not is_usual(name, value):
            yield visible(_said(name, value))


def _said(name: str, value: object) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if isinstance(value, list):
        return f"{name} {','.join(map(str, value)) or 'none'}"
    return f'system "{one_line(str(value), 30)}"' if name == "system" else f"{name} {value}"


def knobs(arms: Sequence[Document]) -> Iterator[str]:
    """The threshold and the most drafts that all arms that draft have: `confidence 0.5`.

    Arms of which these differ have them in their names.
    """
    drafting = [arm for arm in arms if arm["commit"] not in (None, "strict")]
    for name, word in (("confidence", "confidence"), ("draft_max", "draft-max")):
        values = {arm[name] for arm in drafting}
        value = values.pop() if len(values) == 1 else None
        if value is not None:
            yield f"{word} {value:g}"
