"""Option values out of range and options given twice: refused with what was found and expected."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import Ds4Error
from engine.settings import Knobs, Settings, parse_arm


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"max_tokens": -1}, "-n is -1; expected 1 to 2147483647 tokens"),
        ({"max_tokens": 0}, "-n is 0; expected 1 to 2147483647 tokens"),
        ({"max_tokens": 2**31}, "-n is 2147483648; expected 1 to 2147483647 tokens"),
        ({"no_repeat": -1}, r"--no-repeat is -1; expected 0 \(off\) or more"),
        ({"digest_every": -1}, r"--digests is -1; expected 0 \(never\) or more"),
        ({"near_tie_ulps": -0.5}, "--near-tie is -0.5; expected 0 or more ulps"),
    ],
)
def test_values_below_their_range_are_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Ds4Error, match=sentence):
        Settings(**values)


@pytest.mark.parametrize(
    "values", [{"max_tokens": 1}, {"no_repeat": 0}, {"digest_every": 0}, {"near_tie_ulps": 0.0}]
)
def test_the_ends_of_the_ranges_are_taken(values: dict[str, Any]) -> None:
    Settings(**values)


@pytest.mark.parametrize("spec", ["commit=direct,commit=prefix", "confidence=0,confidence=0"])
def test_a_key_of_an_arm_given_twice_is_refused(spec: str) -> None:
    with pytest.raises(Ds4Error, match="twice; expected every key once"):
        parse_arm(spec, Knobs())
