"""Divergence is decided on ids: tokens of equal bytes still part, and text never decides."""

from __future__ import annotations

import pytest

from engine.events import Diverged
from engine.stats import ids_sha256
from tests.engine.races import engine, run
from tests.engine.scripted import ScriptedDrafter, path_script
from tests.engine.test_ab import IDS, PROMPT, Tilted


@pytest.mark.parametrize("spelt", [b"same", b"", b"\xf0\x9f", b"\xff"])
def test_equal_bytes_do_not_hide_different_ids(spelt: bytes) -> None:
    """All tokens are spelt alike, so both arms show the same text."""
    model = Tilted(path_script(IDS, PROMPT))
    model.index = 20
    wrong = [IDS[i] + (i == 20) for i in range(200)]
    made = engine(model, ScriptedDrafter(lambda tokens: wrong[len(tokens) - PROMPT :][:5]))
    made._parts.tokenizer.token_bytes = lambda token: spelt  # type: ignore[method-assign]
    found = run(made, "prefix")
    (parted,) = found.of(Diverged)
    assert (parted.index, parted.left, parted.right) == (20, IDS[20], IDS[20] + 1)
    assert found.events[-1].identical is False
    plain, arm = found.arms
    assert ids_sha256(plain.ids) != ids_sha256(arm.ids)
