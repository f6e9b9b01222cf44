"""Tensor types that the engine reads: ids, block sizes and bytes of the GGUF format.

Only facts of the format; the formulas live in the kernels and in the `gguf` package. The table is
our own so that opening a file needs no `gguf` import (nothing imports it on CUDA); a test holds it
equal to that package's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorType:
    """One storage type: `block` elements take `block_bytes` bytes."""

    id: int
    name: str
    block: int
    block_bytes: int


SUPPORTED: dict[str, TensorType] = {
    t.name: t
    for t in (
        TensorType(0, "F32", 1, 4),
        TensorType(1, "F16", 1, 2),
        TensorType(30, "BF16", 1, 2),
        TensorType(8, "Q8_0", 32, 34),
        TensorType(10, "Q2_K", 256, 84),
        TensorType(12, "Q4_K", 256, 144),
        TensorType(16, "IQ2_XXS", 256, 66),
        TensorType(39, "MXFP4", 32, 17),
        TensorType(26, "I32", 1, 4),
        TensorType(27, "I64", 1, 8),
    )
}
"""Types that load, by name."""

INTEGERS = ("I32", "I64")
"""Types of tables of ids; the others are of weights."""

_BY_ID = {t.id: t for t in SUPPORTED.values()}


def supported_names() -> str:
    """The supported types as a phrase: "F32, F16, ..."."""
    return ", ".join(SUPPORTED)


def type_of(type_id: int) -> TensorType | None:
    """The type with this id; one that the engine cannot load is looked up in `gguf`; else None."""
    if (known := _BY_ID.get(type_id)) is not None:
        return known
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType  # slow import, rarely needed

    try:
        foreign = GGMLQuantizationType(type_id)
    except ValueError:
        return None
    block, block_bytes = GGML_QUANT_SIZES[foreign]
    return TensorType(type_id, foreign.name, block, block_bytes)
