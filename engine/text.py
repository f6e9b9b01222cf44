"""Untrusted bytes and text made fit to be shown: UTF-8 across tokens, control characters as glyphs.

Knows neither tokenizers nor terminals. Everything that came from a file, a prompt or a model passes
through here before it is printed or drawn.
"""

from __future__ import annotations

import codecs
import re

_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, joiner, fillers
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero-width, separators, bidi controls, invisible
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"  # fillers, selectors, BOM, annotations
    "\ud800-\udfff"  # lone surrogates: undecodable bytes
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"  # musical controls, tags
)
_EMOJI_SELECTORS = "\ufe0e\ufe0f"
_JOINERS = "\u200c\u200d"


def _glyph(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)  # control pictures
    if code == 0x7F:
        return "\u2421"
    if 0xDC80 <= code <= 0xDCFF:  # what `surrogateescape` made of a byte
        return f"<0x{code - 0xDC00:02X}>"
    return f"<U+{code:04X}>"


def visible(text: str, *, keep: str = "\t\n") -> str:
    """Text in which nothing can act on a terminal or hide.

    C0 controls and DEL become control pictures (ESC is shown as U+241B); C1, bidi controls,
    zero-width characters, line separators and other invisible ones become `<U+202E>`; undecodable
    bytes (lone surrogates of `surrogateescape`) become `<0xE2>`. An emoji selector after a
    character, and a joiner between two characters beyond ASCII, are part of what they compose and
    stay.

    Args:
        text: anything, lone surrogates included.
        keep: characters left as they are; "" makes one line without tabs.
    """

    def shown(match: re.Match[str]) -> str:
        char, at = match.group(), match.start()
        if char in keep or _composes(char, text[at - 1 : at], text[at + 1 : at + 2]):
            return char
        return _glyph(ord(char))

    return _HIDDEN.sub(shown, text)


def _composes(char: str, before: str, after: str) -> bool:
    if not before or (_HIDDEN.match(before) and before not in _EMOJI_SELECTORS):
        return False
    if char in _EMOJI_SELECTORS:
        return before > "\x7f" or before in "#*0123456789"
    joined = before > "\x7f" and after > "\x7f" and not _HIDDEN.match(after)
    return char in _JOINERS and joined


def one_line(text: str, limit: int = 200) -> str:
    """`visible` on one line, shortened in the middle to about `limit` characters."""
    if len(text) > limit:
        head = limit * 2 // 3
        text = f"{text[:head]}…{text[len(text) - (limit - head) :]}"
    return visible(text, keep="")


def _as_hex(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    bad = error.object[error.start : error.end]
    return "".join(f"<0x{byte:02X}>" for byte in bad), error.end


_HEX = "ds4-hex"
codecs.register_error(_HEX, _as_hex)


def decode_bytes(data: bytes) -> str:
    """All of `data` as text, bytes that are no UTF-8 as `<0xE2>`."""
    return data.decode("utf-8", errors=_HEX)


class IncrementalText:
    """UTF-8 decoder over a stream of tokens' bytes.

    A character split over tokens is given out once, whole, with the token that completes it;
    bytes that cannot be part of any character come out as `<0xE2>`. The concatenation of all
    outputs does not depend on how the bytes were cut.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors=_HEX)

    def feed(self, data: bytes) -> str:
        """The text that `data` completes."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is left at the end of the stream: unfinished bytes as hex."""
        return self._decoder.decode(b"", final=True)
