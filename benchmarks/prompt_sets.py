"""The prompt sets that the benchmarks read, rendered as the sets say."""

from __future__ import annotations

from pathlib import Path

from ds4tui.options import Rendering, read_set
from engine.prompt_set import PromptEntry

DEMO = "demo"
HELDOUT = str(Path(__file__).parent.parent / "tools" / "tiny_model" / "heldout_prompts.jsonl")


def prompts(name: str) -> tuple[PromptEntry, ...]:
    """The prompts of a set that comes with the program, or of a file."""
    return read_set(name, Rendering())
