"""A DSpark drafter's configuration, read from its GGUF file and held against its target.

Owns the metadata keys of both dialects: `deepseek4-dspark` (ds4) and `dflash` (llama.cpp). In both
a drafter may have a head of its own (`output.weight`) and with it a draft vocabulary (`d2t`), the
tokens of the head's and the Markov output's rows; for ds4's dialect that is an extension.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NoReturn

import numpy as np

from engine.errors import Ds4Error
from engine.gguf import GGUFFile
from engine.tensor_table import (
    DRAFTED,
    OWN_HEAD,
    Expected,
    Geometry,
    check_present,
    check_tensors,
    drafter_name,
    drafter_table,
)
from engine.text import one_line
from engine.vocabulary import vocabulary_digest

if TYPE_CHECKING:
    from engine.config import ModelConfig

Dialect = Literal["dspark", "dflash"]
DRAFTER_ARCHITECTURES = ("deepseek4-dspark", "dflash")
_LEGACY = "deepseek4_mtp_support"
_DEFAULT_CONFIDENCE = 0.9
_ANY = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class DrafterConfig:
    """A drafter's sizes; what is not here is the target's.

    Attributes:
        stages: blocks of the drafter.
        noise_id: token that fills the block after the anchor.
        target_layers: 0-based target layers whose output is tapped, in the order of `main_proj`.
        window: context rows that a block sees.
        dialect: decides the tensors' names (`tensor_name`).
        default_confidence: threshold that the file asks for.
        swiglu_clamp: per stage; 0 is no clamp.
        has_confidence: whether the file holds a confidence head.
        confidence_bias: added to that head's logit.
        own_head: whether the file holds an output head; else the target's is used.
        draft_vocabulary: how many tokens can be drafted, by `d2t`; None = all of the target's.
        path: the file, fit to be shown.
    """

    stages: int
    block_size: int
    markov_rank: int
    noise_id: int
    target_layers: tuple[int, ...]
    experts: int
    experts_used: int
    expert_dim: int
    window: int
    dialect: Dialect
    default_confidence: float = _DEFAULT_CONFIDENCE
    swiglu_clamp: tuple[float, ...] = ()
    has_confidence: bool = True
    confidence_bias: float = 0.0
    own_head: bool = False
    draft_vocabulary: int | None = None
    path: str = ""

    def tensor_name(self, canonical: str) -> str:
        """What this file calls the tensor that ds4's dialect calls `canonical`."""
        return drafter_name(canonical, self.dialect)

    def table(self, target: ModelConfig) -> list[Expected]:
        """The drafter's tensors, by canonical names."""
        geometry = replace(
            target.geometry,
            experts=self.experts,
            experts_used=self.experts_used,
            expert_dim=self.expert_dim,
        )
        table = drafter_table(
            geometry,
            self.stages,
            len(self.target_layers),
            self.markov_rank,
            own_head=self.own_head,
            drafted=self.draft_vocabulary,
        )
        return [e for e in table if self.has_confidence or "confidence_head" not in e.name]

    @staticmethod
    def from_gguf(file: GGUFFile, target: ModelConfig) -> DrafterConfig:
        """Read and check a drafter for `target`.

        Raises:
            Ds4Error: when the file is no drafter, or does not fit the target; it names key or
                tensor, found, expected, and both files.
        """
        dialect = _dialect(file, target)
        read = _dspark if dialect == "dspark" else _dflash
        pair = _Pair(file, target)
        config = read(pair)
        _refuse_unread(pair)
        own_head, drafted = OWN_HEAD in file.tensors, _drafted(pair, config)
        config = replace(config, own_head=own_head, draft_vocabulary=drafted)
        table = config.table(target)
        check_tensors(file, table, {e.name: config.tensor_name(e.name) for e in table})
        return config


def _dialect(file: GGUFFile, target: ModelConfig) -> Dialect:
    found = file.get_str("general.architecture")
    expected = " or ".join(repr(a) for a in DRAFTER_ARCHITECTURES)
    if found == "deepseek4-dspark":
        return "dspark"
    if found == "dflash":
        if "markov_w1.weight" in file.tensors and "dflash.hyper_connection.count" in file.metadata:
            return "dflash"
        what = "is a DFlash drafter without the Markov head or the hyper-connections of DSpark"
    elif found == "deepseek4":
        same = _same_file(str(file.path), target.path)
        what = f"is {'the target itself' if same else 'a target model'}, given as drafter"
    elif found == _LEGACY:
        what = "is a one-stage MTP file, not a DSpark drafter"
    else:
        what = "is no DSpark drafter"
    raise Ds4Error(
        "Not a drafter",
        f"{file.name} {what}: its architecture is {one_line(found)!r}, expected {expected}.",
        "Give the DSpark support file with --mtp.",
    )


