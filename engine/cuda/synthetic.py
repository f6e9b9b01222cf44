"""Synthetic models on a GPU: every tensor of a recipe as random valid blocks, made where it stays.

The blocks go through the same packing as a file's. Imports torch.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import torch

from engine.config import DrafterConfig, ModelConfig
from engine.cuda.weights import Blocks, DeviceTensors, refuse_more
from engine.drafter import Drafter
from engine.model import Model
from engine.synthetic import SyntheticFile, size_of
from engine.weights import Progress, read_drafter, read_target
from kernels.packed import KINDS, packed_bytes
from kernels.packed.random_blocks import random_blocks
from kernels.packed.reference import dequantise

if TYPE_CHECKING:
    from engine.arrays import Arrays

WORKING_BYTES = 12 << 30
"""Beside the weights: one layer's blocks while they are repacked, states, graphs, kernels."""


class SyntheticTensors(DeviceTensors):
    """Makes a synthetic file's matrices on the device."""

    def blocks(self, name: str, exact: Sequence[str] = KINDS) -> Blocks:
        """A matrix or a stack of random blocks, or F32 where its kind is not `exact`."""
        info = self._file.tensors[self._read(name)]
        shape = info.shape if len(info.shape) == 3 else (1, *info.shape)
        rows, kind = prod(shape[:2]), info.type
        generator = torch.Generator(self._device).manual_seed(zlib.crc32(name.encode()))
        data = random_blocks(kind, rows, shape[2], generator, size_of(name, shape))
        if kind not in exact:
            kind, data = "F32", dequantise(kind, data, rows, shape[2]).view(torch.uint8)
        return kind, data.view(shape[0], shape[1], -1), shape


def needed_bytes(file: SyntheticFile) -> int:
    """Device memory of a file's packed weights."""
    total = 0
    for info in file.tensors.values():
        if info.type in KINDS and len(info.shape) > 1:
            shape = (1, 1, *info.shape)[-3:]
            total += packed_bytes(info.type, *shape)
        else:
            total += info.nbytes
    return total


def require_device_memory(files: Sequence[SyntheticFile]) -> None:
    """Refuse models that do not fit in the device's free memory.

    Raises:
        Ds4Error: with needed and found.
    """
    needed = sum(needed_bytes(file) for file in files) + WORKING_BYTES
    free, _ = torch.cuda.mem_get_info()
    what, hint = f"{files[0].name} and its drafter", "Ask for fewer layers with --layers."
    refuse_more(needed, free, what, hint)


def build(
    target: SyntheticFile,
    drafter: SyntheticFile,
    arrays: Arrays,
    context: int,
    progress: Progress | None = None,
) -> tuple[Model, Drafter]:
    """Both models, for states of `context` tokens."""
    config = ModelConfig.from_gguf(target)
    drafting = DrafterConfig.from_gguf(drafter, config)
    tensors = SyntheticTensors(target, lambda name: name, progress, arrays.device)
    weights = read_target(tensors, config)
    tensors = SyntheticTensors(drafter, drafting.tensor_name, progress, arrays.device)
    drafter_weights = read_drafter(tensors, drafting, config)
    model = Model(
        weights, config, context=context, tap_layers=drafting.target_layers, arrays=arrays
    )
    return model, Drafter(drafter_weights, model)
