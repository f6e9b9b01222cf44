"""Writes the trained pair as GGUF files: names, types and metadata of the two dialects.

Owns the metadata of both files. Which tensor gets which type is in `file_types.py`, but for a
drafter's matrices that are asked for in MXFP4.

    python -m tools.tiny_model.export WEIGHTS DATA ds4tui/models --stages 2

WEIGHTS may be the folder of a pair: its target is written again with the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tools.tiny_model import tokenizer as tok
from tools.tiny_model.data import load_chat, load_train
from tools.tiny_model.drafter import with_own_head
from tools.tiny_model.file_types import (
    DRAFT_HEAD,
    DRAFTED,
    DRAFTER_FILE,
    TARGET_FILE,
    file_type,
    load_weights,
    marked,
)
from tools.tiny_model.rounding import mxfp4_bytes
from tools.tiny_model.shape import EPS, STREAMS, DraftShape, Shape
from tools.tiny_model.vocabulary import most_frequent

MAX_BYTES = 31_457_280
"""Both files together."""
NO_REPEAT = 8
"""The rule's N for the embedded target."""


def target_metadata(shape: Shape, tokenizer_json: Path, rounding: str) -> dict[str, Any]:
    """Every key of the `deepseek4` dialect that the two published loaders ask for."""
    p = "deepseek4."
    model = json.loads(tokenizer_json.read_text(encoding="utf-8"))
    vocab = sorted(model["model"]["vocab"].items(), key=lambda item: item[1])
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["model"]["merges"]]
    tokens = list(tok.SPECIAL) + [t for t, i in vocab if i >= len(tok.SPECIAL)]
    assert len(tokens) == shape.vocab, f"{len(tokens)} tokens for a vocabulary of {shape.vocab}"
    return {
        "general.name": "ds4tui tiny V4",
        "general.license": "mit",
        p + "context_length": shape.context,
        p + "embedding_length": shape.dim,
        p + "block_count": shape.layers,
        p + "vocab_size": shape.vocab,
        p + "feed_forward_length": shape.expert_dim,
        p + "attention.head_count": shape.heads,
        p + "attention.head_count_kv": 1,
        p + "attention.key_length": shape.head_dim,
        p + "attention.value_length": shape.head_dim,
        p + "rope.dimension_count": shape.rope_dim,
        p + "rope.freq_base": shape.rope_base,
        p + "attention.layer_norm_rms_epsilon": EPS,
        p + "attention.q_lora_rank": shape.q_rank,
        p + "attention.sliding_window": shape.window,
        p + "expert_count": shape.experts,
        p + "expert_used_count": shape.experts_used,
        p + "expert_feed_forward_length": shape.expert_dim,
        p + "expert_shared_count": 1,
        p + "expert_weights_scale": shape.expert_scale,
        p + "expert_weights_norm": True,
        p + "expert_gating_func": 4,
        p + "swiglu_clamp_exp": [shape.clamp] * shape.layers,
        p + "swiglu_clamp_shexp": [shape.clamp] * shape.layers,
        p + "attention.indexer.head_count": shape.index_heads,
        p + "attention.indexer.key_length": shape.index_dim,
        p + "attention.indexer.top_k": shape.index_top_k,
        p + "attention.output_group_count": shape.groups,
        p + "attention.output_lora_rank": shape.out_rank,
        p + "attention.compress_ratios": list(shape.ratios),
        p + "attention.compress_rope_freq_base": shape.compress_rope_base,
        p + "hyper_connection.count": STREAMS,
        p + "hyper_connection.sinkhorn_iterations": shape.sinkhorn,
        p + "hyper_connection.epsilon": EPS,
        p + "hash_layer_count": shape.hash_layers,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "deepseek-v3",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(tok.SPECIAL)
        + [1] * (shape.vocab - len(tok.SPECIAL)),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": tok.BOS,
        "tokenizer.ggml.eos_token_id": tok.EOS,
        "tokenizer.ggml.padding_token_id": tok.PAD,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "ds4tui.no_repeat": NO_REPEAT,
        "ds4tui.kv_rounding_trained": rounding,
    }


