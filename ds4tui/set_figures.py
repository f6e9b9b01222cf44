"""What one arm achieves over several prompts, together and by category, from `ab` documents.

Owns the sums. The two rules of `ds4tui.report` hold here too: no speed without the sha256 of the
ids, and a speed-up between different ids is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ds4tui.report import Document, RunEvents
from engine import stats
from engine.cycle_counts import ratio
from engine.events import TIME_KINDS

NO_CATEGORY = "none"
"""What prompts without a category are called beside others that have one."""


@dataclass(frozen=True, slots=True)
class ArmRun:
    """One arm on one prompt, beside the plain arm of the same run.

    Args:
        document, plain: of the arms, as in `ds4tui.report`.
        ns, plain_ns: engine time per id, of every repeat.
    """

    category: str
    document: Document
    plain: Document
    ns: Sequence[Sequence[float]]
    plain_ns: Sequence[Sequence[float]]

    def same(self, tokens: int | None = None) -> bool:
        """The ids are plain's, or the first so many of them are."""
        return bool(self.document["ids"][:tokens] == self.plain["ids"][:tokens])


def arm_runs(document: Document, repeats: Sequence[RunEvents]) -> list[tuple[str, ArmRun]]:
    """(name, run) of every DSpark arm of a prompt.

    Args:
        document: what `ab_document` made of the repeats.
    """
    arms, plain_ns = document["arms"], [run.arms[0].token_ns for run in repeats]
    return [
        (
            arm["name"],
            ArmRun(
                document["category"],
                arm,
                arms[0],
                [run.arms[at].token_ns for run in repeats],
                plain_ns,
            ),
        )
        for at, arm in enumerate(arms)
        if (arm["kind"], arm["role"]) == ("dspark", "arm")
    ]


def work(runs: Sequence[ArmRun]) -> Document:
    """Speed over all prompts, never without the hash of all their ids in order."""
    arms = [run.document for run in runs]
    spent = sum(sum(map(sum, run.ns)) for run in runs)
    decoded = sum(max(0, len(ns) - 1) for run in runs for ns in run.ns)
    return {
        "ids_sha256": stats.ids_sha256([token for arm in arms for token in arm["ids"]]),
        "tokens_per_s": ratio(decoded * 1e9, spent),
        "time_ms": {name: sum(arm["time_ms"][name] for arm in arms) for name in TIME_KINDS},
    }


def speedup(runs: Sequence[ArmRun]) -> Document | None:
    """Against plain over all prompts."""
    found = stats.speedup(
        [ns for run in runs for ns in run.plain_ns], [ns for run in runs for ns in run.ns]
    )
    if found is None:
        return None
    different = not all(run.same() for run in runs)
    return {**asdict(found), "resolved": found.resolved, "different_work": different}


def acceptance(runs: Sequence[ArmRun]) -> Document:
    """Depth and accepted of proposed over all prompts."""
    arms = [run.document for run in runs]
    decoded = sum(max(0, len(arm["ids"]) - 1) for arm in arms)
    accepted = sum(arm["accepted_draft"] for arm in arms)
    return {
        "mean_depth": ratio(decoded, sum(arm["cycles"] for arm in arms)),
        "accept_rate": ratio(accepted, sum(arm["proposed"] for arm in arms)),
    }


def by_category(arms: Sequence[tuple[str, Sequence[ArmRun]]]) -> list[Document]:
    """A document per category and arm, in the order of the prompts; none when no prompt has one.

    Args:
        arms: (name, its runs) of every DSpark arm.
    """
    found = dict.fromkeys(run.category for _, runs in arms for run in runs)
    if not any(found):
        return []
    return [
        _of_category(category, name, [run for run in runs if run.category == category])
        for category in found
        for name, runs in arms
        if any(run.category == category for run in runs)
    ]


def _of_category(category: str, name: str, runs: Sequence[ArmRun]) -> Document:
    parted = [run.document["first_divergence"] for run in runs]
    indexes = [divergence["index"] for divergence in parted if divergence]
    return {
        "category": category or NO_CATEGORY,
        "arm": name,
        "prompts": len(runs),
        "identical": sum(run.same() for run in runs),
        "first_divergence": min(indexes, default=None),
        **work(runs),
        "speedup": speedup(runs),
        **acceptance(runs),
    }
