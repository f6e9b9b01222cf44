"""Files that were never written: the released models' names, shapes and types, random contents.

A `SyntheticFile` answers like an opened GGUF file of a recipe, with any number of layers. It makes
contents when they are asked for, the same ones each time; `engine.cuda.synthetic` makes the large
ones on a GPU instead. What such a model says means nothing; what it costs does. Recipe: the
published q2 file of DeepSeek-V4-Flash and its DSpark support file (antirez/ds4).
"""

from __future__ import annotations

import zlib
from math import prod
from pathlib import Path

import numpy as np

from engine.errors import Ds4Error
from engine.gguf import GGUFFile
from engine.gguf_header import Header, MetaValue, TensorInfo
from engine.gguf_write import Plain, Typed
from engine.quant_types import SUPPORTED
from engine.tensor_table import Expected, Geometry, drafter_table, target_table

RECIPES = ("v4-flash-q2",)
"""Names that `bench --synthetic` takes."""

FLASH = Geometry(
    dim=4096,
    heads=64,
    head_dim=512,
    q_rank=1024,
    out_groups=8,
    out_rank=1024,
    index_heads=64,
    index_dim=128,
    experts=256,
    experts_used=6,
    expert_dim=2048,
    vocab_size=129280,
    streams=4,
)
FLASH_LAYERS, HASH_LAYERS, STAGES, BLOCK, RANK, NOISE = 43, 3, 3, 5, 256, 128799
FEWEST_LAYERS = 3
"""The drafter reads the last three layers."""
CONTEXT = 1 << 20

_TARGET_TYPES = {
    "token_embd.weight": "F16",
    "output.weight": "Q8_0",
    "ffn_gate_exps.weight": "IQ2_XXS",
    "ffn_up_exps.weight": "IQ2_XXS",
    "ffn_down_exps.weight": "Q2_K",
    "ffn_gate_inp.weight": "F16",
    "ffn_gate_tid2eid.weight": "I32",
}
_DRAFTER_TYPES = _TARGET_TYPES | {"ffn_gate_inp.weight": "Q8_0"}
_Q8_0 = (
    "attn_q_a.weight",
    "attn_q_b.weight",
    "attn_kv.weight",
    "attn_output_a.weight",
    "attn_output_b.weight",
    "_shexp.weight",
    "proj.weight",
    "markov_w",
)


def ratios(layers: int) -> tuple[int, ...]:
    """Compression ratios of the first layers: 0, 0, 4, 128, 4, 128, ..."""
    return tuple(0 if layer < 2 else 128 if layer % 2 else 4 for layer in range(layers))


def type_of(name: str, role: str, drafter: bool) -> str:
    """Storage type of a tensor in the q2 recipe."""
    suffix = name.split(".", 2)[-1] if name.startswith(("blk.", "mtp.")) else name
    known = _DRAFTER_TYPES if drafter else _TARGET_TYPES
    if suffix in known:
        return known[suffix]
    if suffix.startswith("indexer.") or "_hc_fn" in suffix or suffix.startswith("hc_"):
        return "F16" if "_fn" in suffix or suffix.startswith("indexer.") else "F32"
    if "compressor" in suffix:
        return "F32" if "norm" in suffix else "F16"
    if role == "vector":
        return "F32" if "confidence" not in suffix else "Q8_0"
    return "Q8_0" if any(part in suffix for part in _Q8_0) else "F32"


def target_metadata(layers: int) -> dict[str, Plain | Typed]:
    """All metadata of the target that the engine reads; the vocabulary is one of names only."""
    g = FLASH
    keys: dict[str, Plain | Typed] = {
        "block_count": layers,
        "embedding_length": g.dim,
        "vocab_size": g.vocab_size,
        "context_length": CONTEXT,
        "attention.head_count": g.heads,
        "attention.head_count_kv": 1,
        "attention.key_length": g.head_dim,
        "attention.value_length": g.head_dim,
        "attention.q_lora_rank": g.q_rank,
        "attention.output_lora_rank": g.out_rank,
        "attention.output_group_count": g.out_groups,
        "attention.sliding_window": 128,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.compress_rope_freq_base": 160000.0,
        "attention.compress_ratios": ratios(layers),
        "attention.indexer.head_count": g.index_heads,
        "attention.indexer.key_length": g.index_dim,
        "attention.indexer.top_k": 512,
        "rope.dimension_count": 64,
        "rope.freq_base": 10000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 16.0,
        "rope.scaling.original_context_length": 65536,
        "rope.scaling.yarn_beta_fast": 32.0,
        "rope.scaling.yarn_beta_slow": 1.0,
        "expert_count": g.experts,
        "expert_used_count": g.experts_used,
        "expert_shared_count": 1,
        "expert_feed_forward_length": g.expert_dim,
        "expert_weights_scale": 1.5,
        "expert_weights_norm": True,
        "expert_gating_func": 4,
        "hash_layer_count": min(HASH_LAYERS, layers),
        "hyper_connection.count": g.streams,
        "hyper_connection.sinkhorn_iterations": 20,
        "hyper_connection.epsilon": 1e-6,
        "swiglu_clamp_exp": [10.0] * layers,
    }
    general: dict[str, Plain | Typed] = {
        "general.architecture": "deepseek4",
        "general.name": f"Synthetic DeepSeek V4 Flash, {layers} layers",
        "tokenizer.ggml.tokens": Typed("string", [f"token {i}" for i in range(g.vocab_size)]),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }
    return general | {f"deepseek4.{key}": value for key, value in keys.items()}


