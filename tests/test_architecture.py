"""Imports go down only, stay light where they must, and events cross a pipe."""

from __future__ import annotations

import pickle
import subprocess
import sys
import types
from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import ds4tui
import engine
import kernels
from engine import events

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "numba", "llvmlite", "triton", "transformers", "gguf", "tokenizers")
TERMINAL = ("textual", "rich")


def imported_by(statement: str) -> set[str]:
    """Top-level names of all modules that a fresh interpreter holds after a statement."""
    program = f"import sys\n{statement}\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_contracts_of_the_import_graph() -> None:
    program = (
        "import sys\nfrom importlinter.cli import lint_imports\n"
        "sys.exit(lint_imports(no_cache=True, no_logo=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", [ds4tui, engine, kernels])
def test_our_packages_are_ours(package: types.ModuleType) -> None:
    """`engine` and `kernels` are generic names that other distributions use too."""
    assert package.__file__ is not None
    assert Path(package.__file__).resolve().parent.parent == ROOT


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("ds4tui.cli", (*HEAVY, *TERMINAL)),
        ("ds4tui.inspect", (*HEAVY, *TERMINAL)),
        ("ds4tui.app", HEAVY),
        ("engine.events", (*HEAVY, *TERMINAL, "numpy")),
        ("engine.session", (*HEAVY, *TERMINAL, "ds4tui")),
        ("engine.config", (*HEAVY, *TERMINAL, "ds4tui")),
        ("engine.tokenizer", (*HEAVY, *TERMINAL, "ds4tui")),
        ("engine.model", (*TERMINAL, "ds4tui", "triton", "gguf")),
        ("kernels", (*HEAVY, *TERMINAL, "engine", "ds4tui")),
    ],
)
def test_what_an_import_does_not_pull_in(module: str, forbidden: tuple[str, ...]) -> None:
    assert not imported_by(f"import {module}") & set(forbidden)


def event_types() -> list[type]:
    found = [v for v in vars(events).values() if isinstance(v, type) and is_dataclass(v)]
    assert len(found) > 15
    return found


def sample(hint: Any) -> Any:
    """A value of an annotated type; the hint must be of what a pipe and a trace can carry."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in (int, float, str, bool, bytes):
        return {int: 7, float: 0.5, str: "é\x1b", bool: True, bytes: b"\xff"}[hint]
    if origin is Literal:
        return args[0]
    if origin in (Union, types.UnionType):
        return sample(next(a for a in args if a is not type(None)))
    if origin is tuple:
        items = args[:1] * 2 if args[1:] == (Ellipsis,) else args
        return tuple(map(sample, items))
    assert is_dataclass(hint), f"{hint} in an event"
    return made(hint)


def made(kind: Any) -> Any:
    hints = get_type_hints(kind)
    return kind(**{f.name: sample(hints[f.name]) for f in fields(kind)})


@pytest.mark.parametrize("kind", event_types(), ids=lambda kind: kind.__name__)
def test_events_are_frozen_slotted_and_cross_a_pipe(kind: type) -> None:
    event = made(kind)
    assert pickle.loads(pickle.dumps(event)) == event
    assert hash(event) == hash(made(kind))
    assert not hasattr(event, "__dict__")
    with pytest.raises(FrozenInstanceError):
        setattr(event, fields(kind)[0].name, None)
