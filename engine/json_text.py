"""JSON from files that anyone may have written."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """What a JSON text holds.

    Raises:
        ValueError: when it is no JSON, or is nested deeper or has longer numbers than can be read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
