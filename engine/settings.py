"""Everything that a run can be told, with defaults and the sentences for what cannot be.

Owns names, defaults and ranges of the options and their form as text in events. Knows neither the
command line's syntax nor the model; what needs a loaded model is checked in `engine.session`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, TypeVar, cast

from engine.errors import Ds4Error
from engine.paths import NUMERICS, OP_CLASSES, POLICIES, Numerics, Perturb, Policy

DEFAULT_MAX_TOKENS = 400
MOST_TOKENS = 2**31 - 1
NEAR_TIE_ULPS = 32.0
"""Largest margin still called a near-tie: with FP8 rows flips at up to 12 ulps were seen."""
MAX_PERTURB_ULPS = 2**20
PINS = ("router", "indexer")
KV_ROUNDINGS = ("fp8", "none")
DEVICES = ("cpu", "cuda")

KvRounding = Literal["fp8", "none"]
Number = TypeVar("Number", int, float)


def most_threads() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class EngineFiles:
    """What an engine is loaded from and for.

    Args:
        model: path of the target.
        mtp: paths of the drafters, the default one first; empty = plain only.
        kv_rounding: `fp8` rounds stored rows as ds4 does, `none` keeps them.
        context: capacity in tokens; None = the file's, at most 8192.
        threads: CPU threads of the kernels.
    """

    model: str
    mtp: tuple[str, ...] = ()
    device: str = "cpu"
    threads: int = 1
    context: int | None = None
    kv_rounding: KvRounding = "fp8"

    def __post_init__(self) -> None:
        """Refuse threads that there is nothing for."""
        if self.threads == 1:
            return
        if self.device != "cpu":
            raise Ds4Error(
                "Contradictory options",
                f"--threads is for the kernels of the CPU, --device is {self.device}.",
                "Leave one of them out.",
            )
        most = most_threads()
        if not 1 <= self.threads <= most:
            raise Ds4Error(
                "Invalid option",
                f"--threads is {self.threads}; expected 1 to {most}, the processors that this "
                "process may use.",
            )


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user turn and how it is rendered."""

    text: str
    system: str = ""
    chat: bool = True
    think: bool = False
    control_tokens: bool = False


@dataclass(frozen=True, slots=True)
class Knobs:
    """One DSpark arm: policy, confidence threshold, most drafts of a block, drafter.

    `confidence` None is the drafter's own default; above 0 the arm also pauses drafting after
    cycles that lost (`engine.propose.Pause`). `draft_max` None is the whole block,
    `mtp` None the engine's first drafter.
    """

    commit: Policy = "direct"
    confidence: float | None = None
    draft_max: int | None = None
    mtp: str | None = None


def _refused(option: str, found: str, expected: str) -> Ds4Error:
    return Ds4Error("Invalid option", f"{option} {found}; expected {expected}.")


def check_names(option: str, names: Iterable[str], valid: tuple[str, ...]) -> None:
    """Refuse the first name that is not valid, listing those that are."""
    for name in names:
        if name not in valid:
            raise _refused(option, f'names "{name}"', f"some of {', '.join(valid)}")


