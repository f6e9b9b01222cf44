"""Readable reference of `kernels.compressor`, over a whole sequence at once."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.qkv.reference import rms_norm, rotate
from kernels.rounding.reference import fp4_blocks, fp8_blocks, hadamard


def compress(
    x: Tensor, kv: Tensor, gate: Tensor, ape: Tensor, norm: Tensor, turns: Tensor, eps: float,
    ratio: int, finish: str,
) -> Tensor:  # fmt: skip
    """(T, C) normed inputs -> (T // ratio, D) rows; `turns` (T, R) for every position.

    `finish`: "plain", "fp8", "hadamard" or "hadamard+fp4".
    """
    windows, width = x.shape[0] // ratio, norm.numel()
    x = x[: windows * ratio]
    values = (x @ kv.T).view(windows, ratio, -1)
    scores = (x @ gate.T).view(windows, ratio, -1) + ape
    if values.shape[-1] == 2 * width:
        first_v = torch.zeros(1, ratio, width)
        first_s = torch.full((1, ratio, width), float("-inf"))
        before_v = torch.cat([first_v, values[:-1, :, :width]])
        before_s = torch.cat([first_s, scores[:-1, :, :width]])
        values = torch.cat([before_v, values[:, :, width:]], 1)
        scores = torch.cat([before_s, scores[:, :, width:]], 1)
    row = (scores.softmax(1) * values).sum(1)
    row = rotate(rms_norm(row, norm, eps), turns[: windows * ratio : ratio])
    if finish == "fp8":
        rest = width - turns.shape[-1]
        return torch.cat([fp8_blocks(row[:, :rest]), row[:, rest:]], -1)
    if finish.startswith("hadamard"):
        row = hadamard(row)
    return fp4_blocks(row) if finish == "hadamard+fp4" else row
