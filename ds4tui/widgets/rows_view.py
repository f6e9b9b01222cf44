"""A fixed list of painted rows that is as high as it needs to be."""

from __future__ import annotations

from collections.abc import Callable

from textual.geometry import Size

from ds4tui.spans import Row
from ds4tui.widgets.painted import Painted


class RowsView(Painted):
    """Shows what a function of the width gives.

    Args:
        source: rows for a width.
    """

    def __init__(
        self,
        source: Callable[[int], list[Row]],
        id: str | None = None,  # noqa: A002  # Textual's name
    ) -> None:
        super().__init__(id=id)
        self.source = source

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as there are."""
        return max(1, len(self.source(width)))

    def paint(self, width: int, height: int) -> list[Row]:
        """The rows."""
        return self.source(width)

    def reload(self) -> None:
        """The rows are others now, maybe more or fewer."""
        self.repaint()
        self.refresh(layout=True)
