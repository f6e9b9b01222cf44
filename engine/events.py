"""The event stream of a run: everything that a front end, a report or a trace may know.

Frozen, slotted dataclasses of ints, floats, strings, bytes and tuples; picklable; no tensors.
Words are those of the field: see `README.md` ("Words"). Indexes count generated tokens from 0,
positions count all tokens, prompt included. `t_ns` is `time.perf_counter_ns()` in the engine.
Fields with a default came later than the first trace files: read them as optional.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

from engine.verdict import ulp_type

Source = Literal["prefill", "plain", "draft", "bonus"]
FinishReason = Literal["eos", "stop", "length", "context", "cancelled"]
SuiteKind = Literal["matrix", "sweep", "set"]
CUT_SHORT: tuple[FinishReason, ...] = ("stop", "cancelled")
"""Ends of arms that were stopped: their run says nothing of its prompt."""
CostKind = Literal["draft", "verify", "decode", "commit", "reproject", "carry", "prefill", "copy"]


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Engine time by kind, in nanoseconds."""

    prefill: int = 0
    decode: int = 0
    draft: int = 0
    verify: int = 0
    replay: int = 0
    commit: int = 0

    @property
    def total(self) -> int:
        """All kinds together."""
        kinds = (self.prefill, self.decode, self.draft, self.verify, self.replay, self.commit)
        return sum(kinds)

    def __add__(self, other: TimeSplit) -> TimeSplit:
        return TimeSplit(
            self.prefill + other.prefill,
            self.decode + other.decode,
            self.draft + other.draft,
            self.verify + other.verify,
            self.replay + other.replay,
            self.commit + other.commit,
        )


TIME_KINDS = tuple(field.name for field in fields(TimeSplit))
"""The kinds of engine time, in the order of a report."""


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One model file.

    Args:
        role: `target` or `drafter`.
        quantisation: (type, tensors, bytes).
        drafted: tokens of a drafter's draft vocabulary; 0 = it has none and drafts any token.
    """

    role: str
    path: str
    sha256: str
    size: int
    architecture: str
    name: str
    parameters: int
    quantisation: tuple[tuple[str, int, int], ...]
    drafted: int = 0


def target_types(files: tuple[FileInfo, ...]) -> tuple[str, ...]:
    """Types of the target's tensors."""
    return tuple(kind for file in files if file.role == "target" for kind, *_ in file.quantisation)


@dataclass(frozen=True, slots=True)
class ArmInfo:
    """One decode configuration of a run; arm 0 is always plain.

    Args:
        drafter: path of its file.
        block_size: drafts of a whole block of that; 0 = not told, see `RunStarted.block_of`.
        noise_id: token that fills its blocks after the anchor; -1 = not told, see `noise_of`.
        window: context rows that its blocks see; 0 = not told, see `window_of`.
    """

    name: str
    role: Literal["arm", "control"]
    kind: Literal["plain", "dspark", "recorded"]
    numerics: str
    commit: str | None
    confidence: float | None
    draft_max: int | None
    drafter: str = ""
    block_size: int = 0
    noise_id: int = -1
    window: int = 0

    @property
    def is_compared(self) -> bool:
        """A DSpark arm, and no control."""
        return (self.kind, self.role) == ("dspark", "arm")


@dataclass(frozen=True, slots=True)
class Event:
    """Common head of every event; `arm` is -1 for the run itself."""

    run_id: str
    arm: int
    t_ns: int


@dataclass(frozen=True, slots=True)
class LoadProgress(Event):
    """How far something long is; its name is `stage`.

    Loading: `reading`, `repacking`, `compiling kernels`. Before a run's first token: `self-test`,
    `prefill`, `recording choices`. Costs: `measuring`.
    """

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class EngineReady(Event):
    """The loaded engine, before any run: what a knob may be turned to and where it stands.

    Args:
        files: target, then drafters; empty hashes when the files are too large to hash at once.
        block_size: drafts of one block, 0 without a drafter.
        confidence: the drafter's own default threshold.
        no_repeat: the target's own no-repeat rule, 0 = off.
        context: capacity in tokens.
        load_ns: wall time of loading.
        drafters: (path, block size, default threshold) of each; those above are of the first.
    """

    files: tuple[FileInfo, ...]
    block_size: int
    confidence: float
    no_repeat: int
    context: int
    load_ns: int
    drafters: tuple[tuple[str, int, float], ...] = ()

    def drafter(self, path: str | None) -> tuple[int, float]:
        """Block size and default threshold of a drafter, None = the first one."""
        known = {name: (block, gate) for name, block, gate in self.drafters}
        return known.get(path or "", (self.block_size, self.confidence))


