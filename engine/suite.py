"""Suites of runs as one stream of events: what a suite is, the matrix and the set of prompts.

Owns which cells a suite over prompts has and the order of its runs. All policies
of one numerics are arms of one run, so plain is decoded once for all of them. Knows no reports.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from engine.arms import arm_names
from engine.decode import Control, Stamp
from engine.errors import Ds4Error
from engine.events import Event, SuiteFinished, SuiteKind, SuiteStarted
from engine.paths import NUMERICS, POLICIES, Numerics, Policy
from engine.prompt_set import PromptEntry
from engine.run import Report
from engine.session import Engine, ignore
from engine.settings import Knobs, Prompt, RunRequest, Settings
from engine.text import one_line

LABEL = 60
"""Characters of a prompt that stand for it where it has no id."""


def matrix_arms(
    policies: Sequence[Policy] = POLICIES, bases: Sequence[Knobs] = (Knobs(),)
) -> tuple[Knobs, ...]:
    """Every policy with every base's knobs; `strict` drafts nothing, so it is there once."""
    arms: list[Knobs] = []
    for policy in policies:
        some = bases[:1] if policy == "strict" else bases
        arms += [replace(base, commit=policy) for base in some]
    return tuple(dict.fromkeys(arms))


@dataclass(frozen=True, slots=True)
class SuitePrompt:
    """One prompt of a suite; without a label its own text stands for it."""

    prompt: Prompt
    category: str = ""
    label: str = ""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.label or one_line(self.prompt.text, LABEL)


def suite_prompts(entries: Sequence[PromptEntry]) -> tuple[SuitePrompt, ...]:
    """The prompts of a set, named by their ids."""
    return tuple(SuitePrompt(entry.prompt, entry.category, entry.id) for entry in entries)


@dataclass(frozen=True, slots=True)
class SuiteRequest:
    """Several runs that belong together; picklable.

    Args:
        settings: of every run, but for what differs between them.
        name: of the set of prompts, "" without one.
    """

    prompts: tuple[SuitePrompt, ...]
    settings: Settings
    kind: SuiteKind = field(kw_only=True)
    name: str = field(default="", kw_only=True)

    def cells(self) -> tuple[str, ...]:
        """Names of what is compared, each an arm of some of the runs."""
        raise NotImplementedError

    def runs(self, suite_id: str) -> Iterator[RunRequest]:
        """All runs, in the order in which they are made."""
        raise NotImplementedError

    def events(
        self, engine: Engine, control: Control | None = None, report: Report = ignore
    ) -> Iterator[Event]:
        """`SuiteStarted`, the events of every run, `SuiteFinished`.

        Args:
            control: stops or cancels it; its limit and knobs are set by every run.
            report: takes the progress of what happens between two events.
        Raises:
            Ds4Error: for a prompt that cannot be run; names it.
        """
        suite_id = uuid.uuid4().hex[:8]
        stamp, cells = Stamp("", -1), self.cells()
        control = control or Control(0)
        runs = list(self.runs(suite_id))
        yield SuiteStarted(
            *stamp(),
            suite_id,
            self.kind,
            cells,
            runs=len(runs),
            prompts=tuple((entry.name, entry.category) for entry in self.prompts),
            name=self.name,
            max_tokens=self.settings.max_tokens,
        )
        for run in runs:
            try:
                yield from engine.run(run, control, report)
            except Ds4Error as error:
                name = self.prompts[run.prompt_index].name
                where = f"Prompt {run.prompt_index + 1} ({name}): "
                raise Ds4Error(error.title, where + error.message, error.hint) from error
            if control.cancelled or control.stopped:
                break
        yield SuiteFinished(*stamp(), suite_id, self.kind, cells)


@dataclass(frozen=True, slots=True)
class MatrixRequest(SuiteRequest):
    """Every prompt in every numerics, the DSpark arms of `settings` as the cells of each.

    Args:
        settings: of every run; its numerics are replaced by each of `numerics`.
        kind: `set` = the same with the settings' own numerics only: see `set_request`.
        only: names of the cells to run; empty = all of them.
        indexes: of the prompts to run; empty = all of them.
    Raises:
        Ds4Error: for a matrix without cells, or settings that one of the numerics cannot have.
    """

    numerics: tuple[Numerics, ...] = NUMERICS
    kind: SuiteKind = field(default="matrix", kw_only=True)
    only: tuple[str, ...] = ()
    indexes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what has no cells, and what a run would refuse."""
        plain_only = self.kind == "set" and not self.settings.dspark
        if not (self.prompts and self.numerics and (self.cells() or plain_only)):
            raise Ds4Error("Empty matrix", "A matrix needs a prompt, numerics and DSpark arms.")
        for numerics in self.numerics:
            replace(self.settings, numerics=numerics)

    def _arms(self, numerics: Numerics) -> list[tuple[str, Knobs]]:
        """(cell, knobs) of one numerics' run."""
        arms = self.settings.dspark
        named = zip((f"{numerics} {name}" for name in arm_names(arms)), arms, strict=True)
        return [(cell, knobs) for cell, knobs in named if not self.only or cell in self.only]

    def cells(self) -> tuple[str, ...]:
        """Names of the cells: the numerics and the arm's name."""
        return tuple(cell for numerics in self.numerics for cell, _ in self._arms(numerics))

    def runs(self, suite_id: str) -> Iterator[RunRequest]:
        """One run per prompt and numerics, so that what slows the machine slows both.

        A run's `cell` names the numerics; its DSpark arms are the cells of that, in their order.
        """
        for index, entry in enumerate(self.prompts):
            for numerics in self.numerics if index in (self.indexes or [index]) else ():
                arms = tuple(knobs for _, knobs in self._arms(numerics))
                if not arms and self.settings.dspark:
                    continue
                yield RunRequest(
                    entry.prompt,
                    replace(self.settings, numerics=numerics, dspark=arms),
                    suite_id=suite_id,
                    cell=numerics,
                    prompt_index=index,
                    category=entry.category,
                )


def set_request(
    prompts: tuple[SuitePrompt, ...], settings: Settings, name: str = ""
) -> MatrixRequest:
    """One prompt after the other with the same settings."""
    return MatrixRequest(prompts, settings, (settings.numerics,), kind="set", name=name)