def drafter_metadata(layers: int) -> dict[str, Plain | Typed]:
    """The nine keys of the DSpark support file; it reads the last three layers."""
    return {
        "general.architecture": "deepseek4-dspark",
        "general.name": "Synthetic DeepSeek V4 Flash DSpark support",
        "general.alignment": 32,
        "dspark.block_size": BLOCK,
        "dspark.markov_rank": RANK,
        "dspark.noise_token_id": NOISE,
        "dspark.target_layer_ids": Typed("u32", list(range(layers - 3, layers))),
        "dspark.stage_count": STAGES,
        "dspark.n_layers": STAGES,
    }


class SyntheticFile(GGUFFile):
    """An opened file without bytes on disk."""

    def __init__(
        self, name: str, metadata: dict[str, Plain | Typed], tensors: list[tuple[Expected, str]]
    ) -> None:
        infos: dict[str, TensorInfo] = {}
        offset = 0
        for expected, kind in tensors:
            stored = SUPPORTED[kind]
            size = prod(expected.shape) // stored.block * stored.block_bytes
            infos[expected.name] = TensorInfo(expected.name, expected.shape, kind, size, offset)
            offset += -(-size // 32) * 32
        values = {key: _stored(value) for key, value in metadata.items()}
        kinds = {key: "synthetic" for key in metadata}
        header = Header(3, values, kinds, infos)
        super().__init__(Path(name), header, np.empty(0, np.uint8), 0)
        self.size = sum(info.nbytes for info in infos.values())
        self.plain = metadata

    def sha256(self) -> str:
        """Nothing was written, so there is nothing to hash."""
        return ""

    def dequantise(self, name: str) -> np.ndarray:
        """A tensor's numbers."""
        import torch  # only where weights are made

        from kernels.packed.reference import dequantise

        info = self.tensors[name]
        rows = prod(info.shape[:-1])
        blocks = torch.from_numpy(np.array(self.raw(name)).reshape(-1))
        numbers: np.ndarray = dequantise(info.type, blocks, rows, info.shape[-1]).numpy()
        return numbers.reshape(info.shape)

    def raw(self, name: str) -> np.ndarray:
        """Stored bytes, made now; of large tensors that takes a while."""
        info = self.tensors[name]
        rows = info.shape[0] if len(info.shape) == 1 else prod(info.shape[:-1])
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        if info.type == "I32":
            return _expert_ids(rng, info.shape, FLASH.experts).view(np.uint8)
        if info.type == "F32":
            return _vector(name, info.shape, rng).view(np.uint8).reshape(rows, -1)
        import torch  # only where weights are made

        from kernels.packed.random_blocks import random_blocks

        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        blocks = random_blocks(
            info.type, rows, info.shape[-1], generator, size_of(name, info.shape)
        )
        made: np.ndarray = blocks.numpy().reshape(*info.shape[:-1], -1)
        return made


def size_of(name: str, shape: tuple[int, ...]) -> float:
    """Root mean square of a matrix's values: products of unit rows have about unit size."""
    if "ape" in name:
        return 0.5
    return 1.0 if "token_embd" in name or "markov_w1" in name else float(shape[-1] ** -0.5)


def synthetic_pair(recipe: str, layers: int | None = None) -> tuple[SyntheticFile, SyntheticFile]:
    """A target of the recipe, with its first `layers` layers, and its drafter.

    Raises:
        Ds4Error: for an unknown recipe or a number of layers that it does not have.
    """
    if recipe not in RECIPES:
        raise Ds4Error(
            "Unknown recipe",
            f"--synthetic is {recipe!r}, expected one of {', '.join(RECIPES)}.",
        )
    count = FLASH_LAYERS if layers is None else layers
    if not FEWEST_LAYERS <= count <= FLASH_LAYERS:
        raise Ds4Error(
            "Wrong number of layers",
            f"--layers is {count}, expected {FEWEST_LAYERS} to {FLASH_LAYERS}.",
        )
    hashed = min(HASH_LAYERS, count)
    target = target_table(FLASH, ratios(count), hashed)
    drafter = drafter_table(FLASH, STAGES, 3, RANK)
    return (
        SyntheticFile(
            f"{recipe}, {count} layers",
            target_metadata(count),
            [(e, type_of(e.name, e.role, False)) for e in target],
        ),
        SyntheticFile(
            f"{recipe} DSpark",
            drafter_metadata(count),
            [(e, type_of(e.name, e.role, True)) for e in drafter],
        ),
    )


def _stored(value: Plain | Typed) -> MetaValue:
    """A value as an opened file has it."""
    plain = value.value if isinstance(value, Typed) else value
    if isinstance(plain, list | tuple):
        return [str(v) for v in plain] if isinstance(plain[0], str) else np.array(plain)
    assert isinstance(plain, int | float | str)
    return plain


def _expert_ids(rng: np.random.Generator, shape: tuple[int, ...], experts: int) -> np.ndarray:
    """(V, K) distinct experts per token: a start and an odd stride, modulo a power of two."""
    start = rng.integers(0, experts, (shape[0], 1))
    stride = 2 * rng.integers(0, experts // 2, (shape[0], 1)) + 1
    return ((start + stride * np.arange(shape[1])) % experts).astype("<i4")


def _vector(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """F32 values that keep activations finite and streams apart."""
    if "norm" in name:
        values = rng.uniform(0.9, 1.1, shape)
    elif "scale" in name:
        values = np.ones(shape)
    elif name.endswith("base.weight") and shape[-1] > 4:
        values = np.concatenate([np.zeros(8), 3 * np.eye(4).ravel()])
    else:
        values = rng.normal(0, 0.1, shape)
    return values.astype("<f4")