@dataclass(frozen=True, slots=True)
class PromptRendered(Event):
    """The ids that a prompt becomes, answered to a request that runs nothing."""

    prompt: str
    prompt_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The whole setting of a run, known before its first token.

    `block_size` and `noise_id` are the default drafter's, `window` is the target's. `settings` are
    (name, value) as text: see `engine.settings`. `prompt_ids` holds the whole conversation of a
    follow-up turn, of which the first `cached` were evaluated in earlier turns.
    """

    environment: tuple[tuple[str, str], ...]
    files: tuple[FileInfo, ...]
    settings: tuple[tuple[str, str], ...]
    arms: tuple[ArmInfo, ...]
    prompt: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    context: int
    block_size: int
    noise_id: int
    window: int
    eos_id: int
    layer_kinds: tuple[int, ...]
    suite_id: str = ""
    cell: str = ""
    prompt_index: int = 0
    category: str = ""
    cached: int = 0

    def ulp_type(self, arm: ArmInfo) -> str:
        """The type in whose ulps the gaps of an arm's rows are told."""
        device = dict(self.settings).get("device", "cpu")
        return ulp_type(arm.numerics, device, target_types(self.files))

    def block_of(self, arm: ArmInfo) -> int:
        """Drafts of a whole block of an arm, 0 for one that drafts nothing by its kind."""
        return (arm.block_size or self.block_size) if arm.kind == "dspark" else 0

    def noise_of(self, arm: ArmInfo) -> int:
        """Id of the token that fills a DSpark arm's blocks after the anchor."""
        return arm.noise_id if arm.noise_id >= 0 else self.noise_id

    def window_of(self, arm: ArmInfo) -> int:
        """Context rows that a DSpark arm's blocks see."""
        return arm.window or self.window


@dataclass(frozen=True, slots=True)
class TokenText(Event):
    """Bytes of token ids, sent before the first event that names an id."""

    entries: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class TokensCommitted(Event):
    """Tokens that one step of an arm added.

    `index` is that of the first id; `position` its absolute position. `top` holds, per token, the
    five best ids with their processed logits in the row that the policy says the token came from.
    `time` is what the arm spent since its previous TokensCommitted. The shared prefill is in the
    first event of arm 0 only.
    """

    index: int
    position: int
    ids: tuple[int, ...]
    sources: tuple[Source, ...]
    top: tuple[tuple[tuple[int, float], ...], ...]
    time: TimeSplit


@dataclass(frozen=True, slots=True)
class CycleFinished(Event):
    """One step of a DSpark arm (`strict` included).

    Args:
        cycle: number of the step, from 0.
        index, position: of the first token that the cycle commits.
        anchor: the first row's token.
        drafts: all ids that the block produced, the one that the gate cut included; fewer than the
            block after an early cut, none when the first confidence fails.
        drafts_unbiased: argmax of the same rows without the Markov bias.
        confidences: all confidences that were computed, in order.
        proposed: drafts sent to the verify.
        verify_ids, verify_gaps: argmax and top-2 gap of every verify row (a decode: one row).
        replay_ids: argmax of every re-decoded row.
        accepted: drafts committed.
        bonus: the target's own token, -1 when an accepted draft is EOS.
        depth: tokens committed.
        recheck_cut: accepted drafts that a re-decode dropped.
        clip: why fewer drafts than the block were proposed: `` (none), `confidence`, `draft_max`,
            `budget`, `context`, `eos` (a draft ended the text), `excluded` (no token was left to
            draft), `strict`, `pause` (nothing was drafted after cycles that lost:
            `engine.propose.Pause`).
    """

    cycle: int
    index: int
    position: int
    anchor: int
    drafts: tuple[int, ...]
    drafts_unbiased: tuple[int, ...]
    confidences: tuple[float, ...]
    proposed: int
    verify_ids: tuple[int, ...]
    verify_gaps: tuple[float, ...]
    replay_ids: tuple[int, ...]
    accepted: int
    bonus: int
    depth: int
    recheck_cut: int
    clip: str
    time: TimeSplit

    @property
    def is_cut_by_nan(self) -> bool:
        """The gate cut the block at a confidence that is NaN, which it never passes."""
        return self.clip == "confidence" and any(map(math.isnan, self.confidences[-1:]))


