"""The target's configuration, read from a GGUF file's metadata and held against its tensors.

Owns the metadata keys of architecture `deepseek4` and what this program can run of it. Drafters are
`engine.drafter_config`'s; this module gives both names to the rest of the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from engine.drafter_config import DRAFTER_ARCHITECTURES, DrafterConfig
from engine.errors import Ds4Error
from engine.gguf import GGUFFile
from engine.tensor_table import Expected, Geometry, check_present, check_tensors, target_table
from engine.text import one_line
from engine.vocabulary import BOS, EOS, token_id, vocabulary_digest

__all__ = ["ARCHITECTURE", "DrafterConfig", "ModelConfig", "Yarn"]

ARCHITECTURE = "deepseek4"
_SQRT_SOFTPLUS = 4  # `expert_gating_func`


@dataclass(frozen=True, slots=True)
class Yarn:
    """Context extension of the rope in layers whose ratio is not 0."""

    factor: float
    original_context: int
    beta_fast: float
    beta_slow: float


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A target's sizes and constants; every field is checked, also against the tensors.

    Attributes:
        ratios: compression of each layer: 0 (window only), 4 (overlapped, indexed) or 128.
        hash_layers: the first layers, whose experts are chosen by token id.
        swiglu_clamp: per layer, routed and shared experts; 0 is no clamp.
        yarn: None when the file has no scaling.
        no_repeat: N of the no-repeat-N-gram rule that the file asks for; 0 is off.
        kv_rounding_trained: the `kv_rounding` that the weights were trained with, "" if not said.
        path: the file, fit to be shown.
        vocabulary: digest of the token list, to compare a drafter's with.
    """

    vocab_size: int
    dim: int
    layers: int
    ratios: tuple[int, ...]
    hash_layers: int
    heads: int
    head_dim: int
    rope_dim: int
    q_rank: int
    out_groups: int
    out_rank: int
    index_heads: int
    index_dim: int
    index_top_k: int
    experts: int
    experts_used: int
    expert_dim: int
    window: int
    streams: int
    sinkhorn_iterations: int
    norm_eps: float
    hc_eps: float
    swiglu_clamp: tuple[float, ...]
    expert_scale: float
    rope_base: float
    compress_rope_base: float
    yarn: Yarn | None
    context_length: int
    eos_id: int
    bos_id: int
    no_repeat: int = 0
    kv_rounding_trained: str = ""
    path: str = ""
    vocabulary: str = ""

    @property
    def geometry(self) -> Geometry:
        """The sizes that decide the tensors' shapes."""
        return Geometry(
            dim=self.dim,
            heads=self.heads,
            head_dim=self.head_dim,
            q_rank=self.q_rank,
            out_groups=self.out_groups,
            out_rank=self.out_rank,
            index_heads=self.index_heads,
            index_dim=self.index_dim,
            experts=self.experts,
            experts_used=self.experts_used,
            expert_dim=self.expert_dim,
            vocab_size=self.vocab_size,
            streams=self.streams,
        )

    def table(self) -> list[Expected]:
        """The target's tensors."""
        return target_table(self.geometry, self.ratios, self.hash_layers)

    @staticmethod
    def from_gguf(file: GGUFFile) -> ModelConfig:
        """Read and check a target.

        Raises:
            Ds4Error: when the file is no target, or one that cannot be run; it names the key or
                tensor, what was found and what was expected.
        """
        _check_architecture(file)
        config = _read(file)
        table = config.table()
        check_present(file, (expected.name for expected in table))
        check_tensors(file, table, {})
        for layer in range(config.hash_layers):
            _check_expert_ids(file, f"blk.{layer}.ffn_gate_tid2eid.weight", config.experts)
        return config


def _check_architecture(file: GGUFFile) -> None:
    found = file.get_str("general.architecture")
    if found in DRAFTER_ARCHITECTURES:
        raise Ds4Error(
            "Not a target",
            f"{file.name} is a drafter (architecture {found!r}), given where the target belongs, "
            f"expected architecture {ARCHITECTURE!r}.",
            "Give it with --mtp, and the model itself with -m.",
        )
    if found != ARCHITECTURE:
        raise Ds4Error(
            "Unsupported architecture",
            f"{file.name} has architecture {one_line(found)!r}, expected {ARCHITECTURE!r}.",
            "Only DeepSeek-V4 models run here.",
        )
    if file.get_int("split.count", 0, 1 << 16, default=1) > 1:
        raise Ds4Error(
            "Split file",
            f"{file.name} is one part of a model split into several files, expected one file.",
            "Merge the parts with llama-gguf-split --merge.",
        )


