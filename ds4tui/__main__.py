"""`python -m ds4tui`, and what the installed command runs: ctrl+c is answered from here on."""

from __future__ import annotations

import sys

from ds4tui import interrupts


def main() -> int:
    """Run the command that `sys.argv` names; returns the exit code."""
    sys.unraisablehook = interrupts.raise_again
    try:
        with interrupts.ending_at_once():
            from ds4tui.cli import main as run_command  # takes long enough to be interrupted

            return run_command()
    except KeyboardInterrupt:
        interrupts.leave()
    finally:
        interrupts.ignore()


if __name__ == "__main__":  # a spawned engine process imports this module again
    sys.exit(main())
