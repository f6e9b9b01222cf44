"""What the command line asked for, read into the engine's settings, with a sentence for mistakes.

Owns prompts, prompt sets and the embedded pair's place. Imports nothing heavy: no model is opened
here.
"""

from __future__ import annotations

import hashlib
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

from ds4tui.config import UiConfig, load_config
from ds4tui.text_file import read_text
from engine.errors import Ds4Error
from engine.paths import OP_CLASSES, Numerics, Policy
from engine.prompt_set import PromptEntry, parse_prompt_set
from engine.settings import (
    DEFAULT_MAX_TOKENS,
    DEVICES,
    KV_ROUNDINGS,
    NEAR_TIE_ULPS,
    PINS,
    EngineFiles,
    Knobs,
    KvRounding,
    Prompt,
    Settings,
    check_names,
    check_temperature,
    parse_arm,
    parse_float,
    parse_int,
    parse_names,
    parse_perturb,
)
from engine.text import one_line

TARGET_FILE = "tiny-v4.gguf"
DRAFTER_FILE = "tiny-v4-dspark.gguf"
DEMO_SET = "demo.jsonl"
"""The embedded pair and the prompts that come with it."""
BUILT_IN_SETS = {"demo": DEMO_SET, "set20": "set20.jsonl"}
"""Files of the prompt sets that come with it, by the name that `--prompts` takes."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """How every prompt of a set is rendered, whatever the set says; None leaves it to the set."""

    system: str | None = None
    chat: bool = True
    think: bool = False
    control_tokens: bool = False

    def of(self, prompt: Prompt) -> Prompt:
        """The same prompt, rendered so."""
        return replace(
            prompt,
            system=self.system or prompt.system,
            chat=prompt.chat and self.chat,
            think=self.think,
            control_tokens=self.control_tokens,
        )


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the interface is opened with.

    Args:
        embedded: the files are the embedded pair.
        prompt: of the first run, started at once; None = none is started.
        prompts: the set that can be stepped through.
        set_name: what that set is called.
        rendering: of every prompt of a set.
        trace: where every event is written.
        replay: a trace to show instead of an engine.
    """

    files: EngineFiles
    embedded: bool
    prompt: Prompt | None
    settings: Settings
    prompts: tuple[PromptEntry, ...]
    config: UiConfig
    trace: str | None = None
    replay: str | None = None
    set_name: str = "demo"
    rendering: Rendering = Rendering()


def _contradiction(what: str, hint: str = "Leave one of them out.") -> Ds4Error:
    return Ds4Error("Contradictory options", what, hint)


def embedded_pair() -> tuple[Path, Path] | None:
    """The target and the drafter that come with the program; None where they are missing."""
    folder = Path(str(resources.files("ds4tui"))) / "models"
    target, drafter = folder / TARGET_FILE, folder / DRAFTER_FILE
    return (target, drafter) if target.is_file() and drafter.is_file() else None


@cache
def embedded_hashes() -> tuple[str, ...]:
    """sha256 of the embedded target and drafter; empty where they are missing."""
    files = embedded_pair() or ()
    return tuple(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)


def model_files(
    model: str | None, mtp: str | None, *, has_arms: bool = False
) -> tuple[str, tuple[str, ...], bool]:
    """Target, drafters, and whether they are the embedded pair.

    Args:
        has_arms: the command takes `--arm`.
    """
    for option, path in (("-m", model), ("--mtp", mtp)):
        if path == "":
            raise Ds4Error("Invalid option", f"{option} is empty; expected a file's name.")
    if model is not None:
        return model, () if mtp is None else (str(Path(mtp)),), False
    if mtp is not None:
        other = ", or the embedded target's drafter with --arm mtp=FILE" if has_arms else ""
        raise _contradiction(
            "--mtp was given without -m: a drafter of your own goes with a target of your own.",
            f"Give the target with -m{other}.",
        )
    pair = embedded_pair()
    if pair is None:
        raise Ds4Error(
            "No embedded pair",
            "This installation holds no embedded model.",
            "Install ds4tui again, or give a target with -m and a drafter with --mtp.",
        )
    target, drafter = pair
    return str(target), (str(drafter),), True