def _read(file: GGUFFile) -> ModelConfig:
    a = f"{ARCHITECTURE}."
    tokens = file.get_strings("tokenizer.ggml.tokens")
    vocab = len(tokens)
    if not 1 <= vocab <= 1 << 20:
        _refuse(file, "tokenizer.ggml.tokens", f"a list of {vocab}", "1 to 1048576 tokens")
    _expect(file, a + "vocab_size", vocab, "tokens of tokenizer.ggml.tokens")
    layers = _layers(file)
    heads = file.get_int(a + "attention.head_count", 1, 4096)
    head_dim = file.get_int(a + "attention.key_length", 2, 4096)
    _expect(file, a + "attention.value_length", head_dim, "attention.key_length", required=True)
    _expect(file, a + "attention.head_count_kv", 1, "the one shared head")
    index_dim = file.get_int(a + "attention.indexer.key_length", 32, 4096)
    if index_dim & (index_dim - 1):
        _refuse(file, a + "attention.indexer.key_length", index_dim, "a power of two")
    rope_dim = file.get_int(a + "rope.dimension_count", 2, min(head_dim, index_dim))
    if rope_dim % 2:
        _refuse(file, a + "rope.dimension_count", rope_dim, "an even number")
    groups = file.get_int(a + "attention.output_group_count", 1, heads)
    if heads % groups:
        _refuse(file, a + "attention.output_group_count", groups, f"a divisor of {heads} heads")
    ratios = _ratios(file, layers)
    experts = file.get_int(a + "expert_count", 1, 1024)
    used = _same(file, a + "expert_used_count", 1, experts, layers)
    _check_routing(file, a)
    clamp = _per_layer(file, a + "swiglu_clamp_exp", layers)
    shared_clamp = a + "swiglu_clamp_shexp"
    if shared_clamp in file.metadata and _per_layer(file, shared_clamp, layers) != clamp:
        _refuse(file, shared_clamp, "different", "the values of swiglu_clamp_exp")
    return ModelConfig(
        vocab_size=vocab,
        dim=file.get_int(a + "embedding_length", 1, 1 << 17),
        layers=layers,
        ratios=ratios,
        hash_layers=file.get_int(a + "hash_layer_count", 0, layers),
        heads=heads,
        head_dim=head_dim,
        rope_dim=rope_dim,
        q_rank=file.get_int(a + "attention.q_lora_rank", 1, 1 << 17),
        out_groups=groups,
        out_rank=file.get_int(a + "attention.output_lora_rank", 1, 1 << 17),
        index_heads=file.get_int(a + "attention.indexer.head_count", 1, 4096),
        index_dim=index_dim,
        index_top_k=file.get_int(a + "attention.indexer.top_k", 1, 1 << 20),
        experts=experts,
        experts_used=used,
        expert_dim=_same(file, a + "expert_feed_forward_length", 1, 1 << 20, layers),
        window=file.get_int(a + "attention.sliding_window", 1, 1 << 20),
        streams=file.get_int(a + "hyper_connection.count", 4, 4),
        sinkhorn_iterations=file.get_int(a + "hyper_connection.sinkhorn_iterations", 1, 1000),
        norm_eps=file.get_float(a + "attention.layer_norm_rms_epsilon", 0.0, 1.0),
        hc_eps=file.get_float(a + "hyper_connection.epsilon", 0.0, 1.0),
        swiglu_clamp=clamp,
        expert_scale=file.get_float(a + "expert_weights_scale", 1e-6, 1e6),
        rope_base=file.get_float(a + "rope.freq_base", 1.0, 1e9, default=10000.0),
        compress_rope_base=file.get_float(a + "attention.compress_rope_freq_base", 1.0, 1e9),
        yarn=_yarn(file, a),
        context_length=file.get_int(a + "context_length", 1, 1 << 31),
        eos_id=token_id(file, "eos", EOS, tokens),
        bos_id=token_id(file, "bos", BOS, tokens),
        no_repeat=file.get_int("ds4tui.no_repeat", 0, 1024, default=0),
        kv_rounding_trained=file.get_str("ds4tui.kv_rounding_trained", default=""),
        path=file.name,
        vocabulary=vocabulary_digest(tokens),
    )