def _same_file(left: str, right: str) -> bool:
    try:
        return os.path.samefile(left, right)
    except (OSError, ValueError):
        return left == right


@dataclass(frozen=True, slots=True)
class _Pair:
    """A drafter's file beside its target, and the sentence for what does not fit."""

    file: GGUFFile
    target: ModelConfig

    def misfit(self, key: str, found: object, expected: str) -> NoReturn:
        raise Ds4Error(
            "Drafter does not fit",
            f"{self.file.name} does not fit {self.target.path}: {key} is {found}, "
            f"expected {expected}.",
            "Use the drafter that was made for this target.",
        )

    def present(self, stages: int, geometry: Geometry, *, confidence: bool, dialect: str) -> None:
        table = drafter_table(geometry, stages, 1, 1)
        names = [e.name for e in table if confidence or "confidence_head" not in e.name]
        check_present(self.file, (drafter_name(name, dialect) for name in names))

    def axis(self, canonical: str, axis: int, dialect: str) -> int:
        """One axis of a tensor's shape; 0 when it has no such axis."""
        shape = self.file.tensors[drafter_name(canonical, dialect)].shape
        return shape[axis] if -len(shape) <= axis < len(shape) else 0

    def fit_shapes(self, dialect: str, stages: int) -> tuple[int, int, int]:
        """Hold sizes that only the shapes tell against the target; (experts, expert_dim, rank)."""
        t, head = self.target, f"mtp.{stages - 1}.markov_head.markov_w1.weight"
        for key, canonical, axis, expected in (
            ("embedding_length", "mtp.0.main_norm.weight", -1, t.dim),
            ("vocab_size", head, 0, t.vocab_size),
            ("attention.head_count", "mtp.0.attn_sinks.weight", -1, t.heads),
            ("attention.key_length", "mtp.0.attn_kv_a_norm.weight", -1, t.head_dim),
            ("attention.q_lora_rank", "mtp.0.attn_q_a_norm.weight", -1, t.q_rank),
        ):
            found = self.axis(canonical, axis, dialect)
            if found != expected:
                name = drafter_name(canonical, dialect)
                self.misfit(f"{key} (by tensor {name})", found, f"the target's {expected}")
        experts = self.axis("mtp.0.ffn_gate_inp.weight", 0, dialect)
        expert_dim = self.axis("mtp.0.ffn_gate_exps.weight", 1, dialect)
        return experts, expert_dim, self.axis(head, -1, dialect)

    def layers(self, key: str, shift: int) -> tuple[int, ...]:
        """The tapped layers, 0-based outputs; `shift` is what the file adds to them."""
        last = self.target.layers - 1 + shift
        found = self.file.get_ints(key, 0, _ANY)
        rising = all(a < b for a, b in pairwise(found))
        if not 1 <= len(found) <= 8 or not rising:
            self.misfit(f"metadata key {key!r}", list(found[:12]), "1 to 8 rising layer numbers")
        if found[0] < shift or found[-1] > last:
            self.misfit(
                f"metadata key {key!r}", list(found), f"layers {shift} to {last} of the target"
            )
        return tuple(layer - shift for layer in found)

    def token(self, key: str) -> int:
        found = self.file.get_int(key, 0, _ANY)
        if found >= self.target.vocab_size:
            vocab = self.target.vocab_size
            self.misfit(f"metadata key {key!r}", found, f"a token id under {vocab}")
        return found


