"""Which tensors a target and a drafter consist of: names, shapes, and what may store them.

Names are those of the `deepseek4` GGUF dialect; a drafter's canonical names are those of
`deepseek4-dspark`, and `drafter_name` maps them to what a file of either dialect calls them.
Shapes are torch shapes. Knows no metadata keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from engine.errors import Ds4Error
from engine.gguf import GGUFFile
from engine.gguf_header import TensorInfo
from engine.quant_types import INTEGERS, SUPPORTED, supported_names
from engine.text import one_line

Role = Literal["vector", "matrix", "ids", "tokens"]
_FLOATS = ("F32", "F16", "BF16")
_TYPES: dict[Role, tuple[str, ...]] = {
    "vector": _FLOATS,
    "matrix": tuple(name for name in SUPPORTED if name not in INTEGERS),
    "ids": ("I32",),
    "tokens": ("I64",),
}
OWN_HEAD, DRAFTED = "output.weight", "d2t"
"""A drafter's own head, and the token ids of its rows: both dialects call them so."""
_LISTED = 24  # names spelt out in a message before they are grouped


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes that decide the shapes of one block."""

    dim: int
    heads: int
    head_dim: int
    q_rank: int
    out_groups: int
    out_rank: int
    index_heads: int
    index_dim: int
    experts: int
    experts_used: int
    expert_dim: int
    vocab_size: int
    streams: int


@dataclass(frozen=True, slots=True)
class Expected:
    """One tensor that must be there. `alternative` is another shape of the same bytes."""

    name: str
    shape: tuple[int, ...]
    role: Role
    alternative: tuple[int, ...] = ()


def block_table(prefix: str, g: Geometry, ratio: int, *, hashed: bool) -> list[Expected]:
    """The tensors of one block: `ratio` 0, 4 or 128; `hashed` chooses experts by token id."""
    D, Q, hd, E, F = g.dim, g.q_rank, g.head_dim, g.experts, g.expert_dim
    G, rank, wide = g.out_groups, g.out_rank, g.heads * g.head_dim
    mix = (2 + g.streams) * g.streams
    table = [
        Expected("attn_norm.weight", (D,), "vector"),
        Expected("attn_sinks.weight", (g.heads,), "vector"),
        Expected("attn_q_a.weight", (Q, D), "matrix"),
        Expected("attn_q_a_norm.weight", (Q,), "vector"),
        Expected("attn_q_b.weight", (wide, Q), "matrix"),
        Expected("attn_kv.weight", (hd, D), "matrix"),
        Expected("attn_kv_a_norm.weight", (hd,), "vector"),
        Expected("attn_output_a.weight", (G * rank, wide // G), "matrix", (G, rank, wide // G)),
        Expected("attn_output_b.weight", (D, G * rank), "matrix"),
        Expected("ffn_norm.weight", (D,), "vector"),
        Expected("ffn_gate_inp.weight", (E, D), "matrix"),
        Expected("ffn_gate_exps.weight", (E, F, D), "matrix"),
        Expected("ffn_up_exps.weight", (E, F, D), "matrix"),
        Expected("ffn_down_exps.weight", (E, D, F), "matrix"),
        Expected("ffn_gate_shexp.weight", (F, D), "matrix"),
        Expected("ffn_up_shexp.weight", (F, D), "matrix"),
        Expected("ffn_down_shexp.weight", (D, F), "matrix"),
    ]
    for half in ("attn", "ffn"):
        table += [
            Expected(f"hc_{half}_fn.weight", (mix, g.streams * D), "matrix"),
            Expected(f"hc_{half}_base.weight", (mix,), "vector"),
            Expected(f"hc_{half}_scale.weight", (3,), "vector"),
        ]
    if hashed:
        ids = (g.vocab_size, g.experts_used)
        table.append(Expected("ffn_gate_tid2eid.weight", ids, "ids"))
    else:
        table.append(Expected("exp_probs_b.bias", (E,), "vector"))
    if ratio:
        table += _compressor("attn_compressor", D, hd, ratio)
    if ratio == 4:
        IH, ID = g.index_heads, g.index_dim
        table += [
            Expected("indexer.attn_q_b.weight", (IH * ID, Q), "matrix"),
            Expected("indexer.proj.weight", (IH, D), "matrix"),
            *_compressor("indexer_compressor", D, ID, ratio),
        ]
    return [Expected(prefix + e.name, e.shape, e.role, e.alternative) for e in table]


def _compressor(name: str, dim: int, width: int, ratio: int) -> list[Expected]:
    columns = 2 * width if ratio == 4 else width  # ratio 4 pools overlapping windows
    return [
        Expected(f"{name}_kv.weight", (columns, dim), "matrix"),
        Expected(f"{name}_gate.weight", (columns, dim), "matrix"),
        Expected(f"{name}_ape.weight", (ratio, columns), "matrix"),
        Expected(f"{name}_norm.weight", (width,), "vector"),
    ]


def target_table(g: Geometry, ratios: tuple[int, ...], hash_layers: int) -> list[Expected]:
    """All tensors of a target."""
    table = [
        Expected("token_embd.weight", (g.vocab_size, g.dim), "matrix"),
        Expected("output_norm.weight", (g.dim,), "vector"),
        Expected("output.weight", (g.vocab_size, g.dim), "matrix"),
        *_head("output_hc", g),
    ]
    for layer, ratio in enumerate(ratios):
        table += block_table(f"blk.{layer}.", g, ratio, hashed=layer < hash_layers)
    return table


def _head(name: str, g: Geometry) -> list[Expected]:
    return [
        Expected(f"{name}_fn.weight", (g.streams, g.streams * g.dim), "matrix"),
        Expected(f"{name}_base.weight", (g.streams,), "vector"),
        Expected(f"{name}_scale.weight", (1,), "vector"),
    ]


def drafter_table(
    g: Geometry,
    stages: int,
    taps: int,
    rank: int,
    *,
    own_head: bool = False,
    drafted: int | None = None,
) -> list[Expected]:
    """All tensors of a drafter with a confidence head, by canonical names.

    Args:
        own_head: the drafter has an output head; else it uses the target's.
        drafted: tokens of its draft vocabulary, None = all; only with a head of its own.
    """
    rows = g.vocab_size if drafted is None else drafted
    table: list[Expected] = []
    for stage in range(stages):
        table += block_table(f"mtp.{stage}.", g, 0, hashed=False)
    last = f"mtp.{stages - 1}."
    return [
        *table,
        Expected("mtp.0.main_proj.weight", (g.dim, taps * g.dim), "matrix"),
        Expected("mtp.0.main_norm.weight", (g.dim,), "vector"),
        Expected(f"{last}norm.weight", (g.dim,), "vector"),
        *_head(f"{last}hc_head", g),
        Expected(f"{last}markov_head.markov_w1.weight", (g.vocab_size, rank), "matrix"),
        Expected(f"{last}markov_head.markov_w2.weight", (rows, rank), "matrix"),
        Expected(f"{last}confidence_head.proj.weight", (1, g.dim + rank), "matrix"),
        *([Expected(OWN_HEAD, (rows, g.dim), "matrix")] if own_head else []),
        *([] if drafted is None else [Expected(DRAFTED, (drafted,), "tokens")]),
    ]


_DFLASH_HEADS = {
    "main_proj.weight": "fc.weight",
    "main_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "hc_head_fn.weight": "output_hc_fn.weight",
    "hc_head_base.weight": "output_hc_base.weight",
    "hc_head_scale.weight": "output_hc_scale.weight",
    "markov_head.markov_w1.weight": "markov_w1.weight",
    "markov_head.markov_w2.weight": "markov_w2.weight",
    "confidence_head.proj.weight": "conf_proj.weight",
}


def drafter_name(canonical: str, dialect: str) -> str:
    """What a file of `dialect` ("dspark" or "dflash") calls a drafter's tensor."""
    if dialect == "dspark" or canonical in (OWN_HEAD, DRAFTED):
        return canonical
    _, stage, rest = canonical.split(".", 2)
    return _DFLASH_HEADS.get(rest, f"blk.{stage}.{rest}")