def _layers(file: GGUFFile) -> int:
    """Blocks of the model itself: next-token-prediction blocks at the end are not evaluated."""
    layers = file.get_int(f"{ARCHITECTURE}.block_count", 1, 512)
    extra = file.get_int(f"{ARCHITECTURE}.nextn_predict_layers", 0, layers - 1, default=0)
    present = f"blk.{layers - extra}.nextn.eh_proj.weight" in file.tensors
    return layers - extra if present else layers


def _ratios(file: GGUFFile, layers: int) -> tuple[int, ...]:
    """The released list is longer than the model: its tail belongs to dropped blocks."""
    key = f"{ARCHITECTURE}.attention.compress_ratios"
    found = file.get_ints(key, 0, 1 << 16)
    if len(found) < layers:
        _refuse(file, key, f"a list of {len(found)}", f"one entry for each of {layers} layers")
    for layer, ratio in enumerate(found[:layers]):
        if ratio not in (0, 4, 128):
            _refuse(file, key, f"{ratio} for layer {layer}", "0, 4 or 128")
    return found[:layers]


def _check_routing(file: GGUFFile, a: str) -> None:
    _expect(file, a + "expert_gating_func", _SQRT_SOFTPLUS, "square root of softplus")
    _expect(file, a + "expert_shared_count", 1, "one shared expert")
    for key in (a + "expert_group_count", a + "expert_group_used_count"):
        file.get_int(key, 0, 0, default=0)
    if not file.get_bool(a + "expert_weights_norm", default=True):
        _refuse(file, a + "expert_weights_norm", "false", "true")


def _yarn(file: GGUFFile, a: str) -> Yarn | None:
    kind = file.get_str(a + "rope.scaling.type", default="yarn")
    factor = file.get_float(a + "rope.scaling.factor", 1e-6, 1e6, default=1.0)
    if kind == "none" or factor == 1.0:
        return None
    if kind != "yarn":
        _refuse(file, a + "rope.scaling.type", repr(one_line(kind)), "'yarn' or 'none'")
    whole = file.get_int(a + "context_length", 1, 1 << 31)
    return Yarn(
        factor=factor,
        original_context=file.get_int(
            a + "rope.scaling.original_context_length", 1, 1 << 31, default=whole
        ),
        beta_fast=file.get_float(a + "rope.scaling.yarn_beta_fast", 1e-6, 1e6, default=32.0),
        beta_slow=file.get_float(a + "rope.scaling.yarn_beta_slow", 1e-6, 1e6, default=1.0),
    )


def _per_layer(file: GGUFFile, key: str, layers: int) -> tuple[float, ...]:
    values = file.get_floats(key, 0.0, 1e9, spread=layers)
    if len(values) < layers:
        _refuse(file, key, f"a list of {len(values)}", f"one entry for each of {layers} layers")
    return values[:layers]


def _same(file: GGUFFile, key: str, lo: int, hi: int, layers: int) -> int:
    """A number that may be given per layer but must be equal in all."""
    values = file.get_ints(key, lo, hi, spread=layers)
    if len(values) < layers or len(set(values[:layers])) != 1:
        _refuse(file, key, f"the list {list(values[:8])}", f"one value for all {layers} layers")
    return values[0]


def _expect(file: GGUFFile, key: str, value: int, why: str, *, required: bool = False) -> None:
    """A key whose only possible value is known; it may be absent unless `required`."""
    found = file.get_int(key, 0, (1 << 63) - 1, default=None if required else value)
    if found != value:
        _refuse(file, key, found, f"{value} ({why})")


def _refuse(file: GGUFFile, key: str, found: object, expected: str) -> NoReturn:
    raise Ds4Error(
        "Wrong metadata",
        f"{file.name}: metadata key {key!r} is {found}, expected {expected}.",
        "The file does not describe a model that this program can run.",
    )


def _check_expert_ids(file: GGUFFile, name: str, experts: int) -> None:
    """Ids in the table address experts: one that is out of range must never reach a kernel."""
    ids = file.integers(name)
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= experts:
        raise Ds4Error(
            "Damaged tensor",
            f"{file.name}: tensor {name!r} holds expert ids {low} to {high}, expected 0 to "
            f"{experts - 1}.",
            "The file is damaged or was converted wrongly.",
        )
