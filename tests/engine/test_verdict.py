"""Margins, ulps, verdicts and the kinds of identical."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.verdict import identical_kind, length_pattern, margin, ulp, ulp_type, verdict


def test_margin_025_at_logit_40() -> None:
    assert margin(40.0, 39.75, "BF16").ulps == 1
    assert margin(40.0, 39.75, "F16").ulps == 8


@given(st.floats(-60000, 60000, width=16).filter(lambda x: abs(x) < 60000))
def test_the_f16_ulp_is_the_types_own(value: float) -> None:
    assert ulp(value, "F16") == float(np.spacing(np.float16(abs(value))))


@given(st.floats(-(2.0**100), 2.0**100, width=32))
def test_the_f32_ulp_is_the_types_own(value: float) -> None:
    assert ulp(value, "F32") == float(np.spacing(np.float32(abs(value))))


def test_a_tie_is_exactly_zero_also_between_infinities() -> None:
    found = margin(3.5, 3.5, "F16")
    assert (found.logits, found.ulps) == (0, 0)
    assert verdict(found, 32) == "exact-tie"
    assert margin(0.0, -0.0, "F16").logits == 0


def test_an_excluded_token_is_infinitely_far_away() -> None:
    found = margin(3.5, -math.inf, "F16")
    assert math.isinf(found.logits)
    assert math.isinf(found.ulps)
    assert verdict(found, 32) == "large-margin"


@pytest.mark.parametrize(
    ("ulps", "expected"), [(1, "near-tie"), (32, "near-tie"), (33, "large-margin")]
)
def test_the_near_tie_limit_is_inclusive(ulps: int, expected: str) -> None:
    assert verdict(margin(20.0, 20.0 - ulps * 2**-6, "F16"), 32) == expected


def test_the_type_follows_numerics_and_device() -> None:
    wide, narrow = ("F32", "F16"), ("F32", "F16", "Q8_0")
    for types in (wide, narrow):
        assert ulp_type("split", "cpu", types) == ulp_type("split", "cuda", types) == "F16"
        assert ulp_type("invariant", "cuda", types) == "F16"
    assert ulp_type("invariant", "cpu", wide) == "F32"
    assert ulp_type("invariant", "cpu", narrow) == "F16"
    assert ulp_type("invariant", "cpu", ("F16", "MXFP4")) == "F16"


@pytest.mark.parametrize(
    ("equal", "gap", "kind"),
    [
        (True, 0.01, "state-equal"),
        (True, 5.0, "state-equal"),
        (False, 0.99, "state-differs"),
        (False, 1.0, "cannot-show"),
        (False, None, "cannot-show"),
        (None, 0.5, "not-compared"),
        (None, 2.0, "cannot-show"),
    ],
)
def test_what_identical_ids_prove(equal: bool | None, gap: float | None, kind: str) -> None:
    assert identical_kind(equal, gap) == kind


def test_patterns_over_block_lengths() -> None:
    assert "numeric drift" in length_pattern({1: None, 2: 40, 3: 40, 4: 40})
    assert "rollback bug" in length_pattern({1: 7, 2: 12, 3: 30})
    assert "identical" in length_pattern({1: None, 2: None})
    assert "no pattern" in length_pattern({1: None, 2: 9})
