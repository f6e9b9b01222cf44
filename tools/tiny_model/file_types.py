"""Which tensor is stored in which type, and weight files that hold exactly those values.

The training code measures and continues from `rounded_like_file`, so what it sees is what the
GGUF holds. Knows names, not shapes of a model.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tools.tiny_model.rounding import q8_0, q8_0_codes


def file_type(name: str, tensor: Tensor) -> str:
    """F32, F16, Q8_0 or I32 for a tensor by its name without `.weight`."""
    if "tid2eid" in name:
        return "I32"
    if tensor.ndim < 2 or name.endswith("exp_probs_b"):
        return "F32"
    if "indexer" in name or "compressor" in name or name.endswith(("_fn", "ffn_gate_inp")):
        return "F16"
    return "Q8_0"


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
        elif kind == "I32":
            groups[at][key] = value.to(torch.int16)
        else:
            groups[at][key] = value.half() if kind == "F16" else value.float().clone()
        sizes[at] += value.numel() * (2 if kind == "F16" else 1)
    for i, group in enumerate(groups):
        torch.save(group, folder / f"{name}{i}.pt")


def load_weights(folder: Path, name: str, device: str) -> dict[str, Tensor]:
    """What `save_weights` wrote: float32 tensors and int64 tables.

    Raises:
        FileNotFoundError: when the folder holds no such weights.
    """
    paths = sorted(folder.glob(f"{name}[0-9].pt"))
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
