"""The three charts: depth histogram, token rates, ledger; as a strip or as boxes.

Own their display state (which side is up). The rows come from `ds4tui.paint`; the data from the
screen. A box has a CSS border and two titles in it; in a strip the title is the first row.
"""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content

from ds4tui.figures import Depths, Ledger
from ds4tui.paint import depth as depth_rows
from ds4tui.paint import ledger as ledger_rows
from ds4tui.paint import rates as rate_rows
from ds4tui.paint.rates import RateData
from ds4tui.spans import Row, fit, spread, text_of
from ds4tui.widgets.painted import Painted


class ChartBox(Painted, can_focus=True):
    """Frame and titles of a chart. Subclasses give the titles and the rows inside."""

    ALLOW_MAXIMIZE = True

    flipped = False
    has_two_sides = True
    is_last = False
    instead: tuple[str, Callable[[int, int], list[Row]]] | None = None

    def show_instead(self, what: tuple[str, Callable[[int, int], list[Row]]] | None) -> None:
        """Show other rows than its own, under another title; None shows its own again."""
        if what is not None or self.instead is not None:
            self.instead = what
            self.repaint()

    def titles(self, narrow: bool) -> tuple[str, str]:
        """Left and right part of the title."""
        raise NotImplementedError

    def strip_rows(self, width: int) -> list[Row]:
        """Rows of the strip form, without title."""
        raise NotImplementedError

    def box_rows(self, width: int, height: int) -> list[Row]:
        """Rows of the box form."""
        raise NotImplementedError

    @property
    def is_boxed(self) -> bool:
        """The style sheet gives a border, so there is room for the box form."""
        return bool(self.styles.border_top[0])

    def flip(self) -> None:
        """Show the other side."""
        self.flipped = not self.flipped
        self.repaint()

    def repaint(self) -> None:
        """Draw anew, titles included."""
        super().repaint()
        if self.is_attached:
            self._title()

    def on_resize(self) -> None:
        """Fit the titles to the new width."""
        self._title()

    def _title(self) -> None:
        if not self.is_boxed:
            return
        left, right = (self.instead[0], "") if self.instead else self.titles(narrow=False)
        room = self.size.width - 4
        marks = self.marks
        tail = f" {right}" if right and len(left) + len(right) + 3 <= room else ""
        fill = marks.horizontal * (room - len(left) - 1 - len(tail)) if tail else ""
        name = marks.text(left)
        self.border_title = Content.assemble(
            (name, "bold reverse" if self.has_focus else "bold"),
            " " if tail else "",
            (fill, self.app.theme_variables["frame"]),
            marks.text(tail),
        )

    def paint(self, width: int, height: int) -> list[Row]:
        """The box's rows, or the strip with its title and the line to its neighbour."""
        if self.is_boxed:
            return self.instead[1](width, height) if self.instead else self.box_rows(width, height)
        marks = self.marks
        edge = 0 if self.is_last else 1
        inner = width - edge
        left, right = (self.instead[0], "") if self.instead else self.titles(narrow=True)
        head: Row = [(f"{marks.horizontal} ", "frame"), (left, self._title_role()), (" ", "")]
        tail: Row = [(f" {right}", "strong")] if right else []
        title = spread(head, tail, inner, marks.horizontal, "frame")
        rows = [[*title, (marks.tee_down, "frame")] if edge else title]
        inside = self.instead[1](inner, height - 1) if self.instead else self.strip_rows(inner)
        for row in inside[: height - 1]:
            rows.append([*fit(row, inner), (marks.vertical, "frame")] if edge else fit(row, inner))
        while len(rows) < height:
            rows.append([*fit([], inner), (marks.vertical, "frame")] if edge else [])
        return rows

    def _title_role(self) -> str:
        return "reverse" if self.has_focus else "strong"

    def on_focus(self) -> None:
        """The title shows where the focus is."""
        self.repaint()

    def on_blur(self) -> None:
        """The title shows where the focus is."""
        self.repaint()

    def text(self) -> str:
        """What the chart shows, as text."""
        left, right = self.titles(narrow=False)
        body = "\n".join(text_of(row).rstrip() for row in self.rows())
        return f"{left}  {right}\n{body}\n"


class DepthBox(ChartBox):
    """Cycles by depth; the other side is the proposed x accepted table."""

    depths: Depths | None = None

    def show(self, depths: Depths | None) -> None:
        """Draw other numbers."""
        if depths != self.depths:
            self.depths = depths
            self.repaint()

    def titles(self, narrow: bool) -> tuple[str, str]:
        """Says so when lengths vary, since then the depths alone are incomplete."""
        return depth_rows.title(self.depths, narrow, self.flipped and not narrow)

    def strip_rows(self, width: int) -> list[Row]:
        """Bars, counts, depths."""
        return depth_rows.strip(self.depths, width, self.marks) if self.depths else []

    def box_rows(self, width: int, height: int) -> list[Row]:
        """The histogram with acceptance by position, or the table."""
        if self.depths is None:
            return []
        if self.flipped:
            return depth_rows.table(self.depths, width, height)
        return depth_rows.box(self.depths, width, height, self.marks)


class RateBox(ChartBox):
    """Tokens per second over the token index; the other side is the race."""

    data: RateData | None = None
    depths: Depths | None = None

    def show(self, data: RateData | None, depths: Depths | None) -> None:
        """Draw other numbers."""
        self.data, self.depths = data, depths
        self.repaint()

    def titles(self, narrow: bool) -> tuple[str, str]:
        """Which side is up."""
        return rate_rows.title(narrow, self.flipped and not narrow)

    def strip_rows(self, width: int) -> list[Row]:
        """Two lines of blocks and the acceptance."""
        if self.data is None:
            return []
        return rate_rows.strip(self.data, self.depths, width, self.marks)

    def box_rows(self, width: int, height: int) -> list[Row]:
        """A scatter or the race."""
        if self.data is None:
            return []
        draw = rate_rows.race if self.flipped else rate_rows.box
        return draw(self.data, width, height, self.marks)


class LedgerBox(ChartBox):
    """Engine milliseconds per token by kind, and what was saved."""

    has_two_sides = False
    is_last = True
    ledger: Ledger | None = None

    def show(self, ledger: Ledger | None) -> None:
        """Draw other numbers."""
        if ledger != self.ledger:
            self.ledger = ledger
            self.repaint()

    def titles(self, narrow: bool) -> tuple[str, str]:
        """One title."""
        return ledger_rows.title(narrow), ""

    def strip_rows(self, width: int) -> list[Row]:
        """Totals and kinds."""
        return ledger_rows.strip(self.ledger, width, self.marks) if self.ledger else []

    def box_rows(self, width: int, height: int) -> list[Row]:
        """The table and the terms."""
        return ledger_rows.box(self.ledger, width, self.marks) if self.ledger else []
