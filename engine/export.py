"""Writing a pair of files in llama.cpp's dialect, as F32 or as quantised.

The target stays architecture `deepseek4`; the drafter becomes `dflash`: other names, its own copy
of the geometry and of the vocabulary, tapped layers counted from the embedding. llama.cpp's graph
of DeepSeek-V4 blocks takes a drafter's own head but no draft vocabulary (seen in the sources of
llama-cpp-python 0.3.36: `d2t` is for its other DFlash graph). So the head and the Markov output of
such a drafter get a row of zeros for every token that it lacks: a logit of 0, which wins only where
no other is above it. Reads files, never a loaded model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from engine.config import ARCHITECTURE, DrafterConfig, ModelConfig
from engine.errors import Ds4Error
from engine.gguf import GGUFFile
from engine.gguf_write import Plain, TensorData, Typed, write_gguf
from engine.tensor_table import DRAFTED, OWN_HEAD, Expected, drafter_name
from engine.text import one_line

Form = Literal["f32", "quantised"]
Metadata = dict[str, Plain | Typed]
Names = list[tuple[str, str, Expected]]  # (name in the source, name to write, what it must be)

# llama.cpp's fused hyper-connections and its compressors take these as F32 only.
_F32_PARTS = ("hc_", "_ape.")
_ROWS_OF_TOKENS = (OWN_HEAD, "markov_w2.weight")
_ALL_F32 = 0  # `general.file_type`
_QUANTISATION_VERSION = 2


@dataclass(frozen=True, slots=True)
class Exported:
    """One written file."""

    role: Literal["target", "drafter"]
    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class _Job:
    role: Literal["target", "drafter"]
    file: GGUFFile
    metadata: Metadata
    names: Names
    drafted: np.ndarray | None = None
    """Tokens of the rows that a draft vocabulary leaves, (Vd,)."""


def export_pair(
    target: GGUFFile,
    drafter: GGUFFile | None,
    directory: Path,
    *,
    form: Form = "quantised",
    overwrite: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Exported]:
    """Write `<stem>.llama-<form>.gguf` for both files into a directory, which is made if need be.

    Args:
        form: `f32` dequantises everything; `quantised` keeps the stored types, except that
            hyper-connections, positions of compressors, norms and biases become F32.
        overwrite: replace files that are there.
        progress: called with (file name, tensors done, tensors in all).

    Raises:
        Ds4Error: when a file is no target or drafter, does not fit, or cannot be written.
    """
    config = ModelConfig.from_gguf(target)
    own_names = [(e.name, e.name, e) for e in config.table()]
    jobs = [_Job("target", target, _target_metadata(target, config), own_names)]
    if drafter is not None:
        own = DrafterConfig.from_gguf(drafter, config)
        metadata = _drafter_metadata(drafter, own, target, config)
        drafted = None if own.draft_vocabulary is None else drafter.integers(DRAFTED)
        jobs.append(_Job("drafter", drafter, metadata, _drafter_names(own, config), drafted))
    outputs = [directory / f"{job.file.path.stem}.llama-{form}.gguf" for job in jobs]
    _check_outputs(outputs, [job.file for job in jobs], overwrite)
    written: list[Exported] = []
    for job, path in zip(jobs, outputs, strict=True):
        tensors = _converted(job, config.vocab_size, form, path.name, progress)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_gguf(path, job.metadata | _form_keys(form), tensors)
        except OSError as error:
            raise Ds4Error(
                "Cannot write file",
                f"{one_line(str(path))} cannot be written: {error.strerror or error}.",
                "Choose another directory with --out, or free some space.",
            ) from None
        written.append(Exported(job.role, path, path.stat().st_size))
    return written


def _check_outputs(outputs: list[Path], inputs: list[GGUFFile], overwrite: bool) -> None:
    for path in outputs:
        if any(path.exists() and os.path.samefile(path, file.path) for file in inputs):
            problem, hint = "is the file that is being exported", "Choose another directory."
        elif outputs.count(path) > 1:
            problem, hint = "would be written twice", "Give the two files different names."
        elif path.exists() and not overwrite:
            problem = "exists already"
            hint = "Give --overwrite, or another directory with --out."
        else:
            continue
        raise Ds4Error("File in the way", f"{one_line(str(path))} {problem}.", hint)


def _form_keys(form: Form) -> Metadata:
    if form == "f32":
        return {"general.file_type": _ALL_F32}
    return {"general.quantization_version": _QUANTISATION_VERSION}


def _target_metadata(file: GGUFFile, config: ModelConfig) -> Metadata:
    """What llama.cpp reads of a target, and whatever else the file says of itself."""
    kept = _copied(file, ("general.", "tokenizer.", "ds4tui."))
    architecture: Metadata = {"general.architecture": ARCHITECTURE}
    shared = _shared_keys(ARCHITECTURE, config, config.layers)
    own: Metadata = {
        "vocab_size": config.vocab_size,
        "expert_count": config.experts,
        "expert_used_count": config.experts_used,
        "expert_feed_forward_length": config.expert_dim,
        "swiglu_clamp_exp": Typed("f32", config.swiglu_clamp),
        "attention.sliding_window": config.window,
        "attention.indexer.head_count": config.index_heads,
        "attention.indexer.key_length": config.index_dim,
        "attention.indexer.top_k": config.index_top_k,
        "attention.compress_ratios": config.ratios,
        "attention.compress_rope_freq_base": Typed("f32", config.compress_rope_base),
        "hash_layer_count": config.hash_layers,
    }
    if config.yarn is not None:
        own |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": Typed("f32", config.yarn.factor),
            "rope.scaling.original_context_length": config.yarn.original_context,
            "rope.scaling.yarn_beta_fast": Typed("f32", config.yarn.beta_fast),
            "rope.scaling.yarn_beta_slow": Typed("f32", config.yarn.beta_slow),
        }
    return kept | architecture | shared | {f"{ARCHITECTURE}.{k}": v for k, v in own.items()}


def _drafter_metadata(
    file: GGUFFile, config: DrafterConfig, target_file: GGUFFile, target: ModelConfig
) -> Metadata:
    """A drafter's keys in the `dflash` dialect, with its target's vocabulary."""
    kept = _copied(file, ("general.", "ds4tui.")) | _copied(target_file, ("tokenizer.",))
    own: Metadata = {
        "expert_count": config.experts,
        "expert_used_count": config.experts_used,
        "expert_feed_forward_length": config.expert_dim,
        "swiglu_clamp_exp": Typed("f32", config.swiglu_clamp),
        "attention.sliding_window": config.window,
        "attention.compress_ratios": [0] * config.stages,
        "block_size": config.block_size,
        "target_layers": [layer + 1 for layer in config.target_layers],
    }
    return (
        kept
        | {"general.architecture": "dflash", "tokenizer.ggml.mask_token_id": config.noise_id}
        | _shared_keys("dflash", target, config.stages)
        | {f"dflash.{key}": value for key, value in own.items()}
    )


def _shared_keys(architecture: str, target: ModelConfig, blocks: int) -> Metadata:
    """Keys that both dialects spell alike, with the target's values."""
    keys: Metadata = {
        "context_length": target.context_length,
        "embedding_length": target.dim,
        "block_count": blocks,
        "attention.head_count": target.heads,
        "attention.head_count_kv": 1,
        "attention.key_length": target.head_dim,
        "attention.value_length": target.head_dim,
        "attention.layer_norm_rms_epsilon": Typed("f32", target.norm_eps),
        "attention.q_lora_rank": target.q_rank,
        "attention.output_group_count": target.out_groups,
        "attention.output_lora_rank": target.out_rank,
        "rope.dimension_count": target.rope_dim,
        "rope.freq_base": Typed("f32", target.rope_base),
        "expert_shared_count": 1,
        "expert_weights_scale": Typed("f32", target.expert_scale),
        "expert_weights_norm": True,
        "expert_gating_func": 4,
        "hyper_connection.count": target.streams,
        "hyper_connection.sinkhorn_iterations": target.sinkhorn_iterations,
        "hyper_connection.epsilon": Typed("f32", target.hc_eps),
    }
    return {f"{architecture}.{key}": value for key, value in keys.items()}


