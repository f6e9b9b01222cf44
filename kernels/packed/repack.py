"""From a file's blocks to planes that the kernels decode with few operations per weight.

All planes of a stack have the matrix as their first axis. Quantised weights lie in panels of 16
rows, block by block of inputs, so that a tile reads long runs of memory; what belongs to a group of
inputs (scales) lies across the rows. A word of 16 bits holds fields of inputs that are 16 or 32
apart, so that field j of consecutive words is the j-th run of consecutive inputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kernels.packed.formats import BLOCKS, PANEL, UNITS, row_bytes
from kernels.packed.reference import dequantise, iq2_xxs_parts, mxfp4_codes, q2_k_parts, q4_k_parts

CHUNK = 1 << 25
"""Elements repacked at once: bounds the temporary memory, about 40 bytes each."""


Layout = Callable[[Tensor], tuple[list[Tensor], list[Tensor]]]
"""Blocks (rows, blocks of a row, bytes) to planes along the rows and planes of their groups."""


def repack(
    kind: str, blocks: Tensor, count: int, outputs: int, inputs: int
) -> tuple[str, tuple[Tensor, ...]]:
    """Planes of a stack of matrices.

    Args:
        blocks: uint8, the stack's bytes as a file has them.
    Returns:
        The kind that the planes are for (a row that is not whole units becomes F32) and the planes:

        F32, F16: (count, outputs, inputs). The others' first planes are in panels: rows of
            (outputs, ...) below as (outputs / 16, blocks, 16, words of a block).
        Q8_0: values + 128 (count, outputs, inputs) uint8; two F16 scales a word
            (count, inputs / 64, outputs) int32.
        IQ2_XXS: codes (count, outputs, inputs / 8) int16, 8 fields of 2 bits: 0, 2, 3 for 8, 25,
            43; minus signs likewise, uint8; four odd scales a word (count, inputs / 128, outputs)
            int32; block scale / 8 (count, inputs / 256, outputs) float32.
        Q2_K: quants (count, outputs, inputs / 8) int16, 8 fields of 2 bits, 16 words for 128
            inputs; mins of groups of 16, + 128, (count, outputs, inputs / 16) uint8; four scales
            a word (count, inputs / 64, outputs) int32; both block scales, F16, in one word
            (count, inputs / 256, outputs) int32.
        Q4_K: quants (count, outputs, inputs / 4) int16, 4 fields of 4 bits, 32 words for 128
            inputs; four scales a word, four mins a word (count, inputs / 128, outputs) int32; both
            block scales as Q2_K.
        MXFP4: codes as Q4_K's quants; four exponents a word (count, inputs / 128, outputs) int32.
    Raises:
        ValueError: for an unknown type, rows that are not whole blocks, or a wrong number of bytes.
    """
    size, rows = row_bytes(kind, inputs), count * outputs
    if blocks.numel() != rows * size:
        raise ValueError(
            f"{kind} of {count} x {outputs} x {inputs} has {rows * size} bytes, "
            f"not {blocks.numel()}"
        )
    if kind in ("F32", "F16"):
        dtype = torch.float32 if kind == "F32" else torch.float16
        plane = torch.empty((count, outputs, inputs), dtype=dtype, device=blocks.device)
        plane.view(torch.uint8).view(-1).copy_(blocks.reshape(-1))  # aligned, whatever blocks is
        return kind, (plane,)
    if kind == "BF16" or inputs % UNITS[kind]:
        values = dequantise(kind, blocks.reshape(-1), rows, inputs)
        return "F32", (values.reshape(count, outputs, inputs),)
    of_rows = blocks.reshape(rows, inputs // BLOCKS[kind][0], BLOCKS[kind][1])
    at_once = max(1, CHUNK // inputs)
    wholes: list[Tensor] = []
    for first in range(0, rows, at_once):
        along, across = LAYOUTS[kind](of_rows[first : first + at_once])
        if not wholes:
            wholes = [part.new_empty((rows, part.shape[1])) for part in (*along, *across)]
        for whole, part in zip(wholes, (*along, *across), strict=True):
            whole[first : first + at_once] = part
    planes = [_panels(wholes[i].view(count, outputs, -1), kind) for i in range(len(along))]
    for whole in wholes[len(along) :]:
        planes.append(whole.view(count, outputs, -1).transpose(1, 2).contiguous())
    return kind, tuple(planes)


def _panels(plane: Tensor, kind: str) -> Tensor:
    """(count, outputs, words) as (count, panels, blocks, PANEL, words of a block), rows padded."""
    count, outputs, words = plane.shape
    piece = 16 if kind == "Q2_K" else 32  # what a kernel loads at once of each of PANEL rows
    panels = -(-outputs // PANEL)
    laid = plane.new_zeros((count, panels, words // piece, PANEL, piece))
    for m in range(count):
        padded = torch.nn.functional.pad(plane[m], (0, 0, 0, panels * PANEL - outputs))
        laid[m] = padded.view(panels, PANEL, words // piece, piece).transpose(1, 2)
    return laid


def _words(bytes_: Tensor) -> Tensor:
    """(rows, 4 g) integers below 256 as (rows, g) int32 words, the first one lowest."""
    return bytes_.to(torch.uint8).contiguous().view(torch.int32)


def _fields(values: Tensor, width: int) -> Tensor:
    """(..., fields, words) small integers as (..., words) int16, field j at bit width * j."""
    shifts = torch.arange(values.shape[-2], device=values.device, dtype=torch.int32) * width
    return (values.int() << shifts[:, None]).sum(-2, dtype=torch.int32).to(torch.int16)


def _q8_0(b: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    rows = b.shape[0]
    values = (b[:, :, 2:] ^ 128).reshape(rows, -1)
    scales = b[:, :, :2].reshape(rows, -1)
    if b.shape[1] % 2:
        scales = torch.cat([scales, torch.zeros_like(scales[:, :2])], 1)
    return [values], [_words(scales)]


def _q2_k(b: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    rows = b.shape[0]
    values, scales, mins = q2_k_parts(b.flatten(0, 1))
    quants = _fields(values.reshape(-1, 2, 8, 16), 2).reshape(rows, -1)
    least = (mins + 128).to(torch.uint8).reshape(rows, -1)
    factors = _words(scales.reshape(rows, -1))
    return [quants, least], [factors, _words(b[:, :, 80:].reshape(rows, -1))]


def _q4_k(b: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    rows = b.shape[0]
    values, scales, mins = q4_k_parts(b.flatten(0, 1))
    quants = _fields(values.reshape(-1, 2, 4, 32), 4).reshape(rows, -1)
    factors = [_words(part.reshape(rows, -1)) for part in (scales, mins)]
    return [quants], [*factors, _words(b[:, :, :4].reshape(rows, -1))]


def _iq2_xxs(b: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    rows = b.shape[0]
    flat = b.flatten(0, 1)
    codes, minus, odd = iq2_xxs_parts(flat)
    codes = codes + (codes > 0)  # 0, 1, 2 -> 0, 2, 3
    fields = _fields(codes, 2).reshape(rows, -1)
    signs = _fields(minus, 1).to(torch.uint8).reshape(rows, -1)
    scale = flat[:, :2].contiguous().view(torch.float16).float() * 0.125
    return [fields, signs], [_words(odd.reshape(rows, -1)), scale.reshape(rows, -1)]


def _mxfp4(b: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    rows = b.shape[0]
    codes = mxfp4_codes(b.flatten(0, 1)).reshape(-1, 4, 32)
    return [_fields(codes, 4).reshape(rows, -1)], [_words(b[:, :, 0])]


LAYOUTS: dict[str, Layout] = {
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q4_K": _q4_k,
    "IQ2_XXS": _iq2_xxs,
    "MXFP4": _mxfp4,
}
"""By type: planes of a few rows."""