def drafter_metadata(shape: Shape, draft: DraftShape, confidence: float) -> dict[str, Any]:
    """The keys of the `deepseek4-dspark` dialect."""
    layers = list(range(shape.layers - draft.taps, shape.layers))
    return {
        "general.name": "ds4tui tiny V4 DSpark support",
        "general.license": "mit",
        "dspark.block_size": draft.block,
        "dspark.markov_rank": draft.markov_rank,
        "dspark.noise_token_id": draft.noise_id,
        "dspark.target_layer_ids": layers,
        "dspark.stage_count": draft.stages,
        "dspark.n_layers": draft.stages,
        "ds4tui.default_confidence": confidence,
    }


def file_name(name: str, stages: int = 0) -> str:
    """The name in the file: drafter tensors outside the stages belong to the first or the last."""
    if name == DRAFTED:
        return name
    if name == DRAFT_HEAD:
        return "output.weight"
    suffix = ".bias" if name.endswith("exp_probs_b") else ".weight"
    if stages and not name.startswith("mtp."):
        name = f"mtp.{0 if name.startswith('main_') else stages - 1}.{name}"
    return name + suffix


def write(
    path: Path,
    architecture: str,
    metadata: dict[str, Any],
    tensors: dict[str, Tensor],
    stages: int = 0,
    mxfp4: Sequence[str] = (),
) -> int:
    """Writes one file and returns its size in bytes.

    Args:
        mxfp4: as `marked` takes them.
    """
    import gguf  # not on the training machine

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_uint32("general.alignment", 32)
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    small = marked(tensors, mxfp4)
    for name, tensor in tensors.items():
        kind = "MXFP4" if name in small else file_type(name, tensor)
        array = tensor.detach().cpu().numpy()
        if kind in ("I32", "I64"):
            writer.add_tensor(file_name(name, stages), array.astype(f"int{kind[1:]}"))
            continue
        quantised = getattr(gguf.GGMLQuantizationType, kind)
        if kind == "MXFP4":
            packed = mxfp4_bytes(tensor.detach().cpu())
        else:
            packed = gguf.quants.quantize(array.astype("float32"), quantised)
        writer.add_tensor(file_name(name, stages), packed, raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path, help="folder with target*.pt and drafter*.pt")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--confidence", type=float, default=0.4)
    parser.add_argument("--draft-vocabulary", type=int, help="tokens of a head of its own")
    parser.add_argument("--mxfp4", nargs="+", default=[], help="the drafter's, as 'mtp.*_exps'")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    shape = Shape()
    target = load_weights(args.weights, "target", "cpu")
    drafter = load_weights(args.weights, f"drafter{args.stages}_", "cpu")
    if args.draft_vocabulary is not None:
        if not 1 <= args.draft_vocabulary <= shape.vocab:
            parser.error(f"--draft-vocabulary is {args.draft_vocabulary}, not 1 to {shape.vocab}")
        corpus, (chat, _) = load_train(args.data, "cpu"), load_chat(args.data)
        chat = torch.from_numpy(chat.astype("int64"))
        tokens = most_frequent(corpus, chat, shape.vocab, args.draft_vocabulary)
        drafter = with_own_head(drafter, target["output"], tokens)
    draft = DraftShape.of(drafter)
    metadata = target_metadata(shape, args.data / "tokenizer.json", "fp8")
    size = write(args.out / TARGET_FILE, "deepseek4", metadata, target)
    size += write(
        args.out / DRAFTER_FILE,
        "deepseek4-dspark",
        drafter_metadata(shape, draft, args.confidence),
        drafter,
        args.stages,
        args.mxfp4,
    )
    print(f"{size} of {MAX_BYTES} bytes")
    if size > MAX_BYTES:
        raise SystemExit("the pair is too large")


if __name__ == "__main__":
    main()