@dataclass(frozen=True, slots=True)
class StateDrift(Event):
    """Comparison of an arm's state with the plain arm's at one boundary.

    `index` counts the generated tokens evaluated so far. `tensors` has an entry for every tensor of
    every layer and for the logits (layer -1): (layer, tensor, max abs difference), the difference
    None when all live bits are equal.
    """

    index: int
    position: int
    tensors: tuple[tuple[int, str, float | None], ...]

    @property
    def first_difference(self) -> FirstDrift | None:
        """The first tensor of the state that differs, None when none does; logits are no state."""
        for layer, tensor, value in self.tensors:
            if layer >= 0 and value is not None:
                return FirstDrift(self.index, layer, tensor, value)
        return None


@dataclass(frozen=True, slots=True)
class FirstDrift:
    """The first boundary at which the states differed, and the first tensor that did."""

    position: int
    layer: int
    tensor: str
    max_abs: float


@dataclass(frozen=True, slots=True)
class Diverged(Event):
    """The first index at which this arm's ids differ from the plain arm's."""

    index: int
    left: int
    right: int
    cause: Literal["verify_row", "state"] | None
    margin_logits: float
    margin_ulps: float
    ulp_type: str
    verdict: Literal["exact-tie", "near-tie", "large-margin"]
    logic_error: bool
    differing_choices: tuple[str, ...]
    first_drift: FirstDrift | None


@dataclass(frozen=True, slots=True)
class SettingsChanged(Event):
    """A knob turned during a run, from this cycle on."""

    cycle: int
    settings: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CostMeasured(Event):
    """Cost of one kind of step for a number of rows; low and high are quartiles.

    Args:
        rows: evaluated by a `decode`, `verify` or `prefill`, kept by a `commit` or a `reproject`
            (the commit of that policy); drafts of a `draft` (0: it ended after the first
            confidence); context rows of a `carry` (all that `strict` drafts); bytes of a `copy`
            in memory.
        n: samples.
        position: tokens evaluated before the step (a prefill's: by it).
        best_ns: the fastest sample, what to read where other work shares the machine.
        numerics, commit: what was measured.
        drafter: path of its file, "" without one.
    """

    kind: CostKind
    rows: int
    median_ns: int
    low_ns: int
    high_ns: int
    n: int
    position: int = 0
    best_ns: int = 0
    numerics: str = ""
    commit: str = ""
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class MeasuringFinished(Event):
    """All costs that were asked for are there, or measuring was stopped."""


@dataclass(frozen=True, slots=True)
class SuiteStarted(Event):
    """Start of a suite of runs.

    Args:
        runs: how many it has when nothing stops it, 0 = unknown.
        prompts: (label, category) of every prompt, in order.
        name: of the prompt set, "" without one.
        max_tokens: most tokens of every run.
    """

    suite_id: str
    kind: SuiteKind
    cells: tuple[str, ...]
    runs: int = 0
    prompts: tuple[tuple[str, str], ...] = ()
    name: str = ""
    max_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SuiteFinished(Event):
    """End of a suite of runs."""

    suite_id: str
    kind: SuiteKind
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """A sentence for the user: level is `info` or `warning`."""

    level: Literal["info", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class ArmFinished(Event):
    """An arm has ended; `state_equal` is None when it was not compared to its end."""

    reason: FinishReason
    tokens: int
    state_equal: bool | None = None


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """All arms have ended. `identical` is None when a verdict is withheld, with the reason."""

    identical: bool | None
    withheld: str = ""


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    """The run ended by an error: what a Ds4Error says, or a crash with its tail of stderr."""

    title: str
    message: str
    hint: str
    detail: str = ""
