"""From a GGUF file's tensors to packed weights on a GPU.

Matrices that take the same input are joined, so that one product does them all: the query and
key-value projections, both compressors of a layer. Blocks go to the device as the file has them and
are repacked there. Imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from engine.errors import Ds4Error
from engine.weights import Progress, Tensors
from kernels.compressor import Compressor
from kernels.experts import Experts
from kernels.packed import KINDS, PackedMatrix, pack, packed_bytes
from kernels.qkv import Qkv

if TYPE_CHECKING:
    from engine.gguf import GGUFFile

STANDING_BYTES = 1 << 30
"""Device memory beside weights and timelines: activations, kernels."""
TIMELINES = 5
"""Of plain decode and one arm: the prompt's, their own, and those of the turn before."""
REPACKING = 15
"""Times a tensor's bytes that repacking it takes for a moment."""

GATHERED = ("F32", "F16", "Q8_0")
"""Kinds of which the kernels read single rows."""

Blocks = tuple[str, torch.Tensor, tuple[int, ...]]
"""A tensor's kind, its bytes on the device, (count, rows, bytes of a row), and its shape."""


def needed_bytes(files: Sequence[GGUFFile], timeline: int) -> int:
    """Device memory of files' packed weights and of what else it takes to load and use them.

    Args:
        timeline: bytes of one.
    """
    total = largest = 0
    for file in files:
        for info in file.tensors.values():
            kind = info.type if info.type in KINDS else "F32"
            count, rows, width = (1, 1, *info.shape)[-3:]
            total += packed_bytes(kind, count, rows, width)
            largest = max(largest, info.nbytes)
    return total + STANDING_BYTES + TIMELINES * timeline + REPACKING * largest


def require_device_memory(files: Sequence[GGUFFile], timeline: int) -> None:
    """Refuse files that do not fit in the device's free memory with timelines of so many bytes.

    Raises:
        Ds4Error: with needed and found.
    """
    free, _ = torch.cuda.mem_get_info()
    names = " and ".join(file.name for file in files)
    hint = "Use a smaller quantisation or --ctx, a GPU with more memory, or --device cpu."
    refuse_more(needed_bytes(files, timeline), free, names, hint)


def refuse_more(needed: int, free: int, what: str, hint: str) -> None:
    """Refuse what needs more bytes of device memory than are free."""
    if needed > free:
        gib = 1 << 30
        raise Ds4Error(
            "Not enough GPU memory",
            f"{what} need about {needed / gib:.1f} GiB of GPU memory, free are "
            f"{free / gib:.1f} GiB.",
            hint,
        )


class DeviceTensors(Tensors):
    """Reads one file's tensors into packed weights and tensors on a device."""

    def __init__(
        self,
        file: GGUFFile,
        rename: Callable[[str], str],
        progress: Progress | None,
        device: str,
    ) -> None:
        super().__init__(file, rename, progress)
        self._device = device

    def blocks(self, name: str, exact: Sequence[str] = KINDS) -> Blocks:
        """A matrix or a stack of them, as the file has it, or F32 where its kind is not `exact`."""
        name = self._read(name)
        info = self._file.tensors[name]
        kind, raw = info.type, self._file.raw(name)
        if kind not in exact:
            kind, raw = "F32", np.ascontiguousarray(self._file.dequantise(name), np.float32)
        shape = (1, 1, *info.shape)[-3:]
        data = torch.from_numpy(np.array(raw).reshape(-1).view(np.uint8)).to(self._device)
        return kind, data.view(shape[0], shape[1], -1), shape

    def _joined(self, parts: Sequence[Blocks]) -> PackedMatrix:
        """One packed stack whose matrices are the parts' over each other; all of one kind."""
        kind, _, (count, _, inputs) = parts[0]
        data = torch.cat([data for _, data, _ in parts], 1).reshape(-1)
        return pack(kind, data, count, sum(shape[1] for *_, shape in parts), inputs)

    def packed(self, name: str, groups: int = 0) -> Any:
        """A packed matrix, or `groups` of consecutive rows."""
        kind, data, (count, rows, inputs) = self.blocks(name)
        count, rows = groups or 1, count * rows // (groups or 1)
        return pack(kind, data.reshape(-1), count, rows, inputs)

    def own(self, values: np.ndarray) -> Any:
        """An array of the host, on the device."""
        return torch.from_numpy(values).to(self._device)

    def lookup(self, name: str) -> Any:
        """A packed matrix of which single rows are read."""
        return self._joined([self.blocks(name, GATHERED)])

    def mixer(self, name: str) -> Any:
        """A mixer's products: F16 or F32, read by the kernels themselves."""
        return self._joined([self.blocks(name, ("F16", "F32"))])

    def qkv(self, prefix: str) -> Qkv:
        """Queries and key-value row; one joined matrix where both are of a kind."""
        parts = [self.blocks(f"{prefix}attn_{part}.weight") for part in ("q_a", "kv")]
        same = parts[0][0] == parts[1][0]
        return Qkv(
            self._joined(parts) if same else self._joined(parts[:1]),
            self.vector(f"{prefix}attn_q_a_norm.weight"),
            self.packed(f"{prefix}attn_q_b.weight"),
            None if same else self._joined(parts[1:]),
            self.vector(f"{prefix}attn_kv_a_norm.weight"),
        )

    def compressors(self, prefix: str, ratio: int) -> tuple[Compressor | None, Compressor | None]:
        """Both compressors; all products are the first one's `kv`."""
        if not ratio:
            return None, None
        names = ["attn_compressor", "indexer_compressor"][: 2 if ratio == 4 else 1]
        matrices = [f"{prefix}{name}_{part}.weight" for name in names for part in ("kv", "gate")]
        found = {self._file.tensors[self._rename(name)].type for name in matrices}
        exact = KINDS if len(found) == 1 else ("F32",)
        joined = self._joined([self.blocks(name, exact) for name in matrices])
        own = [
            Compressor(
                joined if name == names[0] else None,
                None,
                self.table(f"{prefix}{name}_ape.weight"),
                self.vector(f"{prefix}{name}_norm.weight"),
            )
            for name in names
        ]
        return own[0], own[1] if len(own) > 1 else None

    def experts(self, prefix: str, suffix: str) -> Experts:
        """Gate over up, and down, stacked by expert."""
        gate, up, down = (
            self.blocks(f"{prefix}ffn_{part}_{suffix}.weight") for part in ("gate", "up", "down")
        )
        return Experts(self._joined([gate, up]), self._joined([down]))
