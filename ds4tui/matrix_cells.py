"""One cell of a matrix over all prompts that it was run on, as a document.

Owns what a cell's figures are and when a cell is as required. Which runs they come from is
`ds4tui.matrix_report`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ds4tui.report import Document
from ds4tui.set_figures import ArmRun, acceptance, speedup, work
from engine.verdict import must_be_identical

SHORT = 400
"""Identity at this many tokens is reported beside that of the whole run."""


@dataclass(slots=True)
class CellRun:
    """One run: all policies of one numerics on one prompt."""

    document: Document
    prompt_index: int
    numerics: str
    token_ns: Sequence[Sequence[float]]

    def arm(self, arm: int) -> ArmRun:
        """One of its arms beside plain."""
        arms, ns = self.document["arms"], self.token_ns
        return ArmRun(self.document["category"], arms[arm], arms[0], [ns[arm]], [ns[0]])

    @property
    def plain(self) -> Document:
        """Arm 0."""
        return self.document["arms"][0]  # type: ignore[no-any-return]


Place = tuple[CellRun, int]
"""A run and one of its arms."""


def cell_document(name: str, places: Sequence[Place]) -> Document:
    """One cell over all prompts that it was run on."""
    entries = [run for run, _ in places]
    runs = [run.arm(arm) for run, arm in places]
    head, settings = runs[0].document, entries[0].document["settings"]
    same = [run.same() for run in runs]
    must = must_be_identical(
        entries[0].numerics,
        head["commit"],
        perturbed=settings["perturb"] is not None,
    )
    equal = _state_equal(places)
    return {
        "name": name,
        "numerics": entries[0].numerics,
        **{key: head[key] for key in ("commit", "confidence", "draft_max", "drafter")},
        "must_be_identical": must,
        "as_required": _as_required(same, equal, entries) if must else None,
        "prompts": len(runs),
        "identical": sum(same),
        "identical_at_400": sum(run.same(SHORT) for run in runs)
        if settings["max_tokens"] > SHORT
        else None,
        "state_equal": equal,
        "cycles": sum(run.document["cycles"] for run in runs),
        "compared": sum(run.document["states_compared"] for run in runs),
        "state_boundaries": sum(run.document["state_boundaries"] for run in runs),
        "states_differ": sum(_differs(run.document) for run in runs),
        **_divergences(places),
        **work(runs),
        "speedup": speedup(runs),
        "replay_ms": sum(run.document["time_ms"]["replay"] for run in runs),
        **acceptance(runs),
    }


def place_of(arm: Document) -> str:
    """What a table says of one run: `#87` first divergent index, `=` identical ids, `~` identical
    ids, but the state differs."""
    if arm["first_divergence"]:
        return f"#{arm['first_divergence']['index']}"
    return "~" if _differs(arm) else "="


def _differs(arm: Document) -> bool:
    """A comparison found another state than plain's while the ids agreed."""
    return arm["state_equal"] is False or arm["first_drift"] is not None


def _state_equal(places: Sequence[Place]) -> bool | None:
    """Whether states were equal after every cycle of every prompt; None = not all compared."""
    found = [run.document["arms"][arm] for run, arm in places]
    if any(a["state_equal"] is False or a["first_divergence"] for a in found):
        return False
    seen = all(a["states_compared"] >= a["state_boundaries"] for a in found)
    return True if seen and all(a["state_equal"] for a in found) else None


def _as_required(
    same: Sequence[bool], state_equal: bool | None, runs: Iterable[CellRun]
) -> bool | None:
    """Identical ids and, where states were compared, equal states; None = a verdict is withheld."""
    if not all(same) or state_equal is False:
        return False
    return None if any(run.document["identical"] is None for run in runs) else True


def _divergences(places: Sequence[Place]) -> Document:
    """Of all prompts: the earliest, how many by cause and by verdict, the largest margin."""
    found = [
        {"prompt_index": run.prompt_index, **divergence}
        for run, arm in places
        if (divergence := run.document["arms"][arm]["first_divergence"])
    ]
    ulps = [d["margin_ulps"] for d in found if d["margin_ulps"] is not None]
    return {
        "first_divergence": min(found, key=lambda d: d["index"], default=None),
        "causes": dict(Counter(d["cause"] or "not compared" for d in found)),
        "verdicts": dict(Counter(d["verdict"] for d in found)),
        "logic_errors": sum(d["logic_error"] for d in found),
        "largest_margin_ulps": max(ulps, default=None),
    }
