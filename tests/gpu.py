"""What tests that need a GPU are marked with, and pairs loaded on one."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import pytest
import torch

MODELS = "ds4tui/models"


@cache
def missing() -> str:
    """Why no kernel can run on a GPU here, or nothing."""
    if not torch.cuda.is_available():
        return "needs a CUDA device; torch finds none"
    if importlib.util.find_spec("triton") is None:
        return "needs triton, which is not installed"
    return ""


needs_gpu: list[Any] = [pytest.mark.gpu, pytest.mark.skipif(bool(missing()), reason=missing())]
"""Marks of a module whose tests need a GPU."""


@cache
def pair(kv_rounding: str = "fp8") -> Any:
    """The embedded pair's parts, on the GPU."""
    from ds4tui.options import model_files
    from engine.load import load_parts
    from engine.session import ignore
    from engine.settings import EngineFiles

    model, mtp, _ = model_files(None, None)
    files = EngineFiles(model, mtp, "cuda", kv_rounding=kv_rounding)
    return load_parts(files, ignore), files


@cache
def target(shape: Any, types: str, seed: int, kv_rounding: str) -> Any:
    """A random target, on the GPU."""
    from engine.config import ModelConfig
    from engine.cuda.arrays import DeviceArrays
    from engine.model import Model
    from engine.weights import load_target
    from tests.engine.loaded import target_file

    file = target_file(shape, types, seed)
    weights = load_target(file, device="cuda")
    config = ModelConfig.from_gguf(file)
    return Model(weights, config, kv_rounding=kv_rounding, arrays=DeviceArrays())
