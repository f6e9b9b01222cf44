"""A chart as part of a strip or as a box, and one with sides to turn over.

Owns the frame, the titles and which side is up; the rows come from whoever shows something. A box
has a CSS border and two titles in it; in a strip the title is the first row.
"""

from __future__ import annotations

from textual.content import Content

from ds4tui.chart_sides import Side
from ds4tui.spans import Row, fit, spread, text_of
from ds4tui.widgets.painted import Painted


class ChartBox(Painted, can_focus=True):
    """Frame and titles of a chart. Subclasses give the titles and the rows inside."""

    is_last = False

    def titles(self, narrow: bool) -> tuple[str, str]:
        """Left and right part of the title."""
        raise NotImplementedError

    @property
    def counter(self) -> str:
        """Which side of how many is up, for the title where there is room; "" for one."""
        return ""

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
        left, right = self.titles(narrow=False)
        room = self.size.width - 4
        marks = self.marks
        forms = (f"{right}  {self.counter}".strip(), right)
        tails = (f" {form}" for form in forms if form and len(left) + len(form) + 3 <= room)
        tail = next(tails, "")
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
            return self.box_rows(width, height)
        marks = self.marks
        edge = 0 if self.is_last else 1
        inner = width - edge
        left, right = self.titles(narrow=True)
        head: Row = [(f"{marks.horizontal} ", "frame"), (left, self._title_role()), (" ", "")]
        tail: Row = [(f" {right}", "strong")] if right else []
        title = spread(head, tail, inner, marks.horizontal, "frame")
        rows = [[*title, (marks.tee_down, "frame")] if edge else title]
        inside = self.strip_rows(inner)
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


class SidedBox(ChartBox):
    """A chart with sides, one of which is up.

    Args:
        name: what a copy of it is called.
    """

    def __init__(self, name: str, *, is_last: bool = False) -> None:
        super().__init__(id=name)
        self.is_last = is_last
        self.sides: list[Side] = []
        self._chosen = ""

    def show(self, sides: list[Side]) -> None:
        """Take other sides; the one of the same name stays up."""
        if sides != self.sides:
            self.sides = sides
            self.repaint()

    @property
    def has_two_sides(self) -> bool:
        """There is another side to turn up here."""
        return len(self._shown) > 1

    @property
    def _shown(self) -> list[Side]:
        """The sides that can be drawn at this size."""
        return [side for side in self.sides if self.is_boxed or side.strip is not None]

    @property
    def _at(self) -> int:
        names = [side.name for side in self._shown]
        return names.index(self._chosen) if self._chosen in names else 0

    @property
    def side(self) -> Side | None:
        """The side that is up: the chosen one while there is one of its name, else the first."""
        shown = self._shown
        return shown[self._at] if shown else None

    def flip(self) -> None:
        """Turn up the next side."""
        shown = self._shown
        if shown:
            at = (self._at + 1) % len(shown)
            self._chosen = shown[at].name if at else ""
            self.repaint()

    def titles(self, narrow: bool) -> tuple[str, str]:
        """The side's own."""
        if self.side is None:
            return "", ""
        return self.side.narrow if narrow else self.side.wide

    @property
    def counter(self) -> str:
        """The side's number where there are several."""
        sides = len(self._shown)
        right = self.side.wide[1] if self.side is not None else ""
        return f"{self._at + 1}/{sides}" if sides > (1 if not right else 2) else ""

    def strip_rows(self, width: int) -> list[Row]:
        """Rows of the strip form, without title."""
        side = self.side
        return side.strip(width, self.marks) if side is not None and side.strip is not None else []

    def box_rows(self, width: int, height: int) -> list[Row]:
        """Rows of the box form."""
        return self.side.box(width, height, self.marks) if self.side is not None else []
