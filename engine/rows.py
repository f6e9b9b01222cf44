"""Result of a forward, in the model's buffers: valid until its next forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows on the host; `engine.cuda.rows` has those of a GPU.

    Args:
        logits: (n, V) float32, or (1, V) of the last row.
        taps: (n, T * D) float32, mean over the streams after each tapped layer, concatenated; on
            the model's device.
    """

    logits: np.ndarray
    taps: Any
