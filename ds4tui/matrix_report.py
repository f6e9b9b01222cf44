"""The result of a matrix as JSON, schema `ds4tui.matrix/1`, made from the events alone.

Owns the document's fields, which run a cell's figures come from, and what makes a matrix as
required; `ds4tui.matrix_text` draws it, and so does the matrix screen. The two rules of
`ds4tui.report` hold here too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ds4tui.matrix_cells import CellRun, Place, cell_document
from ds4tui.matrix_names import numerics_of
from ds4tui.report import Document, RunEvents, ab_document
from ds4tui.set_figures import by_category, work
from ds4tui.unusual_settings import OF_PROMPTS
from engine.events import (
    CUT_SHORT,
    ArmInfo,
    Event,
    LoadProgress,
    RunFailed,
    RunFinished,
    RunStarted,
    StateDrift,
    SuiteFinished,
    SuiteStarted,
)
from engine.text import one_line

SCHEMA = "ds4tui.matrix/1"


@dataclass(slots=True)
class MatrixReport:
    """Takes the events of one matrix or set after the other, keeps what the document needs.

    A later suite with the same settings keeps the other cells and, where it runs only some of the
    prompts, the other prompts; any other one starts anew.
    """

    labels: list[str] = field(default_factory=list)
    name: str = ""
    order: list[str] = field(default_factory=list)
    _limit: int = 0
    _cells: tuple[str, ...] = ()
    _settings: Document = field(default_factory=dict)
    _infos: dict[str, tuple[object, ...]] = field(default_factory=dict)
    _plain: dict[tuple[str, int], CellRun] = field(default_factory=dict)
    _places: dict[str, dict[int, Place]] = field(default_factory=dict)
    _documents: dict[str, Document] = field(default_factory=dict)
    _plain_documents: dict[str, Document | None] = field(default_factory=dict)
    _categories: dict[str, list[Document]] = field(default_factory=dict)
    _stale: dict[str, None] = field(default_factory=dict)
    _events: list[Event] = field(default_factory=list)

    # Taking events

    def feed(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case SuiteStarted():
                self._begin(event)
            case SuiteFinished() | LoadProgress():
                pass
            case RunFailed():
                self.forget_running()
            case StateDrift() if event.first_difference is None:  # many: their number counts
                self._events.append(replace(event, tensors=()))
            case RunFinished():
                self._events.append(event)
                self._take()
            case _:
                if self._events and self._events[-1].run_id != event.run_id:
                    self.forget_running()
                self._events.append(event)
                if isinstance(event, RunStarted):
                    self._check(event)

    def _begin(self, event: SuiteStarted) -> None:
        labels = [label for label, _ in event.prompts]
        same = (labels, event.name, event.max_tokens) == (self.labels, self.name, self._limit)
        if not same or not labels:
            self._clear()
            self.labels, self.name, self._limit = labels, event.name, event.max_tokens
        self._cells = event.cells
        if event.runs == len(labels) * len({numerics_of(cell) for cell in event.cells} or {""}):
            self._empty(event.cells)
        known = set(self.order)
        if known <= set(event.cells):
            self.order = list(event.cells)
        else:
            self.order += [cell for cell in event.cells if cell not in known]

    def _empty(self, cells: Sequence[str]) -> None:
        """Forget cells that run again on every prompt, and plain where no cell is left beside it.

        Else figures of two suites would stand in one cell.
        """
        for cell in cells:
            for figures in (self._places, self._documents, self._categories, self._stale):
                figures.pop(cell, None)
        left = {numerics_of(cell) for cell in self._places}
        self._plain = {key: run for key, run in self._plain.items() if key[0] in left}
        self._plain_documents.clear()

    def _clear(self) -> None:
        self.forget_running()
        self.order, self._settings, self._infos = [], {}, {}
        self._plain, self._places, self._documents = {}, {}, {}
        self._plain_documents, self._categories = {}, {}
        self._stale = {}

    def forget_running(self) -> None:
        """Drop what has come of the run that goes on."""
        self._events = []

    def names_of(self, started: RunStarted) -> dict[str, int]:
        """The arm of each cell that a run of the suite fills."""
        arms = [arm for arm, info in enumerate(started.arms) if info.is_compared]
        numerics = started.cell
        cells = [cell for cell in self._cells if cell.startswith(f"{numerics} ")]
        if len(cells) != len(arms):
            cells = [f"{numerics} {started.arms[arm].name}" for arm in arms]
        return dict(zip(cells, arms, strict=True))

    def _check(self, started: RunStarted) -> None:
        """Forget what was run with other settings or other knobs."""
        settings = {k: v for k, v in started.settings if k not in _OF_A_RUN}
        infos = {c: _identity(started.arms[arm]) for c, arm in self.names_of(started).items()}
        others = any(self._infos.get(cell, info) != info for cell, info in infos.items())
        if others or (self._settings and settings != self._settings):
            order, events = list(self._cells), self._events
            self._clear()
            self.order, self._events = order, events
        self._settings = settings
        self._infos |= infos
        while len(self.labels) <= started.prompt_index:  # a trace whose suite names no prompts
            self.labels.append(one_line(started.prompt, 60))

    def _take(self) -> None:
        run = RunEvents.of(self._events)
        self.forget_running()
        started = run.started
        ends = [end.reason for end in run.ends.values()]
        if len(ends) < len(started.arms) or any(reason in CUT_SHORT for reason in ends):
            return
        index = started.prompt_index
        token_ns = [arm.token_ns for arm in run.arms]
        found = CellRun(ab_document([run]), index, started.cell, token_ns)
        self._plain[started.cell, index] = found
        self._plain_documents.pop(started.cell, None)
        for cell, arm in self.names_of(started).items():
            if cell not in self.order:
                self.order.append(cell)
            self._places.setdefault(cell, {})[index] = (found, arm)
            self._stale.setdefault(cell)
            self._categories.pop(cell, None)

    # Giving figures

    def has(self, cell: str, prompt_index: int) -> bool:
        """A cell's run on a prompt is finished."""
        return prompt_index in self._places.get(cell, {})

    @property
    def is_complete(self) -> bool:
        """Every cell is filled on every prompt."""
        count = len(self.labels)
        return all(len(self._places.get(cell, {})) == count for cell in self.order) and bool(count)

    @property
    def numerics(self) -> list[str]:
        """Every numerics that has a plain run, in order."""
        return list(dict.fromkeys(numerics for numerics, _ in self._plain))

    @property
    def is_stale(self) -> bool:
        """Figures of some cell are older than its runs."""
        return bool(self._stale)

    def refresh(self, seconds: float = 0.0) -> None:
        """Bring the figures of one cell up to date, and of more while so much time is left.

        Those that wait longest come first; an interval takes some milliseconds.
        """
        until = time.monotonic() + seconds
        while self._stale:
            self.cell(next(iter(self._stale)))
            if time.monotonic() >= until:
                break

    def cell(self, name: str) -> Document | None:
        """The figures of a cell, up to date; None without a run."""
        if name in self._stale:
            self._documents[name] = cell_document(name, self._sorted(name))
            del self._stale[name]
        return self._documents.get(name)

    def latest(self, name: str) -> Document | None:
        """The figures of a cell as they were last brought up to date."""
        return self._documents.get(name)

    def run(self, cell: str, prompt_index: int) -> Document | None:
        """A cell's arm on one prompt."""
        place = self._places.get(cell, {}).get(prompt_index)
        return None if place is None else place[0].document["arms"][place[1]]

    def plain_run(self, numerics: str, prompt_index: int) -> Document | None:
        """The plain arm of one numerics on one prompt."""
        found = self._plain.get((numerics, prompt_index))
        return None if found is None else found.plain

    def plain(self, numerics: str) -> Document | None:
        """Plain decode of one numerics over all prompts; None without a run."""
        if numerics not in self._plain_documents:
            self._plain_documents[numerics] = self._plain_document(numerics)
        return self._plain_documents[numerics]

    def _plain_document(self, numerics: str) -> Document | None:
        found = sorted(
            (index, run) for (name, index), run in self._plain.items() if name == numerics
        )
        runs = [run for _, run in found]
        if not runs:
            return None
        return {
            "numerics": numerics,
            "prompts": len(runs),
            **work([run.arm(0) for run in runs]),
        }

    def _sorted(self, cell: str) -> list[Place]:
        return [place for _, place in sorted(self._places.get(cell, {}).items())]

    def categories(self, cell: str) -> list[Document]:
        """A cell's figures by category; none when no prompt has one."""
        if cell not in self._categories:
            runs = [run.arm(arm) for run, arm in self._sorted(cell)]
            self._categories[cell] = by_category([(cell, runs)])
        return self._categories[cell]

    def totals(self) -> Document:
        """What must be identical and is, what may diverge and does, over the cells' figures."""
        cells = [found for name in self.order if (found := self.latest(name))]
        required = [cell for cell in cells if cell["must_be_identical"]]
        free = [cell for cell in cells if not cell["must_be_identical"]]
        verdicts = [cell["as_required"] for cell in required]
        known: bool | None = True if self.is_complete and None not in verdicts else None
        return {
            "as_required": False if False in verdicts else known,
            "required": _count(required),
            "may_diverge": _count(free),
        }

    def document(self, *, wall_s: float, cpu_s: float | None = None) -> Document | None:
        """Everything so far, None before the first run's end."""
        if not self._plain:
            return None
        runs = self._alive()
        first = runs[0].document
        cells = [found for name in self.order if (found := self.cell(name))]
        shared = {k: v for k, v in first["settings"].items() if k not in _PER_CELL}
        return {
            "schema": SCHEMA,
            "environment": first["environment"],
            "model": first["model"],
            "drafter": first["drafter"],
            "drafters": first["drafters"],
            "settings": shared,
            "rendering": _rendering([run.document["settings"] for run in runs]),
            "wall_s": wall_s,
            "cpu_s": cpu_s,
            "complete": self.is_complete,
            **self.totals(),
            "cells": cells,
            "plain": [self.plain(numerics) for numerics in self.numerics],
            "prompts": [self._prompt(index) for index in sorted({i for _, i in self._plain})],
            "categories": [found for cell in self.order for found in self.categories(cell)],
            "withheld": self.withheld(),
            "notices": list(dict.fromkeys(t for run in runs for t in run.document["notices"])),
            "set": self.name,
        }

    def withheld(self) -> str:
        """Why a verdict is withheld."""
        return next((r.document["withheld"] for r in self._alive() if r.document["withheld"]), "")

    def _alive(self) -> list[CellRun]:
        """Runs that some figure comes from, each once, by prompt."""
        placed = [run for places in self._places.values() for run, _ in places.values()]
        found = {id(run): run for run in (*self._plain.values(), *placed)}
        return sorted(found.values(), key=lambda run: run.prompt_index)

    def _prompt(self, index: int) -> Document:
        """One prompt: what plain said in each numerics, and every cell's arm."""
        runs = {name: run for (name, i), run in self._plain.items() if i == index}
        plain = {name: run.plain for name, run in runs.items()}
        head = next(iter(runs.values())).document
        return {
            "label": self.labels[index],
            "category": head["category"],
            **head["prompt"],
            "plain": {name: _kept(arm, "ids") for name, arm in plain.items()},
            "numerics_part_at": parts_at([arm["ids"] for arm in plain.values()]),
            "runs": [
                {"cell": cell, **_kept(arm)}
                for cell in self.order
                if (arm := self.run(cell, index)) is not None
            ],
        }


