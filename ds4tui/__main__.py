"""`python -m ds4tui`."""

from __future__ import annotations

import sys

from ds4tui.cli import main

if __name__ == "__main__":  # a spawned engine process imports this module again
    sys.exit(main())
