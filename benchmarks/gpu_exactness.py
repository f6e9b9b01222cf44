"""Exactness on a GPU: the embedded pair on the demo prompts, `invariant`, every block full.

    python benchmarks/gpu_exactness.py [TOKENS] [POLICY ...]

Prints one line a prompt: ids equal to plain's, states equal at every boundary compared, and the
hash of the ids. Ends with 1 where something differs.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from importlib import resources
from typing import Any, cast

from ds4tui.options import model_files
from engine.events import CycleFinished, StateDrift, TokensCommitted
from engine.load import load_parts
from engine.paths import Policy
from engine.session import Engine, ignore
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings

EVERY = 8
"""States are compared at every so many common boundaries, and at the last."""


def prompts() -> list[Prompt]:
    """The demo set."""
    text = (resources.files("ds4tui") / "prompts" / "demo.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [Prompt(line["text"], chat=line["chat"]) for line in lines]


def ids_of(events: list[Any], arm: int) -> list[int]:
    """All ids that an arm committed."""
    return [
        token
        for event in events
        if isinstance(event, TokensCommitted) and event.arm == arm
        for token in event.ids
    ]


def main() -> int:
    """Run all prompts; 1 if an arm's ids or a state differs from plain's."""
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 800
    policies = cast("list[Policy]", sys.argv[2:] or ["prefix"])
    model, mtp, _ = model_files(None, None)
    files = EngineFiles(model, mtp, "cuda")
    engine = Engine(load_parts(files, ignore), files)
    arms = tuple(Knobs(commit=policy, confidence=0.0) for policy in policies)
    settings = Settings(
        numerics="invariant", dspark=arms, max_tokens=tokens, ignore_eos=True, digest_every=EVERY
    )
    wrong = 0
    for prompt in prompts():
        began = time.perf_counter()
        events = list(engine.run(RunRequest(prompt, settings)))
        plain = ids_of(events, 0)
        equal = all(ids_of(events, arm) == plain for arm in range(1, len(arms) + 1))
        drifts = [e for e in events if isinstance(e, StateDrift)]
        drifted = sum(any(t[2] is not None for t in e.tensors) for e in drifts)
        cycles = [e for e in events if isinstance(e, CycleFinished)]
        depth = sum(e.depth for e in cycles) / max(1, len(cycles))
        raw = b"".join(token.to_bytes(4, "little") for token in plain)
        print(
            f"{hashlib.sha256(raw).hexdigest()[:16]} {len(plain)} ids "
            f"{'IDENTICAL' if equal else 'DIFFERENT'}, {len(drifts)} states compared, "
            f"{drifted} differ, depth {depth:.2f}, {time.perf_counter() - began:.1f} s: "
            f"{prompt.text.splitlines()[0][:40]}",
            flush=True,
        )
        wrong += not equal or drifted > 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
