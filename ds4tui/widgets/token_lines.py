"""Tokens wrapped to rows: the model behind a token pane.

Owns the wrapping and the way from a token to its row. Knows nothing of styles or of Textual.
Appending touches the last row and the new ones only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from ds4tui.packed import PackedList
from engine.events import Source

TEXT, REJECTED = 0, 1
TOKENS_PAGE, ROWS_PAGE = 1024, 64
"""Tokens, and rows of about ten tokens, that are packed together once they are far from the end."""

Piece = tuple[int, str, int]
"""Token index, the part of its text on this row, and `TEXT` or `REJECTED`. A piece without text
stands for a token that has no ink here: a line feed, a space at the end of a row."""

_WIDE = r"\u2e80-\uff5b\uff5d-\U0010ffff"
# Characters between which a row may break. U+FF5C is none: control tokens are written with it.
_CHUNKS = re.compile(rf"\n|[^\S\n]+|[{_WIDE}]|[^\s{_WIDE}]+")
_IS_WIDE = re.compile(f"[{_WIDE}]")


@dataclass(frozen=True, slots=True)
class Token:
    """One committed token as a pane shows it.

    Args:
        text: characters fit to be drawn (`ds4tui.visible.drawable`), maybe none.
        source: where the token came from.
        starts_cycle: the first token that its cycle commits.
        rejected: text of the drafts that the verify rejected before this token.
    """

    text: str
    source: Source
    starts_cycle: bool = False
    rejected: str = ""


class TokenLines:
    """Wrapped rows of a growing list of tokens.

    Args:
        width: cells of a row, at least 1.
        show_rejected: draw rejected drafts in brackets before the token that replaced them.
    """

    def __init__(self, width: int = 80, show_rejected: bool = False) -> None:
        self.tokens: PackedList[Token] = PackedList(TOKENS_PAGE)
        self.lines: PackedList[list[Piece]] = PackedList(ROWS_PAGE)
        self.starts: list[int] = []
        self.width = max(1, width)
        self.show_rejected = show_rejected
        self.ink: dict[int, str] = {}
        self._reset_rows()

    def __len__(self) -> int:
        return len(self.tokens)

    def append(self, tokens: Iterable[Token]) -> int:
        """Add tokens at the end; returns the first row that changed."""
        first = len(self.lines) - 1
        for token in tokens:
            self.tokens.append(token)
            self._put(len(self.tokens) - 1, token)
        return first

    def rewrap(self, width: int | None = None, show_rejected: bool | None = None) -> None:
        """Wrap everything again, at another width or with rejected drafts shown or not."""
        if width is not None:
            self.width = max(1, width)
        if show_rejected is not None:
            self.show_rejected = show_rejected
        self._reset_rows()
        for index, token in enumerate(self.tokens):
            self._put(index, token)

    def clear(self) -> None:
        """Forget all tokens."""
        self.tokens.clear()
        self.ink.clear()
        self._reset_rows()

    def give_ink(self, index: int, text: str) -> None:
        """Draw a token that has no ink of its own as `text`, from now on."""
        if self.ink.get(index) != text:
            self.ink[index] = text
            self.rewrap()

    def row_of(self, index: int) -> int:
        """Row of a token's first ink; of its line feed or space when it has none."""
        first, last = self.rows_of(index)
        for row in range(first, last + 1):
            if any(at == index and text.strip() for at, text, _ in self.lines[row]):
                return row
        return first

    def rows_of(self, index: int) -> tuple[int, int]:
        """First and last row that have a part of a token."""
        first = last = max(0, bisect_right(self.starts, index) - 1)
        while first and self._has(first - 1, index):
            first -= 1
        while first < last and not self._has(first, index):
            first += 1
        while last > first and not self._has(last, index):
            last -= 1
        return first, last

    def _has(self, row: int, index: int) -> bool:
        # Pieces are in the order of their tokens, so the two ends tell.
        pieces = self.lines[row]
        return bool(pieces) and pieces[0][0] <= index <= pieces[-1][0]

    def token_at(self, row: int, column: int) -> int | None:
        """Token under a cell of the text, or the last one of the row when beyond its end."""
        if not 0 <= row < len(self.lines):
            return None
        found: int | None = None
        for index, text, _ in self.lines[row]:
            found = index
            column -= cell_len(text)
            if column < 0:
                break
        return found

    def column_of(self, index: int) -> int:
        """Cell at which a token starts on its row, leading spaces not counted."""
        column = 0
        for at, text, flag in self.lines[self.row_of(index)]:
            if at == index and flag == TEXT:
                return column + len(text) - len(text.lstrip(" "))
            column += cell_len(text)
        return column

    def text(self, first: int = 0, last: int | None = None) -> str:
        """Plain text of tokens first..last, without brackets, as it would be copied."""
        return "".join(token.text for token in self.tokens[first:last])

    def row_text(self, row: int) -> str:
        """What a row shows."""
        return "".join(text for _, text, _ in self.lines[row])

    def between(self, start: tuple[int, int] | None, end: tuple[int, int] | None) -> str:
        """The tokens' own text between two places: spaces that a row's edge swallowed are in it,
        line breaks of the wrapping and rejected drafts are not.

        Args:
            start, end: (row, character of the row), None = from the first or to the last one.
        """
        first, head = (0, 0) if start is None else self._source_of(*start)
        last, tail = (len(self), 0) if end is None else self._source_of(*end)
        if first == last:
            return self.tokens[first].text[head:tail] if first < len(self) else ""
        middle = self.text(first + 1, last)
        rest = self.tokens[last].text[:tail] if last < len(self) else ""
        return self.tokens[first].text[head:] + middle + rest

    def _source_of(self, row: int, column: int) -> tuple[int, int]:
        """(token, character of its text) at a character of a row; behind its last one beyond it."""
        if row >= len(self.lines):
            return len(self), 0
        found = (self.starts[row], 0)
        for piece, (index, text, flag) in enumerate(self.lines[row]):
            if flag == TEXT and text:
                at = self._offset_of(row, piece)
                found = index, at + min(column, len(text))
            if column < len(text):
                break
            column -= len(text)
        return found

    def _offset_of(self, row: int, piece: int) -> int:
        """Where a piece begins in its token's text: its pieces are in order, some spaces lack."""
        index = self.lines[row][piece][0]
        whole, at = self.tokens[index].text, 0
        for each in range(self.rows_of(index)[0], row + 1):
            for number, (owner, text, flag) in enumerate(self.lines[each]):
                if (each, number) == (row, piece):
                    return max(at, whole.find(text, at))
                if owner == index and flag == TEXT:
                    at = max(at, whole.find(text, at)) + len(text)
        return at

    def _reset_rows(self) -> None:
        self.lines.clear()
        self.lines.append([])
        self.starts = [0]
        self._cells = 0
        self._word_at: int | None = None
        self._hard = True

    def _put(self, index: int, token: Token) -> None:
        if self.show_rejected and token.rejected:
            bracket = "[" + token.rejected.replace("\n", "⏎") + "]"
            self._put_text(index, bracket, REJECTED)
        text = token.text
        ink = self.ink.get(index)
        if ink is not None:
            text = ink + text[len(ink) :] if text.startswith(" ") else ink + text
        self._put_text(index, text, TEXT)

    def _put_text(self, index: int, text: str, flag: int) -> None:
        if not text:
            self.lines[-1].append((index, "", flag))
            return
        left = len(text)
        chunks: list[str] = _CHUNKS.findall(text)
        if flag == REJECTED and len(chunks) > 2 and chunks[1].isspace():
            chunks[:3] = ["".join(chunks[:3])]  # the bracket stays with its first word
        for chunk in chunks:
            left -= len(chunk)
            if chunk == "\n":
                self.lines[-1].append((index, "", flag))
                self._new_line(index if left else index + 1)
            elif chunk[0].isspace():
                self._put_space(index, chunk, flag)
            else:
                if _IS_WIDE.match(chunk):
                    self._word_at = None
                self._put_word(index, chunk, flag)
                if _IS_WIDE.match(chunk):
                    self._word_at = None

    def _put_space(self, index: int, space: str, flag: int) -> None:
        self._word_at = None
        line = self.lines[-1]
        room = 0 if self._cells == 0 and not self._hard else self.width - self._cells
        shown = space[:room]
        line.append((index, shown, flag))
        self._cells += len(shown)

    def _put_word(self, index: int, word: str, flag: int) -> None:
        cells = cell_len(word)
        if self._cells + cells > self.width:
            self._break_row(index)
        while self._cells + cells > self.width:
            head = self._head(word, self.width - self._cells, self._cells == 0)
            self.lines[-1].append((index, head, flag))
            word = word[len(head) :]
            if not word:
                self._cells += cells
                return
            self._new_line(index, hard=False)
            cells = cell_len(word)
            self._word_at = 0
        if self._word_at is None:
            self._word_at = len(self.lines[-1])
        self.lines[-1].append((index, word, flag))
        self._cells += cells

    def _break_row(self, index: int) -> None:
        """Start a new row at the last space, taking the unfinished word along."""
        line = self.lines[-1]
        word_at = len(line) if self._word_at is None else self._word_at
        before = line[:word_at]
        if not any(text.strip() for _, text, _ in before):
            return  # the word alone is wider than the row: it is cut where the row ends
        moved = line[word_at:]
        del line[word_at:]
        for at in range(len(line) - 1, -1, -1):
            if line[at][1].strip():
                break
            line[at] = (line[at][0], "", line[at][2])
        self._new_line(moved[0][0] if moved else index, hard=False)
        self.lines[-1].extend(moved)
        self._cells = sum(cell_len(text) for _, text, _ in moved)
        if moved:
            self._word_at = 0

    def _new_line(self, start: int, hard: bool = True) -> None:
        self.lines.append([])
        self.starts.append(start)
        self._cells = 0
        self._word_at = None
        self._hard = hard

    @staticmethod
    def _head(word: str, room: int, empty: bool) -> str:
        """Longest beginning of a word that fits; on an empty row at least one character."""
        used = 0
        for at, char in enumerate(word):
            used += cell_len(char)
            if used > room and (at or not empty):
                return word[:at]
        return word


def runs(pieces: Sequence[Piece]) -> Iterable[Piece]:
    """Pieces of a row with neighbours of one token joined."""
    pending: Piece | None = None
    for piece in pieces:
        if pending is not None and pending[0] == piece[0] and pending[2] == piece[2]:
            pending = (piece[0], pending[1] + piece[1], piece[2])
            continue
        if pending is not None:
            yield pending
        pending = piece
    if pending is not None:
        yield pending
