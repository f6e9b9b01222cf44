"""A framed box whose title and rows come from two functions. Knows nothing of what they show."""

from __future__ import annotations

from collections.abc import Callable

from ds4tui.spans import Row
from ds4tui.widgets.charts import ChartBox


class Box(ChartBox):
    """A box of a screen that fills its place; it has a frame at every size.

    Args:
        title: left and right part of the title.
        source: rows for a width and a height.
    """

    flipped = False
    is_last = True

    def __init__(
        self,
        title: Callable[[], tuple[str, str]],
        source: Callable[[int, int], list[Row]],
        id: str | None = None,  # noqa: A002  # Textual's name
        *,
        other_side: Callable[[int, int], list[Row]] | None = None,
    ) -> None:
        super().__init__(id=id)
        self._title_of = title
        self._source = source
        self._other_side = other_side

    def flip(self) -> None:
        """Show the other side."""
        self.flipped = not self.flipped
        self.repaint()

    def titles(self, narrow: bool) -> tuple[str, str]:
        """Left and right part of the title."""
        return self._title_of()

    def strip_rows(self, width: int) -> list[Row]:
        """Rows without a frame."""
        return self.box_rows(width, self.size.height)

    def box_rows(self, width: int, height: int) -> list[Row]:
        """The rows of the side that is up."""
        if self.flipped and self._other_side is not None:
            return self._other_side(width, height)
        return self._source(width, height)
