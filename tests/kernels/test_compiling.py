"""Kernels compile where nothing can be cached, and their cache knows all of their sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernels.cpu import compiling


def test_without_a_place_for_the_cache_kernels_are_compiled_anew() -> None:
    calls: list[bool] = []

    def compile_with(_signature: str, cache: bool = False, **_: Any) -> Callable[..., Any]:
        def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
            calls.append(cache)
            if cache:
                raise RuntimeError("cannot cache function 'f': no locator available")
            return function

        return compiled

    def f() -> int:
        return 3

    assert compiling._cached(compile_with, "int64()", f)() == 3
    assert calls == [True, False]


def test_other_failures_are_not_hidden() -> None:
    def compile_with(*_: Any, **__: Any) -> Callable[..., Any]:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        compiling._cached(compile_with, "int64()", lambda: 3)


def test_the_cache_key_covers_the_sources_of_all_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def f() -> int:
        return 3

    monkeypatch.setattr(compiling, "_fingerprint", lambda: "one")
    one = compiling._stamped(f)
    monkeypatch.setattr(compiling, "_fingerprint", lambda: "two")
    two = compiling._stamped(f)
    assert one.__code__.co_code == two.__code__.co_code
    assert one.__closure__[0].cell_contents == "one"
    assert two.__closure__[0].cell_contents == "two"
