"""What is said of an arm's state beside plain's: where it was compared, and what was found.

One way for tables, reports and row 3. "Equal after every cycle" is said only where the states were
compared after every cycle, and a drift that was found between two comparisons began "at the
latest" where it was found.
"""

from __future__ import annotations

from collections.abc import Sequence

from ds4tui.paint.numbers import counted
from ds4tui.report import Document


def compared_at(compared: int, boundaries: int) -> str:
    """`not compared`, `compared at 3 of 11 boundaries`, `compared after every cycle`."""
    if not compared:
        return "not compared"
    if compared >= boundaries:
        return "compared after every cycle"
    return f"compared at {compared} of {boundaries} boundaries"


def equal_at(compared: int, boundaries: int, cycles: int) -> str:
    """What is said of states of which no comparison found a difference.

    Args:
        compared, boundaries: comparisons, and how many there could have been.
        cycles: after which there was one.
    """
    if compared < boundaries:
        return compared_at(compared, boundaries).replace("compared at", "equal at")
    return f"equal after all {cycles} cycles" if cycles != 1 else "equal after its only cycle"


def since(position: int, compared: int, boundaries: int) -> str:
    """`#6`, and `#40 at the latest` where comparisons were left out."""
    return f"#{position}" if compared >= boundaries else f"#{position} at the latest"


def states_of(cells: Sequence[Document]) -> str:
    """The same of all runs of some cells of a matrix; nothing where nothing was decoded."""
    compared, boundaries, cycles, differ, runs = (
        sum(cell[name] for cell in cells)
        for name in ("compared", "state_boundaries", "cycles", "states_differ", "prompts")
    )
    if not cycles:
        return ""
    if differ:
        return f"states differ in {differ} of {counted(runs, 'run')}"
    if compared < boundaries:
        return f"states {equal_at(compared, boundaries, cycles)}"
    return "states equal after every cycle"