def engine_files(args: Namespace) -> tuple[EngineFiles, bool]:
    """The files to load, and whether they are the embedded pair."""
    model, mtp, embedded = model_files(args.model, args.mtp, has_arms=hasattr(args, "arm"))
    device = args.device or "cpu"
    if args.cuda:
        if args.device == "cpu":
            raise _contradiction("--cuda and --device cpu exclude each other.")
        device = "cuda"
    check_names("--device", (device,), DEVICES)
    check_names("--kv-rounding", (args.kv_rounding,), KV_ROUNDINGS)
    threads = parse_int("--threads", args.threads)
    context = None if args.ctx is None else parse_int("--ctx", args.ctx)
    if context is not None and context < 1:
        raise Ds4Error("Invalid option", f"--ctx is {context}; expected 1 or more.")
    rounding = cast(KvRounding, args.kv_rounding)
    return EngineFiles(model, mtp, device, threads, context, rounding), embedded


def base_knobs(args: Namespace, policy: str) -> Knobs:
    """An arm with the command line's common values."""
    confidence, draft_max = args.confidence, args.draft_max
    return Knobs(
        cast(Policy, policy),
        None if confidence is None else parse_float("--dspark-confidence", confidence),
        None if draft_max is None else parse_int("--draft-max", draft_max),
    )


def commits_of(args: Namespace) -> list[str]:
    """The commit policies that were given, in order."""
    policies = list(args.commit or [])
    if args.dspark_strict:
        if policies and policies != ["strict"]:
            raise _contradiction(f"--dspark-strict and --commit {policies[0]} exclude each other.")
        policies = ["strict"]
    return policies


def dspark_arms(args: Namespace, arms: Sequence[str], drafter: bool) -> tuple[Knobs, ...]:
    """The DSpark arms in the order of the command line.

    Args:
        arms: `--arm` values.
        drafter: there is a drafter.
    """
    policies = commits_of(args)
    if not drafter:
        asked = [f"--commit {policy}" for policy in policies]
        asked += [f"--arm {arm}" for arm in arms if "mtp=" not in arm]
        given = {"--dspark-confidence": args.confidence, "--draft-max": args.draft_max}
        asked += [f"{option} {value}" for option, value in given.items() if value is not None]
        if asked and not (arms and all("mtp=" in arm for arm in arms) and not policies):
            raise _contradiction(
                f"{asked[0]} was given without a drafter, so nothing could be drafted.",
                "Give the drafter with --mtp.",
            )
        if not arms:
            return ()
    policies = policies or ([] if arms else ["direct"])
    made = [base_knobs(args, policy) for policy in policies]
    made += [parse_arm(arm, base_knobs(args, "direct")) for arm in arms]
    return tuple(made)


def with_drafters(
    files: EngineFiles, arms: Sequence[Knobs]
) -> tuple[EngineFiles, tuple[Knobs, ...]]:
    """The drafters that the arms use and no others, the first arm's first; and the arms with them.

    Without an arm that names a drafter everything stays as it is.
    """
    if all(knobs.mtp is None for knobs in arms):
        return files, tuple(arms)
    default = next(iter(files.mtp), None)
    named = tuple(replace(knobs, mtp=knobs.mtp or default) for knobs in arms)
    own = dict.fromkeys(knobs.mtp for knobs in named if knobs.mtp is not None)
    return replace(files, mtp=tuple(own)), named


def run_settings(args: Namespace, dspark: tuple[Knobs, ...]) -> Settings:
    """Everything of a run but its prompt."""
    if args.temperature is not None:
        check_temperature(args.temperature)
    seed = parse_int("--seed", args.seed)
    no_repeat = args.no_repeat
    batch_ops: Any = OP_CLASSES
    if args.batch_ops is not None:
        batch_ops = parse_names("--batch-ops", args.batch_ops, OP_CLASSES)
    return Settings(
        numerics=cast(Numerics, args.numerics),
        dspark=dspark,
        max_tokens=parse_int("-n", args.max_tokens),
        ignore_eos=args.ignore_eos,
        no_repeat=None if no_repeat is None else parse_int("--no-repeat", no_repeat),
        markov=not args.no_markov,
        batch_ops=batch_ops,
        pin=() if args.pin is None else parse_names("--pin", args.pin, PINS),
        perturb=None if args.perturb is None else parse_perturb(args.perturb, seed),
        seed=seed,
        digest_every=None if args.digests is None else parse_int("--digests", args.digests),
        near_tie_ulps=parse_float("--near-tie", args.near_tie),
    )


