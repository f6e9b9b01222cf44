"""The two token panes: what they show of a run, tied in cursor and scrolling.

Owns which arm is on the right and the marks that both share. Knows the run's record, not the
engine; a screen feeds it and asks for the cursor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message

from ds4tui.marks import UNICODE, Marks
from ds4tui.paint import panes as text
from ds4tui.run_record import ArmRecord, RunRecord
from ds4tui.spans import Row
from ds4tui.visible import ascii_only, drawable, drawable_line
from ds4tui.widgets.token_lines import Token
from ds4tui.widgets.token_stream import GUTTER, TokenStream
from engine.text import decode_bytes

BORDER_CELLS = 4
"""Cells of a border that a title leaves free inside the corners."""
NAMES = ("plain", "DSpark")
"""Of panes without a run."""


class PanePair(Horizontal):
    """Left plain, right a DSpark arm."""

    @dataclass
    class Moved(Message):
        """The cursor or the rows on the screen have changed."""

    record: RunRecord | None = None
    right_arm = 1
    together = True
    rejected_shown = False
    sources_shown = True
    _user_moved = False

    def compose(self) -> ComposeResult:
        """Two panes side by side."""
        yield TokenStream(id="left")
        yield TokenStream(id="right", dims_after=True)

    @property
    def left(self) -> TokenStream:
        """The plain pane."""
        return self.query_one("#left", TokenStream)

    @property
    def right(self) -> TokenStream:
        """The DSpark pane."""
        return self.query_one("#right", TokenStream)

    @property
    def both(self) -> tuple[TokenStream, TokenStream]:
        """Left and right."""
        return self.left, self.right

    @property
    def marks(self) -> Marks:
        """The glyphs of this terminal."""
        marks: Marks = getattr(self.app, "marks", UNICODE)
        return marks

    def arm_of(self, pane: TokenStream) -> ArmRecord | None:
        """The arm that a pane shows."""
        at = 0 if pane is self.left else self.right_arm
        arms = self.record.arms if self.record is not None else []
        return arms[at] if at < len(arms) else None

    @property
    def compared(self) -> ArmRecord | None:
        """The arm on the right."""
        return self.arm_of(self.right)

    # Content

    def start(self, record: RunRecord | None) -> None:
        """Show another run from its first token on."""
        self.record = record
        self._user_moved = False
        self.right_arm = 1 if record is None else record.shown_arm
        for pane in self.both:
            pane.clear()

    def feed(self) -> None:
        """Take over the tokens and marks that are new in the record."""
        for pane in self.both:
            arm = self.arm_of(pane)
            if self.record is not None and arm is not None:
                _append(self.record, arm, pane)
                self._mark(self.record, arm, pane)

    def _mark(self, record: RunRecord, arm: ArmRecord, pane: TokenStream) -> None:
        other, at = self.compared, record.parts_at
        drift = other.first_drift if other is not None else None
        ink = ""
        if at is not None and at >= len(arm.ids):
            at = None  # it is still to come here
        if at is not None:
            token_id = arm.ids[at]
            ink = _ink(record.token_bytes.get(token_id, b""), token_id, self.marks)
        pane.mark(at, drift.position if drift is not None else None, ink)

    def show_parting(self) -> None:
        """Scroll to where the ids part, unless the user has scrolled."""
        for pane in self.both:
            if pane.parting is not None and not self._user_moved:
                pane.show_at_third(pane.parting)

    def next_arm(self) -> None:
        """Show the next arm that is not plain on the right."""
        if self.record is not None and len(self.record.arms) > 2:
            self.record.choose(self.right_arm % (len(self.record.arms) - 1) + 1)
            self.show_chosen()

    def show_chosen(self) -> None:
        """Show the arm that the run has chosen, at the place that was looked at."""
        record = self.record
        if record is None:
            return
        moved, places = self._user_moved, [(p.follows, p.scroll_offset.y) for p in self.both]
        self.start(record)
        self.feed()
        self._user_moved = moved
        for pane, (follows, row) in zip(self.both, places, strict=True):
            if not follows:
                pane.show_from(row)
            pane.move_cursor(record.cursor, scroll=False)
        if record.finished is not None:
            self.show_parting()

    # Cursor and scrolling

    @property
    def cursor(self) -> int | None:
        """Index of the cursor's token, in both panes."""
        return self.right.cursor if self.right.has_focus else self.left.cursor

    def move(self, index: int | None, at_third: bool = False) -> None:
        """Put the cursor on an index in both panes, or take it away."""
        self._user_moved = True
        if self.record is not None:
            self.record.cursor = index
        for pane in self.both:
            pane.move_cursor(index, scroll=not at_third)
            if at_third and index is not None and len(pane.lines):
                pane.show_at_third(index)
        self.post_message(self.Moved())

    def take_cursor(self) -> None:
        """Put the cursor where another screen left the run's."""
        if self.record is not None and self.record.cursor != self.cursor:
            self.move(self.record.cursor, at_third=True)

    def other(self, pane: TokenStream) -> TokenStream:
        """The pane beside a pane."""
        return self.right if pane is self.left else self.left

    def tie(self, pane: TokenStream) -> None:
        """Scroll the panes together or apart from now on; together means as this one."""
        self.together = not self.together
        if self.together:
            self.other(pane).scroll_as(pane)

    def on_token_stream_cursor_moved(self, event: TokenStream.CursorMoved) -> None:
        """The cursor is at one index in both panes."""
        event.stop()
        if self.record is not None:
            self.record.cursor = event.index
        other = self.other(event.pane)
        other.move_cursor(event.index, scroll=False)
        if self.together:
            other.scroll_as(event.pane)
        self._user_moved = True
        self.post_message(self.Moved())

    def on_token_stream_scrolled(self, event: TokenStream.Scrolled) -> None:
        """Both panes show the same rows while they are tied together."""
        event.stop()
        if event.by_user:
            self._user_moved = True
            if self.together:
                self.other(event.pane).scroll_as(event.pane)
        if event.by_user or not event.pane.follows:
            # A pane that follows the end moves with every row; its borders are drawn with the rest.
            self.post_message(self.Moved())

    # Borders and notes

    def draw_titles(self, one_at_a_time: bool) -> None:
        """Arm, hash, rate, count and speed-up in the borders."""
        marks = self.marks
        names = self.record.names if self.record is not None else NAMES
        for at, pane in enumerate(self.both):
            width = max(0, pane.size.width - BORDER_CELLS)
            arm = self.arm_of(pane)
            top: Row = [(names[at], "strong")]
            bottom: Row = []
            if arm is not None and self.record is not None:
                others = len(self.record.arms) - 1
                number = f"{self.right_arm}/{others}" if at and others > 1 else ""
                top = text.top_title(arm, width, marks, number)
                foot = text.PaneFoot(pane.unseen, pane.follows, pane.cursor)
                bottom = text.bottom_title(self.record, arm, foot, width, marks)
            if one_at_a_time:
                top = text.tabs(names, at, arm, width, marks)
            focus = " reverse" if pane.has_focus else ""
            pane.titled(self._content(top, focus), self._content(bottom))

    def _content(self, row: Row, focus: str = "") -> Content:
        """A row for a border; nothing in it is parsed as markup."""
        variables = self.app.theme_variables
        styles = {
            "strong": f"bold{focus}",
            "dim": variables["faint"],
            "frame": variables["frame"],
            "pending": "reverse",
        }
        glyphs = self.marks.text
        return Content.assemble(*((glyphs(part), styles.get(role, "")) for part, role in row))

    def note_width(self) -> int:
        """Cells that a note's row may have."""
        return max(10, self.left.size.width - GUTTER)

    def show_notes(self, pane: TokenStream, rows: Sequence[Row]) -> None:
        """What a pane says while it has no tokens."""
        glyphs = self.marks.text
        styles = {
            "dim": pane.get_component_rich_style("token-stream--note"),
            "strong": pane.rich_style + Style(bold=True),
        }
        pane.set_notes(
            [
                [Segment(glyphs(part), styles.get(role, pane.rich_style)) for part, role in row]
                for row in rows
            ]
        )