def _dspark(pair: _Pair) -> DrafterConfig:
    file, target = pair.file, pair.target

    def key(name: str) -> str:
        spellings = (f"dspark.{name}", f"deepseek4.dspark.{name}", f"deepseek4.dspark_{name}")
        return next((k for k in spellings if k in file.metadata), spellings[0])

    stages = file.get_int(key("stage_count"), 1, 8)
    layers = file.get_int(key("n_layers"), 1, 8, default=stages)
    if layers != stages:
        pair.misfit(f"metadata key {key('n_layers')!r}", layers, f"{stages} as stage_count")
    rank = file.get_int(key("markov_rank"), 1, 1 << 16)
    pair.present(stages, target.geometry, confidence=True, dialect="dspark")
    experts, expert_dim, found_rank = pair.fit_shapes("dspark", stages)
    if rank != found_rank:
        pair.misfit(f"metadata key {key('markov_rank')!r}", rank, f"{found_rank} as in markov_w1")
    if not target.experts_used <= experts:
        pair.misfit("the number of experts", experts, f"at least {target.experts_used} active")
    return DrafterConfig(
        stages=stages,
        block_size=file.get_int(key("block_size"), 1, 16),
        markov_rank=rank,
        noise_id=pair.token(key("noise_token_id")),
        target_layers=pair.layers(key("target_layer_ids"), 0),
        experts=experts,
        experts_used=target.experts_used,
        expert_dim=expert_dim,
        window=target.window,
        dialect="dspark",
        default_confidence=_confidence(file),
        swiglu_clamp=(target.swiglu_clamp[-1],) * stages,
        path=file.name,
    )


def _confidence(file: GGUFFile) -> float:
    """The threshold that was meant: an F32 in a file is the shortest decimal that rounds to it."""
    found = file.get_float("ds4tui.default_confidence", 0.0, 1.0, default=_DEFAULT_CONFIDENCE)
    as_f32 = np.float32(found)
    return float(str(as_f32)) if as_f32 == found else found


def _dflash(pair: _Pair) -> DrafterConfig:
    file, target, p = pair.file, pair.target, "dflash."
    for flag, wanted in (("sample_from_anchor", True), ("attention.causal", False)):
        if file.get_bool(p + flag, default=wanted) != wanted:
            found, expected = str(not wanted).lower(), str(wanted).lower()
            pair.misfit(f"metadata key {p + flag!r}", found, expected)
    stages = file.get_int(p + "block_count", 1, 8)
    _fit_dflash_keys(pair)
    confidence = "conf_proj.weight" in file.tensors
    pair.present(stages, target.geometry, confidence=confidence, dialect="dflash")
    experts, expert_dim, rank = pair.fit_shapes("dflash", stages)
    for key, by_shape in (("expert_count", experts), ("expert_feed_forward_length", expert_dim)):
        stated = file.get_ints(p + key, 1, 1 << 20, spread=1)
        if set(stated) != {by_shape}:
            found = ", ".join(map(str, stated[:8]))
            pair.misfit(f"metadata key {p + key!r}", found, f"{by_shape} as in the tensors")
    used = file.get_ints(p + "expert_used_count", 1, experts, spread=1)
    if len(set(used)) != 1:
        pair.misfit(f"metadata key {p + 'expert_used_count'!r}", list(used), "one number")
    clamp = file.get_floats(p + "swiglu_clamp_exp", 0.0, 1e9, spread=stages)
    if len(clamp) < stages:
        pair.misfit(f"metadata key {p + 'swiglu_clamp_exp'!r}", list(clamp), f"{stages} numbers")
    return DrafterConfig(
        stages=stages,
        block_size=file.get_int(p + "block_size", 1, 16),
        markov_rank=rank,
        noise_id=pair.token("tokenizer.ggml.mask_token_id"),
        target_layers=pair.layers(p + "target_layers", 1),
        experts=experts,
        experts_used=used[0],
        expert_dim=expert_dim,
        window=file.get_int(p + "attention.sliding_window", 1, 1 << 20),
        dialect="dflash",
        default_confidence=_confidence(file),
        swiglu_clamp=clamp[:stages],
        has_confidence=confidence,
        confidence_bias=_number(file, "conf_proj.bias", 0.0) if confidence else 0.0,
        path=file.name,
    )


def _number(file: GGUFFile, name: str, default: float) -> float:
    """An optional tensor of one value."""
    if name not in file.tensors:
        return default
    values = file.dequantise(name).reshape(-1)
    return float(values[0]) if values.size == 1 else float("nan")


