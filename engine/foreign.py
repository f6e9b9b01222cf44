"""What a file is that is not GGUF, told from its first bytes: one sentence for the user."""

from __future__ import annotations

import re

_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive or a PyTorch checkpoint"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstandard archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-zip archive"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a numpy array"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"lmgg", "a GGML file of the time before GGUF"),
    (b"tjgg", "a GGML file of the time before GGUF"),
    (b"fmgg", "a GGML file of the time before GGUF"),
    (b"FUGG", "a GGUF file with its bytes reversed"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file that it points to"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05][\x00-\xff]")
_WEB_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype\s+html|html|head|body|!--)", re.IGNORECASE)
_MARKUP = re.compile(rb"(\xef\xbb\xbf)?\s*<(\?xml|[a-z!])", re.IGNORECASE)
_DATA_TEXT = re.compile(rb"(\xef\xbb\xbf)?\s*[\[{]")

HEAD_BYTES = 512
"""How much of the file `describe` wants to see."""


def describe(head: bytes) -> tuple[str, str]:
    """(what the file is, what to do) for a file that begins with `head` and not with `GGUF`."""
    again = "Download the model file itself."
    if _WEB_PAGE.match(head):
        return "a web page", "The link led to a page about the file; download the file itself."
    for magic, what in _MAGICS:
        if head.startswith(magic):
            return what, again if "LFS" not in what else "Fetch it with `git lfs pull`."
    if len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors file", "Convert the model to GGUF, or download its GGUF file."
    if _PICKLE.match(head):
        return "a Python pickle or an old PyTorch checkpoint", "Convert the model to GGUF."
    if _MARKUP.match(head):
        return "an XML or HTML document", again
    if _DATA_TEXT.match(head):
        return "JSON text", again
    if not head.strip(b"\0"):
        return "a file that begins with zeros", "The download is probably unfinished."
    if _is_text(head):
        return "a text file", again
    return "an unknown kind of file", again


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")
    return all(c.isprintable() or c in "\t\r\n\f" for c in text)
