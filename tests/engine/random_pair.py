"""Random but valid targets and drafters as GGUF files: any shape, any storage type, both dialects.

Deterministic by seed, tensor by tensor, so that a change of one size leaves the others' values
alone. Scales are those of a trained model (rows 1/sqrt(inputs), norms near 1, sinks, bases, biases
and ape away from 0), so that every path of a forward matters to the logits.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from engine.gguf_write import Plain, TensorData, Typed, write_gguf
from engine.quant_types import SUPPORTED
from engine.tensor_table import Expected, Geometry, drafter_name, drafter_table, target_table

SPECIAL = (
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜▁pad▁｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<think>",
    "</think>",
    "｜DSML｜",
    "<｜place▁holder▁no▁0｜>",
)
NOISE_ID = 8
SMALLEST_VOCABULARY = len(SPECIAL) + 256


@dataclass(frozen=True)
class TargetShape:
    """Sizes of a target; the defaults evaluate in milliseconds and have every layer kind."""

    vocab: int = 320
    dim: int = 128
    ratios: tuple[int, ...] = (0, 0, 4, 128)
    hash_layers: int = 1
    heads: int = 4
    head_dim: int = 128
    rope_dim: int = 64
    q_rank: int = 64
    out_groups: int = 2
    out_rank: int = 32
    index_heads: int = 4
    index_dim: int = 64
    index_top_k: int = 4
    experts: int = 8
    experts_used: int = 2
    expert_dim: int = 64
    window: int = 32
    sinkhorn: int = 20
    clamp: float = 10.0
    expert_scale: float = 1.5
    yarn: tuple[float, int] | None = None
    context: int = 1024

    @property
    def geometry(self) -> Geometry:
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
            vocab_size=self.vocab,
            streams=4,
        )


@dataclass(frozen=True)
class DrafterShape:
    """Sizes of a drafter that are not its target's; `taps` are 0-based, None: the last three.

    `drafted` is the size of a draft vocabulary, which needs a head of its own.
    """

    stages: int = 2
    block_size: int = 5
    rank: int = 32
    noise_id: int = NOISE_ID
    taps: tuple[int, ...] | None = None
    experts: int = 4
    expert_dim: int = 64
    default_confidence: float | None = None
    own_head: bool = False
    drafted: int | None = None

    def tapped(self, target: TargetShape) -> tuple[int, ...]:
        layers = len(target.ratios)
        return self.taps or tuple(range(max(0, layers - 3), layers))


SMALL = TargetShape()
DRAFTS_SOME = DrafterShape(own_head=True, drafted=97)
"""A drafter with a head of its own over a part of the vocabulary."""
K_QUANT = TargetShape(dim=256, expert_dim=256)
"""The smallest sizes that Q2_K, Q4_K and IQ2_XXS experts can have."""
EMBEDDED = TargetShape(
    vocab=8192,
    dim=256,
    ratios=(0, 0, 4, 128, 4, 128, 4, 128),
    hash_layers=2,
    heads=8,
    q_rank=128,
    out_groups=4,
    out_rank=64,
    index_heads=8,
    index_dim=128,
    index_top_k=64,
    experts=16,
    experts_used=4,
    expert_dim=128,
    window=128,
    context=4096,
)
EMBEDDED_DRAFTER = DrafterShape(stages=3, rank=64, experts=8, expert_dim=128)

_DS4 = {
    "projection": "Q8_0",
    "experts": "Q8_0",
    "down": "Q8_0",
    "embedding": "Q8_0",
    "output": "Q8_0",
    "compressor": "F16",
    "indexer": "F16",
    "hc": "F16",
    "router": "F16",
    "heads": "Q8_0",
}
PRESETS: dict[str, dict[str, str]] = {
    **{name: dict.fromkeys(_DS4, name) for name in ("F32", "F16", "BF16", "Q8_0", "MXFP4")},
    "ds4": _DS4,
    "ds4-q2": _DS4 | {"experts": "IQ2_XXS", "down": "Q2_K"},
    "ds4-q4": _DS4 | {"experts": "Q4_K", "down": "Q4_K"},
    "ds4-mxfp4": _DS4 | {"experts": "MXFP4", "down": "MXFP4"},
    "ds4-bf16-heads": _DS4 | {"heads": "BF16"},
}
"""Storage types by part; vectors are always F32 and tables of ids I32 or I64."""

_PARTS = (
    ("experts", ("ffn_gate_exps", "ffn_up_exps")),
    ("down", ("ffn_down_exps",)),
    ("embedding", ("token_embd",)),
    ("heads", ("markov", "confidence", "main_proj")),
    ("hc", ("hc_",)),
    ("router", ("ffn_gate_inp",)),
    ("indexer", ("indexer",)),
    ("compressor", ("attn_compressor",)),
    ("projection", ("attn_", "shexp")),
    ("output", ("output",)),
)


def vocabulary(size: int) -> tuple[list[str], list[int], list[str]]:
    """(tokens, token types, merges): special tokens, 256 byte symbols, then merges of letters."""
    if size < SMALLEST_VOCABULARY:
        raise ValueError(f"a vocabulary needs {SMALLEST_VOCABULARY} tokens, asked for {size}")
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    symbols = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    pairs = [("Ġ", a) for a in letters] + [(a, b) for a in letters for b in letters]
    triples = [(a + b, c) for a, b in pairs for c in letters]
    merges = (pairs + triples)[: size - SMALLEST_VOCABULARY]
    tokens = [*SPECIAL, *(symbols[b] for b in range(256)), *(a + b for a, b in merges)]
    if len(tokens) != size:
        raise ValueError(f"at most {len(tokens)} tokens can be made, asked for {size}")
    types = [3] * len(SPECIAL) + [1] * (size - len(SPECIAL))
    return tokens, types, [f"{a} {b}" for a, b in merges]


def tokenizer_metadata(size: int) -> dict[str, Plain | Typed]:
    tokens, types, merges = vocabulary(size)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "deepseek-v3",
        "tokenizer.ggml.tokens": Typed("string", tokens),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": Typed("string", merges),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
    }


def target_metadata(s: TargetShape) -> dict[str, Plain | Typed]:
    layers = len(s.ratios)
    keys: dict[str, Plain | Typed] = {
        "context_length": s.context,
        "embedding_length": s.dim,
        "block_count": layers,
        "vocab_size": s.vocab,
        "attention.head_count": s.heads,
        "attention.head_count_kv": 1,
        "attention.key_length": s.head_dim,
        "attention.value_length": s.head_dim,
        "rope.dimension_count": s.rope_dim,
        "rope.freq_base": 10000.0,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.q_lora_rank": s.q_rank,
        "attention.sliding_window": s.window,
        "expert_count": s.experts,
        "expert_used_count": s.experts_used,
        "expert_feed_forward_length": s.expert_dim,
        "expert_shared_count": 1,
        "expert_weights_scale": s.expert_scale,
        "expert_weights_norm": True,
        "expert_gating_func": 4,
        "swiglu_clamp_exp": [s.clamp] * layers,
        "attention.indexer.head_count": s.index_heads,
        "attention.indexer.key_length": s.index_dim,
        "attention.indexer.top_k": s.index_top_k,
        "attention.output_group_count": s.out_groups,
        "attention.output_lora_rank": s.out_rank,
        "attention.compress_ratios": s.ratios,
        "attention.compress_rope_freq_base": 160000.0,
        "hyper_connection.count": 4,
        "hyper_connection.sinkhorn_iterations": s.sinkhorn,
        "hyper_connection.epsilon": 1e-6,
        "hash_layer_count": s.hash_layers,
    }
    if s.yarn:
        keys |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": s.yarn[0],
            "rope.scaling.original_context_length": s.yarn[1],
            "rope.scaling.yarn_beta_fast": 32.0,
            "rope.scaling.yarn_beta_slow": 1.0,
        }
    general = {"general.architecture": "deepseek4", "general.name": "Random target"}
    return general | {f"deepseek4.{k}": v for k, v in keys.items()} | tokenizer_metadata(s.vocab)


def drafter_metadata(s: TargetShape, d: DrafterShape, dialect: str) -> dict[str, Plain | Typed]:
    metadata: dict[str, Plain | Typed] = {"general.name": "Random drafter"}
    if d.default_confidence is not None:
        metadata["ds4tui.default_confidence"] = d.default_confidence
    if dialect == "dspark":
        return metadata | {
            "general.architecture": "deepseek4-dspark",
            "dspark.block_size": d.block_size,
            "dspark.markov_rank": d.rank,
            "dspark.noise_token_id": d.noise_id,
            "dspark.target_layer_ids": Typed("u32", d.tapped(s)),
            "dspark.stage_count": d.stages,
            "dspark.n_layers": d.stages,
        }
    own = {
        "deepseek4.block_count": d.stages,
        "deepseek4.expert_count": d.experts,
        "deepseek4.expert_feed_forward_length": d.expert_dim,
        "deepseek4.attention.compress_ratios": [0] * d.stages,
        "deepseek4.swiglu_clamp_exp": [s.clamp] * d.stages,
    }
    shared = {
        key.replace("deepseek4.", "dflash."): value
        for key, value in (target_metadata(s) | own).items()
        if key.startswith(("deepseek4.", "tokenizer.")) and "indexer" not in key
    }
    return (
        metadata
        | shared
        | {
            "general.architecture": "dflash",
            "dflash.block_size": d.block_size,
            "dflash.target_layers": [layer + 1 for layer in d.tapped(s)],
            "tokenizer.ggml.mask_token_id": d.noise_id,
        }
    )


def target_tensors(
    s: TargetShape, types: str | Mapping[str, str] = "F32", seed: int = 0
) -> list[TensorData]:
    table = target_table(s.geometry, s.ratios, s.hash_layers)
    return [_tensor(expected, types, seed, s) for expected in table]


def drafter_tensors(
    s: TargetShape,
    d: DrafterShape,
    dialect: str = "dspark",
    types: str | Mapping[str, str] = "F32",
    seed: int = 1,
) -> list[TensorData]:
    """The same seed gives the same values in both dialects."""
    geometry = replace(s.geometry, experts=d.experts, expert_dim=d.expert_dim)
    table = drafter_table(
        geometry, d.stages, len(d.tapped(s)), d.rank, own_head=d.own_head, drafted=d.drafted
    )
    made = [_tensor(expected, types, seed, s) for expected in table]
    return [replace(t, name=drafter_name(t.name, dialect)) for t in made]


def write_target(
    path: Path,
    shape: TargetShape = SMALL,
    types: str | Mapping[str, str] = "F32",
    seed: int = 0,
    metadata: Mapping[str, Plain | Typed | None] | None = None,
    without: Iterable[str] = (),
) -> Path:
    """Write a target; `metadata` overrides keys (None removes one), `without` drops tensors."""
    return _write(
        path, target_metadata(shape), metadata, target_tensors(shape, types, seed), without
    )


def write_drafter(
    path: Path,
    target: TargetShape = SMALL,
    shape: DrafterShape | None = None,
    dialect: str = "dspark",
    types: str | Mapping[str, str] = "F32",
    seed: int = 1,
    metadata: Mapping[str, Plain | Typed | None] | None = None,
    without: Iterable[str] = (),
) -> Path:
    """Write a drafter for a target of that shape, in the dialect `dspark` or `dflash`."""
    shape = shape or DrafterShape()
    tensors = drafter_tensors(target, shape, dialect, types, seed)
    return _write(path, drafter_metadata(target, shape, dialect), metadata, tensors, without)


def write_pair(
    directory: Path,
    target: TargetShape = SMALL,
    drafter: DrafterShape | None = None,
    types: str | Mapping[str, str] = "F32",
    dialect: str = "dspark",
    seed: int = 0,
) -> tuple[Path, Path]:
    """Write `target.gguf` and `drafter.gguf`."""
    return (
        write_target(directory / "target.gguf", target, types, seed),
        write_drafter(directory / "drafter.gguf", target, drafter, dialect, types, seed + 1),
    )


def _write(
    path: Path,
    metadata: Mapping[str, Plain | Typed],
    overrides: Mapping[str, Plain | Typed | None] | None,
    tensors: Iterable[TensorData],
    without: Iterable[str],
) -> Path:
    merged = dict(metadata) | dict(overrides or {})
    dropped = set(without)
    kept = {key: value for key, value in merged.items() if value is not None}
    return write_gguf(path, kept, [t for t in tensors if t.name not in dropped])


def _tensor(
    expected: Expected, types: str | Mapping[str, str], seed: int, s: TargetShape
) -> TensorData:
    rng = np.random.default_rng([seed, zlib.crc32(expected.name.encode())])
    name, shape = expected.name, expected.shape
    if expected.role == "ids":
        order = rng.random((shape[0], s.experts)).argsort(axis=1)
        return TensorData.encode(name, order[:, : shape[1]], "I32")
    if expected.role == "tokens":
        chosen_ids = np.sort(rng.choice(s.vocab, shape, replace=False))
        return TensorData.encode(name, chosen_ids, "I64")
    if expected.role == "vector":
        return TensorData.encode(name, _vector(name, shape, rng), "F32")
    chosen = PRESETS[types] if isinstance(types, str) else types
    part = next(part for part, marks in _PARTS if any(mark in name for mark in marks))
    kind = chosen[part]
    if shape[-1] % SUPPORTED[kind].block:
        raise ValueError(f"{name}: rows of {shape[-1]} do not fill {kind} blocks")
    scale = _scale(name, shape)
    if kind in ("Q2_K", "Q4_K", "IQ2_XXS"):
        return TensorData(name, shape, kind, random_blocks(kind, shape, scale, rng))
    return TensorData.encode(name, rng.standard_normal(shape, np.float32) * scale, kind)


def _scale(name: str, shape: tuple[int, ...]) -> float:
    if "token_embd" in name or "markov_w1" in name:
        return 1.0
    if "_ape" in name:
        return 0.5
    return float(shape[-1] ** -0.5)


def _vector(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    noise = rng.standard_normal(shape, np.float32)
    if "norm" in name or "_scale" in name:
        return 1 + 0.1 * noise
    if "exp_probs_b" in name:
        return 0.1 * noise
    values = 0.5 * noise
    if "_base" in name and shape == (24,):  # streams that keep their identity
        values[8:] += 3 * np.eye(4, dtype=np.float32).reshape(-1)
    return values


def random_blocks(
    kind: str, shape: tuple[int, ...], scale: float, rng: np.random.Generator
) -> np.ndarray:
    """Valid random blocks of Q2_K, Q4_K or IQ2_XXS whose values have deviation `scale` and mean 0.

    Scales, quants and signs are uniform; the factors below are the deviation of what they spell.
    """
    blocks = int(np.prod(shape)) // 256
    data = rng.integers(0, 256, (blocks, SUPPORTED[kind].block_bytes), np.uint8)
    spread = rng.uniform(0.8, 1.2, blocks).astype(np.float32) * scale
    if kind == "IQ2_XXS":
        _put_half(data, 0, spread / 50.6)
    elif kind == "Q2_K":
        _put_half(data, 80, spread / 13.9)
        _put_half(data, 82, spread / 13.9 * 1.5)
    else:
        _put_half(data, 0, spread / 258)
        _put_half(data, 2, spread / 258 * 7.5)
    return data.reshape(-1)


def _put_half(data: np.ndarray, at: int, values: np.ndarray) -> None:
    data[:, at : at + 2] = values.astype("<f2").view(np.uint8).reshape(-1, 2)
