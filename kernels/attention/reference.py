"""Readable reference of `kernels.attention`, for one row."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.qkv.reference import rotate


def attend(q: Tensor, keys: Tensor, sinks: Tensor, turn: Tensor) -> Tensor:
    """One row's queries (H, D) over keys (K, D) that are also the values -> (H, D).

    `sinks` (H,) enter the denominator only; the result is rotated back by `turn` (R,).
    """
    scores = q @ keys.T / keys.shape[-1] ** 0.5
    weights = torch.cat([scores, sinks[:, None]], -1).softmax(-1)[:, :-1]
    return rotate((weights @ keys)[None], turn[None], -1)[0]
