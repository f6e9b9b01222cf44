"""Files that the interface writes for the user: never over another one silently.

Owns the folder and the names. Knows nothing of what is in them.
"""

from __future__ import annotations

import re
from pathlib import Path

import platformdirs


def exports_folder() -> Path:
    """Where copies and exports go."""
    return platformdirs.user_data_path("ds4tui") / "exports"


def write_export(name: str, text: str, folder: Path | None = None) -> Path:
    """Write text to a new file; an equal file that is there already is taken as it is.

    Args:
        name: wished file name; characters that do not belong into one are replaced.
    Raises:
        OSError: when the folder or the file cannot be written.
    """
    folder = exports_folder() if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    wished = folder / re.sub(r"[^\w.-]+", "-", name)
    path = wished
    count = 1
    while True:
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            return path
        except FileExistsError:
            if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
                return path
            count += 1
            path = wished.with_stem(f"{wished.stem}-{count}")
