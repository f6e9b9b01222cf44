"""How CPU kernels are compiled and cached: eagerly, for one signature, with numba.

numba's cache entry of a function depends on that function's own file only, but these kernels are
put together from several files; a fingerprint of all of them is made part of every cache key.
"""

from __future__ import annotations

import hashlib
import logging
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from numba import cfunc, njit
from numba import types as nb
from numba.core import config

log = logging.getLogger("kernels")


@cache
def _fingerprint() -> str:
    """Hash of every source file that CPU kernels are built from, and of what they depend on.

    A processor that numba is told about gets other code than the same one found by numba itself.
    """
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((config.CPU_NAME, config.CPU_FEATURES)).encode())
    for path in sorted([root / "mode.py", *root.glob("cpu/*.py"), *root.glob("*/cpu_kernel.py")]):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _stamped(function: Callable[..., Any]) -> types.FunctionType:
    """The same function with the fingerprint in its closure, which numba's cache key covers."""
    assert isinstance(function, types.FunctionType)
    assert not function.__closure__, "a kernel captures nothing"
    code = function.__code__.replace(co_freevars=("kernel_sources",))
    stamped = types.FunctionType(
        code,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        (types.CellType(_fingerprint()),),
    )
    stamped.__module__ = function.__module__
    stamped.__qualname__ = function.__qualname__
    return stamped


def _cached(compile_with: Any, signature: Any, function: Callable[..., Any], **options: Any) -> Any:
    """Compile with numba's cache, or without where no directory can be written to."""
    stamped = _stamped(function)
    options["error_model"] = "numpy"
    try:
        return compile_with(signature, cache=True, **options)(stamped)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        log.info("kernels are compiled anew at every start: %s", error)
        return compile_with(signature, **options)(stamped)


def kernel(
    signature: str, *, nogil: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function at once for one signature, or load it from the cache.

    Floating-point operations keep their order and are not contracted: no `fastmath`.

    Args:
        nogil: other Python threads run meanwhile.
    """

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        return _cached(njit, signature, function, nogil=nogil)

    return compiled


inline = njit(error_model="numpy")
"""A function that only kernels call; it is compiled into each of them."""


def shared(name: str, result: Any, *arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function once and let all kernels call it by its symbol `name`.

    Without this each caller would compile its own copy.
    """
    signature = result(*arguments)

    def compiled(function: Callable[..., Any]) -> nb.ExternalFunction:
        callback = _cached(cfunc, signature, function)
        _ALIVE.append(callback)
        llvm.add_symbol(name, callback.address)
        return nb.ExternalFunction(name, signature)

    return compiled


_ALIVE: list[Any] = []
"""Compiled functions whose addresses other kernels hold."""
