"""Which kernels evaluate which ops of a forward: the words `path`, `numerics`, op class.

Knows nothing of weights or state; `engine.model` asks a `Plan`, `engine.decode` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OP_CLASSES = (
    "hc",
    "qkv",
    "compressor",
    "indexer",
    "attention",
    "attn_out",
    "router",
    "experts",
    "shared",
    "head",
)
"""Op classes of `--batch-ops` and `--perturb`; norms and RoPE belong to the op they feed."""

Path = Literal["vector", "batch", "invariant"]
Numerics = Literal["split", "invariant"]
Policy = Literal["direct", "prefix", "reproject", "replay", "strict"]

NUMERICS: tuple[Numerics, ...] = ("split", "invariant")
POLICIES: tuple[Policy, ...] = ("direct", "prefix", "reproject", "replay", "strict")


@dataclass(frozen=True, slots=True)
class Perturb:
    """Fault injection: y + u * ulps * ulp_f32(y), u in [-1, 1] from a hash.

    u depends on (seed, position, layer, class) and the element's index only.
    """

    op_class: str
    ulps: int
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How one forward evaluates its rows.

    Args:
        path: kernels of the op classes in `batch_ops` when it is `batch`, else of all classes.
        batch_ops: op classes that take the `batch` kernels; the others take the decode path's,
            row by row. Only read when `path` is `batch`.
        round_rows: round activations in `batch` kernels, to F16, on the CPU with Q8_0 weights to 16
            bits with one scale per block of 32 (off for a prefill that keeps F32).
        perturb: fault injection, only in verifies of two or more rows.
    """

    path: Path
    batch_ops: frozenset[str] = frozenset(OP_CLASSES)
    round_rows: bool = True
    perturb: Perturb | None = None

    def path_of(self, op_class: str) -> Path:
        """The path of one op class."""
        if self.path == "batch" and op_class not in self.batch_ops:
            return "vector"
        return self.path


DECODE = {"split": Plan("vector"), "invariant": Plan("invariant")}
"""Plan of a single row, by numerics: a single row is always a decode."""
