"""A sweep over confidence thresholds or block lengths as one stream of events.

Owns which arms share a run and the order of the runs. Every run has a plain arm of its own, so
that each value is compared with plain decode of the same minutes. Knows no reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from engine.errors import Ds4Error
from engine.events import SuiteKind
from engine.settings import Knobs, RunRequest
from engine.suite import SuiteRequest

Axis = Literal["confidence", "block"]

COARSE = (0.0, 0.5, 0.9)
"""Thresholds of the first run: no gate, the middle, one at which hardly anything is proposed."""
DSPARK_ARMS = 5
"""DSpark arms of one run: more would push each other's states out of the caches."""
STRICT = "strict"


def cell_name(axis: Axis, value: float) -> str:
    """Name of a value's cell: `confidence 0.5`, `block 3`."""
    return f"{axis} {value:g}"


def groups_of(values: Sequence[float], first: Sequence[float]) -> list[tuple[float, ...]]:
    """Values of each run: those of `first`, then the others, each in rising order.

    The first run has an arm less, since `strict` is in it.
    """
    rising = sorted(set(values))
    coarse = [value for value in rising if value in first][: DSPARK_ARMS - 1]
    fine = [value for value in rising if value not in coarse]
    if not coarse:
        coarse, fine = fine[: DSPARK_ARMS - 1], fine[DSPARK_ARMS - 1 :]
    rest = (fine[at : at + DSPARK_ARMS] for at in range(0, len(fine), DSPARK_ARMS))
    return [tuple(coarse), *map(tuple, rest)]


@dataclass(frozen=True, slots=True)
class SweepRequest(SuiteRequest):
    """What a sweep consists of.

    Args:
        settings: of every run; the first DSpark arm says what is not swept.
        values: thresholds, or block lengths.
        first: values that the first run shall have.
        repeats: how often every run is made.
    """

    values: tuple[float, ...]
    axis: Axis = "confidence"
    first: tuple[float, ...] = COARSE
    repeats: int = 1
    kind: SuiteKind = field(default="sweep", init=False)

    def __post_init__(self) -> None:
        """Refuse what has no rows, and values that no run could take."""
        if not (self.prompts and self.values and self.settings.dspark):
            raise Ds4Error("Empty sweep", "A sweep needs a prompt, a drafter and values.")
        if self.repeats < 1:
            raise Ds4Error("Invalid option", f"--repeat is {self.repeats}; expected 1 or more.")
        for value in self.values:
            replace(self.settings, dspark=(self._knobs(value),))

    def _knobs(self, value: float) -> Knobs:
        base = self.settings.dspark[0]
        if base.commit == STRICT:
            base = replace(base, commit="direct")
        if self.axis == "confidence":
            return replace(base, confidence=value)
        return replace(base, draft_max=int(value))

    def cells(self) -> tuple[str, ...]:
        """Names of all rows but plain's."""
        return (STRICT, *(cell_name(self.axis, value) for value in sorted(set(self.values))))

    def runs(self, suite_id: str) -> Iterator[RunRequest]:
        """All values over all prompts before the next repeat; `cell` names a run's values."""
        strict = replace(self.settings.dspark[0], commit="strict")
        for _ in range(self.repeats):
            for number, group in enumerate(groups_of(self.values, self.first)):
                arms = tuple(self._knobs(value) for value in group)
                for index, entry in enumerate(self.prompts):
                    yield RunRequest(
                        entry.prompt,
                        replace(
                            self.settings,
                            dspark=arms if number else (*arms, strict),
                            controls=False,
                            digest_every=0,
                        ),
                        suite_id=suite_id,
                        cell=", ".join(cell_name(self.axis, value) for value in group),
                        prompt_index=index,
                        category=entry.category,
                    )
