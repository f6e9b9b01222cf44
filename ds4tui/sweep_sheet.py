"""What the sweep screen stands at: the axis, the cursor, added values, and the next sweep.

Owns the choice of values and the request made of them. Reads the controller; knows no widgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ds4tui.controller import Controller
from ds4tui.knobs_now import CONFIDENCES
from ds4tui.suite_record import SuiteRecord
from ds4tui.sweep_rows import PLAIN, STRICT, SweepFigures, SweepRow, SweepTable, axis_of
from engine.prompt_set import PromptEntry
from engine.settings import Knobs
from engine.verdict import must_be_identical

if TYPE_CHECKING:
    from engine.sweep import SweepRequest

AXES = ("confidence", "block")


class SweepSheet:
    """The newest sweep over each axis, and what the next one will be."""

    def __init__(self, controller: Controller) -> None:
        self.axis = "confidence"
        self.seen: dict[str, SuiteRecord] = {}
        self._controller = controller
        self._added: set[float] = set()
        self._gate: float | None = None
        self._cursor = ""
        self._figures = SweepFigures()
        self._table: SweepTable | None = None

    def take(self, suite: SuiteRecord) -> None:
        """A sweep that has begun is the one shown."""
        axis = axis_of(suite.started.cells)
        if self.seen.get(axis) is not suite:
            self.seen[axis] = suite
            self.axis, self._cursor = axis, ""

    def renew(self) -> None:
        """Something has come: the table is made anew when it is asked for."""
        self._table = None

    @property
    def suite(self) -> SuiteRecord | None:
        """The newest sweep over the axis shown."""
        return self.seen.get(self.axis)

    @property
    def default(self) -> float | None:
        """What the drafter's own setting is on the axis, once known."""
        if self._controller.ready is not None:
            self._gate = self._controller.default_confidence
        if self.axis == "confidence":
            return self._gate
        return float(self._controller.block_size) or None

    @property
    def chosen(self) -> float | None:
        """What the playground's knob stands at."""
        wanted = self._controller.wanted
        if wanted is None:
            return None
        value = wanted.confidence if self.axis == "confidence" else wanted.draft_max
        return self.default if value is None else float(value)

    def values(self) -> tuple[float, ...]:
        """What the next sweep has; nothing where none can be made."""
        if not self._controller.choices.policies:
            return ()
        if self.axis == "block":
            return tuple(float(n + 1) for n in range(self._controller.block_size))
        more = self._added | ({self.default} if self.default is not None else set())
        return tuple(sorted({*CONFIDENCES, *more}))

    @property
    def table(self) -> SweepTable:
        """Measured rows, and those that the next sweep adds."""
        if self._table is None:
            suite = self.suite
            empty = SweepTable(self.axis, (SweepRow(PLAIN, None, "queued"),), 0, 0, False, 0, 0, 0)
            found = self._figures.table(suite, self.default) if suite is not None else empty
            self._table = self._with_planned(found)
        return self._table

    def _with_planned(self, table: SweepTable) -> SweepTable:
        known = {row.name for row in table.rows}
        values = self.values()
        planned: list[tuple[str, float | None]] = [(STRICT, None)] if values else []
        planned += [(f"{self.axis} {n:g}", n) for n in values]
        rows = [
            *table.rows,
            *(SweepRow(name, value, "queued") for name, value in planned if name not in known),
        ]
        fixed = [row for row in rows if row.value is None]
        swept = [row for row in rows if row.value is not None]
        swept.sort(key=lambda row: row.value or 0.0)
        return replace(table, rows=(*fixed, *swept), default=self.default)

    @property
    def cursor(self) -> SweepRow | None:
        """The row under the cursor: the best one, or the chosen value, until it is moved."""
        table = self.table
        found = table.row(self._cursor) if self._cursor else None
        if found is None and table.best is not None:
            found = table.best.fastest
        return found or next((row for row in table.values if row.value == self.chosen), None)

    @property
    def offers_value(self) -> bool:
        """The cursor stands on a value for a reason: it was moved there, or that one is best."""
        return bool(self._cursor) or self.table.best is not None

    def move(self, step: int) -> None:
        """The cursor to the next value or the one before."""
        rows, under = self.table.values, self.cursor
        at = rows.index(under) if under in rows else -1 if step > 0 else len(rows)
        self._cursor = rows[max(0, min(len(rows) - 1, at + step))].name

    def turn(self) -> None:
        """Thresholds or block lengths."""
        self.axis, self._cursor = self.other_axis, ""
        self.renew()

    @property
    def other_axis(self) -> str:
        """The axis that is not shown."""
        return AXES[1 - AXES.index(self.axis)]

    @property
    def next_value(self) -> float | None:
        """The threshold in the middle between the cursor's and the next one; None = no room."""
        under = self.cursor
        if self.axis != "confidence" or under is None or under.value is None:
            return None
        beyond = [value for value in self.values() if value > under.value]
        above = beyond[0] if beyond else 1.0
        middle = round((under.value + above) / 2, 2)
        return middle if under.value < middle < above else None

    def add(self) -> None:
        """One more threshold for the next sweep."""
        value = self.next_value
        if value is not None:
            self._added.add(value)
            self._cursor = f"{self.axis} {value:g}"
            self.renew()

    @property
    def knobs(self) -> Knobs | None:
        """The playground's knobs with the value under the cursor."""
        under, wanted = self.cursor, self._controller.wanted
        if under is None or under.value is None or wanted is None:
            return None
        if self.axis == "confidence":
            return replace(wanted, confidence=under.value)
        whole = under.value == self._controller.block_size
        return replace(wanted, draft_max=None if whole else int(under.value))

    @property
    def exact(self) -> bool:
        """The settings of the next sweep promise identical ids."""
        settings, wanted = self._controller.settings, self._controller.wanted
        commit = wanted.commit if wanted is not None else "direct"
        perturbed = settings.perturb is not None
        return must_be_identical(settings.numerics, commit, perturbed=perturbed)

    @property
    def could_be_exact(self) -> bool:
        """Other numerics would promise identical ids."""
        settings = self._controller.settings
        voided = settings.perturb is not None or settings.why_split
        return settings.numerics == "split" and not voided

    def request(self, entries: Sequence[PromptEntry], repeats: int, name: str) -> SweepRequest:
        """The next sweep.

        Raises:
            Ds4Error: for settings that no run could have.
        """
        # Brings in the engine's own modules, which only a sweep needs.
        from engine.suite import suite_prompts
        from engine.sweep import COARSE, SweepRequest

        settings, wanted = self._controller.settings, self._controller.wanted
        if wanted is not None:
            settings = replace(settings, dspark=(wanted,))
        size = float(self._controller.block_size)
        first: tuple[float, ...] = (1.0, float(round(size / 2 + 0.1)), size)
        if self.axis == "confidence":
            first = (*COARSE, *([self.default] if self.default is not None else []))
        return SweepRequest(
            suite_prompts(entries),
            settings,
            self.values(),
            "confidence" if self.axis == "confidence" else "block",
            first,
            repeats,
            name=name,
        )
