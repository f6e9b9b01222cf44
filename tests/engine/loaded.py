"""Small loaded models for tests: written once per process, by shape, types and seed."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from engine.config import ModelConfig
from engine.drafter import Drafter
from engine.gguf import GGUFFile, open_gguf
from engine.model import Model
from engine.state import State
from engine.weights import load_drafter, load_target
from tests.engine.random_pair import SMALL, DrafterShape, TargetShape, write_drafter, write_target


@cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ds4tui-tests-")


@cache
def target_file(shape: TargetShape = SMALL, types: str = "ds4", seed: int = 0) -> GGUFFile:
    """An opened random target."""
    name = f"target-{abs(hash((shape, types, seed)))}.gguf"
    return open_gguf(write_target(Path(_directory().name) / name, shape, types, seed))


@cache
def model(
    shape: TargetShape = SMALL,
    types: str = "ds4",
    seed: int = 0,
    kv_rounding: str = "fp8",
    max_rows: int = 32,
) -> Model:
    """A loaded random target."""
    file = target_file(shape, types, seed)
    weights = load_target(file)
    return Model(weights, ModelConfig.from_gguf(file), kv_rounding=kv_rounding, max_rows=max_rows)


@cache
def drafter(
    shape: TargetShape = SMALL,
    own: DrafterShape | None = None,
    types: str = "ds4",
    dialect: str = "dspark",
    kv_rounding: str = "fp8",
) -> Drafter:
    """A loaded random drafter for `model(shape, types)`."""
    own = own or DrafterShape()
    target = model(shape, types, kv_rounding=kv_rounding)
    name = f"drafter-{abs(hash((shape, own, types, dialect)))}.gguf"
    path = write_drafter(Path(_directory().name) / name, shape, own, dialect, types)
    weights = load_drafter(open_gguf(path), target.config)
    return Drafter(weights, target)


def random_ids(count: int, shape: TargetShape = SMALL, seed: int = 0) -> list[int]:
    """Token ids without the special ones."""
    rng = np.random.default_rng(seed)
    return [int(i) for i in rng.integers(9, shape.vocab, count)]


def assert_same_state(a: State, b: State) -> None:
    """Positions and all live bytes are equal."""
    assert a.position == b.position
    left, right = a.digest(), b.digest()
    assert left.keys() == right.keys()
    assert [key for key in left if left[key] != right[key]] == []
