"""Without a GPU every Triton function is interpreted, whatever was imported first."""

from __future__ import annotations

import pytest

from tests.kernels.interpreted import CUDA


@pytest.mark.skipif(CUDA, reason="kernels are compiled where there is a CUDA device")
def test_triton_was_imported_to_be_interpreted() -> None:
    from triton.language import standard
    from triton.runtime.interpreter import InterpretedFunction

    assert isinstance(standard.cdiv, InterpretedFunction)
