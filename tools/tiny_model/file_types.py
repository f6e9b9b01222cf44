"""Which tensor is stored in which type, and weight files that hold exactly those values.

The training code measures and continues from `rounded_like_file`, so what it sees is what the
GGUF holds. Knows names, not shapes of a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tools.tiny_model.rounding import q8_0, q8_0_codes

TARGET_FILE, DRAFTER_FILE = "tiny-v4.gguf", "tiny-v4-dspark.gguf"

OUTSIDE_STAGES = ("main_", "norm", "hc_head", "markov_head", "confidence_head")
"""Beginnings of the drafter's names that belong to no stage, though the file counts them to one."""

DRAFT_HEAD, DRAFTED = "draft_head", "d2t"
"""A drafter's own head, `output.weight` in its file, and the tokens of the head's rows."""


def file_type(name: str, tensor: Tensor) -> str:
    """F32, F16, Q8_0, I32 or I64 for a tensor by its name without `.weight`."""
    if "tid2eid" in name:
        return "I32"
    if name == DRAFTED:
        return "I64"
    if tensor.ndim < 2 or name.endswith("exp_probs_b"):
        return "F32"
    if "indexer" in name or "compressor" in name or name.endswith(("_fn", "ffn_gate_inp")):
        return "F16"
    return "Q8_0"


def marked(named: Mapping[str, Tensor], marks: Sequence[str]) -> list[str]:
    """The Q8_0 matrices among the tensors that are to become MXFP4 instead.

    Args:
        marks: names, `*` stands for any part.
    """
    return [
        name
        for name, tensor in named.items()
        if file_type(name, tensor) == "Q8_0" and any(fnmatch(name, mark) for mark in marks)
    ]


def rounded_like_file(named: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as they come back from the file, float32."""
    out = {}
    for name, tensor in named.items():
        kind = file_type(name, tensor)
        if kind == "Q8_0":
            tensor = q8_0(tensor.detach())
        elif kind == "F16":
            tensor = tensor.detach().half().float()
        out[name] = tensor.detach()
    return out


def save_weights(named: dict[str, Tensor], folder: Path, name: str, parts: int) -> None:
    """Writes the tensors in their file types to `parts` files of about equal size."""
    folder.mkdir(parents=True, exist_ok=True)
    groups: list[dict[str, Tensor | tuple[Tensor, Tensor]]] = [{} for _ in range(parts)]
    sizes = [0] * parts
    for key, tensor in sorted(named.items(), key=lambda item: -item[1].numel()):
        at = sizes.index(min(sizes))
        kind, value = file_type(key, tensor), tensor.detach().cpu()
        if kind == "Q8_0":
            codes, scales = q8_0_codes(value)
            groups[at][key] = (codes.to(torch.int8), scales.half())
        elif kind in ("I32", "I64"):
            groups[at][key] = value.to(torch.int16)
        else:
            groups[at][key] = value.half() if kind == "F16" else value.float().clone()
        sizes[at] += value.numel() * (2 if kind == "F16" else 1)
    for i, group in enumerate(groups):
        torch.save(group, folder / f"{name}{i}.pt")


def load_file(path: Path, device: str) -> dict[str, Tensor]:
    """The tensors of a GGUF file of the pair, by the training code's names.

    Raises:
        Ds4Error: when the file cannot be read.
    """
    from engine.gguf import open_gguf  # needs gguf, which the training machine may lack
    from engine.quant_types import INTEGERS

    file, named = open_gguf(str(path)), {}
    for key, info in file.tensors.items():
        name = key.removesuffix(".weight").removesuffix(".bias")
        _, _, rest = name.removeprefix("mtp.").partition(".")
        if name.startswith("mtp.") and rest.startswith(OUTSIDE_STAGES):
            name = rest
        if name == "output" and path.name == DRAFTER_FILE:
            name = DRAFT_HEAD
        values = file.integers(key) if info.type in INTEGERS else file.dequantise(key)
        tensor = torch.from_numpy(np.array(values)).reshape(tuple(info.shape)).to(device)
        named[name] = tensor.float() if tensor.is_floating_point() else tensor.long()
    return named


def load_weights(folder: Path, name: str, device: str) -> dict[str, Tensor]:
    """What `save_weights` wrote, else what the pair's file holds: float32 tensors, int64 tables.

    Raises:
        FileNotFoundError: when the folder holds no such weights.
    """
    paths = sorted(folder.glob(f"{name}[0-9].pt"))
    file = folder / (TARGET_FILE if name == "target" else DRAFTER_FILE)
    if not paths and file.exists():
        return load_file(file, device)
    if not paths:
        raise FileNotFoundError(f"no {name}0.pt in {folder}")
    named: dict[str, Tensor] = {}
    for path in paths:
        for key, value in torch.load(path, map_location=device).items():
            if isinstance(value, tuple):
                codes, scales = value
                named[key] = (codes.float() * scales.float()).flatten(-2)
            else:
                named[key] = value.float() if value.is_floating_point() else value.long()
    return named
