"""The one exception that a user's mistake becomes; knows nothing of how it is shown."""

from __future__ import annotations


class Ds4Error(Exception):
    """A user-facing failure: shown as it is, without a traceback, with exit code 2.

    Args:
        title: two to four words for a heading.
        message: one sentence that names the thing, what was found and what was expected.
        hint: what to do about it; may be empty.
    """

    def __init__(self, title: str, message: str, hint: str = "") -> None:
        super().__init__(title, message, hint)
        self.title = title
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()