def check_knobs(knobs: Knobs) -> None:
    """Refuse a DSpark arm's values out of range; the block size is checked when it is known."""
    if knobs.commit not in POLICIES:
        raise _refused("--commit", f'is "{knobs.commit}"', f"one of {', '.join(POLICIES)}")
    if knobs.confidence is not None and not 0 <= knobs.confidence <= 1:
        raise _refused(
            "--dspark-confidence", f"is {knobs.confidence:g}", "a number from 0 (no gate) to 1"
        )
    if knobs.draft_max is not None and knobs.draft_max < 1:
        raise _refused(
            "--draft-max",
            f"is {knobs.draft_max}",
            "1 or more; --commit strict drafts nothing",
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one run.

    Args:
        dspark: the DSpark arms, in order; empty = plain only.
        no_repeat: N of the no-repeat-N-gram rule, 0 = off, None = the target file's own.
        markov: add the drafter's Markov bias.
        batch_ops: op classes that a `split` verify evaluates by the `batch` path.
        pin: choices that multi-row verifies take from a plain decode recorded beforehand.
        digest_every: compare states at every n-th common boundary; 0 = never, None = every
            boundary of a small state, every 16th of a large one.
        near_tie_ulps: largest margin called a near-tie.
    """

    numerics: Numerics = "split"
    dspark: tuple[Knobs, ...] = (Knobs(),)
    max_tokens: int = DEFAULT_MAX_TOKENS
    ignore_eos: bool = False
    no_repeat: int | None = None
    markov: bool = True
    batch_ops: tuple[str, ...] = OP_CLASSES
    pin: tuple[str, ...] = ()
    perturb: Perturb | None = None
    seed: int = 0
    controls: bool = False
    digest_every: int | None = None
    near_tie_ulps: float = NEAR_TIE_ULPS

    def __post_init__(self) -> None:
        """Refuse values out of range and options that contradict each other."""
        if not 1 <= self.max_tokens <= MOST_TOKENS:  # none would compare nothing, as identical
            raise _refused("-n", f"is {self.max_tokens}", f"1 to {MOST_TOKENS} tokens")
        if self.no_repeat is not None and self.no_repeat < 0:
            raise _refused("--no-repeat", f"is {self.no_repeat}", "0 (off) or more")
        if self.digest_every is not None and self.digest_every < 0:
            raise _refused("--digests", f"is {self.digest_every}", "0 (never) or more")
        if self.near_tie_ulps < 0:
            raise _refused("--near-tie", f"is {self.near_tie_ulps:g}", "0 or more ulps")
        if self.numerics not in NUMERICS:
            raise _refused("--numerics", f'is "{self.numerics}"', " or ".join(NUMERICS))
        for knobs in self.dspark:
            check_knobs(knobs)
        check_names("--batch-ops", self.batch_ops, OP_CLASSES)
        check_names("--pin", self.pin, PINS)
        if not self.batch_ops:
            raise _refused("--batch-ops", "names no class", f"some of {', '.join(OP_CLASSES)}")
        if self.numerics == "invariant" and self.why_split:
            raise Ds4Error("Contradictory options", self.why_split, "Leave one of them out.")

    @property
    def why_split(self) -> str:
        """What `invariant` would ignore of these settings, in a sentence; "" = nothing."""
        if set(self.batch_ops) != set(OP_CLASSES):
            return (
                "--batch-ops was given with --numerics invariant, whose verifies have no batch path"
                " to restrict."
            )
        if self.pin and self.perturb is None:
            return (
                "--pin was given with --numerics invariant, whose verifies choose as plain does "
                "unless --perturb changes them."
            )
        return ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Ids of another engine or run, compared with plain decode: `--against`."""

    name: str
    ids: tuple[int, ...]
    prompt_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run: prompt, settings and where it belongs.

    `follow_up` makes the prompt the next turn of the previous run's conversation.
    """

    prompt: Prompt
    settings: Settings = Settings()
    follow_up: bool = False
    against: tuple[Recorded, ...] = ()
    suite_id: str = ""
    cell: str = ""
    prompt_index: int = 0
    category: str = ""


def _number(kind: type[Number], text: str) -> Number:
    """A number as Python reads it, but for the underscores in one: `1_0` is a slip of the hand."""
    if "_" in text:
        raise ValueError(text)
    return kind(text)


def parse_float(option: str, text: str) -> float:
    """A finite number, or the sentence that says what was found."""
    try:
        value = _number(float, text)
    except ValueError:
        raise _refused(option, f'is "{text}"', "a number") from None
    if not math.isfinite(value):
        raise _refused(option, f'is "{text}"', "a finite number")
    return value


def parse_int(option: str, text: str) -> int:
    """A whole number, or the sentence that says what was found."""
    try:
        return _number(int, text)
    except ValueError:
        raise _refused(option, f'is "{text}"', "a whole number") from None


def check_temperature(text: str) -> None:
    """Refuse every temperature but 0."""
    value = parse_float("--temp", text)
    if value != 0:
        raise Ds4Error(
            "Invalid option",
            f"--temp is {value:g}; only 0 is possible: decoding is greedy.",
            "Leave --temp out or give 0.",
        )


def parse_names(option: str, text: str, valid: tuple[str, ...]) -> tuple[str, ...]:
    """A comma list of names, in the order of `valid`, each once."""
    names = [name.strip() for name in text.split(",")]
    check_names(option, names, valid)
    return tuple(name for name in valid if name in names)


def parse_perturb(text: str, seed: int) -> Perturb:
    """`CLASS:ULPS`, ULPS a whole number from 1 to 2^20."""
    op_class, colon, ulps_text = text.partition(":")
    if not colon:
        raise _refused("--perturb", f'is "{text}"', "CLASS:ULPS, as in compressor:4")
    check_names("--perturb", (op_class,), OP_CLASSES)
    ulps = parse_int("--perturb", ulps_text)
    if not 1 <= ulps <= MAX_PERTURB_ULPS:
        raise _refused("--perturb", f"asks for {ulps} ulps", f"1 to {MAX_PERTURB_ULPS}")
    return Perturb(op_class, ulps, seed)


ARM_KEYS = ("commit", "confidence", "draft-max", "mtp")


def parse_arm(text: str, base: Knobs) -> Knobs:
    """`--arm SPEC`: a comma list of commit=, confidence=, draft-max=, mtp=; the rest inherits."""
    knobs = base
    given: set[str] = set()
    for part in text.split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or key not in ARM_KEYS:
            raise _refused(
                "--arm", f'has "{part}"', f"KEY=VALUE with KEY one of {', '.join(ARM_KEYS)}"
            )
        if key in given:
            raise _refused("--arm", f'has "{key}" twice', "every key once, and --arm once per arm")
        given.add(key)
        if key == "commit":
            knobs = replace(knobs, commit=cast(Policy, value))
        elif key == "confidence":
            knobs = replace(knobs, confidence=parse_float("--arm confidence", value))
        elif key == "draft-max":
            knobs = replace(knobs, draft_max=parse_int("--arm draft-max", value))
        elif not value:
            raise _refused("--arm mtp", "is empty", "a drafter's file")
        else:
            knobs = replace(knobs, mtp=str(Path(value)))
    check_knobs(knobs)
    return knobs


OF_ARMS = ("commit", "confidence", "draft_max")
"""Settings that every DSpark arm has for itself; those of a run name the first one's."""


def as_text(settings: Settings, files: EngineFiles, **more: object) -> tuple[tuple[str, str], ...]:
    """(name, value) pairs of an event: every setting but the arms, which `ArmInfo` describes.

    Args:
        more: values that the loaded model decided, in place of a None.
    """
    values: dict[str, object] = {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if field.name != "dspark"
    }
    first = settings.dspark[0] if settings.dspark else Knobs()
    values |= {
        "commit": first.commit if settings.dspark else None,
        "confidence": first.confidence,
        "draft_max": first.draft_max,
        "kv_rounding": files.kv_rounding,
        "device": files.device,
        "threads": files.threads,
        "context": files.context,
    }
    values |= more
    return tuple((name, _text(value)) for name, value in values.items())


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Perturb):
        return f"{value.op_class}:{value.ulps}"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    return str(value)


_LISTS = ("batch_ops", "pin")
_WORDS = ("numerics", "commit", "perturb", "kv_rounding", "device", "system")


def as_json(pairs: Iterable[tuple[str, str]]) -> dict[str, object]:
    """The same pairs with the types that a JSON reader expects."""
    return {name: _value(name, text) for name, text in pairs}


def _value(name: str, text: str) -> object:
    if name in _LISTS:
        return text.split(",") if text else []
    if text == "none" and name != "kv_rounding":
        return None
    if name in _WORDS:
        return text
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