def _copied(file: GGUFFile, prefixes: tuple[str, ...]) -> Metadata:
    """Keys of a file as they are stored; the alignment is the writer's own."""
    copied: Metadata = {}
    for key, value in file.metadata.items():
        nested = isinstance(value, list) and not all(isinstance(v, str) for v in value)
        if not key.startswith(prefixes) or key == "general.alignment" or nested:
            continue
        kind = file.kinds[key].rpartition(" ")[2]
        copied[key] = Typed(kind, value.tolist() if isinstance(value, np.ndarray) else value)  # type: ignore[arg-type]
    return copied


def _drafter_names(config: DrafterConfig, target: ModelConfig) -> Names:
    names = [
        (config.tensor_name(e.name), drafter_name(e.name, "dflash"), e)
        for e in config.table(target)
        if e.name != DRAFTED
    ]
    if config.confidence_bias:
        names.append(("conf_proj.bias", "conf_proj.bias", Expected("", (1,), "vector")))
    return names


def _converted(
    job: _Job,
    vocab: int,
    form: Form,
    shown: str,
    progress: Callable[[str, int, int], None] | None,
) -> list[TensorData]:
    """The tensors to write, each made when its turn comes."""
    file, drafted = job.file, job.drafted

    def one(index: int, source: str, name: str, expected: Expected) -> TensorData:
        stored = file.tensors[source].type
        small = expected.role == "vector" or any(part in name for part in _F32_PARTS)
        whole = expected.role in ("ids", "tokens")
        kind = "F32" if not whole and (form == "f32" or small) else stored
        spread = drafted is not None and expected.name.endswith(_ROWS_OF_TOKENS)
        shape = (vocab, *expected.shape[1:]) if spread else expected.shape

        def made() -> np.ndarray:
            if progress is not None:
                progress(shown, index + 1, len(job.names))
            rows = file.raw(source) if kind == stored else file.dequantise(source)
            if not spread:
                return rows
            every = np.zeros((vocab, *rows.shape[1:]), rows.dtype)  # of zeros in every type
            every[drafted] = rows
            return every

        return TensorData(name, shape, kind, made)

    return [one(index, *entry) for index, entry in enumerate(job.names)]
