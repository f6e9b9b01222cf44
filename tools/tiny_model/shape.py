"""The sizes of the tiny target and of its drafter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a DeepSeek-V4 shaped target; the defaults are the embedded model's."""

    vocab: int = 8192
    dim: int = 256
    ratios: tuple[int, ...] = (0, 0, 4, 128, 4, 128, 4, 128)
    hash_layers: int = 2
    heads: int = 8
    head_dim: int = 128
    rope_dim: int = 64
    q_rank: int = 128
    groups: int = 4
    out_rank: int = 64
    index_heads: int = 8
    index_dim: int = 128
    index_top_k: int = 64
    experts: int = 16
    experts_used: int = 4
    expert_dim: int = 128
    window: int = 128
    sinkhorn: int = 20
    clamp: float = 10.0
    expert_scale: float = 1.5
    rope_base: float = 10000.0
    compress_rope_base: float = 160000.0
    context: int = 4096

    @property
    def layers(self) -> int:
        return len(self.ratios)


STREAMS = 4
"""Hyper-connection streams; both published implementations assert 4."""
EPS = 1e-6
"""Epsilon of every norm and of the hyper-connections."""


@dataclass(frozen=True, slots=True)
class DraftShape:
    """Sizes of a drafter; the head geometry is the target's."""

    stages: int = 2
    experts: int = 8
    experts_used: int = 4
    expert_dim: int = 128
    markov_rank: int = 64
    block: int = 5
    noise_id: int = 8
    taps: int = 3

    @classmethod
    def of(cls, named: Mapping[str, Tensor]) -> DraftShape:
        """The sizes of a drafter with these tensors; what they do not say is the default."""
        stages = len({name.split(".")[1] for name in named if name.startswith("mtp.")})
        experts, expert_dim, _ = named["mtp.0.ffn_gate_exps"].shape
        return cls(stages=stages, experts=experts, expert_dim=expert_dim)