def _append(record: RunRecord, arm: ArmRecord, pane: TokenStream) -> None:
    """Give a pane the tokens that it does not have yet."""
    marks = pane.marks
    first = len(pane.lines)
    starts = set(arm.cycle_starts[-(len(arm.ids) - first) :]) if first < len(arm.ids) else set()
    tokens = []
    for index in range(first, len(arm.ids)):
        rejected = arm.rejected.get(index, ())
        drafts = b"".join(record.token_bytes.get(token, b"") for token in rejected)
        tokens.append(
            Token(
                text=_characters(arm.texts[index], marks),
                source=arm.sources[index],
                starts_cycle=index in starts,
                rejected=marks.text(drawable_line(decode_bytes(drafts))),
            )
        )
    pane.append(tokens)
    if arm.finished is not None and arm.texts:
        last = _characters(arm.texts[-1], marks)
        if pane.lines.tokens[-1].text != last:
            pane.rewrite_last(last)


def _characters(written: str, marks: Marks) -> str:
    shown = drawable(written)
    return ascii_only(shown) if marks.ascii else shown


def _ink(data: bytes, token_id: int, marks: Marks) -> str:
    """What to draw for a parting token that has no ink of its own; "" when it has."""
    written = decode_bytes(data)
    if written.strip() and "<0x" not in written:
        return ""
    if written.startswith("\n"):
        return marks.newline
    return marks.space if written.startswith(" ") else f"<{token_id}>"
