"""The matrix of numerics and commit policies over a set of prompts, as one stream of events.

Owns which cells there are and the order of the runs. All policies
of one numerics are arms of one run, so plain is decoded once for all of them. Knows no reports.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from engine.arms import arm_names
from engine.decode import Control, Stamp
from engine.errors import Ds4Error
from engine.events import Event, SuiteFinished, SuiteStarted
from engine.paths import POLICIES, Numerics, Policy
from engine.run import Report
from engine.session import Engine, ignore
from engine.settings import Knobs, Prompt, RunRequest, Settings

NUMERICS: tuple[Numerics, ...] = ("split", "invariant")


def matrix_arms(
    policies: Sequence[Policy] = POLICIES, bases: Sequence[Knobs] = (Knobs(),)
) -> tuple[Knobs, ...]:
    """Every policy with every base's knobs; `strict` drafts nothing, so it is there once."""
    arms = []
    for policy in policies:
        some = bases[:1] if policy == "strict" else bases
        arms += [replace(base, commit=policy) for base in some]
    return tuple(arms)


@dataclass(frozen=True, slots=True)
class SuitePrompt:
    """One prompt of a suite."""

    prompt: Prompt
    category: str = ""


@dataclass(frozen=True, slots=True)
class MatrixRequest:
    """What a matrix consists of.

    Args:
        settings: of every run; its numerics are replaced by each of `numerics`, its DSpark arms
            are the cells of each.
    """

    prompts: tuple[SuitePrompt, ...]
    settings: Settings
    numerics: tuple[Numerics, ...] = NUMERICS

    def __post_init__(self) -> None:
        """Refuse what has no cells."""
        if not (self.prompts and self.numerics and self.settings.dspark):
            raise Ds4Error("Empty matrix", "A matrix needs a prompt, numerics and DSpark arms.")

    def cells(self) -> tuple[str, ...]:
        """Names of all cells: the numerics and the arm's name."""
        names = arm_names(self.settings.dspark)
        return tuple(f"{numerics} {name}" for numerics in self.numerics for name in names)

    def runs(self, suite_id: str) -> Iterator[RunRequest]:
        """One run per prompt and numerics, so that what slows the machine slows both."""
        for index, entry in enumerate(self.prompts):
            for numerics in self.numerics:
                yield RunRequest(
                    entry.prompt,
                    replace(self.settings, numerics=numerics),
                    suite_id=suite_id,
                    cell=numerics,
                    prompt_index=index,
                    category=entry.category,
                )


def matrix_events(
    engine: Engine, request: MatrixRequest, control: Control | None = None, report: Report = ignore
) -> Iterator[Event]:
    """All events of a matrix: `SuiteStarted`, every run's, `SuiteFinished`.

    `RunStarted.cell` names the numerics; the cells are the run's DSpark arms.

    Args:
        control: stops or cancels it; its limit and knobs are set by every run.
    """
    suite_id = uuid.uuid4().hex[:8]
    stamp, cells = Stamp("", -1), request.cells()
    control = control or Control(0)
    yield SuiteStarted(*stamp(), suite_id, "matrix", cells)
    for run in request.runs(suite_id):
        yield from engine.run(run, control, report)
        if control.cancelled or control.stopped:
            break
    yield SuiteFinished(*stamp(), suite_id, "matrix", cells)
