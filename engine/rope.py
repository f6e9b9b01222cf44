"""Angles of the rotary embedding; knows no kernel."""

from __future__ import annotations

import math

import numpy as np

from engine.config import Yarn


def rope_turns(positions: int, size: int, base: float, yarn: Yarn | None) -> np.ndarray:
    """cos and sin of every pair at every position, interleaved.

    Args:
        size: rotated elements of a row, R; pair i turns by base^(-2i/R) radians a position.
        yarn: scaling of the slow pairs, without a factor on magnitudes.
    Returns:
        (positions, R) float32, angles computed in float64.
    Source: DeepSeek-V4's reference `inference/model.py` (precompute_freqs_cis).
    """
    pair = np.arange(size // 2)
    speed = base ** (-2.0 * pair / size)
    if yarn is not None:

        def pair_of(turns: float) -> float:
            return (
                size
                * math.log(yarn.original_context / (turns * 2 * math.pi))
                / (2 * math.log(base))
            )

        low = max(math.floor(pair_of(yarn.beta_fast)), 0)
        high = min(math.ceil(pair_of(yarn.beta_slow)), size - 1)
        ramp = np.clip((pair - low) / max(high - low, 0.001), 0, 1)
        speed = speed * (1 - ramp) + speed / yarn.factor * ramp
    angle = np.arange(positions)[:, None] * speed
    return np.stack([np.cos(angle), np.sin(angle)], -1).reshape(positions, size).astype(np.float32)