def prompt_of(args: Namespace) -> Prompt | None:
    """The prompt that was given, or None."""
    if args.prompt is not None and args.prompt_file is not None:
        raise _contradiction("-p and --prompt-file exclude each other.")
    if args.prompt is None and args.prompt_file is None:
        return None
    text = args.prompt
    if args.prompt_file is not None:
        text = read_text(args.prompt_file, "prompt file").removesuffix("\n")
    if not text.strip():
        source = "-p" if args.prompt is not None else f"The file {one_line(args.prompt_file)}"
        raise Ds4Error("Empty prompt", f"{source} is empty; expected some text.")
    return rendering(args).of(Prompt(text))


def rendering(args: Namespace) -> Rendering:
    """The command line's rendering options."""
    if args.no_chat and args.think:
        raise _contradiction("--no-chat and --think exclude each other.")
    return Rendering(args.system, not args.no_chat, args.think, args.control_tokens)


def read_prompts(args: Namespace) -> tuple[PromptEntry, ...]:
    """The set of `--prompts`, else the demo set."""
    return read_set(args.prompts or "demo", rendering(args))


def prompts_of(args: Namespace, command: str, embedded: bool) -> tuple[PromptEntry, ...]:
    """The prompts of a headless command: the one given, the set given, the embedded pair's own set.

    Raises:
        Ds4Error: for a prompt beside a set, and for a model of the user's without either.
    """
    prompt = prompt_of(args)
    if prompt is not None and args.prompts is not None:
        raise _contradiction("--prompts and a prompt of its own exclude each other.")
    if prompt is not None:
        return (PromptEntry("", "", prompt),)
    if args.prompts is None and not embedded:
        what, hint = f"{command} was given no prompt.", "Give -p, --prompt-file or --prompts."
        raise Ds4Error("No prompt", what, hint)
    return read_prompts(args)


def read_set(path: str, rendering: Rendering) -> tuple[PromptEntry, ...]:
    """A set of prompts.

    Args:
        path: of its file, or the name of one that comes with the program.
    Raises:
        Ds4Error: when there is no such set, or a line of it is no prompt.
    """
    if path in BUILT_IN_SETS and not Path(path).exists():
        name = BUILT_IN_SETS[path]
        file = resources.files("ds4tui") / "prompts" / name
        text = file.read_text(encoding="utf-8")
    else:
        text, name = read_text(path, "prompt set"), Path(path).name
    entries = parse_prompt_set(text, name)
    return tuple(replace(entry, prompt=rendering.of(entry.prompt)) for entry in entries)


def set_name(path: str | None) -> str:
    """What a set is called on the screen: its file's name without the ending."""
    return one_line(Path(path or "demo").stem, 20)


def run_options(args: Namespace) -> RunOptions:
    """Options of the interface."""
    files, embedded = engine_files(args)
    if len(commits_of(args)) > 1:
        raise _contradiction("--commit was given more than once.", "Give --arm for each.")
    dspark = dspark_arms(args, args.arm, bool(files.mtp))
    files, dspark = with_drafters(files, dspark)
    prompt, prompts = prompt_of(args), read_prompts(args)
    if prompt is None and embedded:
        prompt = prompts[0].prompt
    return RunOptions(
        files=files,
        embedded=embedded,
        prompt=prompt,
        settings=run_settings(args, dspark),
        prompts=prompts,
        config=load_config(args.config, ascii=args.ascii),
        trace=args.trace,
        set_name=set_name(args.prompts),
        rendering=rendering(args),
    )


def replay_options(args: Namespace) -> RunOptions:
    """Options of the interface on a recorded run."""
    return RunOptions(
        files=EngineFiles(""),
        embedded=False,
        prompt=None,
        settings=Settings(),
        prompts=(),
        config=load_config(args.config, ascii=args.ascii),
        replay=args.trace,
    )


DEFAULTS = {
    "numerics": "split",
    "max_tokens": str(DEFAULT_MAX_TOKENS),
    "kv_rounding": "fp8",
    "threads": "1",
    "seed": "0",
    "near_tie": f"{NEAR_TIE_ULPS:g}",
}
"""Defaults of the run options as text."""


def with_defaults(args: Namespace) -> Namespace:
    """The same options with the default of each that was not given, for a command that must tell
    one that was given from one that was not."""
    return Namespace(**{k: DEFAULTS.get(k) if v is None else v for k, v in vars(args).items()})