def _drafted(pair: _Pair, config: DrafterConfig) -> int | None:
    """The size of the draft vocabulary, whose ids are checked; None without one.

    They must rise, so that the first of several best rows is that of the lowest token.
    """
    file, what = pair.file, f"tensor {DRAFTED!r}"
    if DRAFTED not in file.tensors:
        return None
    if OWN_HEAD not in file.tensors:
        pair.misfit(what, f"in the file without {OWN_HEAD!r}", "both or neither")
    info = file.tensors[DRAFTED]
    if info.type != "I64":
        pair.misfit(f"the type of {what}", info.type, "I64")
    markov = config.tensor_name(f"mtp.{config.stages - 1}.markov_head.markov_w2.weight")
    for name, width in ((OWN_HEAD, pair.target.dim), (markov, config.markov_rank)):
        found = file.tensors[name]
        rows = found.elements // width
        # A tensor of another width has no such rows: it is refused by its own shape.
        if found.shape[-1] == width and info.shape != (rows,):
            shape = list(info.shape)
            pair.misfit(f"the shape of {what}", shape, f"[{rows}] for the rows of {name!r}")
    ids = file.integers(DRAFTED)
    outside = ids[(ids < 0) | (ids >= pair.target.vocab_size)]
    if outside.size:
        pair.misfit(f"an id of {what}", outside[0], f"0 to {pair.target.vocab_size - 1}")
    falls = np.flatnonzero(ids[1:] <= ids[:-1])
    if falls.size:
        first, second = ids[falls[0] : falls[0] + 2].tolist()
        pair.misfit(f"the order of {what}", f"{first} before {second}", "rising ids, each once")
    return len(ids)


def _refuse_unread(pair: _Pair) -> None:
    """What llama.cpp's dialect allows and this engine does not read is not dropped silently."""
    if "token_embd.weight" in pair.file.tensors:
        pair.misfit("tensor 'token_embd.weight'", "in the file", "none: the target's is used")
    for name in ("fc.scale", "markov_w2.scale"):
        scale = _number(pair.file, name, 1.0)
        if scale != 1.0:
            pair.misfit(f"tensor {name!r}", f"{scale:g}", "1 or none")
    if not math.isfinite(_number(pair.file, "conf_proj.bias", 0.0)):
        pair.misfit("tensor 'conf_proj.bias'", "no single number", "one number")


def _fit_dflash_keys(pair: _Pair) -> None:
    """Everything that this dialect states for itself and this engine takes from the target."""
    file, t, p = pair.file, pair.target, "dflash."
    ints = {
        "embedding_length": t.dim,
        "attention.head_count": t.heads,
        "attention.key_length": t.head_dim,
        "attention.value_length": t.head_dim,
        "attention.q_lora_rank": t.q_rank,
        "attention.output_group_count": t.out_groups,
        "attention.output_lora_rank": t.out_rank,
        "rope.dimension_count": t.rope_dim,
        "hyper_connection.count": t.streams,
        "hyper_connection.sinkhorn_iterations": t.sinkhorn_iterations,
        "expert_shared_count": 1,
        "expert_gating_func": 4,
        "attention.head_count_kv": 1,
    }
    for key, expected in ints.items():
        whole = file.get_int(p + key, 0, _ANY, default=expected)
        if whole != expected:
            pair.misfit(f"metadata key {p + key!r}", whole, f"{expected} as in the target")
    floats = {
        "attention.layer_norm_rms_epsilon": t.norm_eps,
        "hyper_connection.epsilon": t.hc_eps,
        "rope.freq_base": t.rope_base,
        "expert_weights_scale": t.expert_scale,
    }
    for key, wanted in floats.items():
        found = file.get_float(p + key, 0.0, 1e12, default=wanted)
        if abs(found - wanted) > 1e-6 * abs(wanted):
            pair.misfit(f"metadata key {p + key!r}", f"{found:g}", f"{wanted:g} as in the target")
    if any(file.get_ints(p + "attention.compress_ratios", 0, 1 << 16, default=())):
        pair.misfit(f"metadata key {p + 'attention.compress_ratios'!r}", "not zero", "zeros")
    if not file.get_bool(p + "expert_weights_norm", default=True):
        pair.misfit(f"metadata key {p + 'expert_weights_norm'!r}", "false", "true")
    if "tokenizer.ggml.tokens" in file.metadata:
        tokens = file.get_strings("tokenizer.ggml.tokens")
        if len(tokens) != t.vocab_size:
            pair.misfit("tokenizer.ggml.tokens", f"{len(tokens)} tokens", f"{t.vocab_size}")
        if vocabulary_digest(tokens) != t.vocabulary:
            pair.misfit("tokenizer.ggml.tokens", "another list", "the target's list of tokens")