def check_present(file: GGUFFile, names: Iterable[str]) -> None:
    """Refuse a file that lacks tensors, naming all of them and the architecture."""
    missing = [name for name in names if name not in file.tensors]
    if missing:
        count = "1 tensor is" if len(missing) == 1 else f"{len(missing)} tensors are"
        raise Ds4Error(
            "Missing tensors",
            f"{file.name}: {count} missing for architecture {one_line(file.architecture)!r}: "
            f"{_grouped(missing)}.",
            "The file is complete but was written without them; convert the model again.",
        )


def _grouped(names: list[str]) -> str:
    """All names; when there are many, those of several blocks together: `blk.{0,1}.x.weight`."""
    if len(names) <= _LISTED:
        return ", ".join(names)
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        match = re.match(r"(blk|mtp)\.(\d+)\.(.*)", name)
        key = (match[1], match[3]) if match else (name, "")
        groups.setdefault(key, []).append(match[2] if match else "")
    return ", ".join(_group(head, rest, blocks) for (head, rest), blocks in groups.items())


def _group(head: str, rest: str, blocks: list[str]) -> str:
    if not rest:
        return head
    one_or_more = blocks[0] if len(blocks) == 1 else f"{{{','.join(blocks)}}}"
    return f"{head}.{one_or_more}.{rest}"


def check_tensors(file: GGUFFile, table: Iterable[Expected], names: Mapping[str, str]) -> None:
    """Refuse wrong shapes and storage types.

    Args:
        table: what must be there; presence was checked before.
        names: canonical name -> name in the file, for those that differ.
    """
    for expected in table:
        info = file.tensors[names.get(expected.name, expected.name)]
        file.check_type(info)
        _check_shape(file, info, expected)
        if info.type not in _TYPES[expected.role]:
            raise Ds4Error(
                "Wrong tensor type",
                f"{file.name}: tensor {info.name!r} is stored as {info.type}, expected "
                f"{' or '.join(_TYPES[expected.role])}.",
                f"Types that load at all: {supported_names()}.",
            )
    for name, info in file.tensors.items():
        up = file.tensors.get(name.replace("ffn_gate_exps", "ffn_up_exps"))
        if up is not None and up.type != info.type:
            raise Ds4Error(
                "Wrong tensor type",
                f"{file.name}: tensor {one_line(up.name)!r} is stored as {up.type}, expected "
                f"{info.type} as {one_line(name)!r} is.",
                "Quantise gate and up experts of a block to one type.",
            )


def _check_shape(file: GGUFFile, info: TensorInfo, expected: Expected) -> None:
    """Leading axes of 1 are no difference: they change no byte."""
    found = _stripped(info.shape)
    if found not in (_stripped(expected.shape), _stripped(expected.alternative)):
        raise Ds4Error(
            "Wrong tensor shape",
            f"{file.name}: tensor {info.name!r} has shape {list(info.shape)}, expected "
            f"{list(expected.shape)} (rows first).",
            "Its metadata and its tensors do not belong together, or the two files do not.",
        )


def _stripped(shape: tuple[int, ...]) -> tuple[int, ...]:
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape
