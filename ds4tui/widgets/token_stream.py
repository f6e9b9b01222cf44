"""A token pane: wrapped tokens of one arm with their marks, a cursor, and a followed end.

Owns scrolling, the cursor and the styles of tokens. Knows no run and no engine: a screen appends
tokens, says where the ids part, and asks what is under the cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from ds4tui.marks import UNICODE, Marks
from ds4tui.widgets.token_lines import REJECTED, Token, TokenLines, runs

GUTTER = 2
"""Cells left of the text: a mark and a space."""
SPARE_ROWS = 256
"""Rows that the room for them grows by."""


class TokenStream(ScrollView, can_focus=True):
    """Tokens of one arm.

    Args:
        dims_after: the tokens after the parting are dimmed and get `┊` (the right pane).
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "token-stream--draft",
        "token-stream--bonus",
        "token-stream--rejected",
        "token-stream--parting",
        "token-stream--after",
        "token-stream--cursor",
        "token-stream--gutter",
        "token-stream--gutter-parting",
        "token-stream--note",
    }

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move(-1)", "Token before", id="token_left", show=False),
        Binding("right,l", "move(1)", "Token after", id="token_right", show=False),
        Binding("up,k", "move_row(-1)", "Row up", id="row_up", show=False),
        Binding("down,j", "move_row(1)", "Row down", id="row_down", show=False),
        Binding("pageup", "page(-1)", "Page up", id="page_up", show=False),
        Binding("pagedown", "page(1)", "Page down", id="page_down", show=False),
        Binding("g,home", "ends(False)", "First token", id="token_first", show=False),
        Binding("G,end", "ends(True)", "End, follow it", id="token_last", show=False),
    ]

    @dataclass
    class CursorMoved(Message):
        """The cursor is on another token; None: there is no cursor any more."""

        pane: TokenStream
        index: int | None

    @dataclass
    class Scrolled(Message):
        """The pane shows other rows."""

        pane: TokenStream
        by_user: bool

        def can_replace(self, message: Message) -> bool:
            """Only the last position matters."""
            return isinstance(message, TokenStream.Scrolled) and message.pane is self.pane

    def __init__(self, *, dims_after: bool = False, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.lines = TokenLines()
        self.dims_after = dims_after
        self.parting: int | None = None
        self.first_drift: int | None = None
        self.cursor: int | None = None
        self.follows = True
        self.shows_sources = True
        self._strips: LRUCache[int, Strip] = LRUCache(2048)
        self._styles: dict[tuple[str, ...], Style] = {}
        self._moves_itself = False
        self._notes: list[list[Segment]] = []

    # What a screen does with it

    @property
    def marks(self) -> Marks:
        """The glyphs of this terminal."""
        marks: Marks = getattr(self.app, "marks", UNICODE)
        return marks

    def append(self, tokens: Sequence[Token]) -> None:
        """Add tokens at the end; costs what the new rows cost."""
        if not tokens:
            return
        before = len(self.lines.lines)
        first = self.lines.append(tokens)
        self._drop_strips(first)
        if len(self.lines.lines) != before or not self.virtual_size.height:
            self._measure()
        if self.follows:
            self._to_end()
        self.refresh_lines(first, len(self.lines.lines) - first)

    def rewrite_last(self, text: str) -> None:
        """Give the last token other text: bytes left over at the end of a run."""
        self.lines.tokens[-1] = replace(self.lines.tokens[-1], text=text)
        self.lines.rewrap()
        self._redraw()
        self._measure()

    def clear(self) -> None:
        """Forget the tokens, the marks and the cursor, and follow the end again."""
        self.lines.clear()
        self.parting = self.first_drift = self.cursor = None
        self.follows = True
        self._redraw()
        self._measure()
        self._scroll_to_row(0)

    def mark(self, parting: int | None, first_drift: int | None, ink: str = "") -> None:
        """Say where the ids part and where the states first differed.

        Args:
            ink: what to draw for the parting token when it has no ink of its own.
        """
        if (parting, first_drift) == (self.parting, self.first_drift):
            return
        self.parting, self.first_drift = parting, first_drift
        if parting is not None and ink and parting < len(self.lines):
            self.lines.give_ink(parting, ink)
            self._measure()
        self._redraw()

    def show_rejected(self, shown: bool) -> None:
        """Draw the drafts that verifies rejected, or leave them out."""
        self._rewrap(show_rejected=shown)

    def show_sources(self, shown: bool) -> None:
        """Mark drafts and bonus tokens, or only where the ids part."""
        self.shows_sources = shown
        self._redraw()

    def move_cursor(self, index: int | None, scroll: bool = True) -> None:
        """Put the cursor on a token without telling anyone; None takes it away."""
        if index is not None:
            index = max(0, min(len(self.lines) - 1, index)) if len(self.lines) else None
        old, self.cursor = self.cursor, index
        for changed in (old, index):
            if changed is not None and changed < len(self.lines):
                first, last = self.lines.rows_of(changed)
                for row in range(first, last + 1):
                    self._strips.discard(row)
                self.refresh_lines(first, last - first + 1)
        if index is not None and scroll:
            self.show_row(self.lines.row_of(index))

    def show_row(self, row: int) -> None:
        """Scroll as little as needed to have a row on the screen."""
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not top <= row < top + height:
            self._scroll_to_row(row if row < top else row - height + 1)
            self.follows = self._at_end()

    def show_from(self, row: int) -> None:
        """Scroll so that a row is on top."""
        self._scroll_to_row(row)
        self.follows = False

    def show_at_third(self, index: int) -> None:
        """Scroll so that a token's row is at a third of the height."""
        self.show_from(self.lines.row_of(index) - self.size.height // 3)

    def scroll_as(self, other: TokenStream) -> None:
        """Show the same rows as another pane."""
        if other.follows and self.follows:
            return
        self._scroll_to_row(other.scroll_offset.y)
        self.follows = other.follows and self._at_end()

    @property
    def unseen(self) -> int:
        """Tokens that start below the last row on the screen."""
        below = self.scroll_offset.y + self.size.height
        if below >= len(self.lines.lines):
            return 0
        return len(self.lines) - self.lines.starts[below]

    def set_notes(self, rows: list[list[Segment]]) -> None:
        """Rows to show in place of tokens while there are none."""
        if rows != self._notes:
            self._notes = rows
            self.refresh()

    def titled(self, top: Content, bottom: Content) -> None:
        """Set both border titles; draws only when they differ."""
        if self._titles != (top, bottom):
            self._titles = (top, bottom)
            self.border_title, self.border_subtitle = top, bottom

    _titles: tuple[Content, Content] | None = None

    # Keys

    def action_move(self, step: int) -> None:
        """The cursor to a neighbour."""
        self._place(self.start_index() if self.cursor is None else self.cursor + step)

    def action_move_row(self, step: int) -> None:
        """The cursor to the row above or below, at the same column."""
        if self.cursor is None:
            self._place(self.start_index())
            return
        row = self.lines.row_of(self.cursor) + step
        column = self.lines.column_of(self.cursor)
        while 0 <= row < len(self.lines.lines):
            index = self.lines.token_at(row, column)
            if index is not None and index != self.cursor:
                self._place(index)
                return
            row += step

    def action_page(self, step: int) -> None:
        """A screenful up or down; the cursor comes along."""
        height = max(1, self.size.height - 1)
        target = self.scroll_offset.y + step * height
        self._scroll_to_row(target, by_user=True)
        if self.cursor is not None:
            row = max(0, min(len(self.lines.lines) - 1, self.lines.row_of(self.cursor)))
            index = self.lines.token_at(row + step * height, 0)
            self._place(self.start_index() if index is None else index)

    def action_ends(self, last: bool) -> None:
        """First token, or the end, which is followed from then on."""
        if last:
            self.follows = True
            self._to_end()
            self._place(len(self.lines) - 1 if self.cursor is not None else None)
        else:
            self._scroll_to_row(0, by_user=True)
            self._place(0)

    def start_index(self) -> int:
        """Where the cursor appears: where the ids part if that is on the screen, else on top."""
        top, height = self.scroll_offset.y, self.size.height
        parting = self.parting if self.parting is not None else len(self.lines)
        if parting < len(self.lines) and top <= self.lines.row_of(parting) < top + height:
            return parting
        first = self.lines.starts[min(top, len(self.lines.lines) - 1)]
        return min(max(0, len(self.lines) - 1), first)

    def _place(self, index: int | None) -> None:
        if not len(self.lines):
            return
        self.move_cursor(index)
        self.post_message(self.CursorMoved(self, self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the token under the mouse."""
        offset = event.get_content_offset(self)
        if offset is not None:
            index = self.lines.token_at(self.scroll_offset.y + offset.y, offset.x - GUTTER)
            if index is not None:
                self._place(index)

    # Scrolling

    @property
    def allow_vertical_scroll(self) -> bool:
        """Scrolls although it has no scrollbar: its rows reach from border to border."""
        return True

    @property
    def max_scroll_y(self) -> int:
        """The first row on the screen when the last one is at its bottom."""
        return max(0, len(self.lines.lines) - self.size.height)

    def _measure(self) -> None:
        """Make room for the rows, and for some more: every other size lays out the whole screen."""
        rows = -(-len(self.lines.lines) // SPARE_ROWS) * SPARE_ROWS
        self.virtual_size = Size(self.size.width, rows)

    def _at_end(self) -> bool:
        return self.scroll_offset.y >= self.max_scroll_y

    def _to_end(self) -> None:
        self._scroll_to_row(len(self.lines.lines))

    def _scroll_to_row(self, row: int, by_user: bool = False) -> None:
        self._moves_itself = not by_user
        self.scroll_to(y=max(0, row), animate=False, immediate=True)
        self._moves_itself = False

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Stop following when the user scrolls up, follow again at the end."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) == round(new_value):
            return
        if not self._moves_itself:
            self.follows = self._at_end()
        self.post_message(self.Scrolled(self, not self._moves_itself))

    def on_resize(self) -> None:
        """Wrap at the new width, keeping the top row's token or the end in place."""
        self._rewrap(width=self.size.width - GUTTER)

    def _rewrap(self, width: int | None = None, show_rejected: bool | None = None) -> None:
        if width is not None and width == self.lines.width:
            self._measure()
            if self.follows:
                self._to_end()
            return
        row = min(self.scroll_offset.y, len(self.lines.lines) - 1)
        anchor = self.lines.starts[row]
        self.lines.rewrap(width, show_rejected)
        self._redraw()
        self._measure()
        if self.follows:
            self._to_end()
        elif len(self.lines):
            self._scroll_to_row(self.lines.row_of(anchor))

    # Drawing

    def _drop_strips(self, first: int) -> None:
        for row in range(first, len(self.lines.lines)):
            self._strips.discard(row)

    def _redraw(self) -> None:
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        """Another theme: nothing drawn before is right any more."""
        super().notify_style_update()
        self._strips.clear()
        self._styles.clear()

    def selection_updated(self, selection: Selection | None) -> None:
        """The mouse selects: draw without what was kept."""
        self._redraw()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The tokens' text under the mouse's selection."""
        start, end = (place and (place.y, place.x) for place in selection)
        return self.lines.between(start, end), "\n"

    def render_line(self, y: int) -> Strip:
        """Row `y` of the screen."""
        width = self.size.width
        row = self.scroll_offset.y + y
        if not len(self.lines):
            notes = self._notes[y] if y < len(self._notes) else []
            gutter = Segment(" " * GUTTER, self._style_of())
            return Strip([gutter, *notes]).adjust_cell_length(width, self._style_of())
        if row >= len(self.lines.lines):
            return Strip.blank(width, self._style_of())
        selection = self.text_selection
        strip = self._strips.get(row) if selection is None else None
        if strip is None:
            strip = self._draw(row, width, selection)
            if selection is None:
                self._strips[row] = strip
        return strip

    def _draw(self, row: int, width: int, selection: Selection | None) -> Strip:
        text = Strip(self._segments(row, width - GUTTER))
        text = text.adjust_cell_length(max(0, width - GUTTER), self._style_of())
        span = selection.get_span(row) if selection is not None else None
        if span is not None:
            drawn = self.lines.row_text(row)
            first = cell_len(drawn[: span[0]])
            last = max(first, cell_len(drawn if span[1] < 0 else drawn[: span[1]]))
            style = self.screen.get_component_rich_style("screen--selection")
            chosen = text.crop(first, last).apply_style(style)
            text = Strip.join([text.crop(0, first), chosen, text.crop(last)])
        return Strip.join([self._gutter(row), text.apply_offsets(0, row)])

    def _gutter(self, row: int) -> Strip:
        marks = self.marks
        mark, style = " ", self._style_of("token-stream--gutter")
        if self.parting is not None and self.parting < len(self.lines):
            parting_row = self.lines.row_of(self.parting)
            if row == parting_row:
                mark = marks.parting
                style = self._style_of("token-stream--gutter-parting")
            elif row > parting_row and self.dims_after:
                mark = marks.after
        if mark != marks.parting:
            if self.cursor is not None and row == self.lines.row_of(self.cursor):
                mark = marks.cursor
            elif self._is_row_of(self.first_drift, row):
                mark = marks.drift
        return Strip([Segment(f"{mark} ", style)], GUTTER)

    def _is_row_of(self, index: int | None, row: int) -> bool:
        return index is not None and index < len(self.lines) and row == self.lines.row_of(index)

    def _segments(self, row: int, room: int) -> list[Segment]:
        segments: list[Segment] = []
        for index, text, flag in runs(self.lines.lines[row]):
            style = self._style(index, flag)
            if not text:
                if index == self.cursor and flag != REJECTED and self._is_row_of(index, row):
                    segments.append(Segment(self._ink(index), style))
                continue
            token = self.lines.tokens[index]
            bare = len(text) - len(text.lstrip(" "))
            if bare and token.starts_cycle and flag != REJECTED and index != self.cursor:
                # The space before a cycle's first token stays bare, else cycles run together.
                plain = self._style(index, flag, underline=False)
                segments.append(Segment(text[:bare], plain))
                text = text[bare:]
            if text:
                segments.append(Segment(text, style))
        return segments

    def _ink(self, index: int) -> str:
        text = self.lines.tokens[index].text
        return self.marks.newline if text.startswith("\n") else self.marks.space

    def _style(self, index: int, flag: int, underline: bool = True) -> Style:
        token = self.lines.tokens[index]
        names: list[str] = []
        after = self.dims_after and self.parting is not None and index > self.parting
        if after:
            names.append("token-stream--after")
        if flag == REJECTED:
            names.append("token-stream--rejected")
        else:
            if self.shows_sources and token.source == "draft" and underline:
                names.append("token-stream--draft")
            if self.shows_sources and token.source == "bonus":
                names.append("token-stream--bonus")
            if index == self.parting:
                names.append("token-stream--parting")
            if index == self.cursor:
                names.append("token-stream--cursor")
        return self._style_of(*names)

    def _style_of(self, *names: str) -> Style:
        """The pane's style with those of component classes on top."""
        style = self._styles.get(names)
        if style is None:
            style = self.rich_style
            for name in names:
                style += self.get_component_rich_style(name, partial=True)
            self._styles[names] = style
        return style