_PER_CELL = ("numerics", "commit", "confidence")
"""Settings of a run that are a cell's, not the matrix's."""
_OF_A_RUN = (*_PER_CELL, "draft_max", *OF_PROMPTS)
"""Settings that may differ between the runs of one matrix: those of its cell and its prompt."""
_KEPT = (
    "ids_sha256", "finish_reason", "tokens_per_s", "speedup", "time_ms", "cycles", "mean_depth",
    "accept_rate", "state_equal", "states_compared", "state_boundaries", "first_drift",
    "smallest_margin", "identical_kind", "first_divergence",
)  # fmt: skip


def _rendering(settings: Sequence[Document]) -> Document:
    """How prompts were rendered, as far as it was the same for all of them."""
    first, *others = settings
    return {
        name: first[name]
        for name in OF_PROMPTS
        if name in first and all(other.get(name) == first[name] for other in others)
    }


def _kept(arm: Document, *more: str) -> Document:
    return {name: arm[name] for name in (*more, *_KEPT)}


def _identity(info: ArmInfo) -> tuple[object, ...]:
    return (info.commit, info.confidence, info.draft_max, info.drafter)


def parts_at(ids: Sequence[Sequence[int]]) -> int | None:
    """First index at which the numerics' plain ids differ, None when they do not."""
    if len(ids) < 2:
        return None
    pairs = enumerate(zip(ids[0], ids[1], strict=False))
    shorter = min(len(ids[0]), len(ids[1]))
    end = None if len(ids[0]) == len(ids[1]) else shorter
    return next((i for i, (a, b) in pairs if a != b), end)


def _count(cells: Sequence[Document]) -> Document:
    return {
        "cells": len(cells),
        "runs": sum(cell["prompts"] for cell in cells),
        "identical": sum(cell["identical"] for cell in cells),
        "cycles": sum(cell["cycles"] for cell in cells),
    }


def exit_code(document: Document) -> int:
    """0 as required, 1 a cell that must be identical is not, 2 a verdict is withheld."""
    return {True: 0, False: 1, None: 2}[document["as_required"]]
