"""Every glyph the interface draws by itself, once for UTF-8 terminals and once for ASCII.

Owns the shapes; knows nothing of colours or layout. Each glyph is one cell wide.
"""

from __future__ import annotations

import locale
import sys
from dataclasses import dataclass

from ds4tui.visible import ascii_only


@dataclass(frozen=True, slots=True)
class Marks:
    """One set of glyphs; the fields say what each stands for."""

    ascii: bool
    parting: str
    after: str
    drift: str
    turn: str
    cursor: str
    space: str
    newline: str
    ellipsis: str
    prompt: str
    horizontal: str
    vertical: str
    tee_down: str
    corner: str
    tick: str
    bar: str
    bar_half: str
    blocks: str
    solid: str
    dot: str
    fast: str
    slow: str
    at_least: str
    plus_minus: str

    def text(self, text: str) -> str:
        """Any text in characters that this terminal can draw."""
        return ascii_only(text.translate(_TO_ASCII)) if self.ascii else text


UNICODE = Marks(
    ascii=False,
    parting="►",
    after="┊",
    drift="~",
    turn="┴",
    cursor="+",
    space="␣",
    newline="⏎",
    ellipsis="…",
    prompt="»",
    horizontal="─",
    vertical="│",
    tee_down="┬",
    corner="└",
    tick="┤",
    bar="━",
    bar_half="╸",
    blocks=" ▁▂▃▄▅▆▇█",
    solid="█",
    dot="·",
    fast="▪",
    slow="·",
    at_least="≥",
    plus_minus="±",
)

ASCII = Marks(
    ascii=True,
    parting=">",
    after="|",
    drift="~",
    turn="^",
    cursor="+",
    space="_",
    newline="$",
    ellipsis="~",
    prompt=">",
    horizontal="-",
    vertical="|",
    tee_down="+",
    corner="+",
    tick="+",
    bar="=",
    bar_half="-",
    blocks=" .:-=+*%#",
    solid="#",
    dot=".",
    fast="#",
    slow=".",
    at_least=">",
    plus_minus="~",
)

_TO_ASCII = str.maketrans("·≥±≠\u00d7»─…⏎", "->~#x>-~$")


def choose(force_ascii: bool) -> Marks:
    """The glyphs for this terminal: ASCII when asked for, or in a locale that is not UTF-8."""
    encoding = terminal_encoding().lower().replace("-", "")
    return ASCII if force_ascii or encoding not in ("utf8", "cp65001") else UNICODE


def terminal_encoding() -> str:
    """What the locale says, also where Python's UTF-8 mode takes over, as it does for LC_ALL=C."""
    if sys.platform == "win32":  # its locale says nothing of a terminal, that mode may
        return locale.getpreferredencoding(False)
    return locale.getencoding()
